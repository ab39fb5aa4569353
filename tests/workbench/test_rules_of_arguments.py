"""Conditions of rules: by which names, with values of which types, and what can never match."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AliasChoices, AliasPath, Base64Bytes, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from toolcrib import Caller, SetupError, Tool, ToolError, ToolSpec, Workbench, tool
from toolcrib.workbench import Rule, Rules
from toolcrib.workbench.rules import place_of

from .offering import Offering


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    amount: int = Field(1, validation_alias=AliasChoices("amt", "sum"))
    note: str = Field("", alias="Note")
    weight: int = Field(1, validation_alias=AliasChoices("grams", AliasPath("sizes", 0, "grams")))
    inner: "Order | None" = None


@dataclass
class Line:
    item: Annotated[str, Field(alias="article")] = "x"


class Person(TypedDict, total=False):
    name: Annotated[str, Field(alias="Name")]


@tool
def pay(
    order: Order | None = None,
    total: Annotated[int, Field(alias="sum_total")] = 1,
    line: Line | None = None,
    person: Person | None = None,
    price: Decimal = Decimal(1),
    number: int | str = 1,
    data: bytes = b"",
    packed: Base64Bytes = b"",
    at: datetime | None = None,
    day: date | None = None,
    key: UUID | None = None,
    tags: list[str] | None = None,
    counts: dict[str, int] | None = None,
    size: Literal["S", "M"] = "S",
    force: bool = False,
    count: int = 0,
    pair: tuple[int, str] = (1, "a"),
    anything: Any = None,
) -> str:
    return "paid"


async def outcome(rule: Rule, arguments: Any, default: Any = "allow") -> str:
    result = await Workbench([pay], policy=Rules([rule], default=default)).call("pay", arguments)
    if result.error is not None:
        assert result.error.code == "denied", result.text
        return "deny"
    return result.status


ALIASES: list[tuple[str, Any, Any]] = [
    *(
        (f"/order/{written}", 5, {"order": {sent: 5}})
        for written in ("amount", "amt", "sum")
        for sent in ("amount", "amt", "sum")
    ),
    *((f"/order/inner/{written}", 5, {"order": {"inner": {"sum": 5}}}) for written in ("amount", "amt", "sum")),
    *((f"/order/{written}", "secret", {"order": {"Note": "secret"}}) for written in ("note", "Note")),
    *(
        (f"/order/{written}", {"gt": 4}, {"order": sent})
        for written in ("weight", "grams")
        for sent in ({"grams": 5}, {"sizes": [{"grams": 5}]}, {"inner": None, "sizes": [{"grams": 5}]})
    ),
    *((f"/{written}", 5, {"sum_total": 5}) for written in ("total", "sum_total")),
    *((f"/line/{written}", "a*", {"line": {"article": "abc"}}) for written in ("item", "article")),
    *((f"/person/{written}", "a*", {"person": {"Name": "abc"}}) for written in ("name", "Name")),
]


@pytest.mark.parametrize(("pointer", "condition", "arguments"), ALIASES)
async def test_a_member_is_found_by_every_name_that_is_accepted(pointer: str, condition: Any, arguments: Any) -> None:
    assert await outcome(Rule(do="deny", where={pointer: condition}), arguments) == "deny"
    assert await outcome(Rule(do="allow", where={pointer: condition}), arguments, "deny") == "success"
    assert await outcome(Rule(do="deny", where={pointer: condition}), {}) == "success"


NOON = "2030-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("where", "value", "holds"),
    [
        ({"/price": 100}, "100.00", True),
        ({"/price": "100"}, "1e2", True),
        ({"/price": {"in": [50, 100]}}, "100.0", True),
        ({"/price": {"gt": 100}}, "100.01", True),
        ({"/price": {"gt": "99"}}, "100", True),
        ({"/price": {"ne": 100}}, "100.00", False),
        ({"/price": 0.1}, "0.10", True),
        ({"/price": 12345678901234567}, "12345678901234568", False),
        ({"/number": 5}, "5", True),
        ({"/number": "5"}, 5, True),
        ({"/number": {"in": ["5"]}}, 5, True),
        ({"/number": {"gt": 9}}, "10", True),
        ({"/number": "5*"}, 51, True),
        ({"/at": NOON}, "2030-01-01T14:00:00+02:00", True),
        ({"/at": {"lt": NOON}}, "2030-01-01T13:00:00+02:00", True),
        ({"/at": {"gt": NOON}}, "2030-01-01T13:00:00+02:00", False),
        ({"/at": {"ge": "2030-01-01"}}, "2030-06-01T00:00:00+02:00", True),
        ({"/day": {"in": ["2030-01-01"]}}, "2030-01-01", True),
        ({"/key": "12345678-1234-5678-1234-567812345678"}, "12345678123456781234567812345678", True),
        ({"/key": "abcdef00-*"}, "abcdef00-1234-5678-1234-567812345678", True),
        ({"/packed": "YWJj"}, "YWJj\n", True),
        ({"/packed": {"in": ["YWJj"]}}, "YWJk", False),
        ({"/data": "abc"}, "abc", True),
        ({"/anything": [1, {"a": 2}]}, [1.0, {"a": 2}], True),
        ({"/anything": [1]}, [True], False),
        ({"/anything": "*"}, None, False),
        ({"/anything": "*"}, True, False),
        ({"/anything": "a-b*"}, "a_bc", False),
        ({"/anything": "a-b*"}, "A-BC", False),
        ({"/anything": {"eq": {"a": 1}}}, {"a": 1.0}, True),
        ({"/anything": {"eq": {"a": 1}}}, {"a": 1, "b": 2}, False),
        ({"/anything": {"eq": {"a": 1}}}, 1, False),
        ({"/anything": {"eq": [1]}}, 1, False),
        ({"/anything": [1]}, [1, 2], False),
        ({"/anything": "5"}, 5, True),
        ({"/tags/1": "b"}, ["a"], False),
        ({"/tags/1": "b"}, ["a", "b"], True),
        ({"/tags/1": {"exists": True}}, ["a"], False),
        ({"/number": {"gt": "5"}}, "abc", True),
        ({"/number": {"lt": "abc"}}, "5", True),
        ({"/number": {"ge": 5}}, "5", True),
        ({"/number": {"le": 5}}, "5.5", False),
        ({"/at": {"lt": NOON}}, "2030-01-02T02:00:01", False),
        ({"/at": {"gt": NOON}}, "2030-01-02T02:00:01", True),
    ],
)
def test_values_are_compared_and_not_how_they_are_written(where: dict[str, Any], value: Any, holds: bool) -> None:
    """By the JSON value in the document of the call."""
    (pointer,) = where
    for do in ("deny", "ask", "allow"):
        rule = Rule(do=do, where=where)  # type: ignore[arg-type]
        assert rule.matches(Tool(pay).spec, {pointer.split("/")[1]: value}, Caller()) is holds


@pytest.mark.parametrize(
    ("where", "value", "of_any", "of_every"),
    [
        ({"/counts/*": {"gt": 5}}, {"a": 1, "b": 6}, True, False),
        ({"/tags/*": "b"}, ["a", "b"], True, False),
        ({"/tags/*": {"ne": "b"}}, ["a", "b"], True, False),
        ({"/tags/*": "b*"}, ["b", "bc"], True, True),
        ({"/tags/*": "b"}, [], False, False),
        ({"/anything/*/to/*": "b"}, [{"to": ["b"]}, {"to": ["b", "a"]}], True, False),
        ({"/anything/*/to/*": "b"}, [{"to": ["b"]}, {"to": []}], True, False),
    ],
)
def test_to_allow_a_condition_holds_for_every_member(
    where: dict[str, Any], value: Any, of_any: bool, of_every: bool
) -> None:
    """Else a model adds another recipient to one who is allowed."""
    (pointer,) = where
    for do, holds in (("deny", of_any), ("ask", of_any), ("allow", of_every)):
        rule = Rule(do=do, where=where)  # type: ignore[arg-type]
        assert rule.matches(Tool(pay).spec, {pointer.split("/")[1]: value}, Caller()) is holds


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ({"/at": {"gt": NOON}}, "2030-01-01T13:00:00"),  # where? It is earlier in some places
        ({"/at": {"lt": NOON}}, "2030-01-02T02:00:00"),
        ({"/anything": {"gt": 5}}, "abc"),
        ({"/anything": {"gt": "abc"}}, 5),
        ({"/anything": {"gt": 5}}, [6]),
        ({"/anything": {"gt": 0}}, True),
        ({"/price": {"gt": 100}}, "NaN"),
        ({"/key": "ABCDEF00-*"}, "ABCDEF00-1234-5678-1234-567812345678"),
        ({"/key": "abcdef00-*"}, "ABCDEF00-1234-5678-1234-567812345678"),
    ],
)
def test_a_value_that_cannot_be_compared_is_not_judged(where: dict[str, Any], value: Any) -> None:
    (pointer,) = where
    for do in ("deny", "ask", "allow"):
        rule = Rule(do=do, where=where)  # type: ignore[arg-type]
        with pytest.raises(ToolError, match=f"cannot judge what is at '{pointer}'"):
            rule.matches(Tool(pay).spec, {pointer.removeprefix("/"): value}, Caller())


NEVER: list[tuple[dict[str, Any], str]] = [
    ({"/forse": 5}, "takes nothing at '/forse'. Did you mean 'force'?"),
    ({"/totl": 5}, "Did you mean 'sum_total'?"),
    ({"/order/amount/x": 1}, "takes nothing at '/order/amount/x'"),
    ({"/tags/first": "a"}, "takes nothing at '/tags/first'"),
    ({"/count": "admin"}, "is of type integer, which is never what the rule compares it with"),
    ({"/count": {"in": ["a", None]}}, "of type integer"),
    ({"/force": 1}, "of type boolean"),
    ({"/count": True}, "of type integer"),
    ({"/tags": "a*"}, "of type array or null"),
    ({"/pair/2": 3}, "takes nothing at '/pair/2'"),
    ({"/size": {"in": ["L", "XL"]}}, "is one of a few values"),
    ({"/at": "tomorrow"}, "of type null or string"),
    ({"/day": {"gt": 100.5}}, "of type null or string"),
    ({"/count": 5, "/force": "yes"}, "'/force'"),
    ({"/packed": "YW!Jj"}, "of type string"),
]


@pytest.mark.parametrize(("where", "reason"), NEVER)
async def test_a_rule_that_can_never_match_is_an_error_at_the_start(where: dict[str, Any], reason: str) -> None:
    bench = Workbench([pay], policy=Rules([Rule(do="allow", tools="other"), Rule(do="deny", where=where)]))
    with pytest.raises(SetupError) as refused:
        await bench.start()
    assert str(refused.value).startswith("rule 2 (deny) can never match: ")
    assert reason in str(refused.value)
    result = await bench.call("pay", {})
    assert result.error is not None


@pytest.mark.parametrize(
    "where",
    [
        {"/nothing": {"exists": False}},
        {"/nothing": {"ne": 5}},
        {"/anything/at/all": 5},
        {"/size": "[SM]"} | {"/size": "*"},
        {"/size": {"in": ["L", "M"]}},
        {"/tags/*": "a"},
        {"/counts/*": 5},
        {"/order/*": 5},
        {"/count": "5*"},
        {"/number": "abc"},
        {"/order/inner/inner/inner/amt": 5},
    ],
)
async def test_a_rule_that_can_match_is_not(where: dict[str, Any]) -> None:
    async with Workbench([pay], policy=Rules([Rule(do="deny", where=where)])):
        pass


@pytest.mark.parametrize(("more", "is_open"), [({}, False), ({"additionalProperties": True}, True)])
async def test_an_argument_that_a_schema_does_not_list_is_misspelt_unless_it_takes_others(
    more: dict[str, Any], is_open: bool
) -> None:
    @tool(parameters={"type": "object", "properties": {"amount": INTEGER}, **more})
    def send(**arguments: Any) -> str:
        return "sent"

    bench = Workbench([send], policy=Rules([Rule(do="deny", tools="send", where={"/Amount": {"gt": 100}})]))
    if is_open:
        assert (await bench.call("send", {"Amount": 101})).status == "error"
    else:
        with pytest.raises(SetupError, match=r"'send' takes nothing at '/Amount'\. Did you mean 'amount'"):
            await bench.start()


async def test_a_pattern_of_names_is_about_the_tools_that_have_the_argument() -> None:
    def pay_other() -> str:
        return "paid"

    for tools in ("*", "pay*"):
        async with Workbench([pay, pay_other], policy=Rules([Rule(do="deny", tools=tools, where={"/count": 1})])) as b:
            assert (await b.call("pay_other")).status == "success"
    with pytest.raises(SetupError, match="'pay_other' takes nothing at '/count'"):
        await Workbench(
            [pay, pay_other], policy=Rules([Rule(do="deny", tools=["pay", "pay_other"], where={"/count": 1})])
        ).start()


async def test_a_pattern_of_names_with_a_tool_that_it_can_never_judge_is_an_error() -> None:
    def send(count: list[int]) -> str:
        return "sent"

    def log(count: Literal["all", "none"] = "all") -> str:
        return "logged"

    for where, is_judged in (({"/count": {"gt": 1}}, False), ({"/count": "5*"}, False), ({"/count": 1}, True)):
        async with Workbench([pay, log], policy=Rules([Rule(do="ask", where=where)])):
            pass  # what is never more than 1 is judged
        bench = Workbench([pay, send, log], policy=Rules([Rule(do="ask", where=where)]))
        if is_judged:
            await bench.start()
            assert (await bench.call("send", {"count": [1]})).status == "success"
            await bench.stop()
        else:
            with pytest.raises(SetupError, match="what 'send' takes at '/count' is of type array, which is never"):
                await bench.start()


async def test_a_tool_that_comes_later_and_that_a_rule_can_never_match_is_withheld() -> None:
    def send(amount: int = 1) -> str:
        return "sent"

    def send_again(total: int = 1) -> str:
        return "sent again"

    send_again.__name__ = "send"
    source = Offering(send)
    rules = Rules([Rule(name="limit", do="ask", tools="send", where={"/amount": {"gt": 100}})])
    async with Workbench([source, pay], policy=rules) as bench:
        assert (await bench.call("send", {"amount": 5})).value == "sent"
        source.offer(send_again)
        result = await bench.call("send", {"total": 5})
        assert (result.error and result.error.code, "sent again" in result.text) == ("denied", False)
        assert "a rule about it can never match" in result.text
        assert [problem.reason for problem in bench.problems] == [
            "limit (ask) can never match: 'send' takes nothing at '/amount'."
        ]
        assert (await bench.call("pay")).status == "success"
        source.offer(send)
        assert bench.problems == []
        assert (await bench.call("send", {"amount": 5})).value == "sent"


def test_a_file_whose_rule_can_never_match_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "pays.py").write_text(
        "from toolcrib import tool\n\n@tool\ndef pay(amount: int) -> str:\n    return 'paid'\n"
    )
    file = tmp_path / "toolcrib.toml"
    file.write_text("[[source]]\nfrom = 'pays.py'\n\n[[rule]]\ndo = 'deny'\nwhere = { '/amont' = { gt = 100 } }\n")
    with pytest.raises(SetupError, match="Did you mean 'amount'"), Workbench.from_config(file):
        pass


INTEGER = {"type": "integer"}
ANY = frozenset[str]()


@pytest.mark.parametrize(
    ("pointer", "types"),
    [
        ("/list/0", {"integer"}),
        ("/list/*", {"integer"}),
        ("/list/x", ANY),
        ("/list/3", ANY),
        ("/pair/0", {"string"}),
        ("/pair/1", {"integer"}),
        ("/pair/*", {"string", "integer"}),
        ("/text/0", ANY),
        ("/object/member", None),
        ("/object/0", None),
        ("/members/a", {"integer"}),
        ("/members/0", None),
        ("/items/0", {"integer"}),
        ("/items/a", ANY),
        ("/either/a", {"integer"}),
        ("/either/0", {"integer"}),
        ("/anything/a/0", None),
        ("/never", ANY),
    ],
)
def test_where_a_pointer_leads_to_by_the_schema_of_a_tool(pointer: str, types: set[str] | None) -> None:
    """*types* are those of JSON that can be there; None for any, and none where nothing can."""
    properties: dict[str, Any] = {
        "list": {"type": "array", "items": INTEGER, "maxItems": 3},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": INTEGER},
        "text": {"type": "string", "items": INTEGER},
        "object": {"type": "object", "items": INTEGER},
        "members": {"properties": {"a": INTEGER}, "additionalProperties": True},
        "items": {"items": INTEGER},
        "either": {"type": ["object", "array"], "additionalProperties": INTEGER, "items": INTEGER},
        "anything": True,
        "never": False,
    }
    place = place_of(ToolSpec("t", "", {"type": "object", "properties": properties}), pointer)
    assert place is None if types is ANY else place is not None and place.types == types
