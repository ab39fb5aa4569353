"""`/`: what waits for this person, what is down, what happened last, and the settings of clients to copy."""

import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from ...access.callers import local_caller
from ..visit import Answer, Page, Problem, Visit, render
from .approvals import mark_of

_WAITING, _CALLS = 10, 10
_KEY = "YOUR-KEY"


async def show(visit: Visit) -> Answer:
    waiting = await visit.get("/api/pending", limit=_WAITING)
    if (mark := mark_of(waiting["pending"])) == visit.request.query_params.get("seen"):
        return Response(status_code=204)
    sources = (await visit.get("/readyz")).get("sources", [])
    down = [source["name"] for source in sources if source["state"] != "running"]
    has_key = visit.callers.identify is not local_caller
    boxes = client_settings(visit.base_url, visit.mcp_path, has_key=has_key)
    changes = visit.may("sources") and (await visit.get("/api/sources/changes", limit=1))["changes"]
    values: dict[str, Any] = {"boxes": boxes, "has_key": has_key, "down": down, "changes": changes}
    return render(visit, "home.html", waiting=waiting, mark=mark, calls=await _calls(visit), **values)


async def _calls(visit: Visit) -> list[object]:
    try:
        return list((await visit.get("/api/calls", limit=_CALLS))["calls"])
    except Problem as problem:  # a server that records no calls
        if problem.status != 404:
            raise
        return []


def client_settings(base_url: str, path: str, *, has_key: bool) -> Sequence[tuple[str, str, str]]:
    """Return for each client of a server, which has MCP at *path*, its name, where its settings are, and their text.

    With *has_key* they have a placeholder in place of the key.
    """
    url, api, bearer = f"{base_url}{path}", f"{base_url}/api/tools", f"Bearer {_KEY}"
    headers = {"headers": {"Authorization": bearer}} if has_key else {}
    add = "claude mcp add --transport http toolcrib " + url + f" --header 'Authorization: {bearer}'" * has_key
    remote: dict[str, Any] = {"command": "npx", "args": ["mcp-remote", url]}
    if has_key:  # in a variable: Claude Desktop on Windows splits arguments at spaces
        remote = {"command": "npx", "args": ["mcp-remote", url, "--header", "Authorization:${AUTH}"]}
        remote |= {"env": {"AUTH": bearer}}
    server = {"type": "http", "url": url}
    code: dict[str, Any] = {"servers": {"toolcrib": server}}
    if has_key:
        key = {"type": "promptString", "id": "tools-key", "description": "Key for the tools", "password": True}
        by_key = {**server, "headers": {"Authorization": "Bearer ${input:tools-key}"}}
        code = {"inputs": [key], "servers": {"toolcrib": by_key}}
    curl = "curl " + f"-H 'Authorization: {bearer}' " * has_key + f"'{api}'"
    python = f"import httpx\n\nheaders = {json.dumps({'Authorization': bearer} if has_key else {})}\n"
    python += (
        f'answer = httpx.get("{api}", headers=headers)\nfor tool in answer.json()["tools"]:\n    print(tool["name"])'
    )
    return [
        ("Claude Code", "in a terminal", add),
        ("Claude Desktop", "claude_desktop_config.json", _servers(remote)),
        ("Cursor", ".cursor/mcp.json", _servers({"url": url, **headers})),
        ("VS Code", ".vscode/mcp.json", json.dumps(code, indent=2)),
        ("curl", "in a terminal", curl),
        ("Python", "a program", python),
    ]


def _servers(entry: dict[str, Any]) -> str:
    return json.dumps({"mcpServers": {"toolcrib": entry}}, indent=2)


PAGES = (Page("/", show),)
