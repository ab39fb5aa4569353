"""Rules as data: which calls a rule matches, and which rule decides."""

import time
from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, Field, SecretStr

from toolcrib import Caller, SetupError, Tool, Workbench, tool
from toolcrib.core import Decision, Hints
from toolcrib.workbench import Rule, Rules, rules_from_data
from toolcrib.workbench.rules import Hint, NotHint


class Options(BaseModel):
    depth: int = 1
    hidden: str = Field("plain", exclude=True)
    named: str = Field("", validation_alias="other-name")


@tool(destructive=True, tags=["money"])
async def db_drop(
    table: str = "logs",
    amount: float | str = 5,
    paths: list[str] | None = None,
    options: Options | None = None,
    price: Decimal = Decimal(1),
    day: date | None = None,
    key: SecretStr | None = None,
    force: bool = False,
    many: Iterable[int] = (),
    anything: Any = None,
) -> str:
    return f"{table} {sum(many)}"


@tool(read_only=True)
async def read() -> str:
    return "read"


async def decision(policy: Any, name: str = "db_drop", arguments: Any = None, *, principal: str = "bob") -> str:
    result = await Workbench([db_drop, read], caller=Caller(principal), policy=policy).call(name, arguments)
    if result.error is not None:
        assert result.error.code == "denied", result.text
        return "deny"
    return "allow" if result.pending is None else "ask"


def test_names_of_one_letter_are_names() -> None:
    assert Rule(tools="r", tags="m", principals="b", do="ask").is_about(Tool(read, name="r", tags=["m"]).spec)
    assert Rule(tools=["r"], tags=["m"], do="ask").is_about(Tool(read, name="r", tags=["m"]).spec)
    for wrong in ({"tools": ""}, {"tools": []}, {"tools": [""]}):
        with pytest.raises(SetupError):
            Rule(**wrong, do="ask")


async def test_the_first_rule_that_matches_decides_and_else_the_default() -> None:
    rules = rules_from_data(
        [
            {"tools": "read", "do": "allow"},
            {"tools": "db.*", "hint": "destructive", "principals": "*", "do": "ask"},
            {"do": "deny"},
        ]
    )
    assert [await decision(rules, name) for name in ("read", "db_drop")] == ["allow", "ask"]
    assert await decision(Rules([])) == "allow"
    assert await decision(Rules([], default="deny")) == "deny"
    assert await decision(Rules(rules, default="deny"), "read") == "allow"
    spec = Tool(db_drop).spec
    ruling = rules(spec, {}, Caller())
    assert ruling.grantable.startswith("rule 2 ")
    assert replace(ruling, grantable="") == Decision("ask", "rule 2")
    assert Rules([], default="deny")(spec, {}, Caller()) == Decision("deny", "default")


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({"tools": "db.*"}, True),
        ({"tools": ["read", "*_drop"]}, True),
        ({"tools": "db"}, False),
        ({"tools": "DB_*"}, True),
        ({"principals": "b*"}, True),
        ({"principals": ["alice", "bob"]}, True),
        ({"principals": "alice"}, False),
        ({"principals": "b.b"}, False),
        ({"tags": "money"}, True),
        ({"tags": "mon"}, False),
        ({"hint": "destructive"}, True),
        ({"hint": "not destructive"}, False),
        ({"hint": "read_only"}, False),
        ({"hint": "not read_only"}, True),
        ({"tools": "db.*", "principals": "alice"}, False),
    ],
)
async def test_every_condition_of_a_rule_must_hold_for_the_call(rule: dict[str, Any], matches: bool) -> None:
    assert await decision(Rules([Rule(do="deny", optional=True, **rule)])) == ("deny" if matches else "allow")


