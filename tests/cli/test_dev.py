"""`toolcrib dev`, and `serve` as far as it follows files: what it prints about what is saved."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

import pytest
from mcp import Client, StdioServerParameters

from .conftest import Run, Start

TOOLS = '''from toolcrib import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
BROKEN = "def (:\n"


class Output:
    """What a process says on standard error, as it comes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.text = ""
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stderr:
            self.text += line

    def until(self, pattern: str) -> "re.Match[str]":
        end_s = monotonic() + 60
        while (found := re.search(pattern, self.text, re.MULTILINE)) is None:
            assert monotonic() < end_s, self.text
            sleep(0.02)
        return found


async def listed(url: str, *names: str) -> list[str]:
    """The names of the tools, once they are these *names*, or after a while."""
    end_s = monotonic() + 60
    async with Client(url) as client:
        while True:
            listing = [tool.name for tool in (await client.list_tools()).tools if tool.name != "read_result"]
            if listing == [*names] or monotonic() > end_s:
                return listing
            await asyncio.sleep(0.05)


def test_dev_says_what_became_of_each_save(start: Start, folder: Path) -> None:
    file = folder.resolve() / "tools.py"
    with start("dev", "tools.py", "--port", "0") as process:
        output = Output(process)
        url = output.until(r"^Serving MCP at (\S+) \(Ctrl-C stops it\)$")[1]
        file.write_text(TOOLS + TOOLS.replace("def add", "def plus"))
        output.until(r"^\d\d:\d\d:\d\d Loaded tools\.py again; new: plus\.$")
        assert asyncio.run(listed(url, "add", "plus")) == ["add", "plus"]
        file.write_text(BROKEN)
        output.until(
            rf"^\d\d:\d\d:\d\d Not loaded, so its tools stay as they were: {file}:1: SyntaxError: invalid syntax$"
        )
        assert asyncio.run(listed(url, "add", "plus")) == ["add", "plus"]
        file.write_text(TOOLS.replace("Add", "Sum").replace("a + b", "1 / 0"))
        output.until(r"Loaded tools\.py again; changed: add; gone: plus\.$")

        async def call() -> str:
            async with Client(url) as client:
                return (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text

        assert asyncio.run(call()).endswith("division by zero")
        output.until(r"^\d\d:\d\d:\d\d run_\w+  add  error \(failed\)  \d+\.\d ms  by local$")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_the_log_is_json_and_the_reference_that_a_model_got_finds_the_line(start: Start, folder: Path) -> None:
    (folder / "tools.py").write_text(TOOLS.replace("a + b", "1 / 0"))
    (folder / "broken.py").write_text(BROKEN)
    as_json = {"TOOLCRIB_LOG_FORMAT": "json", "TOOLCRIB_LOG_CALLS": "yes"}
    with start("serve", "tools.py", "broken.py", "--port", "0", **as_json) as process:
        output = Output(process)
        url = output.until(r"Serving MCP at (http\S+?)\"")[1]

        async def call() -> str:
            async with Client(url) as client:
                return (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text

        found = re.search(r"\(reference (\w+)\)", asyncio.run(call()))
        assert found is not None
        output.until('"call"')
        process.terminate()
        process.wait(60)
        output.until("Terminated.")
    lines = [json.loads(line) for line in output.text.splitlines() if line != "Terminated."]
    assert {*lines[0]} == {"at", "level", "logger", "message"}
    assert lines[0]["message"].startswith("Not loaded: ")
    (failure,) = [line for line in lines if line.get("reference") == found[1]]
    assert failure["level"] == "error"
    assert "ZeroDivisionError" in failure["message"]
    (ended,) = [line for line in lines if "call" in line]
    assert (ended["logger"], ended["level"], ended["call"]["tool"]) == ("toolcrib.calls", "info", "add")
    assert ended["call"]["code"] == "failed"


def test_dev_waits_for_a_file_that_is_broken_and_serve_does_not(start: Start, folder: Path) -> None:
    file = folder.resolve() / "tools.py"
    file.write_text(BROKEN)
    with start("serve", "tools.py", "--port", "0") as process:
        output = Output(process)
        assert process.wait(60) == 1
        output.until(rf"^Error: {file}:1: SyntaxError: invalid syntax$")
    with start("dev", "tools.py", "--port", "0") as process:
        output = Output(process)
        output.until(rf"^Not loaded: {file}:1: SyntaxError: invalid syntax$")
        url = output.until(r"^Serving MCP at (\S+) ")[1]
        assert asyncio.run(listed(url)) == []
        file.write_text(TOOLS)
        output.until(r"Loaded tools\.py again; new: add\.$")
        assert asyncio.run(listed(url, "add")) == ["add"]


@pytest.mark.full
def test_what_is_printed_while_a_file_is_loaded_again_is_no_part_of_the_protocol(
    folder: Path, environment: dict[str, str]
) -> None:
    file = folder / "tools.py"
    noise = 'import os\nprint("noise", flush=True)\nos.system("echo noise")\nos.write(1, b"noise\\n")\n'

    async def story() -> list[str]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "toolcrib", "dev", str(file), "--stdio"],
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        async with Client(server) as client, asyncio.timeout(30):
            file.write_text(noise + TOOLS.replace("def add", "def plus"))
            while [tool.name for tool in (await client.list_tools()).tools] != ["plus", "read_result"]:
                await asyncio.sleep(0.02)
            return [(await client.call_tool("plus", {"a": 1, "b": 2})).content[0].text]

    assert asyncio.run(story()) == ["3"]


def test_a_source_that_is_not_there_is_no_wait(toolcrib: Run) -> None:
    for source in ("nothing.py", "no.such.module"):
        done = toolcrib("dev", source, "--port", "0")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"no {'file' if source.endswith('.py') else 'module'} " in done.stderr
    done = toolcrib("dev", "", "--port", "0")
    assert (done.returncode, "An empty text is not a source" in done.stderr) == (1, True)
    done = toolcrib("dev", "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("For example: toolcrib dev tools.py\n")


def test_dev_serves_again_with_settings_that_are_saved(start: Start, folder: Path) -> None:
    config = folder / "toolcrib.toml"
    config.write_text(source := '[[source]]\nfrom = "tools.py"\n')
    with start("dev", "--port", "0") as process:
        output = Output(process)
        url = output.until(r"^Serving MCP at (\S+)")[1]
        assert asyncio.run(listed(url, "add")) == ["add"]
        config.write_text(f"rule = 1\n{source}")
        output.until(r"^Not loaded, so the settings stay as they were: .*toolcrib\.toml:1: ")
        config.write_text(f'{source}prefix = "my_"\n[calls]\ncontent = true\n')
        output.until(r"^toolcrib\.toml has changed: calls, source\. It takes effect when the server starts again\.$")
        url = output.until(r"(?s)^The server starts again\.$.*^Serving MCP at (\S+)")[1]
        assert asyncio.run(listed(url, "my_add")) == ["my_add"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
