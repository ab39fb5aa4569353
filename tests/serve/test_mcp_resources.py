"""Resources, prompts, large results, lists and their changes, as MCP clients see them."""

import asyncio
import base64
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as wire
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from toolcrib import Approve, Caller, Context, Crib, Deny, Image, MCPSource, Text, ToolError, tool
from toolcrib.core.source import Prompt, PromptArgument, PromptMessage, Resource, ResourceContent, ResourceTemplate
from toolcrib.serve import server
from toolcrib.serve.mcp.resources import page
from toolcrib.workbench import Limit, Rule, Rules

from .serving import served

ERAS = ["legacy", "2026-07-28"]
MODERN = "2026-07-28"
SECRET = "sk-1234567890123"


def library(**options: Any) -> Crib:
    crib = Crib(secrets=[SECRET], **options)
    crib.resources.add("notes://today", f"Buy milk. {SECRET}", name="today", title="Today", description="A note.")
    crib.resources.add("notes://pixel", b"\x89PNG", media_type="image/png", meta={"annotations": {"priority": 0.5}})

    @crib.resources.add("notes://{year}/{+path}{?lang}")
    async def note(year: str, path: str, lang: str = "en", *, who: Caller) -> dict[str, str]:
        """A note of a year."""
        return {"year": year, "path": path, "lang": lang, "who": who.principal}

    @crib.resources.add("notes://broken")
    def broken() -> str:
        raise RuntimeError(f"accident at {SECRET}")

    @crib.prompts.add(title="Summarize")
    def summarize(topic: str, style: Literal["short", "shorter", "long"] = "short") -> list[Any]:
        """Summarize something.

        Args:
            topic: What.
            style: How.
        """
        return [f"Summarize {topic}, {style}. {SECRET}", PromptMessage("assistant", Text("Of course.")), Image(b"x")]

    return crib


@pytest.mark.parametrize("mode", ERAS)
async def test_resources_are_listed_and_read(mode: str) -> None:
    async with library() as crib, Client(server(crib), mode=mode) as client:
        listed = {str(one.uri): one for one in (await client.list_resources()).resources}
        assert list(listed) == ["notes://today", "notes://pixel", "notes://broken"]
        today = listed["notes://today"]
        assert (today.name, today.title, today.description) == ("today", "Today", "A note.")
        assert today.mime_type == "text/plain"
        assert listed["notes://pixel"].annotations == wire.Annotations(priority=0.5)
        templates = (await client.list_resource_templates()).resource_templates
        of_a_year = templates[0]
        assert (of_a_year.name, of_a_year.description) == ("note", "A note of a year.")
        assert of_a_year.uri_template == "notes://{year}/{+path}{?lang}"
        assert templates[1].uri_template == "toolcrib://results/{handle}{?offset,limit,pointer}"
        read = (await client.read_resource("notes://today")).contents[0]
        assert read.text == "Buy milk. [secret]"
        pixel = (await client.read_resource("notes://pixel")).contents[0]
        assert (base64.b64decode(pixel.blob), pixel.mime_type) == (b"\x89PNG", "image/png")
        note = (await client.read_resource("notes://2026/a/b%20c")).contents[0]
        assert note.text == '{"year": "2026", "path": "a/b c", "lang": "en", "who": "local"}'


@pytest.mark.parametrize("mode", ERAS)
async def test_what_cannot_be_read_is_a_protocol_error_with_its_uri(mode: str) -> None:
    async with library() as crib, Client(server(crib), mode=mode) as client:
        for uri, code in [
            ("notes://nothing", -32602),
            ("notes://2026/../../etc/passwd", -32602),
            ("notes://2026/%2e%2e%2fetc", -32602),
            ("notes://2026/a%00", -32602),
            ("notes://" + "x" * 100_000, -32602),
            ("toolcrib://results/result_nobody", -32602),
            ("toolcrib://results/result_nobody?offset=x", -32602),
            ("notes://broken", -32603),
        ]:
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert (caught.value.code, caught.value.data["uri"]) == (code, uri)
            assert SECRET not in str(caught.value)


