"""Reads of resources and prompts that are filled in go the way of calls: rules, limits, deadline, redaction, log.

URI templates match as regular expressions, in linear time; values never lead out of a folder.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from toolcrib import Approve, Caller, Crib, Text, ToolError, tool
from toolcrib.core import DefinitionError
from toolcrib.core.source import Prompt, PromptMessage, Resource, ResourceContent, ResourceTemplate
from toolcrib.record import CallLog
from toolcrib.workbench import Limit, Rule, Rules
from toolcrib.workbench.resources import URITemplate

from ..held import held, seconds_of

SECRET = "sk-1234567890123"


@tool
async def delete(number: str = "1") -> str:
    return "deleted"


class Database:
    """A source of resources and prompts, as a server of another team is. It notes what reaches it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.followed: list[str] = []

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def tools(self) -> Sequence[Any]:
        return (delete,)

    async def resources(self) -> Sequence[Resource]:
        return [Resource(uri=f"db://{name}", name=name) for name in ("public/1", "secret/1")]

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [ResourceTemplate(uri_template="db://{kind}/{id}", name="rows")]

    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]:
        self.asked.append(uri)
        return [ResourceContent(uri=uri, data=f"row {SECRET}"), ResourceContent(uri=uri, data=b"\x00")]

    async def follow_resource(self, uri: str, /) -> None:
        self.followed.append(uri)

    async def unfollow_resource(self, uri: str, /) -> None:
        self.followed.remove(uri)

    async def prompts(self) -> Sequence[Prompt]:
        return [Prompt(name="delete"), Prompt(name="greet")]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], /) -> Sequence[PromptMessage]:
        self.asked.append(name)
        return [PromptMessage("user", Text(f"{name} {dict(arguments)} {SECRET}"))]


def crib_of(*rules: Rule, default: Any = "allow", **options: Any) -> tuple[Crib, Database]:
    database = Database()
    policy = Rules(rules, default=default) if rules or default != "allow" else None
    return Crib([database], policy=policy, secrets=[SECRET], **options), database


def outcome(result: Any) -> str:
    return result.status if result.error is None else result.error.code


async def test_who_is_denied_everything_sees_and_reads_nothing() -> None:
    crib, database = crib_of(Rule(do="deny", principals="eve"))
    async with crib:
        eve, ada = crib.workbench(Caller("eve")), crib.workbench(Caller("ada"))
        assert [await eve.offers.resources(), await eve.offers.prompts()] == [[], []]
        assert await eve.offers.resource_templates() == []
        for uri in ("db://public/1", "db://secret/1", "db://none/1", "toolcrib://results/result_x"):
            result = await eve.offers.read(uri)
            assert (outcome(result), result.text) == ("unknown_tool", f"There is no resource at '{uri}'.")
        result = await eve.offers.get_prompt("greet", {})
        assert (outcome(result), result.text) == ("unknown_tool", "There is no prompt 'greet'.")
        assert outcome(await eve.offers.follow("db://public/1")) == "unknown_tool"
        assert (database.asked, database.followed) == ([], [])
        assert [each.uri for each in await ada.offers.resources()] == ["db://public/1", "db://secret/1"]
        assert outcome(await ada.offers.read("db://public/1")) == "success"


async def test_what_is_denied_cannot_be_told_from_what_is_not_there() -> None:
    """The second case: the error of a denied read says nothing that the error of a missing one does not."""
    crib, _ = crib_of(Rule(do="deny", resources="db://secret/*"), Rule(do="deny", prompts="delete"))
    crib.resources.add("own://{id}", lambda id: id)
    async with crib, crib.workbench() as bench:
        denied = await bench.offers.read("db://secret/1")
        missing = await bench.offers.read("own://a%00")
        for result, uri in ((denied, "db://secret/1"), (missing, "own://a%00")):
            assert (result.error and result.error.code, result.metadata) == ("unknown_tool", {})
            assert (result.text, result.error and result.error.details) == (f"There is no resource at '{uri}'.", {})


