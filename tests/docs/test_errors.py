"""Every error means what docs/errors.md says, and whoever does what its message says gets further."""

import asyncio
import os
import re
import sys
import threading
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, get_args

import pytest
import typing_extensions
from pydantic import BaseModel, Field, SecretStr

from toolcrib import (
    Call,
    Depends,
    Handle,
    Registry,
    Result,
    StatefulTool,
    Text,
    Tool,
    ToolAuth,
    ToolError,
    Workbench,
    tool,
)
from toolcrib.core import CODES, DefinitionError
from toolcrib.core.errors import AnswerProblem
from toolcrib.sandbox import Limits, Processes
from toolcrib.workbench import Limit, Limiter

from ..doubled import doubled

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTIONS = {
    found["code"]: found["text"]
    for found in re.finditer(
        r"^## (?P<code>[a-z_]+)\n(?P<text>.*?)(?=^## |\Z)", (DOCS / "errors.md").read_text(), re.M | re.S
    )
}


def test_every_code_has_its_section_and_every_section_its_code() -> None:
    assert list(SECTIONS) == list(CODES)


def test_the_table_of_codes_says_what_the_code_says() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (\w+) \|", (DOCS / "errors.md").read_text(), re.M)
    assert rows == [(code, code, retry) for code, retry in CODES.items()]


def test_every_section_says_what_the_model_and_the_developer_should_do() -> None:
    for code, text in SECTIONS.items():
        assert "- **The model** " in text, code
        assert "- **You** " in text, code


def error_message(result: Result[Any], code: str) -> str:
    assert result.error is not None
    assert (result.error.code, result.error.retry) == (code, CODES[code])
    assert result.content == (Text(result.error.message),)
    return result.error.message


async def unknown_tool() -> Result[Any]:
    bench = Workbench([add])
    message = error_message(await bench.call("ad", '{"a": 1, "b": 2}'), "unknown_tool")
    (match,) = re.findall(r"Did you mean '(\w+)'\?", message)
    return await bench.call(match, '{"a": 1, "b": 2}')


async def invalid_arguments() -> Result[Any]:
    """A misspelt name, a wrong kind and a missing argument; the message alone is enough to put all of them right."""
    bench = Workbench([put])
    sent: dict[str, Any] = {"itme": "nail", "count": "many", "bin": "D"}
    message = error_message(await bench.call("put", sent), "invalid_arguments")
    for line in message.splitlines()[1:]:
        if found := re.match(r"- It takes no argument '(\w+)'. Did you mean '(\w+)'\?", line):
            sent[found[2]] = sent.pop(found[1])
        elif found := re.match(r"- '(\w+)': expected integer, got string.", line):
            sent[found[1]] = 3
        elif found := re.match(r"- '(\w+)': expected one of \"(\w)\"", line):
            sent[found[1]] = found[2]
        else:
            raise AssertionError(line)
    return await bench.call("put", sent)


async def invalid_arguments_that_are_no_json() -> Result[Any]:
    bench = Workbench([add])
    message = error_message(await bench.call("add", '{"a": 1, "b": 2'), "invalid_arguments")
    assert message.endswith("Send one JSON object.")
    return await bench.call("add", '{"a": 1, "b": 2}')


async def unauthorized() -> Result[Any]:
    """The way out of docs/errors.md: the credentials come by Depends."""

    def issues(repository: str) -> str:
        return f"no issues in {repository}"

    asks = Tool(issues, auth=ToolAuth("github", scopes=["repo"]))
    message = error_message(await Workbench([asks]).call("issues", {"repository": "a/b"}), "unauthorized")
    assert message == "Tool 'issues' needs credentials for 'github', and no provider of credentials is configured here."

    def token() -> str:
        return "gh-token"

    def issues_by_token(repository: str, token: Annotated[str, Depends(token)]) -> str:
        return f"no issues in {repository}" if token == "gh-token" else "not you"

    return await Workbench([Tool(issues_by_token, name="issues")]).call("issues", {"repository": "a/b"})


