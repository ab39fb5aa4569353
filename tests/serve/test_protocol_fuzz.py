"""Any bytes, in any order and cut anywhere, at each transport of MCP; and what many clients leave behind."""

import asyncio
import gc
import json
import random
import socket
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from toolcrib import Caller, Context, Crib, tool
from toolcrib.serve import local_caller, server
from toolcrib.serve.access.callers import CALLER

from ..waiting import until
from .serving import add, served
from .test_protocol import ask, body, status
from .test_protocol_pipe import OLDER
from .test_protocol_session import ENVELOPE, HELLO, messages, sent

HERE = {"mcp_protocol_version": "2025-11-25", "mcp_method": None, "mcp_name": None}
JSON = {"Content-Type": "application/json"}
MAX_IDLE_BYTES = 4096
CALL = sent("tools/call", 7, name="add", arguments={"a": 1, "b": 2})


@tool
async def chatter(context: Context) -> str:
    """Say something, twice, and wait a little."""
    await context.emit("one")
    await asyncio.sleep(0)
    context.progress(1, 2)
    return "done"


@asynccontextmanager
async def serving(*tools: Any) -> AsyncGenerator[tuple[Any, Any]]:
    """An application of sessions, whose caller is in the header `x-user`, and the sessions."""
    async with asyncio.timeout(600), Crib([add, chatter, *tools]) as crib:
        own = server(crib, local_caller)
        older = own.sessions()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            user = dict(scope["headers"]).get(b"x-user", b"alice").decode()
            await older({**scope, CALLER: Caller(user, thread=str(random.Random(user).random()))}, receive, send)

        async with own.handlers.running(), older.run():
            yield app, older
        assert not len(older._sessions)
        assert older.memory._events.size == 0


async def begun(app: Any, **headers: Any) -> str:
    hello = await ask(app, sent("initialize", 0, **HELLO), **HERE, **headers)
    return dict(hello[0]["headers"])[b"mcp-session-id"].decode()


# What sessions leave behind


async def opened(app: Any, count: int) -> list[tuple[str, str]]:
    sessions = list[tuple[str, str]]()
    for number in range(count):
        user = f"user{number % 10}"
        session_id = await begun(app, x_user=user)
        greeted = await ask(app, sent("notifications/initialized"), **HERE, x_user=user, mcp_session_id=session_id)
        assert status(greeted) == 202
        sessions.append((user, session_id))
    return sessions


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.nightly)])
async def test_an_idle_session_takes_little_memory_and_returns_it(count: int) -> None:
    async with serving() as (app, older):

        async def use() -> tuple[int, int]:
            """Return how much memory so many sessions take, and how much is in use when they have ended."""
            before = tracemalloc.get_traced_memory()[0]
            sessions = await opened(app, count)
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] - before
            for user, session_id in sessions:
                options = {**HERE, "x_user": user, "mcp_session_id": session_id}
                assert status(await ask(app, b"", method="DELETE", **options)) == 200
            older._ended = type(older._ended)()
            sessions.clear()
            gc.collect()
            return used, tracemalloc.get_traced_memory()[0]

        await opened(app, 50)  # the caches are full, and the workbenches of the callers there
        gc.collect()
        tracemalloc.start()
        try:
            used, left = await use()
            assert used / count < MAX_IDLE_BYTES
            assert (await use())[1] - left < 50 * count
        finally:
            tracemalloc.stop()


# Any bytes