@pytest.mark.parametrize(
    ("rule", "tools", "resources", "prompts"),
    [
        ({}, False, False, False),
        ({"tools": "*"}, False, True, True),
        ({"resources": "*"}, True, False, True),
        ({"prompts": "*"}, True, True, False),
        ({"tools": "delete", "resources": "db://secret/*"}, False, True, True),
        ({"prompts": "DELETE"}, True, True, True),
        ({"hint": "read_only"}, True, False, False),
        ({"tags": ["none"], "optional": True}, True, True, True),
    ],
)
async def test_a_rule_is_about_what_it_names_and_one_that_names_nothing_about_all(
    rule: dict[str, Any], tools: bool, resources: bool, prompts: bool
) -> None:
    crib, _ = crib_of(Rule(do="deny", **rule))
    async with crib, crib.workbench() as bench:
        results = [
            await bench.call("delete"),
            await bench.offers.read("db://public/1"),
            await bench.offers.get_prompt("greet", {}),
        ]
        assert [result.error is None for result in results] == [tools, resources, prompts]


async def test_a_prompt_with_the_name_of_a_tool_is_not_that_tool() -> None:
    crib, _ = crib_of(Rule(do="ask", tools="delete"), default="deny")
    async with crib, crib.workbench() as bench:
        assert outcome(await bench.call("delete")) == "pending"
        assert outcome(await bench.offers.get_prompt("delete", {})) == "unknown_tool"
        assert outcome(await bench.call("prompts/get delete")) == "unknown_tool"
        assert outcome(await bench.call("resources/read db://public/1")) == "unknown_tool"


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "DB://Secret/1",
            "db://%73ecret/1",
            "db://secret/%31",
            "db://public/../secret/1",
            "db://public/./../secret/1",
        ),
        *("db://public/%2e%2E/secret/1", "db://public/%252e%252e/secret/1", "db://sec\tret/1", "db:\\\\secret/1"),
        *("db://%2Fsecret/1", "db://secret%5C1", " db://secret/1", "db://secret/1\x00"),
    ],
)
async def test_no_spelling_of_a_uri_passes_a_rule(uri: str) -> None:
    """A server reads some of these as `db://secret/1`: found beside the case of an absolute path."""
    crib, database = crib_of(Rule(do="deny", resources="db://secret/*"))
    async with crib, crib.workbench() as bench:
        assert outcome(await bench.offers.read(uri)) == "unknown_tool"
    crib, strict = crib_of(Rule(do="allow", resources="db://public/*"), default="deny")
    async with crib, crib.workbench() as bench:
        assert outcome(await bench.offers.read(uri)) == "unknown_tool"
        assert outcome(await bench.offers.read("db://public/%41")) == "success"
    assert (database.asked, strict.asked) == ([], ["db://public/%41"])


@pytest.mark.parametrize("value", ["%2Fetc%2Fpasswd", "..", "%2e%2e", "C:%5Cx", "%5c%5chost", "%252Fetc", "a%2F..%2Fb"])
async def test_a_value_of_a_template_that_leads_elsewhere_is_not_found_anywhere(value: str) -> None:
    """Neither here nor, the second case, at a server that has such a template, or that another template leads to."""
    crib, database = crib_of()
    crib.resources.add("own://{id}", lambda id: id)
    async with crib, crib.workbench() as bench:
        for uri in (f"own://{value}", f"db://x/{value}"):
            assert outcome(await bench.offers.read(uri)) == "unknown_tool"
        assert (await bench.offers.read("own://a%2Fb")).unwrap()[0].data == "a/b"
    assert database.asked == []


async def test_a_read_that_a_rule_asks_about_is_read_once_when_it_is_approved() -> None:
    crib, database = crib_of(Rule(do="ask", resources="db://*", message="Read it?"), Rule(do="ask", prompts="delete"))
    async with crib, crib.workbench(Caller("ada")) as bench:
        pending = (await bench.offers.read("db://public/1")).pending
        assert (pending.kind, pending.tool, pending.message) == (
            "approval",
            "resources/read db://public/1",
            "Read it?",
        )
        await crib.answer(pending.id, Approve(), by="bob")
        assert outcome(await bench.offers.read("db://secret/1")) == "pending"  # another one
        assert outcome(await bench.offers.follow("db://public/1")) == "pending"  # and another thing to do
        assert outcome(await bench.offers.read("db://public/1")) == "success"
        assert outcome(await bench.offers.read("db://public/1")) == "pending"
        asked = (await bench.offers.get_prompt("delete", {"a": "1"})).pending
        await crib.answer(asked.id, Approve(), by="bob")
        assert outcome(await bench.call("delete", {"a": "1"})) == "invalid_arguments"
        assert outcome(await bench.offers.get_prompt("delete", {"a": "2"})) == "pending"
        assert outcome(await bench.offers.get_prompt("delete", {"a": "1"})) == "success"
    assert database.asked == ["db://public/1", "delete"]