async def denied() -> Result[Any]:
    """True as long as the policy stands: the same call is denied again, and the tool never ran."""
    ran: list[int] = []

    def erase(disk: int) -> int:
        ran.append(disk)
        return disk

    bench = Workbench([erase], policy=lambda spec, arguments, caller: "deny" if arguments["disk"] == 0 else "allow")
    for _ in range(2):
        assert "a policy denies it" in error_message(await bench.call("erase", {"disk": 0}), "denied")
    assert ran == []
    return await bench.call("erase", {"disk": 1})


async def timeout_() -> Result[Any]:
    async def count(to: int) -> int:
        await asyncio.sleep(to)
        return to

    bench = Workbench([Tool(count, read_only=True)])
    message = error_message(await bench.call(Call("count", {"to": 60}, timeout_s=0.2)), "timeout")
    assert message == "Tool 'count' did not answer in time. Ask for less, or try again later."
    return await bench.call("count", {"to": 0})


async def cancelled() -> Result[Any]:
    bench = Workbench([add, forever])
    first, second = await bench.call_many([("forever", None), ("add", '{"a": 1}')], stop_on_error=True)
    assert error_message(first, "cancelled") == "This call was not finished, because another call failed before it."
    error_message(second, "invalid_arguments")
    # Once the failed call is seen to, the others can be made again.
    again = await bench.call_many([("add", '{"a": 1, "b": 1}'), ("add", '{"a": 1, "b": 2}')], stop_on_error=True)
    assert [result.status for result in again] == ["success", "success"]
    return again[1]


async def unavailable() -> Result[Any]:
    is_open = False
    shop = Tool(add, available=lambda caller: is_open)
    bench = Workbench([shop])
    assert error_message(await bench.call("add", '{"a": 1, "b": 2}'), "unavailable").endswith(
        "is not available to you now."
    )
    is_open = True
    return await bench.call("add", '{"a": 1, "b": 2}')


async def too_large() -> Result[Any]:
    bench = Workbench([length])
    message = error_message(await bench.call("length", {"text": "x" * 5_000_000}), "too_large")
    assert "Send less" in message
    (limit,) = re.findall(r"limit of (\d+) bytes", message)
    return await bench.call("length", {"text": "x" * (int(limit) - len('{"text":""}'))})


async def invalid_result() -> Result[Any]:
    """The message is true: the tool ran, and calling again gives the same."""
    ran: list[str] = []

    def size(path: str) -> int:
        ran.append(path)
        return [path]  # type: ignore[return-value]

    bench = Workbench([size])
    for _ in range(2):
        message = error_message(await bench.call("size", {"path": "a"}), "invalid_result")
        assert message == (
            "Tool 'size' returned a value that does not match its output schema (expected integer, got array)."
        )
    assert ran == ["a", "a"]

    def corrected(path: str) -> int:
        return len(path)

    return await Workbench([Tool(corrected, name="size")]).call("size", {"path": "a"})


async def failed() -> Result[Any]:
    """The cause passes, and the same call works later."""
    is_up = False

    def fetch() -> str:
        if not is_up:
            raise ConnectionError("db.internal refused admin")
        return "rows"

    bench = Workbench([Tool(fetch, read_only=True)])
    message = error_message(await bench.call("fetch"), "failed")
    assert "ConnectionError" in message
    assert "admin" not in message
    is_up = True
    return await bench.call("fetch")


async def limited() -> Result[Any]:
    """The message says when to come again, and then there is room."""
    now = [0.0]
    bench = doubled([add], limits=Limiter([Limit(rate="1/min", wait_s=0)], clock=lambda: now[0]))
    assert (await bench.call("add", {"a": 1, "b": 2})).status == "success"
    result = await bench.call("add", {"a": 1, "b": 2})
    message = error_message(result, "limited")
    (after_s,) = re.findall(r"Try again in ([\d.]+) s\.$", message)
    assert result.error is not None
    assert result.error.details == {"retry_after_s": float(after_s)}
    now[0] += float(after_s)
    return await bench.call("add", {"a": 1, "b": 2})


