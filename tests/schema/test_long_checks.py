"""Large and hard arguments: the event loop goes on, the deadline counts, and every call ends with a clear result."""

import asyncio
import gc
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import perf_counter, process_time
from typing import Any, Literal

import jiter
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolcrib import Call, Result, Tool, Workbench, tool
from toolcrib.core import ToolSpec
from toolcrib.schema.parse import LIMIT_BYTES, LONG_CHARS, JSONError, parse_json
from toolcrib.tools import from_schema

Choice = Literal[tuple(f"value number {number}" for number in range(5000))]  # type: ignore[valid-type]


class Row(BaseModel):
    a: int
    b: str


def takes(kind: Any, **options: Any) -> Tool[..., Any]:
    async def take(v: Any) -> int:
        return len(v) if hasattr(v, "__len__") else 0

    take.__annotations__["v"] = kind
    return tool(take, **options)


async def while_the_loop_runs(call: Callable[[], Awaitable[Result[Any]]]) -> tuple[Result[Any], float]:
    """The result, and for how long the event loop stood still at most, where it stood still least of four times."""
    ends = [await once_while_the_loop_runs(call()) for _ in range(4)]
    return min(ends, key=lambda end: end[1])


async def once_while_the_loop_runs(call: Awaitable[Result[Any]]) -> tuple[Result[Any], float]:
    """The result, and for how long the event loop stood still at most.

    Where the process itself did not run, the machine was busy: a pause counts as the time that the process computed in
    it. Nor do the objects of other tests count, which a collection of garbage would look through.
    """
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            last, computed = perf_counter(), process_time()
            await asyncio.sleep(0.001)
            longest = max(longest, min(perf_counter() - last, process_time() - computed))

    gc.collect()
    gc.freeze()
    beating = asyncio.create_task(beat())
    try:
        await asyncio.sleep(0.01)
        longest = 0.0
        result = await call
        await asyncio.sleep(0.005)
    finally:
        beating.cancel()
        gc.unfreeze()
    return result, longest


def own_s(kind: Any, text: str) -> float:
    """How long pydantic itself computes."""
    start = process_time()
    with suppress(ValidationError):
        TypeAdapter(dict[str, kind]).validator.validate_json(text, strict=True)
    return process_time() - start


@pytest.mark.full
async def test_near_misses_of_a_long_literal_are_matched_without_holding_the_loop() -> None:
    misses = [f"valu number {number * 97}" for number in range(45)]
    async with Workbench([takes(list[Choice])]) as bench:
        result, longest = await while_the_loop_runs(lambda: bench.call("take", {"v": misses}))
    assert result.error is not None
    assert "'v[3]': expected one of " in result.error.message
    assert 'Did you mean "value number 291"?' in result.error.message
    assert "- and 25 more." in result.error.message
    assert longest < 0.5


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (list[int], '{"v":[' + "1.0," * 500_000 + "1.0]}"),
        (list[int], '{"v":[' + '"x",' * 500_000 + "1]}"),
        (list[int] | list[list[str]] | list[bool], '{"v":[' + "1.5," * 200_000 + "1.5]}"),
        (list[list[int] | list[bool]], '{"v":[' + "[1.5]," * 200_000 + "[1]]}"),
        (dict[str, int], '{"v":{' + ",".join(f'"{number}":"x"' for number in range(100_000)) + "}}"),
        (list[Row], json.dumps({"v": [{"a": str(number), "b": number} for number in range(50_000)]})),
        (list[int], '{"v":[' + '[[[[{"a":{"b":{}}}]]]],' * 100_000 + "1]}"),
    ],
)
async def test_large_arguments_that_are_refused_do_not_hold_the_loop(kind: Any, text: str) -> None:
    async with Workbench([takes(kind)]) as bench:
        result, longest = await while_the_loop_runs(lambda: bench.call("take", text))
    assert result.error is not None
    assert result.error.code == "invalid_arguments"
    assert "'v" in result.error.message  # a place, and not only that something is wrong
    assert longest < 1.5 * own_s(kind, text) + 0.25


@pytest.mark.full
async def test_repairs_are_made_in_large_arguments_or_refused_in_words() -> None:
    def rows(count: int) -> str:
        return json.dumps({"v": [{"a": str(number), "b": number} for number in range(count)]})

    async with Workbench([takes(list[Row])]) as bench:
        for count in (1, 100, 3_000):
            result = await bench.call("take", rows(count))
            assert (result.value, len(result.repairs)) == (count, 2 * count)
        result = await bench.call("take", rows(40_000))
    assert result.error is not None
    assert result.error.message.startswith(
        "Tool 'take': 50 or more problems with its arguments.\n- 'v[0].a': expected "
    )
    assert result.error.message.endswith(
        "\nThere is too much in them to repair it: send them exactly as the schema has them."
    )


