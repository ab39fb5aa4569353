"""Rules that name principals, groups and claims: what they decide, and what is not listed because of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Caller, Crib, SetupError, tool
from toolcrib.core import Decision, ToolSpec
from toolcrib.workbench import Rule, Rules, rules_from_data


@tool
def drop(number: int = 1) -> int:
    return number


@tool
def read() -> str:
    return "read"


def caller(name: str, *groups: str, **claims: str) -> Caller:
    return Caller(name, groups=frozenset(groups), claims=frozenset(claims.items()))


@pytest.mark.parametrize(
    ("rule", "matching", "others"),
    [
        (
            {"groups": "admins"},
            [caller("a", "admins"), caller("b", "staff", "admins")],
            [caller("c"), caller("d", "admin")],
        ),
        (
            {"groups": ["adm*", "ops"]},
            [caller("a", "admins"), caller("b", "ops")],
            [caller("admins"), caller("c", "dev")],
        ),
        ({"claims": {"org": "acme"}}, [caller("a", org="acme")], [caller("b", org="acme2"), caller("c", orga="acme")]),
        (
            {"claims": {"org": ["a*", "b"]}},
            [caller("a", org="acme"), caller("b", org="b")],
            [caller("acme"), caller("c", org="c")],
        ),
        (
            {"claims": {"org": "x", "sure": "true"}},
            [caller("a", org="x", sure="true")],
            [caller("b", org="x"), caller("c", sure="true")],
        ),
        (
            {"groups": "g", "principals": "key:*"},
            [caller("key:a", "g")],
            [caller("key:a"), caller("https://i|key:a", "g")],
        ),
    ],
)
def test_a_rule_is_for_callers_of_its_groups_and_claims(
    rule: dict[str, Any], matching: list[Caller], others: list[Caller]
) -> None:
    for do in ("allow", "deny", "ask"):
        (made,) = rules_from_data([{"do": do, **rule}])
        assert [made.is_for(one) for one in (*matching, *others)] == [True] * len(matching) + [False] * len(others)
        assert not made.is_for_all
    assert Rule(do="ask").is_for_all


def test_a_claim_with_several_values_matches_by_any_of_them() -> None:
    one = Caller("a", claims=frozenset({("scope", "read"), ("scope", "write")}))
    assert Rule(do="allow", claims={"scope": "write"}).is_for(one)
    assert not Rule(do="allow", claims={"scope": "read write"}).is_for(one)


@pytest.mark.parametrize(
    "wrong",
    [{"groups": [1]}, {"claims": {"org": ""}}, {"claims": {"org": []}}, {"claims": {"org": True}}, {"claims": "org"}],
)
def test_a_rule_with_wrong_groups_or_claims_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=next(iter(wrong))):
        rules_from_data([{"do": "allow", **wrong}])


async def listed(policy: Any, who: Caller) -> list[str]:
    async with Crib([drop, read], policy=policy) as crib:
        return [spec.name for spec in crib.workbench(who).specs()]


async def test_what_a_rule_denies_wholly_to_a_caller_is_not_listed_for_them() -> None:
    rules = Rules([Rule(do="allow", tools="drop", groups="admins"), Rule(do="deny", tools="drop")])
    assert await listed(rules, caller("a", "admins")) == ["drop", "read"]
    assert await listed(rules, caller("a")) == ["read"]
    by_default = Rules([Rule(do="ask", tools="read", claims={"org": "acme"})], default="deny")
    assert await listed(by_default, caller("a", org="acme")) == ["read"]
    assert await listed(by_default, caller("a")) == []


async def test_what_only_some_arguments_or_a_person_decide_is_listed() -> None:
    where = {"/number": {"gt": 10}}
    assert await listed(Rules([Rule(do="deny", tools="drop", where=where)]), caller("a")) == ["drop", "read"]
    some = Rules([Rule(do="allow", tools="drop", where=where), Rule(do="deny", tools="drop")])
    assert await listed(some, caller("a")) == ["drop", "read"]
    assert await listed(Rules([Rule(do="ask")]), caller("a")) == ["drop", "read"]

    def own(spec: ToolSpec, arguments: Mapping[str, Any], who: Caller) -> Decision:
        return Decision("deny", "all")

    assert await listed(own, caller("a")) == ["drop", "read"]  # it cannot be known for every argument


async def test_a_hidden_tool_is_denied_and_is_not_suggested() -> None:
    rules = Rules([Rule(do="deny", tools="drop", message="Not for you.")])
    async with Crib([drop, read], policy=rules) as crib:
        bench = crib.workbench(caller("a"))
        denied, unknown = await bench.call("drop"), await bench.call("dorp")
        assert (denied.error.code, "Not for you." in denied.text) == ("denied", True)
        assert "drop" not in unknown.text
        crib.registry.add(tool(name="drop2")(lambda: 1))
        assert [spec.name for spec in bench.specs()] == ["read", "drop2"]


async def test_callers_of_one_principal_with_other_groups_are_two_and_share_what_is_the_principals() -> None:
    one, other = caller("a", "staff"), caller("a")
    assert one != other
    assert {one: 1}[caller("a", "staff")] == 1
    assert "acme" not in repr(caller("a", org="acme"))
    rules = Rules([Rule(do="allow", groups="staff"), Rule(do="deny")])
    async with Crib([read], policy=rules) as crib:
        results = [await crib.workbench(each).call("read") for each in (one, other)]
        assert [result.status for result in results] == ["success", "error"]
    for wrong in ("staff", ["staff"], {"staff"}):
        with pytest.raises(SetupError, match="frozensets"):
            Caller("a", groups=wrong)  # type: ignore[arg-type]