async def conflict() -> Result[Any]:
    """Each would wait for the other; the message says when it is of use to call again."""
    inside = {name: asyncio.Event() for name in "ab"}
    found: list[Result[Any]] = []

    def one_at_a_time(name: str, other: str) -> Tool[..., Any]:
        async def enter(deep: bool) -> str:
            if deep:
                inside[name].set()
                await inside[other].wait()
                found.append(await bench.call(other, {"deep": False}))
            return name

        return Tool(enter, name=name, serial=True)

    bench = Workbench([one_at_a_time("a", "b"), one_at_a_time("b", "a")])
    await bench.call_many([("a", {"deep": True}), ("b", {"deep": True})])
    (clash,) = [result for result in found if result.error is not None]
    assert clash.error is not None
    assert (clash.error.code, clash.error.retry) == ("conflict", "later")
    assert clash.text.endswith("Try again later.")
    return await bench.call(clash.tool, {"deep": False})


async def lost() -> Result[Any]:
    """What the message says is true: what was done is done. The next call has another process."""
    async with Workbench([Tool(die, isolation="process", idempotent=True)]) as bench:
        with NamedTemporaryFile() as file:
            message = error_message(await bench.call("die", {"note": file.name, "dies": True}), "lost")
            assert message.endswith("exited with status 3. What it had done by then is done.")
            assert Path(file.name).read_text() == "done"
            return await bench.call("die", {"note": file.name, "dies": False})


async def trapped() -> Result[Any]:
    processes = Processes(limits=Limits(memory_bytes=512 * 2**20))
    async with processes, doubled([Tool(hoard, isolation="process")], processes=processes) as bench:
        message = error_message(await bench.call("hoard", {"mebibytes": 4096}), "trapped")
        assert message == "Tool 'hoard' needed more memory than it may have (512 MiB). Ask for less."
        return await bench.call("hoard", {"mebibytes": 1})


TRIGGERS: dict[str, list[Callable[[], Awaitable[Result[Any]]]]] = {
    "unknown_tool": [unknown_tool],
    "invalid_arguments": [invalid_arguments, invalid_arguments_that_are_no_json],
    "unauthorized": [unauthorized],
    "denied": [denied],
    "timeout": [timeout_],
    "cancelled": [cancelled],
    "unavailable": [unavailable],
    "too_large": [too_large],
    "invalid_result": [invalid_result],
    "failed": [failed],
    "limited": [limited],
    "trapped": [trapped],
    "conflict": [conflict],
    "lost": [lost],
}


@pytest.mark.parametrize("trigger", [trigger for found in TRIGGERS.values() for trigger in found])
async def test_doing_what_an_error_says_leads_to_success(trigger: Callable[[], Awaitable[Result[Any]]]) -> None:
    result = await trigger()
    assert (result.status, result.error) == ("success", None)


def test_a_code_without_a_trigger_here_is_listed_as_not_yet_given() -> None:
    absent = {code for code, text in SECTIONS.items() if "This version does not raise it yet" in text}
    assert absent == set(CODES) - set(TRIGGERS)


async def test_a_tool_may_raise_every_code_itself() -> None:
    def fail(code: str) -> None:
        raise ToolError("In my own words.", code)

    bench = Workbench([Tool(fail, read_only=True)])
    for code in CODES:
        assert error_message(await bench.call("fail", {"code": code}), code) == "In my own words."


def test_every_reason_of_an_answer_error_is_documented() -> None:
    section = (DOCS / "errors.md").read_text().split("## AnswerError\n")[1].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == [*get_args(AnswerProblem)]


# What fails at definition, where no room tests the message: each one, and its way out.


class Pool:
    """Nothing that JSON can carry."""


def get_pool() -> Pool:
    return Pool()


@dataclass(frozen=True, slots=True)
class Remedy:
    """Code that is refused, the way out that it is told, and code that follows it.

    In *way_out*, `...` stands for names of the code. *right* gives sources and one call that works.
    """

    wrong: Callable[[], Any]
    way_out: str
    right: Callable[[], Any]
    name: str = "work"
    arguments: str = "{}"


