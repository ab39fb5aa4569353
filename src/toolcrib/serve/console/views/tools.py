"""`/tools`: what tools there are; one of them, with a form that checks and runs its calls; large results."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from ....schema import SchemaView
from ...protocol.reply import Reply
from ...wire import header
from ..forms import Draft, Form, draft_of, mark, outline
from ..visit import Answer, Page, Problem, Visit, filters_of, fragment, render

MAX_TOOLS = 100
MAX_LINES = 100
"""How many log lines and partial outputs of a running call are shown."""


async def show_list(visit: Visit) -> Answer:
    """Show the tools that have all the words of `q`, by their sources."""
    filters, address = filters_of(visit, ["q", "source"])
    words, start = filters.get("q", "").lower().split(), visit.request.query_params.get("first", "")
    tools = sorted((await visit.get("/api/tools"))["tools"], key=_source)
    matches = [
        tool for tool in tools if _has_words(tool, words) and filters.get("source", _source(tool)) == _source(tool)
    ]
    first = int(start) if start.isdecimal() and len(start) < 9 else 0
    sources = Counter(_source(tool) for tool in tools)
    values: dict[str, Any] = {
        "groups": [(source, [*group]) for source, group in groupby(matches[first : first + MAX_TOOLS], key=_source)],
        "counts": Counter(map(_source, matches)),
        "count": len(matches),
        "total": len(tools),
        "sources": {source: number for source, number in sources.items() if source},
    }
    return render(visit, "tools.html", **values, filters=filters, address=address, first=first, MAX_TOOLS=MAX_TOOLS)


def _has_words(tool: Mapping[str, Any], words: Sequence[str]) -> bool:
    text = f"{tool['name']} {tool.get('title')} {tool['description']}".lower()
    return all(word in text for word in words)


def _source(tool: Mapping[str, Any]) -> str:
    return str(tool.get("source", ""))


async def show_tool(visit: Visit, name: str) -> Answer:
    draft = await _draft(visit, name, {"raw": visit.request.query_params.get("arguments", "{}")})
    return draft.page()


async def change(visit: Visit, name: str) -> Answer:
    """Show the form again as it was filled in: after a check, with one item more, or with other JSON."""
    draft = await _draft(visit, name, await visit.posted())
    if visit.form.get("act") == "check":
        draft.verdict = await draft.send("check")
    return draft.page()


async def run(visit: Visit, name: str) -> Answer:
    """Make the call. A script gets what happens as it happens."""
    draft = await _draft(visit, name, await visit.posted())
    if "text/event-stream" in header(visit.request.scope, b"accept"):
        return _stream(draft)
    draft.result = await draft.send("call")
    return draft.page()


async def show_formats(visit: Visit, name: str) -> Answer:
    forms = (await visit.get(f"/api/tools/{name}/formats"))["formats"]
    return render(visit, "formats.html", formats=forms, tool=await visit.get(f"/api/tools/{name}"))


async def show_result(visit: Visit, handle: str) -> Answer:
    query = visit.request.query_params
    offset, limit, pointer = query.get("offset", "0"), query.get("limit"), query.get("pointer", "")
    part = await visit.get(f"/api/results/{handle}", offset=offset, limit=limit, pointer=pointer)
    return render(visit, "stored.html", part=part, pointer=pointer)


@dataclass
class ToolCall(Draft):
    """A call of *tool* that is not made yet."""

    visit: Visit = field(kw_only=True)
    name: str = field(kw_only=True)
    """The name of the tool in percent-encoding."""
    tool: Any = field(kw_only=True)
    verdict: Any = None
    result: Any = None
    problem: Problem | None = None

    async def send(self, action: str) -> Any:
        """Return what the API answers to the arguments; None where they are invalid, or refused, which is shown."""
        try:
            return None if self.is_invalid else await self.visit.post(f"/api/tools/{self.name}/{action}", self.body)
        except Problem as problem:
            self.refuse(problem)
            return None

    def refuse(self, problem: Problem) -> None:
        """Show why a call was refused, at its fields where that is known."""
        self.problem = problem
        mark(self.fields, problem.data.get("problems", ()))

    def page(self) -> Answer:
        return render(self.visit, "tool.html", tool=self.tool, draft=self, outline=outline(self.fields.view))


async def _draft(visit: Visit, name: str, form: Form) -> ToolCall:
    tool = await visit.get(f"/api/tools/{name}")
    draft = draft_of(SchemaView(tool["input_schema"]), form)
    return ToolCall(draft.fields, draft.raw, draft.raw_problem, visit=visit, name=name, tool=tool)


def _stream(draft: ToolCall) -> Answer:
    """Return the application that makes the call of *draft*, and sends what happens as HTML, again with each event."""
    visit = draft.visit

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        events, rest, status, reply = _Events(), b"", 200, Reply(send)

        async def show() -> None:
            html = fragment(visit, "run.html", events=events, draft=draft)
            lines = "".join(f"data: {line}\n" for line in html.split("\n"))
            await reply.write(f"{lines}\n".encode(errors="replace"))

        async def read(message: Message) -> None:
            nonlocal rest, status
            if message["type"] == "http.response.start":
                status = message["status"]
                return
            rest += message.get("body", b"")
            if status >= 400:
                if not message.get("more_body"):
                    data = json.loads(rest)
                    draft.refuse(Problem(status, data.get("title", "Refused"), data.get("detail", ""), data))
                return
            *blocks, rest = rest.split(b"\n\n")
            for block in blocks:
                events.read(block)
            draft.result = events.result
            if blocks and draft.result is None:
                await show()

        if not draft.is_invalid:
            await show()
            call = visit.passed_on("POST", f"/api/tools/{draft.name}/call", draft.body, accept="text/event-stream")
            await call(scope, receive, read)
        await show()
        await reply.close()

    return answer


@dataclass
class _Events:
    """What a call has reported."""

    progress: Any = None
    lines: list[Any] = field(default_factory=list[Any])
    result: Any = None

    def read(self, block: bytes) -> None:
        kind, _, data = block.decode(errors="replace").partition("\ndata: ")
        match kind.removeprefix("event: "):
            case "progress":
                self.progress = json.loads(data)
            case "log" | "output":
                self.lines = [*self.lines, json.loads(data)][-MAX_LINES:]
            case "result":
                self.result = json.loads(data)
            case _:
                pass  # a comment, or what newer servers send


PAGES = (
    Page("/tools", show_list, api="/api/tools"),
    Page("/tools/*", show_tool, api="/api/tools/{}"),
    Page("/tools/*", change, method="POST"),
    Page("/tools/*/run", run, method="POST"),
    Page("/tools/*/formats", show_formats, api="/api/tools/{}/formats"),
    Page("/results/*", show_result, api="/api/results/{}"),
)