@pytest.mark.parametrize("mode", ERAS)
async def test_prompts_are_listed_filled_in_and_completed(mode: str) -> None:
    async with library() as crib, Client(server(crib), mode=mode) as client:
        [listed] = (await client.list_prompts()).prompts
        assert (listed.name, listed.title, listed.description) == ("summarize", "Summarize", "Summarize something.")
        assert [(one.name, one.description, one.required) for one in listed.arguments or ()] == [
            ("topic", "What.", True),
            ("style", "How.", False),
        ]
        messages = (await client.get_prompt("summarize", {"topic": "tea"})).messages
        assert [one.role for one in messages] == ["user", "assistant", "user"]
        assert [one.content.type for one in messages] == ["text", "text", "image"]
        assert messages[0].content.text == "Summarize tea, short. [secret]"
        ref = wire.PromptReference(name="summarize")
        found = (await client.complete(ref, {"name": "style", "value": "SHO"})).completion
        assert (found.values, found.has_more) == (["short", "shorter"], False)
        for count, more in ((100, False), (101, True)):
            names = tuple(f"{number:03}" for number in range(count))

            def choose(name: str) -> str:
                return name

            choose.__annotations__["name"] = Literal[names]
            crib.prompts.add(choose, name=f"choose-{count}")
            ref = wire.PromptReference(name=f"choose-{count}")
            found = (await client.complete(ref, {"name": "name", "value": ""})).completion
            assert (found.values, found.total, found.has_more) == ([*names[:100]], count, more)
        for name, arguments, words in [
            ("nothing", {}, "no prompt"),
            ("summarize", {}, "'topic' is missing"),
            ("summarize", {"topic": "x", "size": "y"}, "no argument 'size'"),
        ]:
            with pytest.raises(MCPError, match=words) as caught:
                await client.get_prompt(name, arguments)
            assert caught.value.code == -32602


class Remote:
    """A source of resources and prompts. *fails* says how it fails to list them."""

    def __init__(self, name: str, fails: BaseException | None = None) -> None:
        self.name = name
        self.fails = fails
        self.listeners: list[Any] = []
        self.read: list[str] = []

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def tools(self) -> Sequence[Any]:
        return ()

    def on_change(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def resources(self) -> Sequence[Resource]:
        if self.fails:
            raise self.fails
        return [Resource(uri=f"{self.name}://one", name="one"), Resource(uri="both://x", name=self.name)]

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [ResourceTemplate(uri_template=f"{self.name}://t/{{id}}", name="t")]

    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]:
        self.read.append(uri)
        if uri.endswith("unlisted-nowhere"):
            raise ToolError("Nothing there.", "unknown_tool")
        return [ResourceContent(uri=uri, data=f"{self.name} {SECRET}")]

    async def prompts(self) -> Sequence[Prompt]:
        if self.fails:
            raise self.fails
        return [Prompt(name=f"{self.name}-prompt", arguments=(PromptArgument(name="a", required=True),))]

    async def get_prompt(self, name: str, arguments: Mapping[str, str], /) -> Sequence[PromptMessage]:
        return [PromptMessage("user", Text(f"{name} {dict(arguments)}"))]


async def test_what_sources_offer_is_passed_on_and_one_that_fails_costs_only_its_own() -> None:
    good, other, dead = Remote("good"), Remote("other"), Remote("dead", RuntimeError("down"))
    async with Crib([dead, good, other], secrets=[SECRET]) as crib, Client(server(crib), mode=MODERN) as client:
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        assert uris == ["good://one", "both://x", "other://one"]
        assert [one.name for one in (await client.list_prompts()).prompts] == ["good-prompt", "other-prompt"]

        async def read(uri: str) -> str:
            content = (await client.read_resource(uri)).contents[0]
            return content.text

        assert await read("other://one") == "other [secret]"
        assert await read("both://x") == "good [secret]"
        assert await read("other://t/7") == "other [secret]"
        # What one source lists or has a template for is asked of no other.
        assert (good.read, dead.read) == (["both://x"], [])
        with pytest.raises(MCPError, match="There is no resource at"):
            await read("some://unlisted-nowhere")
        [message] = (await client.get_prompt("other-prompt", {"a": "1"})).messages
        assert message.content.text == "other-prompt {'a': '1'}"