def with_signature(parameters: str) -> Callable[[], Any]:
    """Make a tool of a function with these *parameters*."""

    def make() -> Any:
        names: dict[str, Any] = {}
        exec(f"def work({parameters}) -> str: return ''", globals(), names)
        return [Tool(names["work"])]

    return make


def work() -> str:
    return "done"


def work_on(a: int) -> int:
    return a


def tidy() -> str:
    return "done"


def renamed() -> str:
    return "done"


not_renamed = renamed
renamed = tidy


def with_pool(pool: Annotated[Pool, Depends(get_pool)]) -> str:
    return type(pool).__name__


def with_pool_of_the_call(pool: Annotated[Pool, Depends(get_pool, scope="call")]) -> str:
    return type(pool).__name__


class Search(typing_extensions.TypedDict):
    deep: bool


def search(options: Search) -> str:
    return f"deep is {options['deep']}"


class OldSearch(typing.TypedDict):
    deep: bool


def with_lock(lock: Annotated[Any, Depends(lambda: threading.Lock())]) -> str:
    return type(lock).__name__


class Shop:
    @tool(isolation="process")
    def work(self) -> str:
        """Work."""
        return "done"


def sign(key: str) -> str:
    return "signed"


def sign_secretly(key: SecretStr) -> str:
    return "signed"


class Noted(BaseModel):
    note: str = Field("", exclude=True)


def note(noted: Noted) -> str:
    return noted.note


def note_text(note: str) -> str:
    return note


def count(rows: Annotated[list[int], Handle]) -> int:
    return len(rows)


class Worked(BaseModel):
    times: int


class Worker(StatefulTool[Worked]):
    @tool
    def work(self) -> int:
        """Work."""
        self.state.times += 1
        return self.state.times


def a_closure_in_another_process() -> Any:
    def work() -> str:
        return "done"

    return [Tool(work, isolation="process")]


def a_state_of_no_type() -> Any:
    class Worker(StatefulTool):  # type: ignore[type-arg]
        pass


def a_method_in_the_place_of_a_tool() -> Any:
    class Quiet(Worker):
        def work(self) -> int:
            return 0

    return Workbench([Quiet(Worked(times=0))])


def a_start_with_arguments() -> Any:
    class Begun(Worker):
        def start(self, at: int) -> None:  # type: ignore[override]
            pass

    return Workbench([Begun(Worked(times=0))])


def a_working_state() -> Any:
    return [Worker(Worked(times=0))]


def two_names_that_differ_in_a_dash() -> Any:
    return Registry([Tool(work, name="the_work"), Tool(tidy, name="the-work")])


def replaced() -> Any:
    registry = Registry([Tool(tidy, name="work")])
    registry.replace(work)
    return registry


APART: Any = {"isolation": "process"}
INTEGER = {"type": "integer"}


def RIGHT() -> Any:
    return [Tool(work_on, parameters={"properties": {"a": INTEGER}, "required": ["a"]})]


