"""Each promise of docs/promises.md has a test here; docs/maintainers/promises.md has which."""

import asyncio
import base64
import contextlib
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import jsonschema_rs
import mcp_types as wire
import pytest
import wasmtime
from mcp import Client as MCPClient
from mcp.shared.exceptions import MCPError
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import AliasChoices, BaseModel, Field

from toolcrib import (
    Approve,
    Call,
    Caller,
    Context,
    Crib,
    Depends,
    MCPSource,
    Registry,
    Secret,
    SetupError,
    Source,
    StatefulTool,
    Tool,
    ToolAuth,
    ToolError,
    ToolSpec,
    Workbench,
    formats,
    tool,
)
from toolcrib.agent import Agent, ModelError, ScriptedModel
from toolcrib.auth import (
    CallbackError,
    Client,
    CredentialBroker,
    DatabaseVault,
    Grant,
    Owner,
    Provider,
    Vault,
    secret_owner,
)
from toolcrib.core import AnswerError, CancellationToken, Credential, Emitted, LoadError, Repair
from toolcrib.core.source import Resource
from toolcrib.formats import Reply, Results
from toolcrib.record import CallLog, DatabaseCalls, Spans
from toolcrib.serve import AuthenticationError, Authenticator, Form, Sample, ask_client, serve_http, server
from toolcrib.serve.callers import Callers
from toolcrib.serve.keys import AccessKeys
from toolcrib.store import Store
from toolcrib.tools import Permissions, load, openapi_source
from toolcrib.tools.lock import LockedSource, definition_of
from toolcrib.tools.watch import WatchedDocument
from toolcrib.workbench import Limit, Retry, Rule, Rules, Stores, prefixed

from ..tools.repositories import Repository

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _listed(page: str) -> list[str]:
    return [line for line in (DOCS / page).read_text().splitlines() if line.startswith(("- ", "## "))]


def test_every_promise_names_its_test_and_every_test_its_promise() -> None:
    promises = [line for line in _listed("maintainers/promises.md") if line.startswith("- ")]
    named = [found[1] if (found := re.search(r"`(test_\w+)`$", line)) else line for line in promises]
    kept = [name for name in globals() if name.startswith("test_")]
    kept.remove("test_every_promise_names_its_test_and_every_test_its_promise")
    kept.remove("test_the_promises_to_users_are_those_that_have_tests")
    assert sorted(named) == sorted(kept)


def test_the_promises_to_users_are_those_that_have_tests() -> None:
    tested = [re.sub(r" `test_\w+`$", "", line) for line in _listed("maintainers/promises.md")]
    assert _listed("promises.md") == tested
    assert len(tested) == len(set(tested))


def add(a: int, b: int = 1) -> int:
    return a + b


async def test_the_model_never_chooses_the_caller_nor_what_the_host_provides() -> None:
    def key() -> str:
        return "ada's key"

    def read(context: Context, key: Annotated[str, Depends(key)]) -> str:
        return f"{context.caller.principal} with {key}"

    bench = Workbench([read], caller=Caller("ada"))
    (spec,) = bench.specs()
    assert spec.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    for name in ("caller", "principal", "profile", "thread", "thread_id", "context", "key"):
        refused = await bench.call("read", {name: "bob"})
        assert refused.error is not None
        assert refused.error.code == "invalid_arguments"
    assert (await bench.call("read")).text == "ada with ada's key"


async def test_a_denied_call_has_no_effect() -> None:
    happened: list[str] = []

    def get() -> str:
        happened.append("opened")
        return ""

    def erase(disk: Annotated[str, Depends(get)]) -> None:
        happened.append("erased")

    result = await Workbench([erase], policy=lambda spec, arguments, caller: "deny").call("erase")
    assert result.error is not None
    assert (result.error.code, happened) == ("denied", [])


@pytest.mark.parametrize("answer", [RuntimeError, None, True, "yes", "ALLOW"])
async def test_a_policy_that_fails_lets_nothing_run(answer: Any) -> None:
    ran: list[int] = []

    def erase() -> None:
        ran.append(1)

    def policy(spec: Any, arguments: Any, caller: Any) -> Any:
        if answer is RuntimeError:
            raise answer
        return answer

    result = await Workbench([erase], policy=policy).call("erase")
    assert result.error is not None
    assert (result.error.code, ran) == ("denied", [])


async def test_an_approval_runs_one_call_once_with_the_arguments_that_were_approved() -> None:
    ran: list[int] = []

    def pay(amount: int) -> None:
        ran.append(amount)

    store = Stores()

    def bench(principal: str = "ada", thread: str = "a") -> Workbench:
        caller = Caller(principal, thread=thread)
        return Workbench([pay], policy=lambda spec, arguments, caller: "ask", store=store, caller=caller)

    waits = (await bench().call("pay", '{"amount": 5}')).pending
    assert waits is not None
    await bench("grace").answer(waits.id, Approve(), by="grace")
    others = [bench("eve").call("pay", {"amount": 5}), bench(thread="b").call("pay", {"amount": 5})]
    assert [(await other).status for other in others] == ["pending", "pending"]
    assert (await bench().call("pay", {"amount": 6})).status == "pending"
    statuses = [result.status for result in await bench().call_many([("pay", {"amount": 5})] * 10)]
    assert (sorted(statuses), ran) == (["pending"] * 9 + ["success"], [5])


async def test_a_made_default_runs_as_it_was_shown(tmp_path: Path) -> None:
    ran: list[str] = []

    def pay(amount: int, key: UUID = Field(default_factory=uuid4)) -> None:
        ran.append(str(key))

    shown: list[str] = []
    for _ in range(3):  # a call and its answer, each in a process of its own
        store = Store(tmp_path / "store.db")
        async with Workbench([pay], policy=lambda *_: "ask", store=store) as bench:
            pending = (await bench.call("pay", {"amount": 5})).pending
            if pending is not None:
                shown.append(json.loads(pending.arguments)["key"])
                await bench.answer(pending.id, Approve(), by="bob")
        store.close()
    assert ran == shown[:1]
    assert len(set(shown)) == 2


class Order(BaseModel):
    item: str = "tea"
    amount: int = Field(exclude=True, repr=False, validation_alias=AliasChoices("amount", "sum"))


async def test_rules_and_people_see_what_a_type_hides() -> None:
    paid: list[int] = []

    def pay(order: Order) -> None:
        paid.append(order.amount)

    rules = Rules([Rule(where={"/order/amount": {"gt": 100}}, do="deny")], default="ask")
    bench = Workbench([pay], policy=rules)
    for name in ("amount", "sum"):
        refused = await bench.call("pay", {"order": {name: 5000}})
        assert refused.error is not None
        assert refused.error.code == "denied"
    waits = (await bench.call("pay", {"order": {"sum": 1}})).pending
    assert waits is not None
    assert json.loads(waits.arguments) == {"order": {"amount": 1, "item": "tea"}}
    await bench.answer(waits.id, Approve(), by="ada")
    assert (await bench.call("pay", {"order": {"amount": 2}})).status == "pending"
    assert (await bench.call("pay", {"order": {"amount": 1}})).status == "success"
    assert paid == [1]


async def test_nobody_approves_their_own_call_where_the_policy_requires_others() -> None:
    rules = Rules([Rule(do="ask", others_only=True)])
    bench = Workbench([add], policy=rules, caller=Caller("ada"), may_answer=lambda pending, by: True)
    waits = (await bench.call("add", {"a": 1})).pending
    assert waits is not None
    with pytest.raises(AnswerError, match="The caller may not answer it"):
        await bench.answer(waits.id, Approve(), by="ada")
    assert (await bench.call("add", {"a": 1})).status == "pending"