async def test_rules_judge_the_arguments_of_a_prompt() -> None:
    crib, _ = crib_of(Rule(do="deny", prompts="greet", where={"/who": "root*"}))
    async with crib, crib.workbench() as bench:
        outcomes = [outcome(await bench.offers.get_prompt("greet", {"who": who})) for who in ("root", "ada")]
        assert outcomes == ["unknown_tool", "success"]


async def test_a_policy_of_the_program_sees_reads_too() -> None:
    seen: list[tuple[str, str, Mapping[str, Any]]] = []

    def policy(spec: Any, arguments: Mapping[str, Any], _: Caller) -> Any:
        seen.append((spec.kind, spec.name, dict(arguments)))
        return "deny" if spec.kind == "resource" else "allow"

    async with Crib([database := Database()], policy=policy) as crib, crib.workbench() as bench:
        assert outcome(await bench.offers.read("db://public/1")) == "unknown_tool"
        assert outcome(await bench.offers.get_prompt("greet", {"a": "b"})) == "success"
    assert seen == [("resource", "resources/read db://public/1", {}), ("prompt", "prompts/get greet", {"a": "b"})]
    assert database.asked == ["greet"]


async def test_reads_are_logged_and_redacted() -> None:
    log = CallLog(with_content=True)
    crib, _ = crib_of(Rule(do="deny", resources="db://secret/*"), recorder=(log,))
    async with crib, crib.workbench(Caller("ada")) as bench:
        read = (await bench.offers.read(f"db://public/{SECRET}")).unwrap()
        assert [part.data for part in read] == ["row [secret]", b"\x00"]
        (message,) = (await bench.offers.get_prompt("greet", {"a": SECRET})).unwrap()
        assert message.content.text == "greet {'a': '[secret]'} [secret]"
        await bench.offers.read("db://secret/1")
        await bench.offers.read("x" * 10_000)
    records = [(record.tool, record.code, record.decision) for record in [*log]]
    assert records == [
        ("resources/read db://public/[secret]", None, "allow"),
        ("prompts/get greet", None, "allow"),
        ("resources/read db://secret/1", "denied", "deny"),
        (f"resources/read {'x' * 185}…", "unknown_tool", None),
    ]
    assert SECRET not in str([*log])
    assert [record.caller.principal for record in [*log]] == ["ada"] * 4
    assert [*log][1].arguments == '{"a": "[secret]"}'


async def test_a_read_ends_at_the_deadline() -> None:
    crib, _ = crib_of(timeout_s=0.05)

    @crib.resources.add("own://slow")
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    async with crib, crib.workbench() as bench:
        assert outcome(await bench.offers.read("own://slow")) == "timeout"


async def test_reads_lists_and_unknown_tools_count_in_limits() -> None:
    for asks in ("read", "prompt", "unknown", "list", "call"):
        crib, database = crib_of(limits=[Limit(per="principal", rate="2/h", wait_s=0)])

        async def ask(bench: Any, asks: str) -> str:
            match asks:
                case "read":
                    return outcome(await bench.offers.read("db://public/1"))
                case "prompt":
                    return outcome(await bench.offers.get_prompt("greet", {}))
                case "unknown":
                    return outcome(await bench.call("nothing"))
                case "call":
                    return outcome(await bench.call("delete"))

            async def specs() -> Any:
                return bench.specs()

            try:
                return str(len(await bench.count("tools/list", specs)))
            except ToolError as error:
                return error.code

        async with crib, crib.workbench(Caller("eve")) as eve, crib.workbench(Caller("ada")) as ada:
            for _ in range(2):
                assert await ask(eve, asks) != "limited"
            for other in ("read", "prompt", "unknown", "list", "call"):
                assert await ask(eve, other) == "limited"
            assert await ask(ada, asks) != "limited"
            assert len(database.asked) <= 3


