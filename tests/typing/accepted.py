"""What type checkers know of tools. mypy --strict and pyright in strict mode accept this file as it is."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, assert_type

from pydantic import BaseModel

from toolcrib import (
    Call,
    Caller,
    Context,
    Crib,
    Deny,
    Depends,
    Pending,
    Result,
    Secret,
    Tool,
    ToolAuth,
    ToolError,
    ToolSpec,
    Workbench,
    tool,
)
from toolcrib.core import CallRecord, Credential, Recorder
from toolcrib.dialects.swarm import IToolCallDto, ToolValue
from toolcrib.record import CallLog
from toolcrib.workbench import Ask, Limit, Middleware, Next, Retry, Rule, Rules

T = TypeVar("T")


class Person(BaseModel):
    name: str


def get_number() -> int:
    return 7


@tool
def add(a: int, b: int = 2) -> int:
    return a + b


@tool(name="later", timeout_s=3, tags=["a"], auth=ToolAuth("github", scopes=["repo"]), destructive=True)
async def later(a: int, b: int) -> int:
    return a + b


@tool
def first(items: list[T]) -> T:
    return items[0]


@tool
async def find(people: Sequence[Person], *, limit: int = 1) -> list[Person]:
    return list(people)[:limit]


@tool
def with_context(a: int, *, ctx: Context, number: Annotated[int, Depends(get_number)] = 0) -> str:
    return f"{a} {number} {ctx.caller.principal}"


@tool
def promised(a: int) -> Awaitable[str]:
    raise NotImplementedError


def seen(caller: Caller) -> bool:
    return caller.principal == "alice"


@tool(available=seen, examples=[{"a": 1}])
def optional(a: int | None = None) -> None: ...


class Counter:
    @tool
    def increase(self, by: int = 1) -> int:
        return by

    @tool
    async def wait(self, by: int) -> str:
        return str(by)

    @classmethod
    @tool
    def of_class(cls, a: int) -> int:
        return a

    @staticmethod
    @tool
    def of_nothing(a: int) -> int:
        return a

    @tool
    @classmethod
    def outside_of_class(cls, a: int) -> int:
        return a

    @tool
    @staticmethod
    def outside_of_nothing(a: int) -> int:
        return a

    @staticmethod
    @tool(name="named")
    def named(a: int) -> float:
        return a


def the_function_keeps_its_signature() -> None:
    assert_type(add(1, 2), int)
    assert_type(add(a=1), int)
    assert_type(first(["a"]), str)
    assert_type(optional(), None)


async def and_so_does_a_coroutine_function() -> None:
    assert_type(await later(1, b=2), int)
    assert_type(await find([Person(name="a")], limit=2), list[Person])
    assert_type(await promised(1), str)


async def methods_stay_methods() -> None:
    counter = Counter()
    assert_type(counter.increase(2), int)
    assert_type(counter.increase(), int)
    assert_type(await counter.wait(by=2), str)
    assert_type(Counter.of_class(1), int)
    assert_type(counter.of_class(a=1), int)
    assert_type(Counter.of_nothing(1), int)
    assert_type(counter.named(1), float)
    assert_type(Counter.outside_of_class(1), int)
    assert_type(Counter.outside_of_nothing(1), int)


async def a_call_by_function_is_typed(bench: Workbench) -> None:
    assert_type(await bench.call(add, a=1, b=2), Result[int])
    assert_type(await bench.call(add, 1), Result[int])
    assert_type(await bench.call(later, 1, 2), Result[int])
    assert_type(await bench.call(first, ["a"]), Result[str])
    assert_type(await bench.call(find, [Person(name="a")], limit=1), Result[list[Person]])
    assert_type(await bench.call(optional, a=None), Result[None])
    assert_type(await bench.call(promised, 1), Result[str])
    assert_type(await bench.call(Counter().increase, by=1), Result[int])
    assert_type(await bench.call(Counter().wait, 1), Result[str])
    assert_type(await bench.call(Counter.of_nothing, 1), Result[int])
    result = await bench.call(add, 1)
    assert_type(result.value, int)
    assert_type(result.unwrap(), int)
    assert_type(result.text, str)


def and_so_is_a_sync_call(bench: Workbench) -> None:
    assert_type(bench.call_sync(add, 1, b=2), Result[int])
    assert_type(bench.call_sync(later, 1, 2), Result[int])
    assert_type(bench.call_sync(Counter().wait, by=1).unwrap(), str)


async def a_call_by_name_is_not(bench: Workbench) -> None:
    assert_type(await bench.call("add", '{"a": 1}'), Result[Any])
    assert_type(await bench.call("add", {"a": 1}), Result[Any])
    assert_type(await bench.call("add", b"{}"), Result[Any])
    assert_type(await bench.call(Call("add", {"a": 1})), Result[Any])
    assert_type(await bench.call_many([Call("add"), ("add", None)]), list[Result[Any]])
    assert_type(bench.call_sync("add"), Result[Any])
    assert_type(bench.specs(), Sequence[ToolSpec])


async def a_tool_object_is_typed_too(bench: Workbench) -> None:
    made = Tool(add, name="plus", strict=True)
    assert_type(made(1, b=2), int)
    assert_type(made.arguments(1, b=2), dict[str, Any])
    assert_type(await bench.call(made, 1, b=2), Result[int])
    assert_type(await bench.call(Tool(later), 1, 2), Result[int])


def the_decorator_gives_back_what_it_was_given() -> None:
    def plain(a: int) -> str:
        return str(a)

    kept: Callable[[int], str] = tool(plain)
    also: Callable[[int], str] = tool(title="Plain")(plain)
    fixed = tool(functools.partial(plain, 1))
    assert_type(kept(1) + also(1), str)
    assert_type(fixed(), str)


class Failures(Recorder):
    """What it does not write is as the protocol has it."""

    async def finished(self, record: CallRecord, /) -> None:
        if record.code is not None:
            print(record.started_at.isoformat(), record.tool, record.code)


class Keys:
    """A broker, which inherits from nothing."""

    async def authorize(
        self, requirements: Sequence[ToolAuth | Secret], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        if caller.principal != "alice":
            raise ToolError("Nobody can log in here.", "unauthorized")
        return [Credential("github", "a secret") for _ in requirements]


def careful(spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Literal["allow"] | Ask | Deny:
    return Ask("Sure?") if spec.hints.destructive else "allow"


async def timed(tool: object, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
    return await go_on()


async def the_plugs_are_options_of_both(crib: Crib) -> None:
    middleware: Middleware = timed
    Workbench([add], recorder=CallLog(), policy=careful, broker=Keys(), middleware=[middleware], timeout_s=3)
    Crib([add], recorder=Failures(), policy=Rules([Rule(do="ask", hint="destructive")]), limits=[Limit(concurrency=4)])
    Crib([add], retries=[Retry("gh_*", times=3)])
    assert_type(crib.workbench(Caller("alice")), Workbench)
    assert_type(Workbench.from_config("toolcrib.toml"), Workbench)
    assert_type(await crib.workbench().check(add, 1, 2), Result[dict[str, Any]])
    assert_type(await crib.answer("pending_1", {"kind": "approve"}, by="bob"), Pending)


# Dialects


def parameters_of_a_swarms_tool(dto: IToolCallDto, typed: IToolCallDto[Mapping[str, int]]) -> None:
    assert_type(dto.params, dict[str, ToolValue])
    assert_type(typed.params, Mapping[str, int])