async def test_nobody_enters_a_server_without_a_valid_key(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "tools.example.com"):
        with pytest.raises(SetupError, match="Identify who calls"):
            await serve_http(Crib([add]), host=host)
    store = Store(tmp_path / "store.db")
    keys = AccessKeys(store)
    text, key = await keys.add("ada")
    identify = Authenticator(keys)
    assert (await identify({"authorization": f"Bearer {text}"})).principal == "key:ada"
    for headers in (
        {},
        *(
            {"authorization": each}
            for each in ("", "Bearer", text, f"Basic {text}", f"Bearer {text[:-1]}", "Bearer local")
        ),
        {"x-user": "ada", "toolcrib-thread": "default", "mcp-session-id": "x", "host": "127.0.0.1"},
    ):
        with pytest.raises(AuthenticationError):
            await identify(headers)
    await keys.revoke(key.id)
    with pytest.raises(AuthenticationError):
        await identify({"authorization": f"Bearer {text}"})
    store.close()
    secret = text.rpartition("_")[2].encode()
    assert not any(secret in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_thread_belongs_to_one_principal(tmp_path: Path) -> None:
    @tool
    def long() -> str:
        return "of ada's thread " * 5_000

    store = Store(tmp_path / "store.db")
    keys = AccessKeys(store)
    ada, bob = [(await keys.add(name))[0] for name in ("ada", "bob")]
    async with Crib([long], policy=Rules([Rule(tools="long", do="allow")]), store=store) as crib:
        callers = Callers(crib, Authenticator(keys))

        async def bench(key: str, **thread: str) -> Workbench:
            return await callers.workbench({"Authorization": f"Bearer {key}", **thread})

        for name in ("Toolcrib-Thread", "Mcp-Session-Id"):
            handle = (await (await bench(ada, **{name: "t1"})).call("long")).metadata["handle"]
            assert (
                await (await bench(ada, **{name: "t1"})).call("read_result", {"handle": handle})
            ).status == "success"
            for other in (await bench(bob, **{name: "t1"}), await bench(ada, **{name: "t2"}), await bench(bob)):
                with pytest.raises(ToolError):
                    await other.stored_result(handle)
    store.close()


def test_a_registry_from_data_imports_only_what_is_trusted() -> None:
    with pytest.raises(LoadError, match="outside the trusted packages"):
        Registry.from_dict({"tools": [{"ref": "antigravity:fly"}]}, trusted=["toolcrib.demo"])
    with pytest.raises(LoadError, match="not defined in the trusted packages"):
        Registry.from_dict({"tools": [{"ref": "toolcrib.demo.dates:available_timezones"}]}, trusted=["toolcrib.demo"])
    assert "antigravity" not in sys.modules


async def test_a_misspelt_argument_is_refused_with_the_right_name() -> None:
    def send(to: str, subject: str = "") -> str:
        return to

    result = await Workbench([send]).call("send", {"to": "ada", "subjekt": "Hello"})
    assert result.text == ("Tool 'send' takes no argument 'subjekt'. Did you mean 'subject'? It takes: to, subject.")


async def test_all_problems_are_reported_at_once_and_no_value_is_quoted() -> None:
    result = await Workbench([add]).call("add", {"a": "hunter2", "b": ["hunter2"], "c": "hunter2"})
    assert result.error is not None
    assert [problem["path"] for problem in result.error.details["problems"]] == ["/c", "/a", "/b"]
    assert "hunter2" not in f"{result.to_dict()}"


async def test_a_stringified_argument_is_repaired_and_noted() -> None:
    def total(values: list[int]) -> int:
        return sum(values)

    result = await Workbench([total]).call("total", '{"values": "[1, 2]"}')
    assert (result.value, result.repairs) == (3, (Repair("/values", "string", "array"),))


async def test_valid_arguments_are_never_changed() -> None:
    def keep(value: str | int, also: Any = None) -> list[Any]:
        return [value, also]

    for sent in ('{"value": "5"}', '{"value": 5}', '{"value": "[1]", "also": "true"}', '{"value": "null"}'):
        result = await Workbench([keep]).call("keep", sent)
        assert result.repairs == ()
        assert f'"value": {"" if result.value[0] == 5 else chr(34)}{result.value[0]}' in sent


async def test_where_there_are_two_readings_none_is_taken() -> None:
    def tag(tags: list[str]) -> list[str]:
        return tags

    # Either the list in the text, or a list of the one text.
    result = await Workbench([tag]).call("tag", {"tags": '["a"]'})
    assert result.error is not None
    assert result.error.code == "invalid_arguments"


async def test_text_that_two_parsers_could_read_differently_is_refused() -> None:
    def area(width: float) -> float:
        return width

    bench = Workbench([area])
    for sent in ('{"width": 1, "width": 2}', '{"width": NaN}', '{"width": -Infinity}', '{"width": 1e999}', "width=1"):
        result = await bench.call("area", sent)
        assert result.error is not None, sent
        assert result.error.code == "invalid_arguments"


@dataclass
class Point:
    x: int


async def test_a_field_under_two_of_its_names_is_refused() -> None:
    def pay(order: Order) -> None: ...

    result = await Workbench([pay]).call("pay", '{"order": {"amount": 1, "sum": 5000}}')
    assert result.text == "Tool 'pay': 'order': 'amount' and 'sum' are names of one field; send one of them."


async def test_a_decimal_arrives_with_every_digit() -> None:
    def pay(amount: Decimal) -> str:
        return str(amount)

    assert (await Workbench([pay]).call("pay", '{"amount": 12345678901234567.89}')).value == "12345678901234567.89"


async def test_a_nested_type_arrives_as_an_instance() -> None:
    def shift(points: dict[str, list[Point]]) -> int:
        (point,) = points["a"]
        assert isinstance(point, Point)
        return point.x

    assert (await Workbench([shift]).call("shift", '{"points": {"a": [{"x": 3}]}}')).value == 3


async def test_whatever_a_tool_raises_the_call_ends_with_a_result() -> None:
    class Nameless(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Uninitialized(ToolError):
        def __init__(self) -> None: ...

    endless: dict[Any, Any] = {(1, 2): "pair"}
    endless["self"] = endless
    for refused in (Uninitialized(), ToolError("x", details=endless), ExceptionGroup("x", [ToolError("y")])):

        def refuse(error: BaseException = refused) -> None:
            raise error

        async def call() -> None:
            refuse()

        json.dumps((await Workbench([call]).call("call")).to_dict())
    for raised in (ValueError("x"), Nameless(), SystemExit(1), StopIteration(), MemoryError(), GeneratorExit("x")):

        def work(raised: BaseException = raised) -> None:
            raise raised

        def fail() -> None:
            work()

        async def afail() -> None:
            work()

        for broken in (fail, afail):
            result = await Workbench([broken]).call(broken.__name__)
            assert result.error is not None
            assert result.error.code == "failed"
            # Python itself makes a RuntimeError of a StopIteration that leaves a coroutine.
            assert type(raised).__name__ in result.text or isinstance(raised, StopIteration)


async def test_the_text_of_an_exception_stays_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("db password=hunter2")

    result = await Workbench([fail]).call("fail")
    assert "hunter2" not in f"{result.to_dict()}"
    assert "hunter2" in caplog.text


async def test_a_structured_value_is_shown_as_json() -> None:
    def look() -> Any:
        return {"ok": True, "points": [Point(1)], "none": None, "set": {1}}

    assert (await Workbench([look]).call("look")).text == '{"ok":true,"points":[{"x":1}],"none":null,"set":[1]}'


async def test_a_registered_secret_is_redacted_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    secret = 'p&ss "wörd"?'
    encoded = base64.b64encode(f"user:{secret}".encode()).decode()

    def tell() -> dict[str, str]:
        return {"plain": secret, "hex": secret.encode().hex(), "basic": encoded, "url": "?p%26ss%20%22w%C3%B6rd%22%3F"}

    def refuse() -> None:
        raise ToolError(f"no: {secret}", details={"tried": secret})

    def fail() -> None:
        raise RuntimeError(secret)

    bench = Workbench([tell, refuse, fail], secrets=[secret], show_errors=True)
    with caplog.at_level(logging.DEBUG):
        results = await bench.call_many([(name, None) for name in ("tell", "refuse", "fail")])
    shown = "".join(f"{result.to_dict()}" for result in results)
    for spelling in (secret, 'p&ss \\"w', secret.encode().hex(), encoded[8:20], "p%26ss"):
        assert spelling not in shown
        assert spelling not in caplog.text


async def test_what_is_redacted_in_json_is_still_valid_json() -> None:
    def orders() -> dict[str, Any]:
        return {"order": 12345, "1234": [1234, "no 1234"], "rate": 1.5}

    result = await Workbench([orders], secrets=["1234"]).call("orders")
    assert json.loads(result.text) == {"order": "[secret]5", "[secret]": ["[secret]", "no [secret]"], "rate": 1.5}


async def test_a_deadline_is_answered_on_time_and_the_loop_stays_free() -> None:
    go_on = threading.Event()

    def block() -> None:
        go_on.wait(30)

    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.01)

    beating = asyncio.create_task(heart())
    started = time.monotonic()
    result = await Workbench([block], timeout_s=0.3).call("block")
    assert time.monotonic() - started < 25
    go_on.set()
    beating.cancel()
    assert result.error is not None
    assert result.error.code == "timeout"
    assert beats >= 3


def build(pids: str) -> None:
    children = [subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sleep", "60"], start_new_session=True)]
    Path(pids).write_text(" ".join(str(child.pid) for child in children))
    while True:
        pass


async def test_a_tool_in_a_process_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    async with Workbench([Tool(build, isolation="process")], timeout_s=3) as bench:
        result = await bench.call("build", {"pids": str(noted)})
        assert result.error is not None
        assert (result.error.code, "may still be running" in result.text) == ("timeout", False)
        left = [int(pid) for pid in noted.read_text().split()]
        assert len(left) == 2
        async with asyncio.timeout(60):
            while any(_lives(pid) for pid in left):
                await asyncio.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def crash() -> None:
    os._exit(3)


def breathe(s: float) -> str:
    time.sleep(s)
    return "alive"


async def test_a_worker_that_dies_takes_no_other_call_with_it() -> None:
    async with Workbench([Tool(fn, isolation="process") for fn in (crash, breathe)]) as bench:
        calls = [("breathe", {"s": 0.2}), ("crash", None), ("breathe", {"s": 0.3}), ("crash", None)]
        results = await bench.call_many(calls)
        assert [result.error.code if result.error else result.text for result in results] == [
            *("alive", "lost", "alive", "lost")
        ]
        assert (await bench.call("breathe", {"s": 0})).text == "alive"


async def test_what_a_tool_calls_has_no_more_time_than_the_tool() -> None:
    left: list[float] = []

    def inner(context: Context) -> None:
        assert context.time_left_s is not None
        left.append(context.time_left_s)

    async def outer() -> None:
        await bench.call("inner")

    bench = Workbench([Tool(inner, timeout_s=60), Tool(outer, timeout_s=10)])
    assert (await bench.call("outer")).status == "success"
    assert left[0] <= 10


async def test_a_cancelled_token_ends_a_call_with_a_result() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    token = CancellationToken()
    waiting = asyncio.ensure_future(Workbench([wait]).call(Call("wait", cancellation=token)))
    await asyncio.to_thread(token.cancel)
    result = await waiting
    assert result.error is not None
    assert result.error.code == "cancelled"


@pytest.mark.parametrize("cut", range(1, 8))
async def test_a_secret_that_is_split_over_two_pieces_is_redacted(cut: int) -> None:
    async def tell(context: Context) -> None:
        await context.emit("the key is " + "hunter2!"[:cut])
        await context.emit("hunter2!"[cut:] + " and so on")

    bench = Workbench([tell], secrets=["hunter2!"])
    events = [event async for event in bench.stream("tell")]
    text = "".join(part.text for event in events if isinstance(event, Emitted) for part in event.content)
    assert text == "the key is [secret] and so on"


async def test_a_large_result_is_bounded_and_all_of_it_can_be_read_by_whom_it_is_for() -> None:
    whole = "".join(f"line {n}\n" for n in range(200_000))

    def read() -> str:
        return whole

    store = Stores()
    ada, thread, bob = (
        Workbench([read], store=store, caller=caller)
        for caller in (Caller("ada"), Caller("ada", thread="other"), Caller("bob"))
    )
    result = await ada.call("read")
    assert len(whole) > 2_000_000
    assert len(result.text) <= 20_000
    handle = result.metadata["handle"]
    at = whole.index("line 123456\n")
    part = await ada.call("read_result", {"handle": handle, "offset": at, "limit": 12})
    assert part.text.endswith("\nline 123456\n")
    places = await ada.call("read_result", {"handle": handle, "search": "line 123456"})
    assert f"offset {at}: line 123456" in places.text
    for other in (thread, bob):
        refused = await other.call("read_result", {"handle": handle})
        assert refused.error is not None
        assert "line 0" not in refused.text


DIALECTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "openai": lambda tool: tool["function"]["parameters"],
    "openai_responses": lambda tool: tool["parameters"],
    "anthropic": lambda tool: tool["input_schema"],
    "gemini": lambda tool: tool["functionDeclarations"][0]["parametersJsonSchema"],
    "bedrock": lambda tool: tool["toolSpec"]["inputSchema"]["json"],
    "mcp": lambda tool: tool["inputSchema"],
}


def lowered_for(name: str, schema: dict[str, Any], **more: Any) -> tuple[dict[str, Any], list[str]]:
    """The schema that a provider gets for a tool of *schema*, and the keywords that are lost."""
    form, specs = getattr(formats, name), [ToolSpec("take", "Take it.", schema, **more)]
    (tool,) = form.tools(specs)
    return DIALECTS[name](tool), [loss.keyword for loss in form.losses(specs).get("take", ())]


TREE = {
    "properties": {"tree": {"$ref": "#/$defs/Tree"}},
    "required": ["tree"],
    "$defs": {
        "Tree": {
            "properties": {"name": {"type": "string"}, "inside": {"items": {"$ref": "#/$defs/Tree"}, "type": "array"}},
            "required": ["name"],
        }
    },
}
EITHER = {
    "properties": {"to": {"oneOf": [{"type": "string", "format": "email"}, {"type": "integer", "minimum": 1}]}},
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
}
SHAPES = {
    "anyOf": [
        {"properties": {"radius": {"type": "number"}}, "required": ["radius"], "additionalProperties": False},
        {"properties": {"side": {"type": "number"}}, "required": ["side"], "additionalProperties": False},
    ]
}
TAKEN: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (TREE, [{"tree": {"name": "a"}}, {"tree": {"name": "a", "inside": [{"name": "b", "inside": [{"name": "c"}]}]}}]),
    (EITHER, [{}, {"to": "ada@example.org"}, {"to": 7}, {"x-note": "hello"}]),
    (SHAPES, [{"radius": 1.5}, {"side": 2}]),
    ({"properties": {"data": {"type": "object"}}}, [{}, {"data": {"any": ["thing", None]}}]),
]


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(("schema", "arguments"), TAKEN)
def test_a_schema_for_a_provider_is_never_narrower_in_silence(
    name: str, schema: dict[str, Any], arguments: list[dict[str, Any]]
) -> None:
    lowered, losses = lowered_for(name, schema)
    own, judge = (jsonschema_rs.Draft202012Validator(one) for one in ({"type": "object", **schema}, lowered))
    for written in arguments:
        assert own.is_valid(written)
        assert judge.is_valid(written), (lowered, losses)
    # Strict mode closes objects. What was open in the tool's own schema is reported as lost.
    stop = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    closed = {"properties": {"stop": stop}, "required": ["stop"], "additionalProperties": False}
    strictly, losses = lowered_for(name, closed, strict=True)
    takes_more = jsonschema_rs.is_valid(strictly, {"stop": {"city": "Oslo", "by": "train"}})
    assert takes_more or "additionalProperties" in losses
    assert takes_more is (name in ("gemini", "mcp"))  # these have no strict mode


