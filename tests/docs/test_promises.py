"""Each promise of docs/promises.md has tests, named in docs/maintainers/promises.md. Here are those of no one room."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import jsonschema_rs
import mcp_types as wire
import pytest
import wasmtime
from mcp import Client as MCPClient
from pydantic import AliasChoices, BaseModel, Field

from toolcrib import (
    Approve,
    Call,
    Caller,
    Context,
    Crib,
    Depends,
    MCPSource,
    Secret,
    Tool,
    ToolAuth,
    ToolSpec,
    Workbench,
    formats,
    tool,
)
from toolcrib.agent import Agent, ScriptedModel
from toolcrib.auth import (
    Client,
    CredentialBroker,
    Grant,
    Owner,
    Provider,
    Vault,
    secret_owner,
)
from toolcrib.core import Credential, LoadError, Repair
from toolcrib.record import CallLog
from toolcrib.serve import Form, Sample, ask_client, server
from toolcrib.store import Store
from toolcrib.tools import Permissions, load, openapi_source
from toolcrib.tools.lock import LockedSource, definition_of
from toolcrib.workbench import Rule, Rules, Stores, prefixed

from ..tools.repositories import Repository

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"
_TESTS = re.compile(r" `((?:[\w/]+\.py::)?test_\w+)`(?= `|$)")


def _listed(page: str) -> list[str]:
    return [line for line in (DOCS / page).read_text().splitlines() if line.startswith(("- ", "## "))]


def test_every_promise_names_its_test_and_every_test_its_promise() -> None:
    promises = [line for line in _listed("maintainers/promises.md") if line.startswith("- ")]
    assert [line for line in promises if not _TESTS.search(line)] == []
    names = [name for line in promises for name in _TESTS.findall(line)]
    kept = [name for name in globals() if name.startswith("test_")]
    kept.remove("test_every_promise_names_its_test_and_every_test_its_promise")
    kept.remove("test_the_promises_to_users_are_those_that_have_tests")
    assert sorted(name for name in names if "::" not in name) == sorted(kept)
    for file, name in (name.split("::") for name in names if "::" in name):
        assert re.search(rf"^(async )?def {name}\(", (TESTS / file).read_text(), re.MULTILINE), f"{file}: no {name}"


def test_the_promises_to_users_are_those_that_have_tests() -> None:
    tested = [_TESTS.sub("", line) for line in _listed("maintainers/promises.md")]
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
