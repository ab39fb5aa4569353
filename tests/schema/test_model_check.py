"""A pydantic model as the whole of the arguments."""

from datetime import date
from typing import Any

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel, ValidationError

from toolcrib import ToolError
from toolcrib.core import Repair
from toolcrib.schema import ModelReader, model_check


class Inner(BaseModel):
    x: int = 0


class Order(BaseModel):
    count: int
    tags: list[int] = []
    when: date | None = None
    inner: Inner = Inner()


def checked(raw: Any, *, repair: bool = True, model: type[BaseModel] = Order) -> Any:
    check = model_check("buy", model, schema=model.model_json_schema(), arguments=lambda args: {"args": args})
    return check(raw, repair)


@pytest.mark.parametrize("raw", ['{"count": "3", "when": "2026-01-02"}', {"count": "3", "when": "2026-01-02"}])
def test_the_model_takes_what_its_own_validation_takes(raw: Any):
    assert checked(raw, repair=False) == ({"args": Order(count=3, when=date(2026, 1, 2))}, ())


def test_a_mapping_may_hold_what_json_does_not_have():
    inner = Inner(x=2)
    (arguments, _) = checked({"count": 1, "when": date(2026, 1, 2), "inner": inner})
    assert arguments["args"].inner is inner


def test_what_the_model_refuses_is_repaired():
    assert checked('{"Count": 1, "tags": "[7]"}') == (
        {"args": Order(count=1, tags=[7])},
        (Repair("/Count", "key", "key"), Repair("/tags", "string", "array")),
    )


def test_no_arguments_are_an_empty_object():
    assert checked("", model=Inner) == ({"args": Inner()}, (Repair("", "empty", "object"),))
    assert checked(None, model=Inner) == ({"args": Inner()}, ())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"cuont": 2}', "Tool 'buy' takes no argument 'cuont'. Did you mean 'count'? It takes: count,"),
        ({"count": 1, "nope": 2}, "Tool 'buy' takes no argument 'nope'. It takes: count, tags, when, inner."),
        ('{"count": "many"}', "Tool 'buy': 'count': expected integer, got string."),
        ({}, "Tool 'buy': 'count' is missing. Expected integer."),
        ('{"count": 1, "count": 2}', "Tool 'buy': the arguments are not valid JSON: the name 'count' appears twice"),
        ('{"count": NaN}', "Tool 'buy': the arguments are not valid JSON: NaN and Infinity are not JSON"),
        ("[1]", "Tool 'buy': the arguments: expected object, got array."),
    ],
)
def test_what_cannot_be_repaired_is_explained(raw: Any, message: str):
    schema = {**Order.model_json_schema(), "additionalProperties": False}
    with pytest.raises(ToolError) as error:
        model_check("buy", Order, schema=schema, arguments=lambda args: {"args": args})(raw, True)
    assert error.value.message.startswith(message)
    assert error.value.code == "invalid_arguments"


def test_without_repair_nothing_is_repaired():
    with pytest.raises(ToolError, match="'tags': expected array of integer, got string"):
        checked('{"count": 1, "tags": "[7]"}', repair=False)


def test_an_unknown_name_inside_is_refused():
    with pytest.raises(ValidationError, match=r"inner\.y"):
        ModelReader(Order)({"count": 1, "inner": {"x": 1, "y": 2}})


def test_an_unknown_name_is_an_error_of_pydantic_to_those_who_read():
    with pytest.raises(ValidationError) as error:
        ModelReader(Order)({"count": "x", "nope": 1})
    assert [(e["type"], e["loc"]) for e in error.value.errors()] == [
        ("int_parsing", ("count",)),
        ("extra_forbidden", ("nope",)),
    ]


class Aliased(BaseModel):
    one: int = Field(alias="first")
    two: int = Field(validation_alias=AliasChoices("second", AliasPath("pair", 1)))


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True)
    one: int = Field(alias="first")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.mark.parametrize(
    ("model", "raw", "refused"),
    [
        (Aliased, {"first": 1, "second": 2}, {"one": 1, "first": 1, "second": 2}),
        (Aliased, {"first": 1, "pair": [1, 2]}, {"first": 1, "pair": [1, 2], "two": 2}),
        (ByName, {"one": 1}, {"one": 1, "two": 1}),
        (ByName, {"first": 1}, {"first": 1, "two": 1}),
    ],
)
def test_the_names_are_those_that_the_model_reads(model: type[BaseModel], raw: dict[str, Any], refused: Any):
    ModelReader(model)(raw)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        ModelReader(model)(refused)


def test_a_model_that_takes_any_name_is_given_every_name():
    assert ModelReader(Open)({"a": 1}).model_extra == {"a": 1}
    assert ModelReader(RootModel[dict[str, int]])({"a": 1}) == RootModel[dict[str, int]]({"a": 1})