async def play_sessions(seed: int, count: int) -> None:
    """Send whatever to sessions at once, with clients that leave at any time, and check what holds for all of it."""
    dice, failures = random.Random(seed), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    async with serving() as (app, _):
        ids = [await begun(app, x_user=user) for user in ("alice", "alice", "bob")]
        bodies = [
            *messages(dice, count),
            *OLDER,
            CALL,
            sent("tools/call", 8, name="chatter", _meta={"progressToken": 1}),
        ]

        async def one(number: int) -> None:
            session_id = dice.choice([*ids, None, "", "x", ids[0][:-1], ids[0].swapcase()])
            leaves, leaves_after, seen = asyncio.Event(), dice.choice([0, 1, 2, 99]), list[Message]()

            async def note(part: Message) -> None:
                seen.append(part)
                if len(seen) > leaves_after:
                    leaves.set()
                if dice.random() < 0.3:
                    await asyncio.sleep(0)

            method = dice.choice(["POST"] * 12 + ["GET", "GET", "DELETE", "PUT"])
            asyncio.get_running_loop().call_later(0.2, leaves.set)
            await ask(
                app,
                bodies[number % len(bodies)] if method == "POST" else b"",
                method=method,
                sent=note,
                leaves=leaves,
                mcp_session_id=session_id,
                x_user=dice.choice(["alice", "alice", "bob"]),
                accept=dice.choice(["application/json, text/event-stream"] * 9 + ["*/*", "", "text/html"]),
                last_event_id=dice.choice([None] * 6 + ["1", "x", "9" * 40, str(dice.randrange(2**49))]),
                content_type=dice.choice(["application/json"] * 9 + ["text/plain", None]),
                **HERE,
            )
            starts = [part for part in seen if part["type"] == "http.response.start"]
            assert len(starts) == 1
            assert starts[0] is seen[0]
            assert starts[0]["status"] in (200, 202, 400, 404, 405, 406, 409)
            ends = [part for part in seen if part["type"] == "http.response.body" and not part.get("more_body")]
            assert (len(ends) == 1 and ends[0] is seen[-1]) or (not ends and leaves.is_set())

        for start in range(0, count, 20):
            await asyncio.gather(*(one(number) for number in range(start, start + 20)))
            if dice.random() < 0.2:
                ids.append(await begun(app))
        session_id = await begun(app)
        answer = json.loads(body(await ask(app, CALL, **HERE, mcp_session_id=session_id)))
        assert answer["result"]["structuredContent"] == {"result": 3}
    gc.collect()
    assert not failures


@pytest.mark.parametrize("seed", range(3))
async def test_sessions_take_anything_in_any_order(seed: int) -> None:
    await play_sessions(seed, 200)


@pytest.mark.nightly
async def test_sessions_take_anything_for_long() -> None:
    for seed in range(1000, 1100):
        await play_sessions(seed, 1000)