@pytest.mark.parametrize("name", DIALECTS)
def test_a_schema_that_a_provider_takes_loses_nothing(name: str) -> None:
    schema = {
        "type": "object",
        "properties": {"room": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["room", "days"],
        "additionalProperties": False,
    }
    assert lowered_for(name, schema) == (schema, [])
    if name not in ("gemini", "mcp"):  # these have no strict mode
        assert lowered_for(name, schema, strict=True) == (schema, [])


def openai_asks(*calls: tuple[str, Any]) -> dict[str, Any]:
    """An answer of Chat Completions that asks for these calls."""
    functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
    asked = [{"id": f"c{n}", "type": "function", "function": function} for n, function in enumerate(functions)]
    return {"choices": [{"message": {"role": "assistant", "tool_calls": asked}, "finish_reason": "tool_calls"}]}


def test_what_was_lowered_is_restored_to_the_tools_own_form() -> None:
    schema = {
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
        },
        "required": ["tags"],
        "additionalProperties": False,
    }
    specs = [ToolSpec("shop.label", "Label.", schema, strict=True), ToolSpec("shop_label", "Another.", schema)]
    first, second = (tool["function"]["name"] for tool in formats.openai.tools(specs))
    assert (re.fullmatch(r"[a-zA-Z0-9_-]+", first) is not None, second) == (True, "shop_label")
    written = {"tags": ["L"], "note": None}
    calls = formats.openai.calls(openai_asks((first, written), (second, {"tags": ["L"]})), specs)
    assert [(call.tool, call.arguments) for call in calls] == [
        ("shop.label", {"tags": ["L"]}),
        ("shop_label", '{"tags": ["L"]}'),
    ]


