"""Raw HTTP to a real server, where it listens, and how serving ends."""

import asyncio
import http.client
import json
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp import Client

from toolcrib import Caller, Crib, SetupError, tool
from toolcrib.serve import serve_http
from toolcrib.serve.http import listening

from .serving import add, served

CRIB = str(Path(__file__).with_name("crib.py"))
VERSION = "2026-07-28"
SOUND = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": "tools/list",
}
META = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}


def body(method: str = "tools/list", **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}).encode()


def post(url: str, content: bytes, headers: dict[str, str], path: str = "/mcp") -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("POST", path, content, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("version", [VERSION, "2025-11-25"])
def test_a_name_that_stands_twice_is_refused_before_anything_runs(url: str, version: str) -> None:
    headers = {**SOUND, "MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "add"}
    sound = body("tools/call", name="add", arguments={"a": 1, "b": 2}).decode()
    status, text = post(url, sound.replace('"name": "add"', '"name": "add", "name": "drop"').encode(), headers)
    assert (status, json.loads(text)["error"]["code"]) == (400, -32600)
    assert "the name 'name' appears twice in an object, at line 1 column" in text


async def test_an_interrupt_ends_the_server_and_closes_what_was_opened(forked_python: str) -> None:
    process = await asyncio.create_subprocess_exec(
        forked_python, CRIB, "http", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    url = (await process.stdout.readline()).decode().strip()
    # A client of the older era keeps a stream open, which must not hold the server up.
    async with asyncio.timeout(60), Client(url, mode="legacy") as client:
        await client.call_tool("use", {})
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert b"closed what was opened" in err.splitlines()
    assert err.splitlines()[-1] == b"KeyboardInterrupt"


async def test_serving_ends_with_the_task_that_serves(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    crib = Crib([add])
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_http(crib, port=0, path="/tools", ready=ready.set_result))
    url = await ready
    assert url.endswith("/tools")
    async with Client(url) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn.access")] == []
    with pytest.raises(SetupError, match="The crib is stopped"):
        await crib.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(url).port or 0))


async def test_structured_content_has_the_digits_of_the_text_beside_it() -> None:
    @tool
    def numbers() -> tuple[int, float, Decimal]:
        return 10**40 + 1, 0.1 + 0.2, Decimal("12345678901234567.89")

    headers = {**SOUND, "Mcp-Method": "tools/call", "Mcp-Name": "numbers"}
    async with served(Crib([numbers])) as url:
        _, answer = await asyncio.to_thread(post, url, body("tools/call", name="numbers", arguments={}), headers)
    text = json.loads(answer)["result"]["content"][0]["text"]
    assert text == f'[1{"0" * 39}1,0.30000000000000004,"12345678901234567.89"]'
    assert f'"structuredContent":{{"result":{text}}}' in answer


async def test_a_call_asks_nothing_of_the_other_tools() -> None:
    asked: list[str] = []

    @tool(available=lambda caller: not asked.append(caller.principal))
    async def other() -> int:
        return 1

    async with served(Crib([add, other])) as url, Client(url, mode=VERSION) as client:
        await client.list_tools()
        asked.clear()
        assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
    assert asked == []


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_head() -> None:
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def anybody(_: Mapping[str, str]) -> Caller:
    return Caller()


async def test_other_computers_are_let_in_by_name_only_and_where_somebody_asks_who_they_are() -> None:
    with pytest.raises(SetupError, match=r"Serving on 0\.0\.0\.0 lets every computer .* Identify who calls"):
        await serve_http(Crib([add]), host="0.0.0.0")
    for name in ("crib.example", "crib.example:*", "[2001:db8::1]:80"):
        with pytest.raises(SetupError, match="Serving under these names lets every computer"):
            await serve_http(Crib([add]), allowed_hosts=[name])
    async with served(Crib([add]), allowed_hosts=["localhost:9000", "127.0.0.2:*", "[::1]:80"]) as url:
        assert (await asyncio.to_thread(post, url, body(), {**SOUND, "Host": "127.0.0.2:1"}))[0] == 200
    hosts = {"allowed_hosts": ["crib.example"], "base_url": "https://public.example/base"}
    async with served(Crib([add]), identify=anybody, **hosts) as url:
        assert (await asyncio.to_thread(post, url, body(), {**SOUND, "Host": "public.example"}))[0] == 200
        for host, status in [("crib.example", 200), ("other.example", 421)]:
            assert (await asyncio.to_thread(post, url, body(), {**SOUND, "Host": host}))[0] == status
        origin = {**SOUND, "Host": "crib.example", "Origin": "https://crib.example"}
        assert (await asyncio.to_thread(post, url, body(), origin))[0] == 200


async def test_a_server_on_all_addresses_names_one_that_clients_can_use() -> None:
    for host, reached in [("0.0.0.0", "http://127.0.0.1:"), ("::", "http://[::1]:")]:
        async with served(Crib([add]), identify=anybody, host=host) as url:
            assert url.startswith(reached)
            assert (await asyncio.to_thread(post, url, body(), SOUND))[0] == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
async def test_whoever_is_at_this_computer_is_let_in(host: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    async with served(Crib([add]), host=host) as url:
        assert url.startswith(f"http://{shown}:")
        headers = {**SOUND, "Host": url.removeprefix("http://").removesuffix("/mcp").replace("127.0.0.2", "localhost")}
        assert (await asyncio.to_thread(post, url, body(), headers))[0] == 200


@pytest.mark.parametrize("package", ["mcp", "uvicorn"])
def test_without_the_extra_the_error_names_it(package: str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
import toolcrib
try:
    import toolcrib.serve
except toolcrib.SetupError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == (
        f"Serving tools needs the package '{package}', which is missing: pip install 'toolcrib[serve]'\n"
    )


@pytest.mark.full
async def test_an_idle_connection_is_kept_for_the_proxy_that_uses_it_again() -> None:
    async with served(Crib([add])) as url:
        at = urlsplit(url)
        connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)
        for pause_s in (6, 0):  # an ASGI server's own limit is 5 seconds: at that moment a proxy would have a 502
            await asyncio.to_thread(connection.request, "GET", "/livez")
            answer = await asyncio.to_thread(connection.getresponse)
            assert (answer.status, answer.read(), answer.will_close) == (200, b'{"status":"alive"}', False)
            opened = connection.sock
            await asyncio.sleep(pause_s)
            assert select.select([opened], [], [], 0)[0] == []  # nothing to read: nor an end
        connection.close()
