"""Rules and limits that name nothing: a beginner's misspelt name, which would let through what it is to stop."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Crib, SetupError, Workbench, tool
from toolcrib.workbench import Limit, Limiter, Rule, Rules

from ..waiting import until
from .offering import Offering


@tool(tags=["shop"])
async def delete_order(number: int = 1) -> str:
    return f"deleted {number}"


@tool
async def read() -> str:
    return "read"


@tool
async def wipe() -> str:
    return "wiped"


class Server(Offering):
    """A source that is not required; *is_down* as long as it cannot be started."""

    required = False
    restart_after_s = 0.01

    def __init__(self, *tools: Any, is_down: bool = False) -> None:
        super().__init__(*tools)
        self.is_down = is_down
        self.is_listed = False

    async def start(self) -> None:
        if self.is_down:
            raise OSError("down")
        self.is_listed = True

    def tools(self) -> list[Any]:
        return self.offered if self.is_listed else []


async def outcome(bench: Workbench, name: str) -> str:
    result = await bench.call(name)
    return result.error.code if result.error is not None else result.status


def error_of(rules: list[Rule], sources: Any = (delete_order, read), **options: Any) -> str:
    with pytest.raises(SetupError) as refused, Workbench(list(sources), policy=Rules(rules), **options):
        pass
    return str(refused.value)


@pytest.mark.parametrize("do", ["allow", "deny", "ask"])
@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"tools": "delete_ordr"}, "names 'delete_ordr', which no tool has. Did you mean 'delete_order'?"),
        ({"tags": "shopp"}, "names 'shopp', which no tool has. Did you mean 'shop'?"),
        ({"tools": "zzz", "where": {"/number": 1}}, "names 'zzz', which no tool has. If it may be missing: optional"),
        ({"tools": "delete_order", "tags": ["shop", "none"]}, "names 'none', which no tool has."),
    ],
)
async def test_a_rule_that_names_nothing_is_an_error_at_the_start(
    do: Any, names: dict[str, Any], sentence: str
) -> None:
    rules = Rules([Rule(do="allow", tools="read"), Rule(do=do, **names)])
    for made in (Workbench, Crib):
        with pytest.raises(SetupError) as refused:
            await made([delete_order, read], policy=rules).start()
        assert str(refused.value).startswith(f"rule 2 ({do}) {sentence}")
    assert (await Workbench([delete_order, read], policy=rules).call("delete_order")).status == "error"
    async with Workbench([delete_order, read], policy=Rules([Rule(do=do, optional=True, **names)])) as bench:
        assert await outcome(bench, "read") == "success"


def test_one_misspelt_name_beside_a_right_one_is_an_error_too() -> None:
    """The case that a look at the whole rule misses: it matches a tool, and not the one that it is to stop."""
    assert "names 'wpe', which no tool has" in error_of([Rule(do="deny", tools=["delete_order", "wpe"])])


@pytest.mark.parametrize(("do", "fails"), [("allow", False), ("deny", True), ("ask", True)])
def test_a_pattern_that_matches_nothing_is_an_error_where_the_rule_restricts(do: Any, fails: bool) -> None:
    rule = Rule(do=do, tools=["read", "drop_*"])
    if fails:
        assert f"rule 1 ({do}) names 'drop_*', which no tool has." in error_of([rule])
    else:
        with Workbench([read], policy=Rules([rule])):
            pass
    with Workbench([read], policy=Rules([Rule(do=do), Rule(do=do, hint="destructive"), Rule(do=do, tools="**")])):
        pass  # these name nothing by its name
    with Workbench([read], policy=Rules([Rule(do=do, tools=["read_result", "find_tools"])])):
        pass  # which are the workbench's own


async def test_rules_that_restrict_match_a_name_in_any_case_and_those_that_allow_do_not() -> None:
    @tool(name="Delete_Order")
    async def other() -> str:
        return "deleted"

    for do, code in (("deny", "denied"), ("ask", "pending")):
        for pattern in ("DELETE*", "delete_order", "Delete_Order"):
            rules = Rules([Rule(do=do, tools=pattern)])  # type: ignore[arg-type]
            async with Workbench([other, read], policy=rules) as bench:
                assert [await outcome(bench, name) for name in ("Delete_Order", "read")] == [code, "success"]
    async with Workbench([other], policy=Rules([Rule(do="allow", tools="delete*")], default="deny")) as bench:
        assert await outcome(bench, "Delete_Order") == "denied"
    message = "rule 1 (allow) names 'delete_order', which no tool has. Did you mean 'Delete_Order'?"
    assert message in error_of([Rule(do="allow", tools="delete_order")], [other])


def test_a_limit_that_names_a_tool_that_is_not_there_is_an_error_unless_it_is_shared_or_optional() -> None:
    limit = Limit("delete_ordr", concurrency=1)
    message = "limit 2 names 'delete_ordr', which no tool has. Did you mean 'delete_order'?"
    assert message in error_of([], limits=[Limit(rate="1/s"), limit])
    optional = Limit("delete_ordr", concurrency=1, optional=True)
    for limits in (Limiter([limit]), [optional], [Limit("d_*", concurrency=1)], iter([Limit("read", concurrency=1)])):
        with Workbench([delete_order, read], limits=limits):
            pass


@pytest.mark.parametrize("made", [Workbench, Crib])
async def test_a_misspelt_rule_is_an_error_once_all_servers_are_there(made: Any) -> None:
    for sources in ([Server(delete_order), read], [Server(read), delete_order]):
        with pytest.raises(SetupError, match=r"names 'delete_ordr', which no tool has\. Did you mean 'delete_order'"):
            await made(sources, policy=Rules([Rule(do="ask", tools="delete_ordr")])).start()
        async with made(sources, policy=Rules([Rule(do="ask", tools="delete_order")])) as started:
            assert started.problems == []


async def test_tools_of_a_source_that_starts_later_are_withheld_until_every_rule_names_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Server(delete_order, is_down=True), Server(wipe, is_down=True)
    rules = Rules([Rule(do="ask", tools="wipe", name="wipes")])
    async with Workbench([first, second, read], policy=rules) as bench:
        assert await outcome(bench, "read") == "success"  # a server that is down costs nothing that was there
        assert "wipes (ask) names 'wipe', which no tool has." in caplog.text
        first.is_down = False
        await until(lambda: "delete_order" in bench.registry)
        result = await bench.call("delete_order")
        assert (result.error and result.error.code) == "denied"
        assert "a rule names a tool or tag that does not exist" in result.text
        assert any("wipes (ask) names 'wipe'" in problem.reason for problem in bench.problems)
        second.is_down = False
        await until(lambda: "wipe" in bench.registry)
        assert [await outcome(bench, name) for name in ("delete_order", "wipe")] == ["success", "pending"]
        assert bench.problems == []


async def test_a_server_does_not_get_rid_of_a_rule_by_another_name_for_its_tool() -> None:
    server = Server(delete_order)
    async with Workbench([server, read], policy=Rules([Rule(do="ask", tools="delete_order")])) as bench:
        assert await outcome(bench, "delete_order") == "pending"
        server.offer(wipe)
        assert [await outcome(bench, name) for name in ("wipe", "read")] == ["denied", "success"]
        server.offer(wipe, delete_order)
        assert [await outcome(bench, name) for name in ("wipe", "delete_order")] == ["success", "pending"]


async def test_a_tool_that_no_longer_has_the_tag_of_a_rule_is_withheld() -> None:
    @tool(name="delete_order")
    async def untagged() -> str:
        return "deleted"

    server = Server(delete_order)
    async with Workbench([server, read], policy=Rules([Rule(do="ask", tags="shop")])) as bench:
        assert await outcome(bench, "delete_order") == "pending"
        server.offer(untagged)
        assert [await outcome(bench, name) for name in ("delete_order", "read")] == ["denied", "success"]
        server.offer(delete_order)
        assert await outcome(bench, "delete_order") == "pending"


@pytest.mark.parametrize("condition", [{"groups": []}, {"groups": ""}, {"tags": []}, {"tags": [""]}])
def test_a_condition_that_lists_nothing_is_refused_and_does_not_hold_for_all(condition: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match=rf"'{next(iter(condition))}.*expected at least 1"):
        Rule(do="allow", **condition)


def test_a_file_that_cannot_be_loaded_does_not_make_rules_about_its_tools_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "right.py").write_text("from toolcrib import tool\n\n@tool\ndef read() -> str:\n    return 'read'\n")
    (tmp_path / "wrong.py").write_text("import nothing_of_this_name\n")
    file = tmp_path / "toolcrib.toml"
    file.write_text("[[source]]\nfrom = 'right.py'\n[[rule]]\ndo = 'deny'\ntools = 'wipe'\n")
    with pytest.raises(SetupError, match="names 'wipe', which no tool has"), Workbench.from_config(file):
        pass
    file.write_text(f"{file.read_text()}[[source]]\nfrom = 'wrong.py'\nrequired = false\n")
    with Workbench.from_config(file) as bench:
        assert bench.call_sync("read").value == "read"
    assert "toolcrib.toml:3: This rule (deny) names 'wipe', which no tool has." in caplog.text