@pytest.mark.parametrize(
    ("where", "arguments", "matches"),
    [
        ({"/table": "secret*"}, {"table": "secrets"}, True),
        ({"/table": "secret*"}, {"table": "a secret"}, False),
        ({"/table": "*"}, {"table": "two\nlines"}, True),
        ({"/amount": {"gt": 100}}, {"amount": 100}, False),
        ({"/amount": {"ge": 100, "lt": 200}}, {"amount": 200}, False),
        ({"/day": {"ge": "2030-01-01"}}, {"day": "2029-06-01"}, False),
        ({"/force": True}, {"force": True}, True),
        ({"/paths/0": "/etc/*"}, {"paths": ["/tmp", "/etc/passwd"]}, False),
        ({"/options/depth": {"gt": 2}}, {"options": {"depth": 3}}, True),
        ({"/options/hidden": "x"}, {"options": {"hidden": "x"}}, True),
        ({"/options/depth": 1}, {"options": {}}, True),
        ({"/key": "abc*"}, {"key": "abcdef"}, True),
        ({"/anything/a~1b/~0": 1}, {"anything": {"a/b": {"~": 1}}}, True),
        ({"/paths": {"exists": True}}, {"paths": []}, True),
        ({"/anything/x": {"exists": False}}, {"anything": {}}, True),
        ({"/anything/x": {"ne": 1}}, {"anything": {}}, True),
        ({"/anything": None}, {"anything": None}, True),
        ({"/table": "a*", "/amount": 1}, {"table": "abc", "amount": 2}, False),
    ],
)
async def test_conditions_on_arguments(where: dict[str, Any], arguments: dict[str, Any], matches: bool) -> None:
    assert await decision(Rules([Rule(do="deny", where=where)]), arguments=arguments) == (
        "deny" if matches else "allow"
    )


async def test_an_argument_that_is_left_out_is_its_default() -> None:
    rules = Rules([Rule(do="deny", where={"/table": "logs", "/amount": {"ge": 5}})])
    assert await decision(rules) == "deny"
    assert await decision(rules, arguments={"table": "other"}) == "allow"


@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        ({"/amount": {"gt": 100}}, {"amount": "a thousand"}),
        ({"/amount": {"gt": 100}}, {"amount": "nan"}),
        ({"/anything": {"lt": "x"}}, {"anything": 5}),
        ({"/anything": "secret*"}, {"anything": ["secrets"]}),
        ({"/many/0": {"eq": 3}}, {"many": [1, 2]}),
    ],
)
async def test_a_call_that_a_rule_cannot_judge_is_denied_with_the_name_of_the_field(
    where: dict[str, Any], arguments: dict[str, Any]
) -> None:
    (pointer,) = where
    for do in ("deny", "ask", "allow"):
        rules = Rules([Rule(do=do, where=where, name="limit")])  # type: ignore[arg-type]
        bench = Workbench([db_drop], policy=rules)
        assert await bench.needs_approval("db_drop", arguments) is None
        result = await bench.call("db_drop", arguments)
        assert (result.error.code, result.metadata["decision"]) == ("denied", {"do": "deny", "rule": "limit"})
        assert result.text.endswith(f"a rule cannot judge what is at '{pointer}'.")


async def test_a_condition_that_is_false_decides_where_another_cannot_be_judged() -> None:
    where = {"/amount": {"gt": 100}, "/table": "users"}
    arguments = {"amount": "a thousand", "table": "logs"}
    assert await decision(Rules([Rule(do="deny", where=where)]), arguments=arguments) == "allow"
    assert await decision(Rules([Rule(do="deny", where=where)]), arguments=arguments | {"table": "users"}) == "deny"


async def test_looking_at_arguments_leaves_them_as_they_are() -> None:
    bench = Workbench([db_drop], policy=Rules([Rule(do="allow", where={"/table": "x"})], default="deny"))
    assert (await bench.call("db_drop", {"table": "x", "many": [1, 2]})).value == "x 3"


