"""The pages of tools: found, filled in, checked, run and cancelled, with and without scripts."""

import asyncio
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Annotated, Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from toolcrib import Context, Image, Source, Text, ToolSpec, tool
from toolcrib.core import Data, File, Hints
from toolcrib.tools.function import from_work
from toolcrib.workbench import Rule, Rules

from ..serving import Waits
from ..test_api_raw import GONE, ask, piece
from .conftest import Open, by_user
from .test_forms import ARGUMENTS, everything


@tool(read_only=True)
def add(a: Annotated[int, Field(description="The first.")], b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(destructive=True)
def drop(name: str, how: Literal["soft", "hard"] = "soft") -> str:
    """Drop it."""
    return f"dropped {name} {how}"


@tool
def parts() -> list[Any]:
    """Return a bit of everything."""
    return [
        Text("<script>alert(1)</script>"),
        Data('{"rows": [{"x": 1, "y": "a"}, {"x": 2}], "deep": {"items": [[1]]}}'),
        Image(b"png"),
        Image(b"<svg/>", "image/svg+xml"),
        File(b"bytes", "text/html", "page.html"),
    ]


@tool
def long() -> str:
    """Return much."""
    return "word " * 30_000


class _Form(HTMLParser):
    """The form with an id, and what a browser would send of it."""

    def __init__(self, page: str, id: str = "fields") -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self.action = ""
        self._id, self._is_inside, self._select, self._textarea = id, False, "", ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_inside = of.get("id") == self._id
            self.action = of["action"] if self._is_inside else self.action
        if not self._is_inside:
            return
        if tag == "input" and of.get("type") != "file":
            self.sent[of["name"]] = of.get("value", "").replace("\n", "")
        elif tag == "select":
            self._select = of["name"]
        elif tag == "option" and (self._select not in self.sent or "selected" in of):
            self.sent[self._select] = of["value"]
        elif tag == "textarea":
            self._textarea = of["name"]
            self.sent[self._textarea] = ""

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = self._is_inside and tag != "form"
        if self._textarea and tag == "textarea":
            text = self.sent[self._textarea].removeprefix("\n")
            self.sent[self._textarea], self._textarea = text.replace("\n", "\r\n"), ""

    def handle_data(self, data: str) -> None:
        if self._textarea:
            self.sent[self._textarea] += data


def raw_of(page: str) -> Any:
    return json.loads(_Form(page, "json").sent["raw"])


async def test_tools_are_found_by_words_and_by_source(open_console: Open) -> None:
    async with open_console(add, drop, "toolcrib.demo") as browser:
        everything_page = (await browser.get("/tools")).text
        assert "7 of 7" in everything_page or "6 of 6" in everything_page
        assert '<span class="badge bad">destructive</span>' in everything_page
        page = (await browser.get("/tools?q=NUMBERS+add")).text
        assert "/tools/add" in page
        assert "/tools/drop" not in page
        assert "No tool has all these words." in (await browser.get("/tools?q=nothing")).text


async def test_a_thousand_tools_are_a_page_of_at_most_150_kb(open_console: Open) -> None:
    async def work(*_: object) -> None: ...

    description = "Do something that takes a whole sentence of a hundred characters to describe, as most tools do now."
    hints = Hints(destructive=True, open_world=True)
    specs = [ToolSpec(f"tool_{number:04}", description, {"type": "object"}, hints=hints) for number in range(1000)]
    tools = [from_work(spec, work, home="tests", needs_context=False) for spec in specs]
    async with open_console(*tools) as browser:
        page = await browser.get("/tools")
        assert len(page.content) <= 150_000
        assert "1001 of 1001 tools; 1 to 100 are shown" in page.text
        assert "tool_0999" in (await browser.get("/tools?q=0999")).text
        page = await browser.get("/tools?q=tool&first=900")
        assert ("tool_0899" in page.text, "tool_0900" in page.text, "tool_0999" in page.text) == (False, True, True)
        assert 'href="?q=tool"' in page.text
        assert 'href="?q=tool&amp;first=' not in page.text


async def _nothing(*_: object) -> None: ...


class Group(Source):
    """Tools with a name."""

    def __init__(self, name: str, *names: str) -> None:
        self.name = name
        self._tools = [
            from_work(ToolSpec(name, "Do it.", {"type": "object"}), _nothing, home="tests") for name in names
        ]

    def tools(self) -> Sequence[Any]:
        return self._tools

    def __str__(self) -> str:
        return self.name


async def test_tools_are_grouped_by_source_with_their_counts(open_console: Open) -> None:
    async with open_console(add, Group("zoo", "lion", "bear"), Group("bank", "pay")) as browser:
        page = (await browser.get("/tools")).text
        headings = re.findall(r"<h2>(.*?) <span class=.faint.>\((\d)\)</span></h2>", page)
        assert headings == [("The program&#39;s own", "2"), ("bank", "1"), ("zoo", "2")]
        assert re.findall(r"<option value=.(\w+).>(.*?)</option>", page) == [("bank", "bank (1)"), ("zoo", "zoo (2)")]
        page = (await browser.get("/tools?source=zoo&q=bear")).text
        assert page.count('class="name"') == 1
        assert "zoo <span" in page
        assert '<option value="zoo" selected>' in page


async def test_a_tool_is_shown_with_its_arguments_and_as_models_get_it(open_console: Open) -> None:
    async with open_console(add, drop, policy=Rules([Rule(do="ask", tools="drop", where={"/how": "hard"})])) as browser:
        page = (await browser.get("/tools/add")).text
        for words in ("Add two numbers.", "The first.", "integer", "read only"):
            assert words in page
        assert "rule: ask some calls" in (await browser.get("/tools/drop")).text
        formats = (await browser.get("/tools/add/formats")).text
        assert "openai_responses" in formats
        assert "Nothing is lost." in formats
        assert (await browser.get("/tools/add/formats.json")).json()["formats"][0]["format"] == "openai"


@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(ARGUMENTS, min_size=8, max_size=8))
def test_a_page_sends_the_arguments_that_it_was_opened_with(open_console: Open, values: list[Any]) -> None:
    async def send() -> None:
        async with open_console(everything) as browser:
            for value in values:
                page = await browser.get("/tools/everything", params={"arguments": json.dumps(value)})
                form = _Form(page.text)
                assert raw_of(page.text) == value
                assert raw_of((await browser.post(form.action, data=form.sent)).text) == value
                form = _Form(page.text, "json")
                assert raw_of((await browser.post(form.action, data=form.sent)).text) == value

    asyncio.run(send())