ON_A = (RIGHT, "work_on", '{"a": 1}')
REMEDIES = [
    Remedy(
        lambda: [Tool(lambda: "done")], 'Give one with @tool(name="...").', lambda: [Tool(lambda: "done", name="work")]
    ),
    Remedy(
        with_signature("pool: Pool"),
        "let the host provide it, ...: Annotated[..., Depends(provider)], or take a type that JSON can carry.",
        lambda: [with_pool],
        "with_pool",
    ),
    *[
        Remedy(
            with_signature("options: OldSearch"),
            "Write: from typing_extensions import TypedDict.",
            lambda: [search],
            "search",
            '{"options": {"deep": true}}',
        )
        for _ in range(sys.version_info < (3, 12))  # newer ones have what pydantic needs
    ],
    Remedy(
        with_signature("locks: list[Any]=[threading.Lock()]"),
        "Take None as the default and make the value in the function, or let the host provide it with Depends.",
        lambda: [with_lock],
        "with_lock",
    ),
    Remedy(
        lambda: [Tool(work_on, parameters={"properties": {"b": INTEGER}})],
        "Add it to the function, or let the function take **arguments.",
        *ON_A,
    ),
    Remedy(
        lambda: [Tool(work_on, parameters={"properties": {"a": INTEGER}})],
        'Add it to "required", or give it a default.',
        *ON_A,
    ),
    Remedy(
        lambda: [Tool(work, parameters={"additionalProperties": True})],
        'Let the function take **arguments, or set "additionalProperties" to false.',
        lambda: [Tool(lambda **arguments: len(arguments), name="work", parameters={"additionalProperties": True})],
        "work",
        '{"b": 1}',
    ),
    Remedy(
        a_closure_in_another_process, "Put it at the top of a module, and import that.", lambda: [Tool(work, **APART)]
    ),
    Remedy(
        lambda: [Tool(not_renamed, **APART)],
        "Give the function a name of its own at the top of its module.",
        lambda: [Tool(tidy, **APART)],
        "tidy",
    ),
    Remedy(
        lambda: Workbench([Shop()]),
        "Leave that out, or make it a function at the top of a module.",
        lambda: [Tool(work, **APART)],
    ),
    Remedy(
        lambda: [Tool(with_pool, **APART)],
        'Write Depends(..., scope="call"): then the worker makes it',
        lambda: [Tool(with_pool_of_the_call, **APART)],
        "with_pool_of_the_call",
    ),
    Remedy(
        lambda: [Tool(sign_secretly, **APART)],
        "for a secret a str, whose value is registered with Workbench(secrets=[...]).",
        lambda: [Tool(sign, **APART)],
        "sign",
        '{"key": "k"}',
    ),
    Remedy(
        lambda: [Tool(note, **APART)],
        "Take another type:",
        lambda: [Tool(note_text, **APART)],
        "note_text",
        '{"note": "a"}',
    ),
    Remedy(
        with_signature("rows: list[Annotated[int, Handle]]"),
        "Write it around the whole: ...: Annotated[..., Handle].",
        lambda: [count],
        "count",
        '{"rows": [1]}',
    ),
    Remedy(
        with_signature("*rows: Annotated[int, Handle]"),
        "Make it a list: ...: Annotated[list[...], Handle].",
        lambda: [count],
        "count",
        '{"rows": [1]}',
    ),
    Remedy(a_state_of_no_type, "Write class ...(StatefulTool[State]), with State a pydantic model.", a_working_state),
    Remedy(
        a_method_in_the_place_of_a_tool,
        "Mark it with @tool, too; to have no such tool, write ... = None.",
        a_working_state,
    ),
    Remedy(
        a_start_with_arguments, "Give it another name, or mark it with @tool if a model is to call it.", a_working_state
    ),
    Remedy(
        two_names_that_differ_in_a_dash,
        "Give '...' another name, or remove() the old one first.",
        lambda: [work, Tool(tidy, name="work2")],
    ),
    Remedy(
        lambda: Registry([work, Tool(tidy, name="work")]),
        "Give the new one another name, or replace() the old one.",
        replaced,
    ),
]


@pytest.mark.parametrize("one", REMEDIES, ids=lambda one: one.way_out)
async def test_doing_what_a_definition_error_says_leads_to_a_tool_that_works(one: Remedy) -> None:
    way_out = ".*".join(map(re.escape, one.way_out.split("...")))
    with pytest.raises(DefinitionError, match=f"(?s){way_out}"):
        one.wrong()
    async with Workbench(one.right()) as bench:
        result = await bench.call(one.name, one.arguments)
    assert (result.status, result.error) == ("success", None)


# What every test above may use.


async def add(a: int, b: int) -> int:
    return a + b


def die(note: str, dies: bool) -> str:
    Path(note).write_text("done")
    if dies:
        os._exit(3)
    return "alive"


def hoard(mebibytes: int) -> int:
    return len(bytearray(mebibytes * 2**20))


async def forever() -> None:
    await asyncio.Event().wait()


def length(text: str) -> int:
    return len(text)


def put(item: str, count: int, bin: Annotated[str, "Which bin."] = "A") -> str:
    return f"{count} {item} in {bin}"
