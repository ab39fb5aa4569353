"""Tools that stream."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import (
    BaseStreamTool,
    FunctionTool,
    StaticStreamWorkbench,
    ToolOverride,
)

from .counter import text


class Upto(BaseModel):
    n: int


class Step(BaseModel):
    at: int


class Done(BaseModel):
    total: int


class CountTo(BaseStreamTool[Upto, Step, Done]):
    """Yields each step; on the way to 13 it fails, and with 0 it yields nothing."""

    def __init__(self) -> None:
        super().__init__(Upto, Done, "count_to", "Count.")
        self.closed = False

    async def run(self, args: Upto, cancellation_token: CancellationToken) -> Done:
        return Done(total=args.n)

    async def run_stream(self, args: Upto, cancellation_token: CancellationToken) -> AsyncGenerator[Step | Done, None]:
        try:
            for at in range(args.n):
                if at == 2 and args.n == 13:
                    raise ValueError("unlucky")
                yield Step(at=at)
                await asyncio.sleep(0)
            if args.n and args.n != 7:
                yield Done(total=args.n)
        finally:
            self.closed = True


async def items(stream: Any) -> list[Any]:
    return [item async for item in stream]


def bench(**options: Any) -> StaticStreamWorkbench:
    async def add(a: int) -> int:
        return a + 1

    return StaticStreamWorkbench([CountTo(), FunctionTool(add, "Add.")], **options)


async def test_a_stream_that_does_not_end_as_it_should_is_an_error():
    tool = CountTo()
    with pytest.raises(TypeError, match="Expected return value of type Done, but got Step"):
        await items(tool.run_json_stream({"n": 7}, CancellationToken()))
    with pytest.raises(AssertionError, match="must yield a final return value"):
        await items(tool.run_json_stream({"n": 0}, CancellationToken()))
    with pytest.raises(ValidationError):
        await items(tool.run_json_stream({}, CancellationToken()))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("count_to", {"n": 2}, [Step(at=0), Step(at=1), text("count_to", '{"total": 2}')]),
        ("steps", {"n": "1"}, [Step(at=0), text("steps", '{"total": 1}')]),
        ("count_to", {"n": 13}, [Step(at=0), Step(at=1), text("count_to", "unlucky", is_error=True)]),
        (
            "count_to",
            {"n": 7},
            [
                *(Step(at=at) for at in range(7)),
                text("count_to", "Expected return value of type Done, but got Step", is_error=True),
            ],
        ),
        ("count_to", {}, [text("count_to", "Tool 'count_to': 'n' is missing. Expected integer.", is_error=True)]),
        ("add", {"a": 1}, [text("add", "2")]),
        ("nope", {}, [text("nope", "Tool nope not found.", is_error=True)]),
    ],
)
async def test_a_workbench_streams_values_as_they_are_and_last_a_result(
    name: str, arguments: dict[str, Any], expected: list[Any]
):
    tools = bench(tool_overrides={"count_to": ToolOverride(name="steps")})
    assert await items(tools.call_tool_stream(name, arguments)) == expected
    assert await items(tools.call_tool_stream(name, arguments)) == expected
