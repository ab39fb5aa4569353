"""Webhooks, sent to a real receiver and verified by the library of their specification."""

import asyncio
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from toolcrib import Approve, Crib, SetupError, tool
from toolcrib.durable import webhooks
from toolcrib.store import Store, Webhook
from toolcrib.store.outbox import Outbox
from toolcrib.workbench import Rule, Rules

from ..waiting import until
from .receiver import SECRET, Receiver
from .test_engine import ANN, state, submitted

PROGRAM = Path(__file__).with_name("hooked.py")
Started = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]


@tool(task=True, idempotent=True)
async def dig(depth: int) -> str:
    return f"a hole of {depth}"


@tool(task=True)
async def pay() -> None:
    await asyncio.sleep(600)


@tool
async def drop(table: str) -> str:
    return table


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "FIRST_PAUSE_S", 0.05)


def store_at(path: Path, receiver: Receiver | str, topic: Any = "tasks", **options: Any) -> Store:
    store = Store(path)
    store.webhooks[topic] = Webhook(receiver if isinstance(receiver, str) else receiver.url, SECRET, **options)
    return store


async def came(receiver: Receiver, count: int) -> list[dict[str, Any]]:
    return await asyncio.to_thread(receiver.wait, count)


@pytest.fixture
def started(path: Path, forked_python: str) -> Started:
    """Runs `hooked.py` in a process, which is dead after the block."""

    @contextmanager
    def start(receiver: Receiver, lease_s: float = 30) -> Iterator["subprocess.Popen[str]"]:
        command = [forked_python, str(PROGRAM), str(path), receiver.url, SECRET, str(lease_s)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()
            process.communicate()

    return start


async def test_the_end_of_a_task_is_announced_and_not_what_is_in_it(path: Path) -> None:
    with Receiver() as receiver:
        store = store_at(path, receiver, base_url="https://tools.example.com/")
        async with Crib([dig], store=store) as crib:
            id = await submitted(crib, "dig", {"depth": 17})
            (message,) = await came(receiver, 1)
            result = (await crib.tasks.get(id)).result
        store.close()
    assert message == {
        "type": "task.ended",
        "timestamp": result.finished_at.isoformat(),
        "data": {
            "id": id,
            "tool": "dig",
            "principal": "ann",
            "thread": "t",
            "state": "ended",
            "status": "success",
            "url": f"https://tools.example.com/api/tasks/{id}",
        },
    }
    headers, body = receiver.messages[0]
    assert (receiver.paths, headers["content-type"], b"hole" in body) == (["/hook"], "application/json", False)
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body.replace(b"success", b"failure"), headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body, headers | {"webhook-id": "msg_another"})


@pytest.mark.parametrize("runs", [True, False])
async def test_a_task_that_is_cancelled_is_announced_with_its_code(path: Path, runs: bool) -> None:
    with Receiver() as receiver:
        async with Crib([pay], store=store_at(path, receiver)) as crib:
            if not runs:
                await crib.tasks.stop()
            id = await submitted(crib, "pay")
            await state(crib, id, "running" if runs else "queued")
            await crib.tasks.cancel(id)
            await crib.tasks.start()
            (message,) = await came(receiver, 1)
    data = message["data"]
    assert (data["id"], data["state"], data["status"], data["error"]) == (id, "ended", "error", "cancelled")


async def test_a_receiver_that_was_down_gets_the_same_message_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver() as receiver:
        port = receiver.port
    store = store_at(path, f"http://127.0.0.1:{port}/hook?token=in-the-url")
    with caplog.at_level(logging.DEBUG):
        async with Crib([dig], store=store) as crib:
            id = await submitted(crib, "dig", {"depth": 1})
            await until(lambda: "did not take" in caplog.text)
            with Receiver(lambda _, count: 503 if count < 2 else 200, port=port) as receiver:
                messages = await came(receiver, 3)
    assert len({*receiver.ids()}) == 1
    assert [message["data"]["id"] for message in messages] == [id] * 3
    warnings = [record.getMessage() for record in caplog.records if "did not take" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"The webhook at 127.0.0.1 did not take '{id}': ")
    assert not any(secret in caplog.text for secret in (SECRET, SECRET[6:], "in-the-url"))