async def test_a_rule_has_a_message_a_name_and_who_may_answer() -> None:
    rules = Rules([Rule(do="ask", message="Drop it?", others_only=True, name="four eyes")])
    result = await Workbench([db_drop], policy=rules).call("db_drop")
    assert (result.pending.message, result.pending.others_only) == ("Drop it?", True)
    assert result.metadata["decision"] == {"do": "ask", "rule": "four eyes"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"do": "ask", "tool": "x"},
            "Rule 2: There is no key 'tool'. Did you mean 'tools'? It takes: do, tools, resources, prompts, hint,",
        ),
        ({"tools": "x"}, 'Rule 2: \'do\' is missing. Expected one of "allow", "deny", "ask".'),
        ({"do": "alow"}, 'Rule 2: \'do\': expected one of "allow", "deny", "ask". Did you mean "allow"?'),
        ({"do": "ask", "hint": "destructiv"}, 'Did you mean "destructive"?'),
        ({"do": "ask", "tools": 5}, "'tools': expected string (at least 1 character) or array"),
        ({"do": "ask", "tools": []}, "'tools': expected at least 1 item"),
        ({"do": "ask", "principals": ""}, "'principals': expected at least 1 character"),
        ({"do": "ask", "principals": ["a", 1]}, "'principals[1]': expected string (at least 1 character), got integer"),
        ({"do": "ask", "where": {"path": "x"}}, "'path' in 'where' is not a JSON pointer"),
        (
            {"do": "ask", "where": {"/a": {"gte": 1}}},
            "no operator 'gte' (for '/a'). The operators are: eq, ne, gt, ge,",
        ),
        ({"do": "ask", "where": {"/a": {}}}, "The operators are: eq, ne"),
        ({"do": "ask", "where": {"/a": {"in": "abc"}}}, "'in' for '/a' takes a list."),
        ({"do": "ask", "where": {"/a": {"gt": [1]}}}, "'gt' for '/a' takes a number or a text."),
        ({"do": "ask", "where": {"/a": {"gt": True}}}, "'gt' for '/a' takes a number or a text."),
        ({"do": "ask", "where": {"/a": {"exists": 1}}}, "'exists' for '/a' takes true or false."),
        ({"do": "deny", "others_only": True}, 'needs do = "ask"'),
        ("ask", "Rule 2 is not a table"),
    ],
)
def test_an_invalid_rule_is_refused_with_its_number_and_the_way_out(row: Any, message: str) -> None:
    with pytest.raises(SetupError) as refused:
        rules_from_data([{"do": "allow"}, row])
    assert message in str(refused.value)
    assert str(refused.value).startswith("Rule 2")
    if isinstance(row, dict) and "do" in row and row.keys() <= {one.name for one in fields(Rule)}:
        with pytest.raises(SetupError):
            Rule(**row)


def test_anything_but_rules_is_refused() -> None:
    for wrong in ({"do": "allow"}, "allow"):
        with pytest.raises(SetupError, match="list of tables"):
            rules_from_data(wrong)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="rules_from_data"):
        Rules([{"do": "allow"}])  # type: ignore[list-item]
    with pytest.raises(SetupError, match="'default' of Rules is one of allow, deny, ask, not 'maybe'"):
        Rules([], default="maybe")  # type: ignore[arg-type]


def test_a_rule_has_the_hints_that_a_tool_has() -> None:
    assert get_args(Hint) == Hints.__slots__
    assert get_args(NotHint) == tuple(f"not {name}" for name in Hints.__slots__)


def test_a_pattern_takes_no_time_on_long_text() -> None:
    async def write(text: Annotated[str, "Anything."]) -> None: ...

    rule = Rule(do="deny", where={"/text": "*a*b*a*b*a*b*a*c"})
    started = time.perf_counter()
    assert not rule.matches(Tool(write).spec, {"text": "ab" * 100_000}, Caller())
    assert time.perf_counter() - started < 60  # it takes milliseconds, and by trying each way hours
