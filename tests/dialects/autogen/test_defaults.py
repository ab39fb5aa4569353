"""The defaults of AutoGen's names that no other test covers."""

import base64
import inspect
from typing import Any

import PIL.Image
import pytest
from pydantic import BaseModel

from toolcrib.dialects.autogen import CancellationToken, Image
from toolcrib.dialects.autogen.models import TopLogprob
from toolcrib.dialects.autogen.tools import (
    BaseStreamTool,
    BaseTool,
    BaseToolWithState,
    FunctionTool,
    StaticStreamWorkbench,
    StaticWorkbench,
    StreamTool,
    StreamWorkbench,
    Tool,
    Workbench,
)


@pytest.mark.parametrize(
    "method",
    [
        *(Tool.run_json, BaseTool.run_json, StreamTool.run_json_stream, BaseStreamTool.run_json_stream),
        *(Workbench.call_tool, StaticWorkbench.call_tool, StreamWorkbench.call_tool_stream),
        StaticStreamWorkbench.call_tool_stream,
    ],
    ids=lambda method: method.__qualname__,
)
def test_the_id_of_a_call_may_be_left_out_everywhere(method: Any) -> None:
    assert inspect.signature(method).parameters["call_id"].default is None


@pytest.mark.parametrize(
    "method",
    [
        *(Workbench.call_tool, StaticWorkbench.call_tool, StreamWorkbench.call_tool_stream),
        StaticStreamWorkbench.call_tool_stream,
    ],
    ids=lambda method: method.__qualname__,
)
def test_a_workbench_is_called_with_a_name_alone(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    assert [(name, parameters[name].default) for name in ("arguments", "cancellation_token")] == [
        ("arguments", None),
        ("cancellation_token", None),
    ]


def test_an_image_as_text_is_base64_and_nothing_else() -> None:
    png = base64.b64decode(Image(PIL.Image.new("RGB", (1, 1))).to_base64(), validate=True)
    assert png.endswith(b"IEND\xaeB`\x82")


def test_the_bytes_of_a_token_may_be_left_out() -> None:
    assert TopLogprob(logprob=-0.5) == TopLogprob(-0.5, None)


class Count(BaseModel):
    number: int = 0


class Counter(BaseToolWithState[Count, Count, Count]):
    def __init__(self) -> None:
        super().__init__(Count, Count, Count, "count", "Count.")
        self.number = 0

    async def run(self, args: Count, cancellation_token: CancellationToken) -> Count:
        self.number += args.number
        return Count(number=self.number)

    def save_state(self) -> Count:
        return Count(number=self.number)

    def load_state(self, state: Count) -> None:
        self.number = state.number


async def test_reset_goes_back_to_the_start_and_not_to_the_first_call() -> None:
    counter = Counter()
    bench = StaticWorkbench([counter])
    await bench.start()
    counter.number = 5
    await bench.reset()
    assert (await bench.call_tool("count", {"number": 1})).to_text() == '{"number": 1}'


async def test_a_workbench_without_secrets_redacts_nothing() -> None:
    def state() -> str:
        return "nothing is broken"

    assert inspect.signature(StaticWorkbench).parameters["secrets"].default == ()
    assert (await StaticWorkbench([FunctionTool(state, "How it is.")]).call_tool("state")).to_text() == state()