async def test_a_large_result_is_a_resource_that_is_read_in_parts() -> None:
    @tool
    async def numbers(n: int) -> list[int]:
        return list(range(n))

    whole = str(list(range(20_000))).replace(" ", "")
    who = ["alice"]
    made = Crib([numbers])
    async with made as crib, Client(server(crib, lambda _: Caller(who[0])), mode=MODERN) as client:
        answer = await client.call_tool("numbers", {"n": 20_000})
        link = answer.content[-1]

        async def part(uri: str) -> wire.TextResourceContents:
            [content] = (await client.read_resource(uri)).contents
            return content

        read, uri = "", str(link.uri)
        while uri:
            content = await part(uri)
            assert len(content.text) <= 20_000
            read += content.text
            uri = (content.meta or {}).get("toolcrib/next")
        assert read == whole
        assert (await part(f"{link.uri}?offset=1&limit=3")).text == whole[1:4]
        assert (await part(f"{link.uri}?pointer=/123")).text == "123"
        assert len((await part(f"{link.uri}?limit=9999999999")).text) == len(whole)
        for wrong in ("offset=-1", "limit=0", "limit=x", "pointer=/nothing"):
            with pytest.raises(MCPError):
                await part(f"{link.uri}?{wrong}")
        who[0] = "bob"
        with pytest.raises(MCPError, match="There is no result under this handle"):
            await part(str(link.uri))


