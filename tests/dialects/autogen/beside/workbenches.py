"""StaticWorkbench: lists, overrides, state, life, cancellation."""

import asyncio
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, StaticWorkbench, ToolOverride, Workbench
from probing import add, probe
from tools import Add, Count, given, given_async


def one(a: int) -> int:
    """One."""
    return a + 1


def two(a: int) -> int:
    return a + 2


def bench(*fns: Any, of: Any = StaticWorkbench, **options: Any) -> Any:
    return of([FunctionTool(fn, description=f"It is {fn.__name__}.") for fn in fns or (one, two)], **options)


def _lists(**overrides: Any) -> Any:
    async def run() -> Any:
        return await bench(tool_overrides=overrides).list_tools()

    return run


for _name, _overrides in {
    "none": {},
    "a name": {"one": ToolOverride(name="uno")},
    "a description": {"one": ToolOverride(description="Uno.")},
    "both": {"one": ToolOverride(name="uno", description="Uno."), "two": ToolOverride(name="due")},
    "nothing said": {"one": ToolOverride()},
    "the same name": {"one": ToolOverride(name="one")},
    "an empty description": {"one": ToolOverride(description="")},
    "an existing name": {"one": ToolOverride(name="two")},
    "a name twice": {"one": ToolOverride(name="n"), "two": ToolOverride(name="n")},
    "of no tool": {"three": ToolOverride(name="n")},
}.items():
    add(f"overrides: {_name}", _lists(**_overrides))
add("a dictionary is an override", lambda: ToolOverride(name="n", description="d").model_dump())


def _calls(name: str, **overrides: Any) -> Any:
    async def run() -> Any:
        return (await bench(tool_overrides=overrides).call_tool(name, {"a": 1})).model_dump()

    return run


add("call by the override's name", _calls("uno", one=ToolOverride(name="uno")))
add("call by the tool's own name", _calls("one", one=ToolOverride(name="uno")))
add("call of no tool under overrides", _calls("eins", one=ToolOverride(name="uno")))


@probe
async def lists_of_all_kinds_of_tools() -> Any:
    return await StaticWorkbench([Add(), Count(), FunctionTool(given, "d")]).list_tools()


@probe
async def an_empty_workbench() -> Any:
    made = StaticWorkbench([])
    return [await made.list_tools(), (await made.call_tool("x")).model_dump(), await made.save_state()]


@probe
async def two_tools_of_one_name() -> Any:
    made = StaticWorkbench([FunctionTool(one, "d"), FunctionTool(two, "d", name="one")])
    return (await made.call_tool("one", {"a": 1})).to_text()


@probe
async def a_name_with_spaces_is_called() -> Any:
    made = StaticWorkbench([FunctionTool(one, "d", name="number one"), FunctionTool(two, "d", name="a.b-c")])
    return [(await made.call_tool(name, {"a": 1})).model_dump() for name in ("number one", "a.b-c")]


# Life and state


@probe
async def a_workbench_as_a_context() -> Any:
    async with bench() as made:
        return [isinstance(made, Workbench), (await made.call_tool("one", {"a": 1})).to_text()]


@probe
async def a_workbench_without_start_and_after_stop() -> Any:
    made = bench()
    before = (await made.call_tool("one", {"a": 1})).to_text()
    answers = [await made.start(), await made.stop(), await made.reset()]
    return [before, answers, (await made.call_tool("one", {"a": 1})).to_text()]


@probe
async def state_of_a_workbench() -> Any:
    made = StaticWorkbench([Count(), Add(), Count("other")])
    await made.call_tool("count", {"a": 3})
    saved = await made.save_state()
    fresh = StaticWorkbench([Count(), Add(), Count("other")])
    await fresh.load_state(saved)
    return [saved, (await fresh.call_tool("count", {"a": 1})).to_text()]


@probe
async def state_of_some_tools() -> Any:
    made = StaticWorkbench([Count(), Count("other")])
    await made.load_state({"type": "StaticWorkbenchState", "tools": {"other": {"count": 5}, "gone": {}}})
    return await made.save_state()


@probe
async def state_that_is_none() -> Any:
    await StaticWorkbench([Count()]).load_state({"tools": 3})


@probe
async def state_of_another_kind() -> Any:
    await StaticWorkbench([Count()]).load_state({"type": "Other", "tools": {}})


@probe
async def state_of_a_tool_that_does_not_fit() -> Any:
    await StaticWorkbench([Count()]).load_state({"tools": {"count": {"count": "x"}}})


@probe
async def reset_of_a_workbench() -> Any:
    made = StaticWorkbench([Count()])
    async with made:
        await made.call_tool("count", {"a": 3})
        await made.reset()
        return (await made.call_tool("count", {"a": 1})).to_text()


# Cancellation


@probe
async def a_call_with_a_token_that_is_cancelled_already() -> Any:
    token = CancellationToken()
    token.cancel()
    return (await bench(given_async).call_tool("given_async", {"a": 1}, token)).model_dump()


@probe
async def a_call_that_is_cancelled_by_its_token() -> Any:
    begun = asyncio.Event()

    async def slow() -> str:
        begun.set()
        await asyncio.sleep(15)
        return "done"

    token = CancellationToken()
    call = asyncio.ensure_future(bench(slow).call_tool("slow", {}, token))
    await begun.wait()
    token.cancel()
    return (await call).model_dump()


@probe
async def a_call_whose_task_is_cancelled() -> Any:
    begun = asyncio.Event()

    async def slow() -> str:
        begun.set()
        await asyncio.sleep(15)
        return "done"

    call = asyncio.ensure_future(bench(slow).call_tool("slow"))
    await begun.wait()
    call.cancel()
    return (await call).model_dump()


@probe
async def a_call_passes_its_token_on() -> Any:
    async def takes(cancellation_token: CancellationToken) -> bool:
        return cancellation_token is token

    token = CancellationToken()
    return (await bench(takes).call_tool("takes", {}, token)).to_text()


@probe
async def a_call_without_a_token_hands_in_one() -> Any:
    async def takes(cancellation_token: CancellationToken) -> str:
        return str(cancellation_token.is_cancelled())

    return (await bench(takes).call_tool("takes")).to_text()


@probe
async def calls_at_once() -> Any:
    made = bench()
    results = await asyncio.gather(*(made.call_tool(name, {"a": 1}) for name in ("one", "two", "three")))
    return [each.model_dump() for each in results]


@probe
async def a_call_with_an_id() -> Any:
    return (await bench().call_tool("one", {"a": 1}, call_id="c1")).model_dump()


add(
    "a workbench's classes",
    lambda: [issubclass(StaticStreamWorkbench, StaticWorkbench), StaticWorkbench.component_type],
)
add("Workbench is abstract", lambda: Workbench())
