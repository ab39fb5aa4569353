"""Tools as classes: their schemas, their arguments, their state."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolcrib import Approve, Call, Workbench
from toolcrib.core import Repair
from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import BaseTool, FunctionTool, StaticWorkbench

from .counter import Counter


class Numbers(BaseModel):
    a: int
    b: int = Field(default=2, description="The second.")


class Sum(BaseModel):
    total: int


class Add(BaseTool[Numbers, Sum]):
    def __init__(self, name: str = "add", args_type: Any = Numbers, *, strict: bool = False) -> None:
        super().__init__(args_type, Sum, name, "Add two numbers.", strict)

    async def run(self, args: Numbers, cancellation_token: CancellationToken) -> Sum:
        return Sum(total=args.a + args.b)


class Node(BaseModel):
    """A tree."""

    value: int
    children: list["Node"] = []


class Trees(BaseModel):
    first: Node
    leaf: Numbers


def test_references_are_put_in_place_and_recursive_models_keep_their_definitions():
    node = {
        "title": "Node",
        "description": "A tree.",
        "type": "object",
        "properties": {
            "value": {"title": "Value", "type": "integer"},
            "children": {"title": "Children", "type": "array", "default": [], "items": {"$ref": "#/$defs/Node"}},
        },
        "required": ["value"],
    }
    numbers = Add().schema["parameters"]
    assert Add(args_type=Trees).schema["parameters"] == {
        "type": "object",
        "properties": {
            "first": {"$ref": "#/$defs/Node"},
            "leaf": {
                "title": "Numbers",
                "type": "object",
                "properties": numbers["properties"],
                "required": ["a"],
            },
        },
        "required": ["first", "leaf"],
        "additionalProperties": False,
        "$defs": {"Node": node},
    }
    assert Add(args_type=Node).schema["parameters"] == {
        "type": "object",
        "properties": node["properties"],
        "required": ["value"],
        "additionalProperties": False,
        "$defs": {"Node": node},
    }


class AnyNames(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


def test_strictness_is_checked_when_the_schema_is_read():
    with_default, open_to_others = Add(strict=True), Add(args_type=AnyNames, strict=True)
    with pytest.raises(ValueError, match="not all input arguments are marked as required"):
        _ = with_default.schema
    with pytest.raises(ValueError, match="additional argument is also enabled"):
        _ = open_to_others.schema
    assert (Add(args_type=Sum, strict=True).schema["strict"], Add().schema["strict"]) == (True, False)

    def increase(a: int, by: int = 1) -> int:
        return a + by

    assert FunctionTool(increase, "Increase.").schema["strict"] is False
    with pytest.raises(ValueError, match="Default arguments are not allowed in strict mode"):
        _ = FunctionTool(increase, "Increase.", strict=True).schema


@pytest.mark.parametrize(
    ("args", "kinds"),
    [
        ({"a": "x"}, ["int_parsing"]),
        ({}, ["missing"]),
        ({"a": 1, "c": 1}, ["extra_forbidden"]),
        (None, ["model_type"]),
        (3, ["model_type"]),
        ('{"a": 1}', ["model_type"]),
    ],
)
async def test_run_json_raises_what_pydantic_does(args: Any, kinds: list[str]):
    with pytest.raises(ValidationError) as error:
        await Add().run_json(args, CancellationToken())
    assert [each["type"] for each in error.value.errors()] == kinds


# Beside the tools of Toolcrib


async def test_a_tool_works_in_a_workbench_of_toolcrib():
    async with Workbench([Add(), Counter()]) as bench:
        assert [spec.name for spec in bench.specs()] == ["add", "counter"]
        assert bench.specs()[0].input_schema == Add().schema["parameters"]
        result = await bench.call("add", '{"A": "40"}')
        assert (result.value, result.text) == (Sum(total=42), '{"total":42}')
        assert result.repairs == (Repair("/A", "key", "key"), Repair("/A", "string", "integer"))
        refused = await bench.call("add", {"a": 1, "c": 2})
        assert refused.text == "Tool 'add' takes no argument 'c'. It takes: a, b."


async def test_an_approved_call_runs_with_the_model_that_its_validators_made():
    class Query(BaseModel):
        text: str
        _words: list[str] = []

        @model_validator(mode="after")
        def split(self) -> "Query":
            self._words = self.text.split()
            return self

    class Search(BaseTool[Query, BaseModel]):
        def __init__(self) -> None:
            super().__init__(Query, BaseModel, "search", "Search.")

        async def run(self, args: Query, cancellation_token: CancellationToken) -> Any:
            return args._words

    bench = Workbench([Search()], policy=lambda *_: "ask")
    pending = (await bench.call("search", {"text": "a b"})).pending
    assert pending is not None
    await bench.answer(pending.id, Approve(), by="alice")
    assert (await bench.call("search", {"text": "a b"})).value == ["a", "b"]


async def test_a_tool_that_reads_its_arguments_itself_does_so(caplog: pytest.LogCaptureFixture):
    class Own(Add):
        async def run_json(
            self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
        ) -> Any:
            return [call_id, await super().run_json({"a": args["a"]}, cancellation_token)]

    with caplog.at_level(logging.INFO, "autogen_core.events"):
        result = await Workbench([Own()]).call(Call("add", {"a": 1, "b": 5}, id="c1"))
    assert result.value == ["c1", Sum(total=3)]
    assert caplog.records == []  # a workbench of Toolcrib has a record of its own, and secrets that are not known here


async def waits() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("begins", [True, False])
async def test_a_cancelled_token_is_told_as_cancelled_and_to_those_who_catch_exceptions(begins: bool):
    token = CancellationToken()
    run = token.link_future(asyncio.ensure_future(FunctionTool(waits, "").run_json({}, token)))
    for _ in range(begins):
        await asyncio.sleep(0)
    token.cancel()
    with pytest.raises(asyncio.CancelledError, match="Tool 'waits' was cancelled") as raised:
        await run
    assert isinstance(raised.value, Exception)
    assert run.cancelled()


async def test_a_cancelled_task_raises_what_asyncio_does():
    run = asyncio.ensure_future(FunctionTool(waits, "").run_json({}, CancellationToken()))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await run
    assert not isinstance(raised.value, Exception)


async def test_the_model_of_a_call_is_validated_once():
    """Each call cost two validations of all that was sent. Second case: JSON text, in a workbench of Toolcrib."""
    validated: list[int] = []

    class Counted(BaseModel):
        numbers: list[int]

        @model_validator(mode="after")
        def count(self) -> "Counted":
            validated.append(len(self.numbers))
            return self

    class Counting(BaseTool[Counted, Any]):
        def __init__(self) -> None:
            super().__init__(Counted, int, "count", "Count.")  # type: ignore[arg-type]

        async def run(self, args: Counted, cancellation_token: CancellationToken) -> int:
            return len(args.numbers)

    result = await StaticWorkbench([Counting()]).call_tool("count", {"numbers": [1, 2]})
    assert (result.to_text(), validated) == ("2", [2])
    assert (await Workbench([Counting()]).call("count", '{"numbers": [1, 2, 3]}')).value == 3
    assert validated == [2, 3]