async def test_a_form_is_checked_and_its_problems_are_at_their_fields(open_console: Open) -> None:
    async with open_console(add, drop, policy=Rules([Rule(do="ask", tools="drop")])) as browser:
        wrong = (await browser.submit("/tools/add", **{"v/a": "x", "act": "check"})).text
        assert '<div class="error" id="p/a">' in wrong
        assert 'aria-invalid="true" aria-describedby="p/a d/a"' in wrong
        right = (await browser.submit("/tools/add", **{"v/a": "1", "act": "check"})).text
        assert "The arguments fit. The call would run at once." in right
        asked = (await browser.submit("/tools/drop", raw='{"name": "x"}', act="check")).text
        assert "A person would be asked before it runs." in asked
        assert (await browser.get("/api/pending")).json()["pending"] == []


async def test_enter_in_a_form_checks_and_adds_or_runs_nothing(open_console: Open) -> None:
    async with open_console(everything) as browser:
        form = (await browser.get("/tools/everything")).text.partition('<form id="fields"')[2]
        assert form.partition("<button")[2].startswith(' class="sr" name="act" value="check"')


async def test_json_that_is_none_stays_as_it_was_typed(open_console: Open) -> None:
    async with open_console(add) as browser:
        for raw, problem in (("{", "This is not valid JSON"), ("[1]", "Arguments are a JSON object")):
            for path in ("/tools/add", "/tools/add/run"):
                page = (await browser.submit(path, raw=raw, act="check")).text
                assert problem in page
                assert _Form(page, "json").sent["raw"] == raw


async def test_a_list_grows_without_scripts(open_console: Open) -> None:
    async with open_console(everything) as browser:
        page = (await browser.submit("/tools/everything", **{"v/words/1": "b", "act": "add/words"})).text
        assert raw_of(page)["words"] == ["b"]
        form = _Form(page)
        assert form.sent["n/words"] == "2"
        assert form.sent["v/words/0"] == "b"
        page = (await browser.post(form.action, data={**form.sent, "act": "remove/words/0"})).text
        assert "words" not in raw_of(page)


