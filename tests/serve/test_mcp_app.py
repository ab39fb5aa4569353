"""The approval as an MCP App: for clients that show apps, and only to show; the console answers."""

import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from toolcrib import Crib, tool
from toolcrib.serve import asgi_app
from toolcrib.workbench import Rule, Rules

from .serving import add, message_of, request_of

APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
URI = "ui://toolcrib/approve"


@tool(destructive=True)
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


class Mcp:
    """Requests of 2026-07-28, each with the capabilities of its client."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def __call__(self, method: str, capabilities: Any = APPS, **params: Any) -> Any:
        return message_of(await self.http.post("/mcp", **request_of(method, capabilities, **params)))


@asynccontextmanager
async def serving(folder: Path, **options: Any) -> AsyncGenerator[Mcp]:
    crib = Crib([pay, add], policy=Rules([Rule(name="money", tools="pay", do="ask")]), store=folder / "s.db")
    app = asgi_app(crib, **options)
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 50000))
    async with app.lifespan(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as http:
        yield Mcp(http)


async def test_a_client_that_shows_apps_gets_that_of_what_waits(tmp_path: Path) -> None:
    async with serving(tmp_path, console=True) as mcp:
        tools = {of["name"]: of.get("_meta") for of in (await mcp("tools/list"))["result"]["tools"]}
        assert tools == {"pay": {"ui": {"resourceUri": URI}}, "add": None, "read_result": {"toolcrib/reader": True}}
        (page,) = (await mcp("resources/read", uri=URI))["result"]["contents"]
        assert (page["uri"], page["mimeType"]) == (URI, "text/html;profile=mcp-app")
        waits = (await mcp("tools/call", name="pay", arguments={"to": "bob", "amount": 5}))["result"]
        shown = waits["_meta"]["toolcrib/approval"]
        expires_at, url = shown.pop("expiresAt"), shown.pop("url")
        assert shown == {
            "tool": "pay",
            "message": "May 'pay' run with these arguments?",
            "arguments": '{"to": "bob", "amount": 5}',
            "rule": "money",
        }
        assert url.startswith("http://127.0.0.1:8642/approvals/pending_")
        assert expires_at


async def test_other_clients_and_servers_without_a_console_have_none(tmp_path: Path) -> None:
    for number, (capabilities, options) in enumerate([({}, {"console": True}), (APPS, {})]):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with serving(folder, **options) as mcp:
            tools = (await mcp("tools/list", capabilities))["result"]["tools"]
            assert not any("ui" in of.get("_meta", {}) for of in tools)
            waits = await mcp("tools/call", capabilities, name="pay", arguments={"to": "bob", "amount": 5})
            assert "toolcrib/approval" not in json.dumps(waits)


async def test_nothing_that_a_client_can_send_for_the_app_approves(tmp_path: Path) -> None:
    async with serving(tmp_path, console=True) as mcp:
        names = [of["name"] for of in (await mcp("tools/list"))["result"]["tools"]]
        assert sorted(names) == ["add", "pay", "read_result"]
        page = (await mcp("resources/read", uri=URI))["result"]["contents"][0]["text"]
        assert "tools/call" not in page


@pytest.mark.full
async def test_the_page_shows_what_waits_and_opens_the_console(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.async_api")
    async with serving(tmp_path, console=True) as mcp:
        text = (await mcp("resources/read", uri=URI))["result"]["contents"][0]["text"]
        result = (await mcp("tools/call", name="pay", arguments={"to": "<b>bob\u202e", "amount": 5}))["result"]
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    guarded = text.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{policy}">')
    host = """async ([page, result]) => {
      const frame = document.createElement("iframe");
      frame.sandbox = "allow-scripts"; frame.srcdoc = page; window.seen = [];
      addEventListener("message", ({ data, source }) => {
        window.seen.push(data);
        const reply = (message) => source.postMessage({ jsonrpc: "2.0", ...message }, "*");
        if (data.method === "ui/initialize") reply({ id: data.id, result: { protocolVersion: "2026-01-26",
          hostInfo: { name: "host", version: "1" }, hostCapabilities: { openLinks: {} }, hostContext: {} } });
        if (data.method === "ui/notifications/initialized")
          reply({ method: "ui/notifications/tool-result", params: result });
        if (data.method === "ui/open-link") reply({ id: data.id, result: {} });
      });
      document.body.append(frame);
    }"""
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await browser.new_page()
        await page.evaluate(host, [guarded, result])
        frame = page.frame_locator("iframe")
        assert "<b>bob\\u202e" in await frame.locator("pre").inner_text()
        await frame.get_by_role("button", name="Answer in the console").click()
        await page.wait_for_function("window.seen.some((message) => message.method === 'ui/open-link')")
        opened = await page.evaluate("window.seen.find((message) => message.method === 'ui/open-link').params.url")
        await browser.close()
    assert opened == result["_meta"]["toolcrib/approval"]["url"]
