"""JSON text from outside: what is read, and what is refused with its place and the reason."""

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, PlainValidator, model_validator

from toolcrib import Tool, Workbench
from toolcrib.schema.json_text import LIMIT_BYTES

from .calling import called, refusal


def any_value(x: Any = None) -> Any:
    return x


def text_only(x: str = "") -> str:
    return x


anything: Tool[..., Any] = Tool(
    lambda **arguments: arguments, name="anything", parameters={"type": "object", "additionalProperties": True}
)


async def refused(source: Any, text: Any) -> str:
    return refusal(await called(source, text)).partition(": ")[2]


NOT_JSON = {
    '{"x": "a"': "EOF while parsing an object at line 1 column 9",
    '{"x": "a"} and so on': "trailing characters at line 1 column 12",
    '{\n  "x": oops\n}': "expected value at line 2 column 8",
    '{"\u00e9\u20ac": oops}': "expected value at line 1 column 8",
    '{"x": NaN}': "NaN and Infinity are not JSON, at line 1 column 7",
    '{"x": -Infinity}': "NaN and Infinity are not JSON, at line 1 column 8",
    '{"x": None}': "None is not JSON, at line 1 column 7; JSON has null",
    '{"x": True}': "True is not JSON, at line 1 column 7; JSON has true",
    '{"x": 1, "x": 2}': "the name 'x' appears twice in an object, at line 1 column 14",
    '{"x": "a\nb"}': (
        "a line break or other control character inside a string at line 2 column 1; write it as an escape, like \\n"
    ),
    '{"x": "\\ud800"}': "a broken or lone \\u escape at line 1 column 14",
    '{"x": "\ud800"}': "a lone surrogate (half of a character) at line 1 column 8",
    "\ufeff{}": "a byte order mark stands before it",
    '{"x": 1e999}': "a number too large for any type",
    '{"x": [-1E+400]}': "a number too large for any type",
}


@pytest.mark.parametrize("source", [any_value, text_only, anything], ids=["any", "text", "bare"])
@pytest.mark.parametrize(("text", "reason"), NOT_JSON.items(), ids=range(len(NOT_JSON)))
async def test_text_that_is_no_json_is_refused_with_the_place_and_the_reason(
    source: Any, text: str, reason: str
) -> None:
    message = await refused(source, text)
    assert message == f"the arguments are not valid JSON: {reason}. Send one JSON object."


@pytest.mark.parametrize("source", [any_value, anything], ids=["any", "bare"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply at line 1 column 207"),
        ('{"x":' * 100_000, "nested too deeply at line 1 column 1006"),
        (f'{{"x": {"9" * 5000}}}', "a number with too many digits at line 1 column 4308"),
    ],
    ids=["arrays", "objects", "digits"],
)
async def test_text_beyond_any_bound_is_refused(source: Any, text: str, reason: str) -> None:
    message = await refused(source, text)
    assert message == f"the arguments are not valid JSON: {reason}. Send one JSON object."


async def test_bytes_that_are_not_utf8_are_refused() -> None:
    message = await refused(text_only, b'{"x": "\xff"}')
    assert message == "the arguments are not valid JSON: byte 8 of it is not UTF-8. Send one JSON object."


@pytest.mark.parametrize("source", [text_only, anything], ids=["typed", "bare"])
@pytest.mark.parametrize(
    ("letter", "as_text"), [("a", str), ("é", str), ("é", str.encode)], ids=["str", "wide", "bytes"]
)
async def test_four_mebibytes_are_read_and_one_byte_more_is_too_large(source: Any, letter: str, as_text: Any) -> None:
    room = LIMIT_BYTES - len('{"x":""}')
    largest = f'{{"x":"{letter * (room // len(letter.encode()))}"}}'
    async with Workbench([source]) as bench:
        [spec] = bench.specs()
        assert (await bench.call(spec.name, as_text(largest))).status == "success"
        result = await bench.call(spec.name, as_text(largest[:-2] + 'a"}'))
    assert result.error is not None
    assert (result.error.code, result.error.retry) == ("too_large", "changed")
    assert result.error.message == (
        f"Tool '{spec.name}': 4194305 bytes of JSON are over the limit of 4194304 bytes. "
        "Send less, or in several calls."
    )


async def test_broken_json_is_a_problem_in_the_details() -> None:
    result = await called(text_only, "{")
    assert result.error is not None
    [problem] = result.error.details["problems"]
    assert (problem["path"], problem["expected"]) == ("", "one JSON object")


async def test_a_number_that_is_none_reaches_no_number_wherever_it_stands() -> None:
    class Loose(BaseModel):
        v: float

    class Open(BaseModel, extra="allow"):
        v: float = 0.0

    class Willing(BaseModel, allow_inf_nan=True):
        v: float = 0.0
        d: Decimal = Decimal(0)

    class Seen(BaseModel):
        v: float

        @model_validator(mode="before")
        @classmethod
        def as_it_came(cls, data: Any) -> Any:
            return {"v": 1.0}

    async def models(
        loose: Loose | None = None,
        open: Open | None = None,
        seen: Seen | None = None,
        willing: Willing | None = None,
        plain: Annotated[float, PlainValidator(float, json_schema_input_type=float)] = 0.0,
    ) -> str:
        return "ran"

    async def free(values: dict[str, Any]) -> str:
        return "ran"

    bench = Workbench([models, free])
    for name, sent in (
        ("models", '{"loose": {"v": %s}}'),
        ("models", '{"open": {"more": %s}}'),
        ("models", '{"seen": {"v": %s}}'),
        ("models", '{"willing": {"v": %s}}'),
        ("models", '{"willing": {"d": %s}}'),
        ("models", '{"plain": %s}'),
        ("free", '{"values": {"v": %s}}'),
    ):
        assert (await bench.call(name, sent % "1.25")).value == "ran", sent
        for number, message in (
            ("NaN", "NaN and Infinity are not JSON"),
            ("-Infinity", "NaN and Infinity are not JSON"),
            ("1e999", "a number too large for any type"),
        ):
            result = await bench.call(name, sent % number)
            assert (result.status, message in result.text) == ("error", True), (sent, number, result.text)
