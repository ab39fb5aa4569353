"""Rules over calls whose JSON is not what the tool gets: types that decode, normalize, or make one name of several."""

import json
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    Base64Bytes,
    Base64Str,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    StringConstraints,
)

from toolcrib import Workbench, tool
from toolcrib.workbench import Rule, Rules

Lower = Annotated[str, StringConstraints(to_lower=True)]


class Trimmed(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    limits: dict[str, int]


def tool_of(kind: Any) -> tuple[Any, list[Any]]:
    """A tool with one argument, and the list of what it gets."""
    got: list[Any] = []

    def work(value: Any) -> str:
        got.append(value)
        return "done"

    work.__annotations__ = {"value": kind, "return": str}
    return tool(work), got


async def code_under(rule: Rule, kind: Any, value: Any, default: Any = "allow") -> str:
    work, got = tool_of(kind)
    result = await Workbench([work], policy=Rules([rule], default=default)).call("work", json.dumps({"value": value}))
    assert (result.error is None) is bool(got)
    return "runs" if result.error is None else result.error.code


@pytest.mark.parametrize(
    ("kind", "condition", "sent"),
    [
        (Base64Bytes, "YWJj", "YWJj"),
        (Base64Bytes, "YWJj", "YWJj\n"),
        (Base64Str, {"eq": "YWJj"}, "YW Jj"),
        (Base64Bytes | None, {"in": ["YWJj"]}, "YWJj"),
        (list[Base64Str] | Base64Str, {"eq": "YWJj"}, "YWJj"),
        (PurePosixPath, "/etc/passwd", "/etc/./passwd"),
        (PurePosixPath, {"eq": "/etc/passwd"}, "/etc/passwd/"),
        (Json[dict[str, int]], {"eq": '{"a":1}'}, '{"a":1}'),
        (Annotated[str, AfterValidator(lambda text: [text])], {"eq": "rm"}, "rm"),
    ],
)
async def test_a_rule_that_denies_a_value_denies_it_however_its_type_reads_it(
    kind: Any, condition: Any, sent: str
) -> None:
    rule = Rule(do="deny", where={"/value": condition})
    assert await code_under(rule, kind, sent) == "denied"


async def test_a_rule_still_allows_what_a_type_decodes() -> None:
    rule = Rule(do="allow", where={"/value": "YWJj"})
    assert await code_under(rule, Base64Bytes, "YWJj", default="deny") == "runs"
    assert await code_under(rule, Base64Bytes, "YWJk", default="deny") == "denied"


@pytest.mark.parametrize(
    ("kind", "pointer", "sent"),
    [
        (dict[int, int], "/value/1", {"01": 5000}),
        (dict[Lower, int], "/value/root", {"ROOT": 5000}),
        (Trimmed, "/value/limits/a", {"limits": {" a": 5000}}),
        (dict[Lower, dict[int, int]], "/value/a/1", {"A": {"+1": 5000}}),
        (dict[int, int], "/value/1", {"1": 1, "01": 5000}),
        (dict[Decimal, int], "/value/1", {"1.00": 5000}),
        (dict[Decimal, int], "/value/1.00", {"1.00": 5000}),
        (dict[Decimal, int], "/value/100", {"1e2": 5000}),
        (dict[Decimal, int], "/value/1", {"1": 5000, "2.0": 1}),
        (dict[Decimal, int], "/value/1", {"1e999999": 1, "1.0": 5000}),
        (dict[float, int], "/value/1", {"1.0": 5000}),
        (dict[float, int], "/value/0", {"-0.0": 5000}),
        (dict[Lower, int], "/value/root", {"root": 1, "ROOT": 5000}),
        (
            Annotated[dict[str, int], AfterValidator(lambda found: dict(sorted(found.items())))],
            "/value/b",
            {"b": 5000, "a": 1},
        ),
        (Annotated[dict[str, int], AfterValidator(lambda found: {"b": max(found.values())})], "/value/b", {"a": 5000}),
    ],
)
async def test_a_member_is_found_by_the_key_that_the_tool_gets(kind: Any, pointer: str, sent: Any) -> None:
    assert await code_under(Rule(do="deny", where={pointer: {"gt": 100}}), kind, sent) == "denied"


async def test_members_stay_distinct_where_their_keys_have_several_names() -> None:
    for pointer, code in {"/value/1": "runs", "/value/2": "denied", "/value/2.0": "denied"}.items():
        rule = Rule(do="deny", where={pointer: {"gt": 100}})
        assert await code_under(rule, dict[Decimal, int], {"1": 5, "2.0": 5000}) == code


class Order(BaseModel):
    amount: int = Field(1, validation_alias=AliasChoices("amount", "sum"))


class Other(BaseModel):
    amount: int
    sum: int


async def test_a_name_that_another_type_has_as_an_alias_allows_nothing() -> None:
    def pay(order: Order, other: Other) -> str:
        return "paid"

    bench = Workbench([pay], policy=Rules([Rule(do="allow", where={"/other/amount": {"lt": 100}})], default="deny"))
    results = [
        await bench.call("pay", {"order": {}, "other": {"amount": amount, "sum": total}})
        for amount, total in ((5000, 1), (1, 1))
    ]
    assert [result.status for result in results] == ["error", "success"]