async def play_pipe(seed: int, count: int) -> None:
    dice = random.Random(seed)
    async with asyncio.timeout(600), Crib([add, chatter]) as crib:
        own, written, failures = server(crib, local_caller), list[bytes](), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))

        async def lines() -> AsyncGenerator[bytes]:
            yield sent("initialize", "hello", **HELLO)
            for message in messages(dice, count):
                yield message
                if dice.random() < 0.5:
                    await asyncio.sleep(0)
            yield sent("tools/call", "last", name="add", arguments={"a": 1, "b": 2})
            await until(lambda: any(b'"last"' in line for line in written))

        async def write(line: bytes) -> None:
            written.append(line)
            await asyncio.sleep(0)

        async with own.handlers.running():
            await own.pipe(write).serve(lines())
        answers = [json.loads(line) for line in written]
        gc.collect()
        assert not failures
        assert all(b"\n" not in line for line in written)
        [last] = [answer for answer in answers if answer.get("id") == "last"]
        assert last["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("seed", range(3))
async def test_a_pipe_takes_anything_in_any_order(seed: int) -> None:
    await play_pipe(seed, 300)


@pytest.mark.nightly
async def test_a_pipe_takes_anything_for_long() -> None:
    for seed in range(1000, 1200):
        await play_pipe(seed, 1000)


def requests(dice: random.Random) -> bytes:
    """What a client sends over one connection: requests that are whole, and ones that are not."""
    data = b""
    for message in messages(dice, dice.randrange(1, 4)):
        version = dice.choice([b"2025-11-25", b"2026-07-28", b"", b"x"])
        length = len(message) + dice.choice([0] * 6 + [-1, 3])
        data += (
            dice.choice([b"POST"] * 6 + [b"GET", b"DELETE", b"OPTIONS", b"\xff"])
            + b" /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            + b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: "
            + version
            + b"\r\nMcp-Session-Id: x\r\n" * dice.randrange(2)
            + (b"\r\nTransfer-Encoding: chunked" if dice.random() < 0.1 else b"\r\nContent-Length: %d" % length)
            + b"\r\n\r\n"
            + message
        )
    if dice.random() < 0.3:
        data = bytes(byte ^ (dice.random() < 0.02) * dice.randrange(256) for byte in data)
    return data


async def play_door(seed: int, count: int) -> None:
    dice = random.Random(seed)
    async with asyncio.timeout(600), served(Crib([add])) as url:
        at = urlsplit(url)

        async def one() -> None:
            reader, writer = await asyncio.open_connection(at.hostname, at.port)
            data = requests(dice)
            data = data[: dice.randrange(1, len(data))] if dice.random() < 0.3 else data
            with suppress(ConnectionError):
                while data:
                    size = dice.randrange(1, max(2, len(data)))
                    writer.write(data[:size])
                    data = data[size:]
                    await writer.drain()
                writer.write_eof()
                head = await reader.read(200)
                assert not head or head.startswith(b"HTTP/1.1 ")
                assert not head.startswith(b"HTTP/1.1 500")
            writer.close()

        for _ in range(count):
            await asyncio.gather(*(one() for _ in range(5)))
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        head = f"POST /mcp HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        whole = sent("tools/call", 1, name="add", arguments={"a": 1, "b": 2}, _meta=ENVELOPE)
        head += "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        head += f"Mcp-Method: tools/call\r\nMcp-Name: add\r\nContent-Length: {len(whole)}\r\n\r\n"
        writer.write(head.encode() + whole)
        assert b'"result":3' in await reader.read()
        writer.close()


@pytest.mark.parametrize("seed", range(2))
async def test_the_door_takes_anything_cut_anywhere(seed: int) -> None:
    await play_door(seed, 12)


@pytest.mark.nightly
async def test_the_door_takes_anything_for_long() -> None:
    for seed in range(1000, 1100):
        await play_door(seed, 100)


# Who does not read


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_who_does_not_read_holds_up_their_own_call_alone(version: str) -> None:
    emitted, total = 0, 40_000

    @tool
    async def flood(context: Context) -> str:
        """Emit a lot."""
        nonlocal emitted
        for _ in range(total):
            await context.emit("x" * 2000)
            emitted += 1
        return "done"

    async with asyncio.timeout(120), served(Crib([add, flood]), grace_s=0.1) as url, httpx2.AsyncClient() as http:
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
        envelope: dict[str, Any] = {"progressToken": 1}
        if version == "2025-11-25":
            hello = await http.post(url, content=sent("initialize", 0, **HELLO), headers=JSON | headers)
            headers["Mcp-Session-Id"] = hello.headers["Mcp-Session-Id"]
        else:
            envelope |= ENVELOPE

        def call(name: str, number: int, **arguments: Any) -> tuple[bytes, dict[str, str]]:
            message = sent("tools/call", number, name=name, arguments=arguments, _meta=envelope)
            return message, JSON | headers | {"Mcp-Method": "tools/call", "Mcp-Name": name}

        at = urlsplit(url)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((at.hostname, at.port))
        message, head = call("flood", 1)
        lines = [
            f"{name}: {value}" for name, value in {**head, "Host": at.netloc, "Content-Length": len(message)}.items()
        ]
        slow.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + message)
        seen = [-1]
        while len(seen) < 20 or seen[-20] != emitted:  # until it goes on no more
            message, head = call("add", len(seen) + 2, a=1, b=2)
            assert '"result":3' in (await http.post(url, content=message, headers=head)).text
            seen.append(emitted)
        assert 0 < emitted < total / 4  # what the system takes for it
    slow.close()  # when the server has ended without it