async def test_the_deadline_counts_the_check() -> None:
    ran: list[int] = []

    @tool
    async def take(v: list[int] | list[list[str]] | list[bool]) -> int:
        ran.append(1)
        return len(v)

    hard = '{"v":[' + '"1.5",' * 400_000 + "1.5]}"
    valid = '{"v":[' + "1," * 1_500_000 + "1]}"
    async with Workbench([take]) as bench:
        result = await bench.call(Call("take", hard, timeout_s=0.2))
        assert result.error is not None
        assert result.error.code == "timeout"
        # Here the check itself takes as long as pydantic does, and what is late is not begun.
        result = await bench.call(Call("take", valid, timeout_s=0.0001))
        assert result.error is not None
        assert (result.error.code, ran) == ("timeout", [])
        assert (await bench.call("take", {"v": [1]})).value == 1


@pytest.mark.full
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
async def test_a_recursive_union_of_a_bare_schema_is_refused_in_time(keyword: str) -> None:
    ref = {"$ref": "#/$defs/node"}
    union: Any = {keyword: [{"type": "object", "properties": {"a": ref}}, {"type": "array", "items": ref}]}
    for _ in range(3):
        union = {keyword: [union, {"type": "object", "properties": {"a": union, "b": ref}, "required": ["a"]}]}
    schema = {"type": "object", "properties": {"x": ref}, "$defs": {"node": union}}
    deep: Any = "no"
    for _ in range(40):
        deep = {"a": deep}

    async with Workbench([from_schema(ToolSpec("take", "", schema), lambda **_: 1, runs="sync")]) as bench:
        result, longest = await while_the_loop_runs(lambda: bench.call("take", {"x": deep}))
    assert result.error is not None
    assert result.error.code == "invalid_arguments"
    assert longest < 0.5


@pytest.mark.full
async def test_valid_large_arguments_are_read_again_without_holding_the_loop() -> None:
    text = '{"v":{' + ",".join(f'"key{number}":{number}' for number in range(30_000)) + "}}"
    assert len(text) < LIMIT_BYTES
    async with Workbench([takes(dict[str, Any])]) as bench:
        result, longest = await while_the_loop_runs(lambda: bench.call("take", text))
        assert result.value == 30_000
        assert longest < 1.5 * own_s(dict[str, Any], text) + 0.25
        for more in ('"key17":1}}', '"\\u006bey17":1}}', '"x":{"y":1, "y":2}}}'):
            twice = f"{text[:-2]},{more}"
            result = await bench.call("take", twice)
            assert result.error is not None
            assert "appears twice in an object, at line 1 column " in result.error.message
        result = await bench.call("take", text[:-2] + ',"x":1e999}}')
        assert result.error is not None
        assert "a number too large for any type" in result.error.message


@pytest.mark.full
async def test_megabytes_of_valid_objects_are_read_by_pydantic_only() -> None:
    deep = '[[[[{"a":{"b":{}}}]]]],'
    text = '{"v":[' + deep * 40_000 + "1]}"
    async with Workbench([takes(list[Any])]) as bench:
        result, longest = await while_the_loop_runs(lambda: bench.call("take", text))
        assert result.value == 40_001
        assert longest < 1.5 * own_s(list[Any], text) + 0.1
        text = '{"v":[' + deep * 8_000 + "1]}"
        for bad in ("NaN", "-Infinity", "1e999", "9" * 400 + ".5"):
            result = await bench.call("take", text[:-3] + f"{bad}]}}")
            assert result.error is not None
            assert "not valid JSON" in result.error.message
        for good in ("1e99", "1" * 299, "-0.1E-5", '"NaN"'):
            assert (await bench.call("take", text[:-3] + f"{good}]}}")).error is None


async def test_arguments_over_the_limit_are_too_large_however_they_come() -> None:
    async with Workbench([takes(str)]) as bench:
        large = json.dumps({"v": "é" * LIMIT_BYTES}, ensure_ascii=False)
        for arguments in ({"v": "x" * LIMIT_BYTES}, large, large.encode()):
            result = await bench.call("take", arguments)
            assert result.error is not None
            assert result.error.code == "too_large"


def test_names_that_stand_twice_are_found_in_long_text_as_in_short() -> None:
    rng = random.Random(7)

    def value(depth: int) -> str:
        if depth > 3 or rng.random() < 0.3:
            return rng.choice(["1", '"a{b"', '"}"', '"\\\\"', '"\\""', "null", '"a\\": 1"', "[]", "{}"])
        if rng.random() < 0.3:
            return "[" + ", ".join(value(depth + 1) for _ in range(rng.randrange(4))) + "]"
        names = [rng.choice(['"a"', '"b"', '"\\u0061"', '"{"', '"c\\""', '"d\\\\"']) for _ in range(rng.randrange(5))]
        return "{" + ",\n ".join(f"{name} : {value(depth + 1)}" for name in names) + "}"

    for _ in range(2_000):
        text = value(0)
        try:
            jiter.from_json(text.encode(), catch_duplicate_keys=True)
            sound = True
        except ValueError:
            sound = False
        try:
            parse_json(text + " " * LONG_CHARS)
            found = True
        except JSONError as error:
            assert "appears twice" in str(error)
            found = False
        assert sound is found, text