@pytest.mark.parametrize("name", ["openai", "openai_responses", "anthropic", "bedrock"])
def test_a_tool_that_strict_mode_would_change_is_sent_without_it(name: str) -> None:
    form = getattr(formats, name)
    closed = {"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    free = {"properties": {"data": {"type": "object"}}, "required": ["data"]}
    specs = [ToolSpec("closed", "", closed, strict=True), ToolSpec("free", "", free, strict=True)]
    tools = [tool.get("function") or tool.get("toolSpec") or tool for tool in form.tools(specs)]
    assert [tool.get("strict", False) for tool in tools] == [True, False]
    losses = form.losses(specs)
    assert (list(losses), {loss.keyword for loss in losses["free"]}) == (["free"], {"strict"})


def test_a_stream_that_ends_in_the_middle_gives_no_calls() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    half = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": function}]}}]}
    with pytest.raises(ValueError, match="ended in the middle"):
        formats.openai.calls([half])
    whole = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    assert formats.openai.calls([half, whole]) == [Call("add", '{"a": 1}', "c1")]


async def test_every_call_of_a_run_has_exactly_one_result() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    def fail() -> None:
        raise RuntimeError

    def erase() -> None:
        raise AssertionError

    asked = [
        {"tool": "add", "arguments": {"a": 1}, "id": "c1"},
        {"tool": "add", "arguments": '{"a": 1', "id": "c1"},
        {"tool": "wait", "id": "c2"},
        {"tool": "no such tool", "id": ""},
        {"tool": "fail", "id": "c3"},
        {"tool": "erase", "id": "c4"},
    ]
    model = ScriptedModel([{"calls": asked}, "So be it."])
    tools = [add, Tool(wait, timeout_s=0.05), fail, erase]
    policy = [Rule(tools="erase", do="deny"), Rule(do="allow")]
    outcome = await Agent(model, Workbench(tools, policy=Rules(policy))).run("Go.")
    _, reply, results = model.requests[-1].turns
    assert isinstance(reply, Reply)
    assert isinstance(results, Results)
    ids = [call.id for call in reply.calls]
    assert [result.call_id for result in results.results] == ids
    assert (len(set(ids)), all(ids)) == (6, True)
    codes = [call.code for call in outcome.trace]
    assert codes == [None, "invalid_arguments", "timeout", "unknown_tool", "failed", "denied"]


async def waiting_run() -> tuple[list[str], Callable[[], Agent], dict[str, Any], str]:
    """What has been done, agents as other processes would have them, a stored state, and what it waits for."""
    done: list[str] = []

    def erase(disk: str) -> str:
        done.append(f"erased {disk}")
        return done[-1]

    def look() -> str:
        done.append("looked")
        return done[-1]

    def agent(*script: Any) -> Agent:
        policy = Rules([Rule(tools="erase", do="ask"), Rule(do="allow")])
        return Agent(ScriptedModel(script or ["Done."]), Workbench([erase, look], policy=policy))

    waits = await agent({"calls": [("erase", {"disk": "a"}), ("look", {})]}).run("Go.")
    assert (waits.status, done) == ("pending", ["looked"])
    return done, agent, json.loads(json.dumps(waits.state)), waits.pendings[0].id


async def test_a_run_that_waits_goes_on_and_makes_no_call_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_KEY", "a-secret-of-all-processes")
    done, agent, state, pending = await waiting_run()
    outcome = await agent().resume(state, {pending: Approve()}, by="ada")
    assert (outcome.status, outcome.text, done) == ("done", "Done.", ["looked", "erased a"])

    monkeypatch.delenv("TOOLCRIB_KEY")
    done, agent, state, pending = await waiting_run()
    outcome = await agent().resume(state, {pending: Approve()}, by="ada")
    assert (outcome.status, outcome.pendings[0].arguments, done) == ("pending", '{"disk": "a"}', ["looked"])
    assert outcome.pendings[0].id != pending


def other_disk(state: dict[str, Any]) -> dict[str, Any]:
    """*state*, in which another call stands where the approved one stood."""
    changed = json.loads(json.dumps(state))
    changed["turns"][1]["calls"][0]["arguments"] = {"disk": "b"}
    return dict(changed)


async def test_an_approval_counts_for_no_other_call_of_a_changed_state() -> None:
    done, agent, state, pending = await waiting_run()
    outcome = await agent().resume(other_disk(state), {pending: Approve()}, by="ada")
    assert (outcome.status, outcome.pendings[0].arguments) == ("pending", '{"disk": "b"}')
    # Nor where what was shown and the digest are changed as well: both can be had by asking.
    changed = other_disk(state)
    shown = {"digest": outcome.pendings[0].digest, "arguments": '{"disk": "b"}'}
    changed["turns"][2]["results"][0]["pending"] |= shown
    again = await agent().resume(changed, {pending: Approve()}, by="ada")
    assert (again.status, done) == ("pending", ["looked"])


async def test_a_signed_state_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_KEY", "a-secret-of-all-processes")
    done, agent, state, pending = await waiting_run()
    with pytest.raises(SetupError, match="not signed with a key"):
        await agent().resume(other_disk(state), {pending: Approve()}, by="ada")
    assert done == ["looked"]
    assert (await agent().resume(state, {pending: Approve()}, by="ada")).status == "done"


async def test_where_a_model_fails_nothing_that_was_done_is_lost() -> None:
    ran: list[int] = []

    def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    agent = Agent(ScriptedModel([{"calls": [("pay", {"amount": 5})]}, {"error": "unavailable"}, "Paid."]), [pay])
    with pytest.raises(ModelError) as raised:
        await agent.run("Pay.")
    assert raised.value.so_far is not None
    assert [call.text for call in raised.value.so_far.trace] == ["paid"]
    assert ((await agent.run(raised.value.so_far.turns)).text, ran) == ("Paid.", [5])


async def test_what_is_not_done_is_not_done() -> None:
    paused = formats.Reply("Searching.", stop="paused", native={"role": "assistant", "content": []})
    unread = formats.gemini.reply({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})
    limit = formats.gemini.reply({"candidates": [{"finishReason": "TOO_MANY_TOOL_CALLS"}]})
    model = ScriptedModel([paused, unread, "Done.", limit])
    outcome = await Agent(model).run("Go.")
    assert (outcome.status, outcome.text) == ("done", "Done.")
    assert "MALFORMED_FUNCTION_CALL" in str(model.requests[2].turns[-1])
    assert "TOO_MANY_TOOL_CALLS" in (await Agent(model).run("Go.")).why


async def test_a_dialects_tool_is_a_tool_like_any_other() -> None:
    from toolcrib.dialects.autogen.tools import FunctionTool
    from toolcrib.dialects.spark.tools import tool as spark_tool

    @spark_tool(description="Erase a disk.")
    def erase(disk: str) -> str:
        return f"erased {disk}"

    bench = Workbench(
        [FunctionTool(add, description="Add."), erase],
        policy=Rules([Rule(tools="erase", where={"/disk": "*"}, do="deny")]),
    )
    assert [tool["function"]["name"] for tool in formats.openai.tools(bench.specs())] == ["add", "erase"]
    results = await bench.call_many([("add", {"a": 2}), ("add", {"c": 2}), ("erase", {"disk": "a"})])
    codes = [result.error and result.error.code for result in results]
    assert (results[0].value, codes) == (3, [None, "invalid_arguments", "denied"])


async def test_no_more_calls_run_at_a_time_than_a_limit_allows() -> None:
    running = most = 0
    order: list[int] = []

    async def work(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        order.append(number)
        await asyncio.sleep(0)
        running -= 1

    bench = Workbench([work], limits=[Limit(concurrency=3)])
    results = await bench.call_many([("work", {"number": number}) for number in range(50)])
    assert {result.status for result in results} == {"success"}
    assert (most, order) == (3, list(range(50)))


async def test_only_a_tool_that_declares_it_can_be_repeated_is_tried_again() -> None:
    tried: list[str] = []

    def send() -> None:
        tried.append("send")
        raise ConnectionError

    def look() -> None:
        tried.append("look")
        raise ConnectionError

    bench = Workbench([Tool(send), Tool(look, read_only=True)], retries=[Retry(times=2, first_s=0)])
    assert [(await bench.call(name)).status for name in ("send", "look")] == ["error", "error"]
    assert tried == ["send", "look", "look", "look"]


async def test_many_calls_give_one_result_each_in_order() -> None:
    async def later(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    bench = Workbench([later])
    turns = [9, 0, 5, 3]
    results = await bench.call_many([("later", {"turns": n}) for n in turns] + [("no", None)])
    assert [result.value for result in results] == [*turns, None]


async def test_what_depends_opens_is_opened_once_and_closed_in_reverse() -> None:
    happened: list[str] = []

    def first() -> Iterator[str]:
        happened.append("open first")
        yield "first"
        happened.append("close first")

    def second(before: Annotated[str, Depends(first)]) -> Iterator[str]:
        happened.append("open second")
        yield f"{before}, second"
        happened.append("close second")

    def use(both: Annotated[str, Depends(second)], one: Annotated[str, Depends(first)]) -> str:
        return both

    async with Workbench([use]) as bench:
        results = await bench.call_many([("use", None)] * 20)
    assert {result.text for result in results} == {"first, second"}
    assert happened == ["open first", "open second", "close second", "close first"]


async def test_what_depends_opens_for_a_call_is_closed_whatever_becomes_of_it() -> None:
    happened: list[str] = []

    def first() -> Iterator[str]:
        happened.append("open first")
        yield "first"
        happened.append("close first")

    async def second(before: Annotated[str, Depends(first, scope="call")]) -> AsyncIterator[str]:
        happened.append("open second")
        yield f"{before}, second"
        await asyncio.sleep(0.2)
        happened.append("close second")

    async def late(both: Annotated[str, Depends(second, scope="call")]) -> None:
        await asyncio.sleep(60)

    def late_in_a_thread(both: Annotated[str, Depends(second, scope="call")]) -> None:
        time.sleep(2.5)

    async with Workbench([late, late_in_a_thread]) as bench:
        for name in ("late", "late_in_a_thread"):
            happened.clear()
            result = await bench.call(Call(name, timeout_s=2))
            assert result.error is not None
            assert result.error.code == "timeout"
            async with asyncio.timeout(60):
                while len(happened) < 4:
                    await asyncio.sleep(0.01)
            assert happened == ["open first", "open second", "close second", "close first"]


async def test_a_source_that_cannot_start_leaves_nothing_running() -> None:
    happened: list[str] = []

    class Part(Source):
        def __init__(self, name: str, works: bool = True) -> None:
            self.name = name
            self.works = works

        def tools(self) -> list[Any]:
            return []

        async def start(self) -> None:
            happened.append(f"start {self.name}")
            if not self.works:
                raise OSError("no")

        async def stop(self) -> None:
            happened.append(f"stop {self.name}")

    with pytest.raises(SetupError, match="could not be started"):
        await Workbench([Part("a"), Part("b"), Part("c", works=False), Part("d")]).start()
    assert happened == ["start a", "start b", "start c", "stop b", "stop a"]


class Total(BaseModel):
    cents: int = 0


class Till(StatefulTool[Total]):
    @tool
    def take(self, cents: int) -> int:
        self.state.cents += cents
        return self.state.cents


async def test_saved_state_is_json_and_loads_all_or_nothing() -> None:
    async with Workbench([Till]) as bench:
        await bench.call("take", {"cents": 5})
        saved = json.dumps(await bench.save_state())
    async with Workbench([Till]) as bench:
        wrong = {"version": 1, "sources": {"Till": {"cents": 9}, "Tills": {"cents": 9}}}
        with pytest.raises(SetupError, match="Did you mean 'Till'"):
            await bench.load_state(wrong)
        await bench.load_state(json.loads(saved))
        assert (await bench.call("take", {"cents": 1})).value == 6


async def test_the_state_of_what_all_callers_share_is_the_crib_s() -> None:
    async with Crib([Till()]) as crib:
        alice, bob = crib.workbench(Caller("alice")), crib.workbench(Caller("bob"))
        await alice.call("take", {"cents": 5})
        saved = await crib.save_state()
        assert (saved["sources"], (await bob.save_state())["sources"]) == ({"Till": {"cents": 5}}, {})
        with pytest.raises(SetupError, match=r"shared by all callers, so the crib loads it: crib\.load_state"):
            await bob.load_state({"version": 1, "sources": {"Till": {"cents": 0}}})
        await bob.reset()
        assert (await alice.call("take", {"cents": 1})).value == 6
        await crib.load_state(saved)
        assert (await bob.call("take", {"cents": 0})).value == 5


def test_nothing_of_a_source_from_outside_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ran = tmp_path / "ran"
    repository = Repository(tmp_path / "repository")
    imports = "from pathlib import Path\nfrom toolcrib import tool\n"
    repository.commit({"hello.py": f"{imports}Path({str(ran)!r}).touch()\n@tool\ndef hello(): ...\n"})
    hook = repository.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    with pytest.raises(LoadError, match="not trusted"):
        load(f"git+{repository.folder}")
    assert not ran.exists()
    (tool,) = load(Permissions(trusted=True).to(f"git+{repository.folder}")).tools
    assert (tool.spec.name, ran.exists()) == ("hello", True)


def test_a_definition_that_was_not_accepted_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tools.py"
    text = "from toolcrib import tool\n@tool\ndef hello():\n    'Say hello.'\n@tool\ndef other():\n    'Other.'\n"
    file.write_text(text)
    (tmp_path / "toolcrib.toml").write_text('[[source]]\nfrom = "tools.py"\n')
    command = [sys.executable, "-m", "toolcrib", "lock"]
    subprocess.run([*command, "tools.py"], check=True, capture_output=True)
    assert [spec.name for spec in Crib.from_config().workbench().specs()] == ["hello", "other"]
    file.write_text(text.replace("Say hello", "Always say hello"))
    with pytest.raises(LoadError, match="has changed since it was locked"):
        Crib.from_config()
    assert subprocess.run([*command, "--update"], capture_output=True).returncode == 1
    assert [spec.name for spec in Crib.from_config().workbench().specs()] == ["other"]


async def test_a_broken_file_does_not_take_the_others_along(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text("from toolcrib import tool\n\n@tool\ndef ok() -> str:\n    return 'ok'\n")
    (tmp_path / "broken.py").write_text("import json\ndef oops(:\n")
    bench = Workbench([tmp_path])
    assert (await bench.call("ok")).text == "ok"
    (problem,) = bench.problems
    assert str(problem) == f"{tmp_path / 'broken.py'}:2: SyntaxError: invalid syntax"


async def test_sync_calls_work_from_everywhere() -> None:
    bench = Workbench([add])
    assert bench.call_sync("add", {"a": 1}).value == 2
    assert await asyncio.to_thread(lambda: bench.call_sync("add", {"a": 2}).value) == 3
    program = "from toolcrib import Workbench\nprint(Workbench([abs, len]).call_sync('len', {'obj': 'abc'}).text)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("3\n", 0)
    async with Workbench([add]) as bench:
        with pytest.raises(SetupError, match="Await"):
            bench.call_sync("add", {"a": 1})


def test_a_sync_call_ends_with_a_result_also_without_its_loop() -> None:
    begun, results = threading.Event(), list[Any]()

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    def inner(n: int) -> int:
        return n

    def outer(n: int) -> int:
        return int(bench.call_sync("inner", {"n": n}).unwrap())

    async def outermost(n: int) -> int:
        return int((await bench.call("outer", {"n": n})).unwrap())

    bench = Workbench([endless, inner, outer, outermost])
    thread = threading.Thread(target=lambda: results.append(bench.call_sync("endless")), daemon=True)

    async def shared() -> Any:
        return (await bench.call("inner", {"n": 3})).value

    async def main() -> list[Any]:
        await bench.start()
        thread.start()
        await asyncio.to_thread(begun.wait, 30)
        calls = [(name, {"n": n}) for n in range(40) for name in ("outer", "outermost")]
        return [result.value for result in await bench.call_many(calls)]

    expected = [n for n in range(40) for _ in range(2)]
    assert asyncio.run(main()) == expected
    thread.join(30)
    with bench:
        results_of_loops = list[Any]()
        more = [threading.Thread(target=lambda: results_of_loops.append(asyncio.run(shared()))) for _ in range(4)]
        for other in more:
            other.start()
        for other in more:
            other.join(30)
    assert results_of_loops == [3] * 4
    assert [result.error.code for result in results] == ["lost"]


def test_importing_toolcrib_imports_little() -> None:
    program = (
        "import sys, toolcrib; heavy = ('pydantic', 'jsonschema_rs', 'griffe', 'mcp', 'uvicorn', 'typer'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


async def test_a_source_that_is_not_required_affects_only_its_own_tools() -> None:
    class Remote(Source):
        required = False

        async def start(self) -> None:
            raise ConnectionError("no server")

        def tools(self) -> list[Any]:
            return [search]

    def search() -> str:
        return "found"

    async with Workbench([Remote(), add]) as bench:
        found, added = await bench.call("search"), await bench.call("add", {"a": 1})
        assert any("no server" in str(problem) for problem in bench.problems)
    assert found.error is not None
    assert (found.error.code, added.value) == ("unavailable", 2)


async def test_a_recorder_gets_no_known_secret() -> None:
    def read(key: str) -> str:
        return f"{key} and token-of-ada"

    class Tokens:
        async def authorize(self, requirements: Any, caller: Caller, call: Call, /) -> list[Credential]:
            return [Credential(one.provider, f"token-of-{caller.principal}") for one in requirements]

    log = CallLog(with_content=True)
    tools = [Tool(read, auth=ToolAuth("github"))]
    bench = Workbench(tools, secrets=["hush!1"], broker=Tokens(), recorder=log, caller=Caller("ada"))
    result = await bench.call("read", {"key": "hush!1"})
    assert result.text == "[secret] and [secret]"
    (record,) = log
    assert record.status == "success"
    assert record.arguments is not None
    assert "[secret]" in record.arguments
    assert "hush" not in repr(record)
    assert "token-of" not in repr(record)


async def test_a_call_is_in_the_log_before_its_work_begins(tmp_path: Path) -> None:
    @tool
    def look() -> int:
        with sqlite3.connect(tmp_path / "store.db") as connection:
            (row,) = connection.execute("SELECT tool, status FROM toolcrib_calls").fetchall()
        connection.close()
        assert row == ("look", "started")
        return 1

    async with Crib([look], store=tmp_path / "store.db") as crib:
        assert (await crib.workbench().call("look")).value == 1


async def test_a_call_goes_on_without_the_call_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with Crib([tool(lambda: 1, name="one")], store=tmp_path / "file" / "store.db") as crib:
        assert (await crib.workbench().call("one")).value == 1
        (log,) = crib.recorders
        assert isinstance(log, DatabaseCalls)
        assert log.unconfirmed == 1


async def test_content_is_in_no_log_and_no_span_unless_it_is_asked_for(tmp_path: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for with_content in (False, True):
        store = Store(tmp_path / f"{with_content}.db")
        calls = DatabaseCalls(store, with_content=with_content)
        spans = Spans(provider=provider, with_content=with_content)
        async with Crib([tool(lambda text: text[::-1], name="turn")], recorder=[calls, spans]) as crib:
            await crib.workbench().call("turn", {"text": "canary"})
        (record,) = await calls.newest()
        (span,) = exporter.get_finished_spans()
        exporter.clear()
        for shown in (repr(record), span.to_json()):
            assert ("canary" in shown, "yranac" in shown) == (with_content, with_content)
        store.close()
    provider.shutdown()


async def test_a_rule_that_can_never_match_lets_nothing_through() -> None:
    registry = Registry()
    registry.add(Tool(lambda amount=1: f"paid {amount}", name="pay"))
    for where in ({"/amuont": {"gt": 100}}, {"/order/amount": 5}):
        with pytest.raises(SetupError, match="can never match: 'pay' takes nothing at"):
            await Workbench([registry["pay"]], policy=Rules([Rule(tools="pay", do="ask", where=where)])).start()
    async with Workbench(registry, policy=Rules([Rule(tools="give", do="ask", where={"/amount": 5})])) as bench:
        registry.add(Tool(lambda sum=1: f"given {sum}", name="give"))
        results = [await bench.call("pay", {"amount": 5}), await bench.call("give", {"sum": 5})]
        assert [result.error and result.error.code for result in results] == [None, "denied"]
        assert "'give' takes nothing at '/amount'" in str(bench.problems[0])


async def test_credentials_are_asked_for_only_after_a_call_is_allowed() -> None:
    asked: list[str] = []

    class Tokens:
        async def authorize(self, requirements: Any, caller: Caller, call: Call, /) -> list[Credential]:
            asked.append(call.tool)
            return [Credential(one.provider, "token-of-ada") for one in requirements]

    def read(path: str) -> str:
        return path

    tools = [Tool(read, auth=ToolAuth("github"))]
    bench = Workbench(tools, broker=Tokens(), policy=Rules([Rule(where={"/path": "/etc/*"}, do="deny")]))
    denied = await bench.call("read", {"path": "/etc/passwd"})
    assert denied.error is not None
    assert (denied.error.code, asked) == ("denied", [])
    assert (await bench.call("read", {"path": "notes"})).value == "notes"
    assert asked == ["read"]


class TokenEndpoint(BaseHTTPRequestHandler):
    """A provider that gives a refresh token for each that it gets, and counts."""

    spent: ClassVar[list[str]]

    def do_POST(self) -> None:
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.spent.append(body.get("refresh_token", body.get("code", [""]))[0])
        time.sleep(0.2)  # the others arrive meanwhile
        text = json.dumps({"access_token": "new-token", "refresh_token": "next-token", "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[str]]]:
    spent: list[str] = []
    handler = type("Endpoint", (TokenEndpoint,), {"spent": spent})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", spent
        server.shutdown()
        thread.join()


def broker_of(vault: Vault | None = None, token_url: str = "http://127.0.0.1/token") -> CredentialBroker:
    data = {"title": "Notes", "source": "https://notes.example", "checked": date(2026, 1, 1)}
    oauth2 = {"authorize_url": "https://notes.example/authorize", "token_url": token_url, "refresh": "rotated"}
    return CredentialBroker(
        clients={"notes": Client("id", "client-secret")},
        catalogue={"notes": Provider.model_validate({**data, "oauth2": oauth2})},
        vault=vault,
        redirect_uri="https://tools.example/auth/callback",
        form_uri="https://tools.example/auth/secret",
        allow=["127.0.0.1"],
    )


@tool(auth=[ToolAuth("notes"), Secret("KEY")])
def read_notes(context: Context, number: int = 1) -> str:
    return " ".join(one.secret for one in context.credentials.values())


async def grant_to(broker: CredentialBroker, principal: str, profile: str = "default", **more: Any) -> None:
    await broker.save(Owner(principal, profile, "notes", "oauth2"), Grant(f"token-of-{principal}-{profile}", **more))
    await broker.save(secret_owner(principal, profile, "KEY"), Grant(f"key-of-{principal}-{profile}"))


async def test_each_callers_credentials_are_their_own() -> None:
    given: list[str] = []

    @tool(auth=[ToolAuth("notes"), Secret("KEY")])
    def use(context: Context) -> None:
        given.extend(one.secret for one in context.credentials.values())

    broker = broker_of()
    await grant_to(broker, "ada")
    async with Crib([use], broker=broker) as crib:
        for caller in (
            Caller("bob"),
            Caller("ad_"),
            Caller("%"),
            Caller("ada", "work"),
            Caller("ada\0"),
            Caller("ADA"),
        ):
            for arguments in ({}, {"principal": "ada"}, {"profile": "default"}, {"caller": {"principal": "ada"}}):
                result = await crib.workbench(caller).call("use", arguments)
                assert result.status == ("error" if arguments else "pending")
        assert given == []
        assert (await crib.workbench(Caller("ada")).call("use")).status == "success"
    assert given == ["token-of-ada-default", "key-of-ada-default"]


async def test_a_model_chooses_only_among_the_profiles_that_were_listed() -> None:
    used: list[Caller] = []

    @tool(auth=ToolAuth("notes"))
    def use(context: Context) -> None:
        used.append(context.caller)

    broker = broker_of()
    for principal, profile in (("ada", "work"), ("ada", "home"), ("ada", "admin"), ("bob", "work")):
        await grant_to(broker, principal, profile)
    async with Crib([use], broker=broker) as crib:
        bench = crib.workbench(Caller("ada", "home", "t1"))
        assert (await bench.call("use", {"profile": "work"})).status == "error"
        (spec,) = bench.specs(profiles=["work", "home"])
        assert spec.input_schema["properties"]["profile"]["enum"] == ["work", "home"]
        for profile in ("work", "admin", "bob", "bob/work", "_ork", ".*"):
            await bench.call("use", {"profile": profile})
        assert (await bench.call("use", {"profile": "work", "principal": "bob"})).status == "error"
    assert used == [Caller("ada", "work", "t1")]


async def test_no_credential_is_shown_to_a_model(caplog: pytest.LogCaptureFixture) -> None:
    def fail(context: Context) -> None:
        raise ValueError(" ".join(one.secret for one in context.credentials.values()))

    def repeat(text: str) -> str:
        return text

    log, broker = CallLog(with_content=True), broker_of()
    auth = [ToolAuth("notes"), Secret("KEY")]
    await grant_to(broker, "ada", refresh_token="refresh-of-ada")
    async with Crib([read_notes, Tool(fail, auth=auth), repeat], broker=broker, recorder=log) as crib:
        ada = crib.workbench(Caller("ada"))
        shown = [await ada.call("read_notes"), await ada.call("fail")]
        later = await crib.workbench(Caller("ada", thread="t2")).call("repeat", {"text": "token-of-ada-default"})
        waits = await crib.workbench(Caller("bob")).call("read_notes")
        assert shown[0].text == "[secret] [secret]"
        assert later.text == "[secret]"
        texts = [*(one.text for one in (*shown, later, waits)), repr(waits.pending), repr(list(log)), caplog.text]
    for secret in ("token-of-ada", "key-of-ada", "refresh-of-ada", "client-secret"):
        assert not [text for text in texts if secret in text]


async def test_a_refresh_token_is_spent_once(endpoint: tuple[str, list[str]], tmp_path: Path) -> None:
    url, spent = endpoint
    stores = [Store(tmp_path / "store.db") for _ in range(2)]  # as of two processes
    brokers = [broker_of(DatabaseVault(store), url) for store in stores]
    past = datetime.now(UTC) - timedelta(hours=1)
    await grant_to(brokers[0], "ada", refresh_token="first-token", expires_at=past)
    cribs = [Crib([read_notes], broker=broker) for broker in brokers]
    benches = [crib.workbench(Caller("ada", thread=str(n))) for crib in cribs for n in range(8)]
    results = await asyncio.gather(*(bench.call("read_notes") for bench in benches))
    assert ({result.status for result in results}, spent) == ({"success"}, ["first-token"])
    for crib, store in zip(cribs, stores, strict=True):
        await crib.stop()
        store.close()


async def test_an_authorization_completes_once_and_for_whom_it_was_made(endpoint: tuple[str, list[str]]) -> None:
    url, spent = endpoint
    ada = Caller("ada")
    async with Crib([read_notes], broker=broker_of(token_url=url)) as crib:
        (asked, _) = sorted(await crib.authorize(["read_notes"], ada), key=lambda one: one.url or "")
        assert asked.url is not None
        state = parse_qs(urlsplit(asked.url).query)["state"][0]
        back = f"https://tools.example/auth/callback?state={state}&code=the-code"
        with pytest.raises(CallbackError, match="started by another person"):
            await crib.complete(back, caller=Caller("bob"))
        completed = await crib.complete(back, caller=ada)
        assert (completed.owner.principal, completed.pending_ids) == ("ada", (asked.id,))
        for caller in (ada, Caller("bob"), None):
            with pytest.raises(CallbackError, match="not known, or has expired"):
                await crib.complete(back, caller=caller)
        assert spent == ["the-code"]
        assert len(await crib.authorize(["read_notes"], Caller("bob"))) == 2


_WASI = """
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
"""
_LOOP = "(loop $again (br $again))"
_SLEEP = """
  (i32.store (i32.const 80) (i32.const 1)) (i64.store (i32.const 88) (i64.const 3600000000000))
  (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512)))
"""


def _module(file: Path, code: str = "") -> Path:
    file.write_bytes(wasmtime.wat2wasm(f'(module {_WASI} (func (export "_start") {code}))'))
    return file


def test_a_tool_in_the_sandbox_has_only_what_was_granted(tmp_path: Path) -> None:
    _module(tmp_path / "tool.wasm")
    for needs, setting in (
        ('mounts = [{ name = "home" }]', 'mounts = { home = "PATH" }'),
        ('variables = ["UNITS"]', 'variables = ["UNITS"]'),
        ('auth = [{ secret = "KEY" }]', 'secrets = ["KEY"]'),
        ('hosts = ["a.example"]', 'hosts = ["a.example"]'),
        ("memory_mb = 1000", "memory_mb = 1000"),
    ):
        (tmp_path / "tool.toml").write_text(f'name = "guest"\ndescription = "Needs."\n{needs}\n')
        with pytest.raises(LoadError) as raised:
            Workbench([tmp_path])
        assert f"allow = {{ {setting} }}" in str(raised.value)


async def test_a_module_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    files = [_module(tmp_path / "loops.wasm", _LOOP), _module(tmp_path / "sleeps.wasm", _SLEEP)]
    async with Workbench(files, timeout_s=0.3) as bench:
        results = [await bench.call(name) for name in ("loops", "sleeps")]
    assert [result.error and result.error.code for result in results] == ["timeout", "timeout"]


async def test_a_search_finds_only_what_its_caller_may_see() -> None:
    def drop() -> str:
        """Delete all invoices."""
        return "gone"

    def show() -> str:
        """Show all invoices."""
        return "shown"

    async with Crib([Tool(drop, available=lambda caller: caller.principal == "root"), show], search=True) as crib:
        for principal, expected in (("root", ["drop", "show"]), ("ada", ["show"])):
            bench = crib.workbench(Caller(principal))
            result = await bench.call("find_tools", {"query": "delete all invoices", "limit": 20})
            assert [each["name"] for each in result.unwrap()] == expected
            assert [spec.name for spec in bench.specs()] == ["find_tools", *expected]


async def test_a_call_over_http_ends_with_its_client_or_with_the_server() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(Crib([wait]), port=0, grace_s=0.1, ready=ready.set_result))
    address = urlsplit(await ready)
    request = b"POST /api/tools/wait/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    async with asyncio.timeout(60):
        for leaves in (True, False):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(request)
            await began.wait()
            if leaves:
                writer.transport.abort()
            else:
                serving.cancel()
                assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
                writer.close()
            await ended.wait()
            began.clear()
            ended.clear()
        await asyncio.wait([serving])


async def test_an_approval_in_an_mcp_client_counts_once_for_what_it_was_asked_for() -> None:
    ran: list[int] = []

    @tool(destructive=True)
    async def drop(n: int) -> int:
        ran.append(n)
        return n

    async def person(*_: object) -> Any:
        raise AssertionError("the client is not asked: the test answers")

    who = ["ada"]
    crib = Crib([drop], policy=Rules([Rule(hint="destructive", do="ask")]))
    made = server(crib, lambda _: Caller(who[0]))
    yes = {"approval": wire.ElicitResult(action="accept", content={"approve": True})}
    async with crib, MCPClient(made, mode="2026-07-28", elicitation_callback=person) as client:

        async def call(n: int, state: str | None) -> Any:
            options = {"input_responses": yes, "request_state": state, "allow_input_required": True}
            return await client.session.call_tool("drop", {"n": n}, **options)

        state = (await call(1, None)).request_state
        for changed in (state[:-1], state + "A", "v1.", "x", ""):
            with pytest.raises(MCPError, match="Invalid or expired"):
                await call(1, changed)
        with pytest.raises(MCPError, match="Invalid or expired"):
            await call(2, state)
        who[0] = "bob"
        with pytest.raises(MCPError, match="Invalid or expired"):
            await call(1, state)
        who[0] = "ada"
        assert ran == []
        assert (await call(1, state)).structured_content == {"result": 1}
        assert (await call(1, state)).result_type == "input_required"
        assert ran == [1]


async def test_no_known_secret_reaches_an_mcp_client() -> None:
    secret = "the secret of the operator"
    seen: list[str] = []

    @tool
    async def work(context: Context) -> str:
        context.log.error("logged %s", secret)
        await ask_client(who=Form(f"form {secret}", str), joke=Sample(f"sampled {secret}"))
        return "done"

    async def person(_: object, params: Any) -> wire.ElicitResult:
        seen.append(params.message)
        return wire.ElicitResult(action="accept", content={"value": "ada"})

    async def sample(_: object, params: Any) -> wire.CreateMessageResult:
        seen.append(params.messages[0].content.text)
        return wire.CreateMessageResult(role="assistant", content=wire.TextContent(text="ha"), model="m")

    async def log(params: Any) -> None:
        seen.append(params.data)

    crib = Crib([work], secrets=[secret])
    crib.resources.add("notes://one", f"read {secret}")
    crib.prompts.add(lambda: f"filled in {secret}", name="one")
    callbacks: dict[str, Any] = {"elicitation_callback": person, "sampling_callback": sample, "logging_callback": log}
    async with crib, MCPClient(server(crib), mode="legacy", **callbacks) as client:
        await client.call_tool("work")
        seen.append((await client.read_resource("notes://one")).contents[0].text)  # type: ignore[union-attr]
        seen.append((await client.get_prompt("one")).messages[0].content.text)  # type: ignore[union-attr]
    kinds = ("filled in", "form", "logged", "read", "sampled")
    assert sorted(seen) == [f"{kind} [secret]" for kind in kinds]


async def test_only_its_caller_reads_a_large_result_over_mcp() -> None:
    @tool
    async def many() -> str:
        return "0123456789" * 5_000

    who = ["ada"]
    crib = Crib([many])
    async with crib, MCPClient(server(crib, lambda _: Caller(who[0]))) as client:
        uri = (await client.call_tool("many")).content[-1].uri  # type: ignore[union-attr]
        part = (await client.read_resource(f"{uri}?offset=49995")).contents[0]
        assert part.text == "56789"  # type: ignore[union-attr]
        who[0] = "bob"
        with pytest.raises(MCPError, match="no result under this handle"):
            await client.read_resource(str(uri))


async def test_a_source_that_cannot_list_costs_only_its_own() -> None:
    class Offers:
        def __init__(self, name: str) -> None:
            self.name = name

        def tools(self) -> list[Any]:
            return []

        async def start(self) -> None: ...
        async def stop(self) -> None: ...
        async def resources(self) -> list[Any]:
            return [Resource(uri=f"{self.name}://x", name=str(1 // len(self.name)))]

    async with Crib([Offers(""), Offers("good")]) as crib, MCPClient(server(crib)) as client:
        assert [str(one.uri) for one in (await client.list_resources()).resources] == ["good://x"]


@contextlib.contextmanager
def _seen() -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """The address of a service, and the targets and headers of the requests that it gets."""
    seen: list[tuple[str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", seen
        server.shutdown()
        thread.join()


def _document(file: Path, host: str, **more: Any) -> Path:
    places = {"path": "a", "query": "b", "header": "X-C", "cookie": "d"}
    listed = [
        {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
        for place, name in places.items()
    ]
    paths = {"/in/{a}/end": {"get": {"operationId": "look", "parameters": listed, **more}}}
    key = {"type": "apiKey", "in": "header", "name": "X-Key"}
    components = {"securitySchemes": {"OPENAI_KEY": key}}
    servers = [{"url": f"http://{host}/v1"}]
    file.write_text(json.dumps({"openapi": "3.1.0", "servers": servers, "paths": paths, "components": components}))
    return file


async def test_an_argument_of_an_operation_stays_where_it_belongs(tmp_path: Path) -> None:
    hostile = [
        "../x",
        "..",
        "a/../../b",
        "%2e%2e/x",
        "..\\x",
        "x?y=1",
        "x#y",
        "a&b=2",
        "a; e=1",
        "a\r\nX-D: 1",
        "@evil.example",
        "é",
    ]
    with _seen() as (host, seen):
        async with Workbench([openapi_source(_document(tmp_path / "api.json", host))]) as bench:
            for value in hostile:
                for name in ("a", "b", "X-C", "d"):
                    arguments = {"a": "x", name: value}
                    before = len(seen)
                    result = await bench.call("look", arguments)
                    if result.error is not None:
                        assert (result.error.code, len(seen)) == ("invalid_arguments", before)
                        continue
                    target, headers = seen[-1]
                    parts = urlsplit(target)
                    assert re.fullmatch(r"/v1/in/[^/]+/end", parts.path)
                    assert parse_qs(parts.query, keep_blank_values=True) == ({"b": [value]} if name == "b" else {})
                    assert headers.get("x-c") == (value if name == "X-C" else None)
                    assert ";" not in headers.get("cookie", "")
                    assert headers["host"] == host
                    assert "x-d" not in headers
            assert len(seen) > len(hostile)


async def test_a_document_gets_only_what_is_stored_for_its_host_or_mapped(tmp_path: Path) -> None:
    with _seen() as (host, seen):
        file = _document(tmp_path / "api.json", host, security=[{"OPENAI_KEY": []}])
        others = {"OPENAI_KEY": "key-of-other", "api.example.com/OPENAI_KEY": "key-of-other", "X-Key": "key-of-other"}
        async with Workbench([openapi_source(file)], broker=CredentialBroker(secrets=others)) as bench:
            assert (await bench.call("look", {"a": "x"})).status == "pending"
        broker = CredentialBroker()
        await broker.save(Owner.of(Caller(), "github", "token"), Grant("token-of-github"))
        mapped = openapi_source(file, auth={"OPENAI_KEY": ToolAuth("github", "token")})
        async with Workbench([mapped], broker=broker) as bench:
            result = await bench.call("look", {"a": "x"})
        assert result.error is not None
        assert result.error.code == "denied"
        assert seen == []
        for auth, secrets in (
            ({}, {f"{host}/OPENAI_KEY": "key-of-host"}),
            ({"OPENAI_KEY": "secret:MINE"}, {"MINE": "key-of-host"}),
        ):
            source = openapi_source(file, auth=auth)
            async with Workbench([source], broker=CredentialBroker(secrets=secrets)) as bench:
                assert (await bench.call("look", {"a": "x"})).status == "success"
            assert seen[-1][1]["x-key"] == "key-of-host"


async def test_a_stopped_workbench_can_be_started_again() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        @tool
        def add(self) -> int:
            self.count += 1
            return self.count

    bench = Workbench([Counter])
    for _ in range(2):
        async with bench:
            assert [(await bench.call("add")).value for _ in range(2)] == [1, 2]


# MCP servers as sources


def _server(mode: str, **env: str) -> Any:
    script = str(Path(__file__).parents[1] / "tools" / "mcp_server.py")
    source = MCPSource(command=[sys.executable, "-S", script, mode], env=env).source()
    source.restart_after_s = 0.05
    return source


async def test_a_server_that_fails_costs_its_own_calls() -> None:
    sources = [prefixed(_server(mode), f"{mode}_") for mode in ("hangs", "dies", "fails", "well")]
    async with Workbench(sources) as bench:
        codes = {}
        for mode in ("hangs", "dies", "fails", "well"):
            result = await bench.call(Call(f"{mode}_echo", {"n": 1}, timeout_s=1 if mode == "hangs" else None))
            codes[mode] = None if result.error is None else result.error.code
        assert codes == {"hangs": "timeout", "dies": "lost", "fails": "unavailable", "well": None}
        async with asyncio.timeout(60):
            while any("dies" in problem.place for problem in bench.problems):
                await asyncio.sleep(0.01)
        assert (await bench.call("well_echo", {"n": 1})).value == {"n": 1}


async def test_what_a_server_lies_about_is_not_believed() -> None:
    async with Workbench([_server("lies")]) as bench:
        assert [spec.name for spec in bench.specs()] == ["echo", "wrong", "nothing", "slow_pattern", "not_base64"]
        for name in ("wrong", "nothing"):
            result = await bench.call(name, {})
            assert result.error is not None
            assert result.error.code == "invalid_result"


async def test_an_answer_of_a_server_that_cannot_be_read_is_an_error_at_once(tmp_path: Path) -> None:
    says = tmp_path / "says.json"
    tools = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    says.write_text(json.dumps({"tools/list": tools, "tools/call": '{"jsonrpc":"2.0","id":ID,"result":null}'}))
    server = Path(__file__).parents[1] / "tools" / "scripted_server.py"
    async with Workbench([MCPSource(command=[sys.executable, "-S", str(server), str(says)])]) as bench:
        result = await bench.call("t", {})
        assert result.error is not None
        assert result.error.code == "invalid_result"


async def test_a_definition_that_changed_is_not_used() -> None:
    source = _server("changes")
    async with Workbench([source]) as bench:
        accepted = {"echo": definition_of(bench.registry.get("echo"))}
        source.hold = LockedSource("it", tools=accepted).held
        await bench.call("echo", {"n": 1})  # upon this, it changes
        async with asyncio.timeout(60):
            while "echo" in bench.registry:
                await asyncio.sleep(0.01)
        assert bench.specs() == ()
        source.hold = None


async def test_a_server_gets_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_OURS", "hush")
    async with Workbench([_server("environment", GIVEN="it is")]) as bench:
        seen = json.loads((await bench.call("echo", {"n": 1})).text)
    assert seen["GIVEN"] == "it is"
    assert {"OF_OURS", "PYTEST_CURRENT_TEST"} & {*seen} == set()


async def test_a_key_of_a_server_is_shown_to_no_model() -> None:
    async with Workbench([_server("environment", ITS_KEY="hush-hush")]) as bench:
        result = await bench.call("echo", {"n": 1})
    assert '"ITS_KEY": "[secret]"' in result.text
    assert "hush-hush" not in result.text


async def test_a_document_that_is_saved_is_loaded_and_a_broken_one_keeps_its_tools(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    whole = _document(file, "api.example.com").read_text()
    operation = {"get": {"operationId": "added", "responses": {"200": {"description": "ok"}}}}
    added = json.loads(whole)
    added["paths"]["/added"] = operation
    watched = WatchedDocument(file, lambda: openapi_source(file), settle_s=0.01)
    before = [tool.spec.name for tool in watched.tools()]
    async with Workbench([watched]) as bench:
        for text, names in ((json.dumps(added), [*before, "added"]), ("{", [*before, "added"]), (whole, before)):
            file.write_text(text)
            async with asyncio.timeout(60):
                while [spec.name for spec in bench.specs()] != names or (text == "{") is not bool(bench.problems):
                    await asyncio.sleep(0.01)
