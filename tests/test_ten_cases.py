"""Ten calls that tool layers get wrong, one test each: sent as a model sends them, to a workbench as it comes."""

import asyncio
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from toolcrib import Result, Workbench, tool
from toolcrib.core import Repair

SECRET = "hunter-of-ten-cases"
LINES = [f"line {number}: {'x' * 90}" for number in range(20_000)]


class Options(BaseModel):
    depth: int


@dataclass
class Given:
    """What the body of a tool was given, and of which kind."""

    value: Any

    def __post_init__(self) -> None:
        self.kind = type(self.value)


given: list[Given] = []


@tool
async def add_up(values: list[int]) -> int:
    """Add numbers up."""
    given.append(Given(values))
    return sum(values)


@tool
async def dig(opts: Options) -> int:
    """Dig so deep."""
    given.append(Given(opts))
    return opts.depth


@tool
async def paint(colour: Literal["red", "green"], coats: int = 1) -> str:
    """Paint the fence."""
    given.append(Given(colour))
    return f"{colour}, {coats} times"


@tool
async def connect() -> None:
    """Connect to the database."""
    raise RuntimeError(f"db password={SECRET} was refused")


@tool
async def read_log() -> str:
    """Give two megabytes of text."""
    return "\n".join(LINES)


@tool(timeout_s=0.3)
def hold() -> None:
    """Hold the thread, longer than anybody waits."""
    time.sleep(60)


@tool(isolation="process", timeout_s=0.3)
def hold_apart(mark: str) -> None:
    """The same in a process of its own, and a mark left at the end."""
    Path(f"{mark}.pid").write_text(str(os.getpid()))
    time.sleep(1.5)
    Path(mark).touch()


async def called(name: str, arguments: str = "{}") -> Result[Any]:
    given.clear()
    async with Workbench([add_up, dig, paint, connect, read_log, hold]) as bench:
        return await bench.call(name, arguments)


def refused(result: Result[Any]) -> tuple[str | None, str, list[Given]]:
    """The code and the words of an error, and what reached the body of the tool."""
    return result.error and result.error.code, result.text, given


async def test_a_list_that_is_sent_as_text_is_read_and_the_repair_noted() -> None:
    result = await called("add_up", json.dumps({"values": "[1,2,3]"}))
    assert (result.value, given, result.repairs) == (6, [Given([1, 2, 3])], (Repair("/values", "string", "array"),))


async def test_an_object_that_is_sent_as_text_is_read_and_the_repair_noted() -> None:
    result = await called("dig", json.dumps({"opts": '{"depth":2}'}))
    assert (result.value, given, result.repairs) == (
        2,
        [Given(Options(depth=2))],
        (Repair("/opts", "string", "object"),),
    )


async def test_numbers_that_are_sent_as_text_inside_a_list_become_numbers() -> None:
    result = await called("add_up", '{"values": ["1", "2"]}')
    assert (result.value, given) == (3, [Given([1, 2])])
    assert result.repairs == (Repair("/values/0", "string", "integer"), Repair("/values/1", "string", "integer"))


async def test_a_model_as_a_parameter_arrives_as_an_instance_of_the_model() -> None:
    result = await called("dig", '{"opts": {"depth": 3}}')
    assert (result.value, [each.kind for each in given], result.repairs) == (3, [Options], ())


async def test_a_misspelt_argument_is_refused_and_the_nearest_named() -> None:
    # One that may be left out: where nobody looks, such a call runs, and differently from what was meant.
    result = await called("paint", '{"colour": "red", "coast": 2}')
    words = "Tool 'paint' takes no argument 'coast'. Did you mean 'coats'? It takes: colour, coats."
    assert refused(result) == ("invalid_arguments", words, [])


async def test_a_value_that_is_none_of_the_choices_is_refused_and_the_choices_named() -> None:
    code, words, reached = refused(await called("paint", '{"colour": "blue"}'))
    assert (code, reached) == ("invalid_arguments", [])
    assert all(part in words for part in ("colour", "red", "green"))


async def test_a_missing_argument_is_named() -> None:
    code, words, reached = refused(await called("paint", '{"coats": 2}'))
    assert (code, reached) == ("invalid_arguments", [])
    assert "'colour'" in words


async def test_the_error_of_an_exception_leaves_out_its_text_which_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = await called("connect")
    assert result.error is not None
    assert (result.error.code, result.text.partition(" (reference ")[0]) == (
        "failed",
        "Tool 'connect' failed: RuntimeError",
    )
    assert SECRET not in json.dumps(result.to_dict())
    reference = result.text.partition(" (reference ")[2].partition(")")[0]
    (entry,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert reference in entry
    assert f"db password={SECRET} was refused" in caplog.text


async def test_two_megabytes_are_shown_in_part_and_the_rest_can_be_read_and_passed_on() -> None:
    async with Workbench([read_log]) as bench:
        result = await bench.call("read_log")
        assert len(result.value or "") > 1_900_000
        assert len(result.text) <= 20_000
        assert LINES[0] in result.text
        assert LINES[-1] in result.text
        assert "read_result" in [spec.name for spec in bench.specs()]
        handle = result.metadata["handle"]
        found = await bench.call("read_result", {"handle": handle, "search": "line 12345:"})
        assert LINES[12345] in found.text


async def test_a_function_that_blocks_is_answered_for_on_time_and_truthfully() -> None:
    async with Workbench([hold]) as bench:
        began = time.monotonic()
        ticks = asyncio.create_task(tick())
        result = await bench.call("hold")
        took_s = time.monotonic() - began
        ticks.cancel()
    assert 0.3 <= took_s < 50
    assert result.error is not None
    assert result.error.code == "timeout"
    assert "Its work may still be running." in result.text
    assert len(ticked) > 5, "the event loop went on meanwhile"


async def test_and_in_a_process_it_is_stopped(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with Workbench([hold_apart]) as bench:
        result = await bench.call("hold_apart", json.dumps({"mark": str(mark)}))
        assert result.error is not None
        assert (result.error.code, "still be running" in result.text) == ("timeout", False)
        worker = int(Path(f"{mark}.pid").read_text())
        with pytest.raises(ProcessLookupError):
            for _ in range(200):
                os.kill(worker, 0)
                await asyncio.sleep(0.01)
        assert not mark.exists()


ticked: list[float] = []


async def tick() -> None:
    ticked.clear()
    while True:
        await asyncio.sleep(0.01)
        ticked.append(time.monotonic())