async def test_a_limit_of_tools_by_name_does_not_count_reads_and_one_per_tool_counts_all_reads_together() -> None:
    crib, _ = crib_of(limits=[Limit(["delete", "db*", "res*"], rate="1/h", wait_s=0)])
    async with crib, crib.workbench() as bench:
        assert [outcome(await bench.offers.read(f"db://public/{n}")) for n in range(3)] == ["success"] * 3
    crib, _ = crib_of(limits=[Limit(rate="2/h", wait_s=0)])
    async with crib, crib.workbench() as bench:
        outcomes = [outcome(await bench.offers.read(f"db://public/{n}")) for n in range(3)]
        assert outcomes == ["success", "success", "limited"]


async def test_names_above_a_limit_make_no_names_in_the_log() -> None:
    log = CallLog()
    crib, _ = crib_of(limits=[Limit(per="principal", rate="1/h", wait_s=0)], recorder=(log,))
    async with crib, crib.workbench() as bench:
        for number in range(3):
            await bench.call(f"made_up_{number}")
            await bench.offers.read("a:\udcff" + "\n" * 1000)
    names = [record.tool for record in [*log]]
    assert names[0] == "made_up_0"
    assert {names[2], names[4]} == {"tools/call"}
    assert all(len(name) <= 501 and name.isprintable() for name in names)


async def test_middleware_wraps_reads_and_may_keep_what_was_read() -> None:
    kept: dict[str, Any] = {}

    async def cache(_: Any, call: Any, __: Caller, go_on: Any) -> Any:
        if call.tool not in kept:
            await go_on()
            kept[call.tool] = await go_on()
        return kept[call.tool]

    crib, database = crib_of(middleware=[cache])
    async with crib, crib.workbench() as bench:
        for _ in range(2):
            assert [part.data for part in (await bench.offers.read("db://a/1")).unwrap()] == ["row [secret]", b"\x00"]
    assert database.asked == ["db://a/1"] * 2


# Templates, and what a program offers


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("cal://{day}{?zone}", "cal://2024?zone=a%20b&x=1", {"day": "2024", "zone": "a b"}),
        ("cal://{day}", "cal://a/b", None),
        ("cal://v{day}.txt", "cal://va.b.txt", {"day": "a.b"}),
        ("file:///{+folder}/{name}", "file:///a/b/c", {"folder": "a/b", "name": "c"}),
        ("file:///{+folder}/{name}", "file:///a/b%2Fc", {"folder": "a", "name": "b/c"}),
        ("file:///{+folder}/{name}", "file:///a/b?c", None),
        *(("file:///{+folder}/{name}", uri, None) for uri in ("file:///a", "file:///a/", "file:///a/../b", "f")),
        *(("file:///{name}", uri, None) for uri in ("file:///%2e%2e", "file:///a%2F..%2Fb", "file:///a%00")),
    ],
)
def test_a_uri_has_the_values_of_its_template(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert URITemplate(template).match(uri) == values


def test_a_long_uri_that_nearly_matches_is_refused_at_once() -> None:
    assert URITemplate("cal://{+a}/x{b}-/y{c}-").match(f"cal://{'/x-y-' * 1600}") is None


@pytest.mark.parametrize(
    "text",
    [
        *("a://{x}/{x}", "a://{?q}/b", "a://{x,y}", "a://{", "a://x}", "a://{1}", "a://{x}{y}", "a://{x}-{y}"),
        *("a://{+x}/{+y}", "a://{x*}"),
    ],
)
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a URI template"):
        URITemplate(text)


async def test_a_long_resource_is_written_in_a_thread() -> None:
    """A resource of a crib is what somebody else has stored."""
    rows = [{"a": number} for number in range(100_000)]
    crib = Crib([])
    crib.resources.add("db://rows", lambda: rows)
    longest_s, result = await held(crib.workbench().offers.read("db://rows"))
    assert result.status == "success"
    assert longest_s < seconds_of(lambda: json.dumps(rows)) / 2