async def test_a_call_is_made_without_scripts_and_its_result_is_shown(open_console: Open) -> None:
    async with open_console(add, parts, everything) as browser:
        page = (await browser.submit("/tools/add/run", **{"v/a": "40"})).text
        assert "<code>42</code>" in page
        assert "curl -sS http://127.0.0.1:8642/api/tools/add/call" in page
        page = (await browser.submit("/tools/parts/run")).text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "<th>x</th><th>y</th>" in page
        assert 'src="data:image/png;base64,cG5n"' in page
        assert "data:image/svg" not in page
        assert 'download="page.html" href="data:application/octet-stream;base64,' in page
        wrong = (await browser.submit("/tools/add/run", **{"v/a": "x"})).text
        assert "Change the arguments, and run it again." in wrong


async def test_a_call_that_waits_links_to_its_approval(open_console: Open) -> None:
    async with open_console(drop, policy=Rules([Rule(do="ask", tools="drop")])) as browser:
        page = (await browser.submit("/tools/drop/run", **{"v/name": "x"})).text
        (waiting,) = (await browser.get("/api/pending")).json()["pending"]
        assert f'href="/approvals/{waiting["id"]}"' in page


async def test_the_rest_of_a_large_result_is_a_link_away(open_console: Open) -> None:
    async with open_console(long, max_result_chars=2_000) as browser:
        page = (await browser.submit("/tools/long/run")).text
        link = page.partition('<a href="/results/')[2].partition('"')[0]
        first = await browser.get(f"/results/{link}?limit=1000")
        assert first.status_code == 200
        assert "Go on" in first.text
        assert (await browser.get("/results/result_none")).status_code == 404


async def test_a_script_gets_what_happens_as_it_happens(open_console: Open) -> None:
    @tool
    async def count(to: int, context: Context) -> str:
        for at in range(to):
            context.progress(at, to, "counting")
            await context.emit({"at": at})
        return "all <b>counted</b>"

    async with open_console(count, add) as browser:
        headers = {"Accept": "text/html, text/event-stream"}
        token = await browser.token()
        data = {"token": token, "v/to": "3"}
        answer = await browser.post("/tools/count/run", data=data, headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = answer.text.strip().split("\n\n")
        assert all(line.startswith("data:") for block in blocks for line in block.split("\n"))
        assert "Running" in blocks[0]
        assert "counting 2 of 3" in answer.text
        assert "all &lt;b&gt;counted&lt;/b&gt;" in blocks[-1]
        assert "Cancel" not in blocks[-1]
        refused = await browser.post("/tools/add/run", data={"token": token, "v/a": "x"}, headers=headers)
        assert "Change the arguments" in refused.text.strip().split("\n\n")[-1]
        broken = await browser.post("/tools/add/run", data={"token": token, "raw": "{"}, headers=headers)
        assert "This is not valid JSON" in broken.text


async def test_leaving_a_call_that_runs_cancels_it(open_console: Open) -> None:
    waits = Waits()
    async with open_console(waits.tool) as browser:
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        headers = {"host": "127.0.0.1:8642", "cookie": cookie, "sec_fetch_site": "same-origin"}
        headers |= {"accept": "text/event-stream", "content-type": "application/x-www-form-urlencoded"}
        form = [piece(f"token={await browser.token()}".encode())]

        async def receive() -> Any:
            if form:
                return form.pop()
            await waits.began.wait()
            return GONE

        await ask(browser.app, path="/tools/wait/run", receive=receive, **headers)  # type: ignore[attr-defined]
        await waits.until("cancelled")


async def test_a_tool_of_another_caller_is_not_there(open_console: Open) -> None:
    policy = Rules([Rule(do="deny", tools="drop", principals="bob")])
    async with open_console(add, drop, policy=policy, identify=by_user) as browser:
        await browser.become("bob")
        assert "/tools/drop" not in (await browser.get("/tools")).text
        assert (await browser.get("/tools/drop")).status_code == 404
        assert (await browser.submit("/tools/drop/run", **{"v/name": "x"})).status_code == 404
