"""How many borders between files one call crosses: a border is where the callee's file is not that of its caller.

Counted are calls of functions of the package from functions of the package; what lies between them does not count.
"""

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import toolcrib
from toolcrib import Context, Depends, Workbench, tool
from toolcrib.call import Retry, pipeline
from toolcrib.record import CallLog
from toolcrib.workbench import Limit, Rule, Rules

PACKAGE = str(Path(toolcrib.__file__).parent)


@tool
async def add(a: int, b: int) -> int:
    return a + b


async def provided() -> int:
    return 1


@tool(idempotent=True, retries=2)
async def full(a: int, ctx: Context, more: Annotated[int, Depends(provided)]) -> int:
    return a + more


def _file_within(frame: FrameType | None) -> str | None:
    """The file of the nearest caller in the package."""
    while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return None if frame is None else frame.f_code.co_filename


async def borders(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """The borders that one call crosses, once everything is warm: from which file to which function."""
    crossed: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            of_caller = _file_within(frame.f_back)
            if of_caller is not None and of_caller != frame.f_code.co_filename:
                crossed.append((of_caller[len(PACKAGE) :], frame.f_code.co_qualname))

    for _ in range(3):
        assert (await call()).status == "success"
    sys.setprofile(note)
    try:
        await call()
    finally:
        sys.setprofile(None)
    return crossed


async def test_a_plain_call_crosses_at_most_seven_borders() -> None:
    async with Workbench([add]) as bench:
        crossed = await borders(lambda: bench.call("add", '{"a": 1, "b": 2}'))
    assert len(crossed) <= 7, crossed


async def test_a_call_with_a_deadline_crosses_at_most_ten() -> None:
    async with Workbench([add], timeout_s=5) as bench:
        crossed = await borders(lambda: bench.call("add", '{"a": 1, "b": 2}'))
    assert len(crossed) <= 10, crossed


async def test_a_call_with_everything_switched_on_crosses_at_most_twenty() -> None:
    async with Workbench(
        [full],
        timeout_s=5,
        policy=Rules([Rule(do="allow")]),
        secrets=["s3cret-key"],
        limits=[Limit(concurrency=2)],
        retries=[Retry()],
        recorder=CallLog(),
    ) as bench:
        await bench.call("full", '{"a": 1}')  # which makes the check
        crossed = await borders(lambda: bench.call("full", '{"a": 1}'))
    assert len(crossed) <= 20, (len(crossed), crossed)


def test_the_pipeline_is_one_function_of_at_most_forty_lines() -> None:
    function = ast.parse(inspect.getsource(pipeline.run)).body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    first, last = function.body[1], function.body[-1]
    assert last.end_lineno is not None
    assert last.end_lineno - first.lineno + 1 <= 40