@pytest.mark.parametrize(
    ("version", "links"), [("2024-11-05", []), ("2025-03-26", []), ("2025-06-18", ["resource_link"])]
)
async def test_a_client_from_before_resource_links_gets_none(version: str, links: list[str]) -> None:
    @tool
    async def numbers() -> list[int]:
        return list(range(20_000))

    def request(method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream"}
    async with served(Crib([numbers])) as url, httpx2.AsyncClient(timeout=60, headers=headers) as http:
        greeted = await http.post(url, json=request("initialize", **hello))
        http.headers |= {"Mcp-Session-Id": greeted.headers["mcp-session-id"], "MCP-Protocol-Version": version}
        answer = await http.post(url, json=request("tools/call", name="numbers", arguments={}))
    data = next(line for line in answer.text.splitlines() if "{" in line)  # JSON, or an event of a slow answer
    content = json.loads(data.removeprefix("data: "))["result"]["content"]
    assert [block["type"] for block in content] == ["text", *links]


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_tool_logs_reaches_the_client_that_wants_it_without_secrets(mode: str) -> None:
    @tool
    async def work(context: Context) -> str:
        context.log.debug("not this")
        context.log.warning("careful: %s", SECRET)
        return "done"

    @tool
    def threaded(context: Context) -> str:
        context.log.error("from a thread")
        return "done"

    lines: list[tuple[str, Any, Any]] = []

    async def log(params: wire.LoggingMessageNotificationParams) -> None:
        lines.append((params.level, params.logger, params.data))

    wants = {"log_level": "warning"} if mode == MODERN else {}
    async with Crib([work, threaded], secrets=[SECRET]) as crib:
        async with Client(server(crib), mode=mode, logging_callback=log, **wants) as client:
            await client.call_tool("work")
            await client.call_tool("threaded")
            if mode == "legacy":
                await client.set_logging_level("error")
                await client.call_tool("work")
        if mode == MODERN:
            async with Client(server(crib), mode=mode, logging_callback=log) as client:
                await client.call_tool("work")
        await crib.workbench().call("work")
    assert lines == [("warning", "work", "careful: [secret]"), ("error", "threaded", "from a thread")]
    logging.getLogger("toolcrib.tool").warning("nobody's")


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_each_level_of_a_log_is_that_of_mcp_and_less_than_what_is_asked_for_is_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(1, "toolcrib.tool.levels")
    names = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

    @tool
    async def levels(context: Context) -> None:
        for number in (5, 10, 20, 25, 30, 40, 50, 60, 70, 99):
            context.log.log(number, "line")

    lines: list[str] = []

    async def log(params: wire.LoggingMessageNotificationParams) -> None:
        lines.append(params.level)

    async with Crib([levels]) as crib, Client(server(crib), mode="legacy", logging_callback=log) as client:
        for least in names:
            lines.clear()
            await client.set_logging_level(least)  # type: ignore[arg-type]
            await client.call_tool("levels")
            expected = names[names.index(least) :]
            assert lines == [*["debug"] * (least == "debug"), *expected, "emergency"], least


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ERAS)
async def test_clients_are_notified_of_changed_lists_and_of_the_resources_that_they_follow(mode: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: Any) -> None:
        if isinstance(message, wire.ResourceUpdatedNotification):
            heard.put_nowait(f"updated {message.params.uri}")
        elif (method := getattr(message, "method", "")).endswith("list_changed"):
            heard.put_nowait(method)

    source = Remote("good")
    crib = Crib([source])
    crib.resources.add("n://a", "a")
    async with asyncio.timeout(60), crib:
        if mode == "legacy":
            async with Client(server(crib), mode=mode, message_handler=handle) as client:
                await client.subscribe_resource("n://a")
                await client.send_ping()
                crib.resources.updated("n://b")
                crib.resources.updated("n://a")
                assert await heard.get() == "updated n://a"
                await client.unsubscribe_resource("n://a")
                crib.resources.updated("n://a")
                crib.resources.add("n://c", "c")
                assert await heard.get() == "notifications/resources/list_changed"
                crib.prompts.add(lambda: "hi", name="hi")
                assert await heard.get() == "notifications/prompts/list_changed"
                for listener in source.listeners:
                    listener()
                assert {await heard.get(), await heard.get()} == {
                    "notifications/resources/list_changed",
                    "notifications/prompts/list_changed",
                }
        else:
            async with Client(server(crib), mode=mode) as client:
                async with client.listen(resource_subscriptions=["n://a"], prompts_list_changed=True) as events:
                    crib.resources.updated("n://b")
                    crib.resources.add("n://c", "c")
                    crib.resources.updated("n://a")
                    crib.prompts.add(lambda: "hi", name="hi")
                    got = [type(await anext(events)).__name__ for _ in range(2)]
                assert got == ["ResourceUpdated", "PromptsListChanged"]


async def test_lists_say_how_long_and_by_whom_they_may_be_kept() -> None:
    crib = library()
    async with crib:
        for identify, scope in [({}, "public"), ({"identify": lambda _: Caller("alice")}, "private")]:
            async with Client(server(crib, **identify), mode=MODERN) as client:
                for listed in (
                    await client.list_tools(),
                    await client.list_prompts(),
                    await client.list_resources(),
                    await client.list_resource_templates(),
                ):
                    assert (listed.cache_scope, listed.ttl_ms) == (scope, 5000)
                read = await client.read_resource("notes://today")
                assert (read.cache_scope, read.ttl_ms) == ("private", 0)


def test_pages_leave_nothing_out_when_the_list_changes_between_them() -> None:
    names = ["a", "b", "c", "d", "e"]
    first, cursor = page(names, None, str, size=2)
    second, following = page(["0", *names], cursor, str, size=2)
    assert (first, second) == (["a", "b"], ["c", "d"])
    assert page(names, following, str, size=2) == (["e"], None)
    assert page([], None, str) == ([], None)
    assert page(names[:4], cursor, str, size=2) == (["c", "d"], None)
    many = [str(number) for number in range(1001)]
    assert [len(page(many[:count], None, str)[0]) for count in (1000, 1001)] == [1000, 1000]
    assert [page(many[:count], None, str)[1] is None for count in (1000, 1001)] == [True, False]
    for wrong in ("", "x", "é", "AAAA", "=" * 1000, page(["z", "y"], None, str, size=1)[1] or ""):
        with pytest.raises(MCPError) as caught:
            page(names, wrong, str)
        assert caught.value.code == -32602


