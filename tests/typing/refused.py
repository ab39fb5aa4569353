"""What type checkers refuse. Each marked line is an error to both; a mark that is not needed is an error as well."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

from toolcrib import Crib, Result, Tool, Workbench, tool


@tool
def add(a: int, b: int = 2) -> int:
    return a + b


@tool(title="Later")
async def later(a: int) -> int:
    return a


class Counter:
    @tool
    def increase(self, by: int) -> int:
        return by


def calls_of_the_function() -> None:
    add(1, "x")  # type: ignore[arg-type]
    add("x")  # type: ignore[arg-type]
    add()  # type: ignore[call-arg]
    add(1, c=2)  # type: ignore[call-arg]
    Counter().increase("x")  # type: ignore[arg-type]
    assert_type(add(1), str)  # type: ignore[assert-type]


async def calls_of_a_coroutine_function() -> None:
    await later("x")  # type: ignore[arg-type]
    await add(1)  # type: ignore[misc]
    assert_type(await later(1), str)  # type: ignore[assert-type]


async def calls_through_the_workbench(bench: Workbench) -> None:
    await bench.call(add, "x")  # type: ignore[call-overload]
    await bench.call(add, 1, c=2)  # type: ignore[call-arg, arg-type]
    await bench.call(later)  # type: ignore[call-overload]
    bench.call_sync(Counter().increase, by="x")  # type: ignore[call-overload]
    wrong: Result[str] = await bench.call(add, 1)  # type: ignore[call-overload]
    wrong.unwrap()


def options() -> None:
    tool(colour="red")(add)  # type: ignore[call-overload]
    tool(timeout_s="3")(add)  # type: ignore[call-overload]
    Tool(add, tags=5)  # type: ignore[arg-type]
    Tool(add)("x")  # type: ignore[arg-type]
    tool(5)  # type: ignore[call-overload]
    Workbench([add], timeout="3")  # type: ignore[call-arg]
    Workbench([add], timeout_s="3")  # type: ignore[arg-type]
    Crib([add], recorder=print)  # type: ignore[arg-type]