@pytest.mark.parametrize(("status", "tries"), [(410, 40), (302, 2)])
async def test_what_the_receiver_refuses_is_given_up_and_a_redirect_is_not_followed(
    path: Path, status: int, tries: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_TRIES", tries)
    with Receiver(lambda *_: status) as receiver:
        async with Crib([dig], store=store_at(path, receiver)) as crib:
            await submitted(crib, "dig", {"depth": 1})
            await until(lambda: "given up" in caplog.text)
            assert await Outbox(crib.store).claim("tasks", 10) == []
    assert receiver.paths == ["/hook"] * (1 if status == 410 else tries)
    assert f"it answered {status}." in caplog.text


async def test_a_slow_receiver_holds_up_no_task(path: Path) -> None:
    answer = threading.Event()
    with Receiver(lambda *_: 200 if answer.wait(60) else 500) as receiver:
        async with Crib([dig], store=store_at(path, receiver)) as crib:
            ids = [await submitted(crib, "dig", {"depth": depth}) for depth in range(webhooks.MAX_SENDING + 2)]
            results = [await crib.tasks.wait(id, timeout_s=60) for id in ids]
            assert [result.status for result in results] == ["success"] * len(ids)
            await came(receiver, webhooks.MAX_SENDING)
            assert len(receiver.ids()) == webhooks.MAX_SENDING
            answer.set()
            await came(receiver, len(ids))
    assert len({*receiver.ids()}) == len(ids)


async def test_a_process_that_is_killed_before_the_receiver_has_it_leaves_it_to_the_next(
    path: Path, started: Started
) -> None:
    answer = threading.Event()
    with Receiver(lambda *_: 200 if answer.wait(60) else 500) as receiver:
        async with Crib([], store=Store(path)) as crib:
            with started(receiver, lease_s=1):
                async with Crib([dig], store=store_at(path, receiver)) as submitting:
                    await submitting.tasks.stop()
                    id = await submitted(submitting, "dig", {"depth": 1})
                await came(receiver, 1)
            answer.set()  # the first process is dead
            with started(receiver):
                messages = await came(receiver, 2)
            assert (await crib.tasks.get(id)).state == "ended"
    assert len({*receiver.ids()}) == 1
    assert [message["data"]["id"] for message in messages] == [id, id]


async def test_of_two_processes_one_sends(path: Path, started: Started) -> None:
    with Receiver() as receiver:
        async with Crib([dig], store=store_at(path, receiver)) as crib:
            await crib.tasks.stop()
            with started(receiver), started(receiver):
                ids = [await submitted(crib, "dig", {"depth": depth}) for depth in range(30)]
                messages = await came(receiver, len(ids))
    assert sorted(message["data"]["id"] for message in messages) == sorted(ids)
    assert len(receiver.ids()) == len(ids)


async def test_a_lost_task_is_announced_once_and_its_settlement_again(path: Path, started: Started) -> None:
    with Receiver() as receiver:
        store = store_at(path, receiver)
        async with Crib([dig, pay], store=store) as crib:
            await crib.tasks.stop()
            id = await submitted(crib, "pay")
            with started(receiver) as process:
                assert await asyncio.to_thread(process.stdout.readline) == "hangs\n"
            await state(crib, id, "lost")
            for _ in range(2):
                with started(receiver):
                    await came(receiver, 1)
            (entry,) = await store.ledger.lost()
            stored_result = {"content": [], "error": None, "metadata": {}, "times": [entry.started_at.isoformat()] * 2}
            assert await store.ledger.settle(entry, stored_result)
            with started(receiver):
                first, second = await came(receiver, 2)
        store.close()
    assert (first["type"], first["data"]["id"], first["data"]["state"]) == ("task.lost", id, "lost")
    assert (second["type"], second["data"]["status"]) == ("task.ended", "success")
    assert len({*receiver.ids()}) == len(receiver.ids()) == 2


async def test_who_may_approve_learns_what_waits(path: Path) -> None:
    rules = Rules([Rule(tools="drop", do="ask", message="Drop it?")])
    with Receiver() as receiver:
        store = store_at(path, receiver, "pending", base_url="https://tools.example.com")
        async with Crib([drop], store=store, policy=rules) as crib:
            bench = crib.workbench(ANN)
            pendings = [(await bench.call("drop", {"table": "users"})).pending for _ in range(2)]
            (message,) = await came(receiver, 1)
            await crib.answer(pendings[0].id, Approve(), by="bob")
            await bench.call("drop", {"table": "orders"})
            _, second = await came(receiver, 2)
        store.close()
    pending = pendings[0]
    assert message["data"] == {
        "id": pending.id,
        "kind": "approval",
        "tool": "drop",
        "principal": "ann",
        "thread": "t",
        "message": pending.message,
        "expires_at": pending.expires_at.isoformat(),
        "url": "https://tools.example.com/api/pending",
    }
    assert message["type"] == "pending.opened"
    assert (second["data"]["id"] != pending.id, b"orders" in receiver.messages[1][1]) == (True, False)


async def test_a_name_that_leads_inside_is_refused_unless_it_is_allowed(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [address])
    with Receiver() as receiver:
        url = f"http://hooks.example.com:{receiver.port}/hook"
        async with Crib([dig], store=store_at(path, url)) as crib:
            await submitted(crib, "dig", {"depth": 1})
            await until(lambda: "does not lead to a public address" in caplog.text)
        assert receiver.messages == []
        # In a store of its own: here the notice may be held by the sender that was stopped in the middle, for a lease.
        allowed = store_at(path.with_name("other.db"), url, allow=["127.0.0.0/8"])
        async with Crib([dig], store=allowed) as crib:
            await submitted(crib, "dig", {"depth": 1})
            await came(receiver, 1)


@pytest.mark.parametrize(
    ("url", "secret", "message"),
    [
        ("https://example.com/", "", "A webhook needs a secret .*openssl rand"),
        ("https://example.com/", SECRET[6:], "A webhook needs a secret"),
        ("https://example.com/", "whsec_c2hvcnQ=", "24 to 64 bytes"),
        ("https://example.com/", "whsec_*", "24 to 64 bytes"),
        ("https://me:password@example.com/", SECRET, "without a user name"),
        ("ftp://example.com/", SECRET, "begins with https://"),
        ("https://[::1/", SECRET, "begins with https://"),
    ],
)
def test_a_webhook_without_a_url_or_a_secret_is_refused(url: str, secret: str, message: str) -> None:
    with pytest.raises(SetupError, match=message) as caught:
        Webhook(url, secret)
    assert "password" not in str(caught.value)
    assert not secret or secret not in str(caught.value)
    webhook = Webhook("https://example.com/in-the-path?token=in-the-query", SECRET)
    assert repr(webhook) == "<Webhook at example.com>"


def test_without_the_extra_it_is_named(path: Path) -> None:
    program = f"""
import asyncio, sys
sys.modules["httpx2"] = None
from toolcrib import Crib, SetupError
from toolcrib.store import Store, Webhook
store = Store({str(path)!r})
store.webhooks["tasks"] = Webhook("https://example.com/", {SECRET!r})
try:
    asyncio.run(Crib([], store=store).start())
except SetupError as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "Webhooks need the package 'httpx2', which is missing: pip install 'toolcrib[durable]'\n"


CONFIG = """
[[source]]
from = "holes.py"
[store]
url = "store.db"
[net]
allow = ["10.0.0.0/8"]
[server]
public_base_url = "https://tools.example.com"
[tasks]
webhook = "{url}"
webhook_secret = "${{env:HOOK_SECRET}}"
"""


async def test_settings_set_a_webhook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (tmp_path / "holes.py").write_text(
        "from toolcrib import tool\n@tool(task=True)\nasync def dig(depth: int) -> str:\n    'Dig.'\n    return 'dug'\n"
    )
    with Receiver() as receiver:
        (tmp_path / "toolcrib.toml").write_text(CONFIG.format(url=receiver.url))
        async with Crib.from_config(tmp_path / "toolcrib.toml") as crib:
            id = await submitted(crib, "dig", {"depth": 1})
            (message,) = await came(receiver, 1)
            assert SECRET not in f"{crib!r} {crib.store!r} {crib.store.webhooks!r}"
    assert message["data"]["url"] == f"https://tools.example.com/api/tasks/{id}"