@pytest.mark.parametrize("mode", ERAS)
async def test_an_odd_cursor_is_the_clients_mistake(mode: str) -> None:
    async with library() as crib, Client(server(crib), mode=mode) as client:
        lists = (client.list_tools, client.list_prompts, client.list_resources, client.list_resource_templates)
        for listing in lists:
            with pytest.raises(MCPError, match="cursor") as caught:
                await listing(cursor="bm9ib2R5")
            assert caught.value.code == -32602


# Rules, limits and filters, at the door


@pytest.mark.parametrize("mode", ERAS)
async def test_a_read_that_a_rule_asks_about_is_asked_of_the_person_at_the_client(mode: str) -> None:
    asked: list[str] = []

    async def person(_: object, params: Any) -> wire.ElicitResult:
        asked.append(params.message)
        return wire.ElicitResult(action="accept", content={"approve": True})

    crib = library(policy=Rules([Rule(do="ask", message="May it?")]))
    async with crib, Client(server(crib), mode=mode, elicitation_callback=person) as client:
        for _ in range(2):
            read = (await client.read_resource("notes://today")).contents[0]
            assert read.text == "Buy milk. [secret]"
            assert (await client.get_prompt("summarize", {"topic": "tea"})).messages
        assert await crib.pendings() == []
    of_read, of_prompt = "May it?\nresources/read notes://today: {}", 'May it?\nprompts/get summarize: {"topic": "tea"}'
    assert asked == [of_read, of_prompt] * 2


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_cannot_ask_gets_the_id_of_a_read_to_approve(mode: str) -> None:
    crib = library(policy=Rules([Rule(do="ask", message="May it?")]))
    async with crib, Client(server(crib), mode=mode) as client:
        for ask in (
            lambda: client.read_resource("notes://today"),
            lambda: client.get_prompt("summarize", {"topic": "tea"}),
        ):
            with pytest.raises(MCPError, match="it waits for approval") as caught:
                await ask()
            (pending,) = await crib.pendings()
            assert caught.value.data["toolcrib/pending"] == {"id": pending.id, "kind": "approval"}
            assert pending.id in str(caught.value)
            await crib.answer(pending.id, Approve(), by="ada")
            await ask()
            with pytest.raises(MCPError, match="it waits for approval"):
                await ask()
            (pending,) = await crib.pendings()
            await crib.answer(pending.id, Deny("no"), by="ada")
            with pytest.raises(MCPError, match="'ada' denied it: no"):
                await ask()


@pytest.mark.parametrize("mode", ERAS)
async def test_what_a_rule_denies_is_not_listed_and_is_as_if_it_were_not_there(mode: str) -> None:
    rules = [
        Rule(do="deny", resources="notes://{*"),
        Rule(do="deny", resources="notes://t*"),
        Rule(do="deny", prompts="*"),
    ]
    crib = library(policy=Rules(rules))
    async with crib, Client(server(crib), mode=mode) as client:
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        assert uris == ["notes://pixel", "notes://broken"]
        assert [one.name for one in (await client.list_resource_templates()).resource_templates] == ["toolcrib-result"]
        assert (await client.list_prompts()).prompts == []
        ref = wire.PromptReference(name="summarize")
        assert (await client.complete(ref, {"name": "style", "value": ""})).completion.values == []
        errors: list[tuple[int, str, Any]] = []
        for uri in ("notes://today", "notes://there-is-none"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            errors.append((caught.value.code, str(caught.value).replace(uri, "X"), caught.value.data["toolcrib/error"]))
        assert errors[0] == errors[1]
        with pytest.raises(MCPError, match="There is no prompt 'summarize'"):
            await client.get_prompt("summarize", {"topic": "tea"})


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_updates_of_a_denied_resource_do_not_reach_its_follower() -> None:
    """The second case: a notice says that something is there, and when it changes."""
    crib = library(policy=Rules([Rule(do="deny", resources="notes://t*", principals="eve")]))
    who = ["eve"]
    async with crib, served(crib, identify=lambda _: Caller(who[0])) as url:
        async with Client(url, mode="legacy") as client:
            with pytest.raises(MCPError, match="There is no resource at 'notes://today'"):
                await client.session.subscribe_resource("notes://today")
        async with Client(url, mode=MODERN) as client:
            uris = ["notes://today", "notes://pixel"]
            async with client.listen(resource_subscriptions=uris) as subscription:
                crib.resources.updated("notes://today")
                crib.resources.updated("notes://pixel")
                event = await asyncio.wait_for(anext(aiter(subscription)), 10)
                assert event.uri == "notes://pixel"


async def test_lists_and_sessions_count_in_limits() -> None:
    limits = [Limit(per="principal", rate="3/h", wait_s=0)]
    who = ["eve"]
    async with served(library(limits=limits), identify=lambda _: Caller(who[0])) as url:
        async with Client(url, mode="legacy") as client:  # which is one
            await client.list_tools()
            await client.list_resources()
            for asks in (client.list_prompts, client.list_resource_templates, client.list_tools):
                with pytest.raises(MCPError, match="at its limit of 3/h") as caught:
                    await asks()
                assert caught.value.data["toolcrib/error"]["code"] == "limited"
        with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="at its limit of 3/h"), flatten_subgroups=True):
            await Client(url, mode="legacy").__aenter__()  # a session more
        who[0] = "ada"
        async with Client(url, mode="legacy") as client:
            await client.list_tools()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_source_of_the_settings_offers_only_what_its_filters_let_through(mode: str, tmp_path: Path) -> None:
    upstream = library()
    upstream.prompts.add(lambda: "hidden", name="hidden", description="-")
    async with served(upstream) as url:
        (tmp_path / "toolcrib.toml").write_text(
            f"[[source]]\nurl = '{url}'\nresources = ['notes://t*', 'notes://2026/*']\nprompts = 'sum*'\n"
        )
        async with Crib.from_config(tmp_path / "toolcrib.toml") as crib, Client(server(crib), mode=mode) as client:
            assert [str(one.uri) for one in (await client.list_resources()).resources] == ["notes://today"]
            assert [one.name for one in (await client.list_prompts()).prompts] == ["summarize"]
            assert (await client.read_resource("notes://today")).contents
            assert (await client.read_resource("notes://2026/a/b")).contents
            assert (await client.get_prompt("summarize", {"topic": "tea"})).messages
            for uri in ("notes://pixel", "notes://2027/a", "notes://%70ixel", "notes://2026/%2Fetc"):
                with pytest.raises(MCPError, match="There is no resource"):
                    await client.read_resource(uri)
            with pytest.raises(MCPError, match="There is no prompt 'hidden'"):
                await client.get_prompt("hidden", {})


@pytest.mark.parametrize("mode", ERAS)
async def test_who_is_denied_everything_reads_nothing_of_a_server_behind_the_gateway(mode: str) -> None:
    asked: list[str] = []
    upstream = library()

    @upstream.resources.add("db://salaries")
    def salaries() -> str:
        asked.append("salaries")
        return "all of them"

    who = ["eve"]
    policy = Rules([Rule(do="deny", principals="eve")])
    async with served(upstream) as url:
        crib = Crib([MCPSource(url=url)], policy=policy)
        async with crib, Client(server(crib, lambda _: Caller(who[0])), mode=mode) as client:
            assert (await client.list_resources()).resources == []
            for uri in ("db://salaries", "db://%73alaries"):
                with pytest.raises(MCPError, match="There is no resource"):
                    await client.read_resource(uri)
            assert asked == []
            who[0] = "ada"
            assert (await client.read_resource("db://salaries")).contents
            assert asked == ["salaries"]
