"""`toolcrib serve`: what it says at its start, and that clients get through."""

import json
import re
import signal
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from .conftest import Run, Start, read_to

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def test_over_http_it_says_how_to_connect_and_goes_on_without_what_is_broken(folder: Path, start: Start) -> None:
    (folder / "broken.py").write_text("def (:\n")
    with start("serve", "broken.py", "tools.py", "--port", "0") as process:
        output = read_to(process, "--stdio\n")
        urls = re.findall(r"Serving MCP at (http://127\.0\.0\.1:\d+/mcp) ", output)
        settings = re.findall(r"^ +(\{.*\})$", output, re.MULTILINE)
        assert [json.loads(found) for found in settings] == [
            {"mcpServers": {"toolcrib": {"type": "http", "url": urls[0]}}}
        ]
        assert f"Not loaded: {folder}/broken.py:1: SyntaxError: invalid syntax\n" in output
        assert output.endswith(f" serve {folder}/broken.py {folder}/tools.py --stdio\n")
        accepts = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(urls[0], json.dumps(HELLO).encode(), accepts)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert '"serverInfo"' in answer.read().decode()
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
        assert (process.returncode, stdout, stderr) == (130, "", "Cancelled.\n")


def test_over_stdio_standard_output_is_the_protocol_alone(start: Start) -> None:
    with start("serve", "tools.py", "--stdio") as process:

        def ask(message: dict[str, Any]) -> Any:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())["result"] if "id" in message else None

        assert ask(HELLO)["serverInfo"]["name"] == "toolcrib"
        ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "add", "arguments": {"a": 1}}
        answer = ask({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        assert answer["content"] == [{"type": "text", "text": "1"}]
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, "")
    assert stderr == "printed while loading\nprinted by the tool\nprinted by a program\n"


def test_a_host_that_others_reach_is_refused(toolcrib: Run) -> None:
    for host in ("0.0.0.0", "example.com"):
        done = toolcrib("serve", "tools.py", "--host", host)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"Error: --host {host}: without keys, only loopback is served: 127.0.0.1, ::1 or localhost. Any machine "
            "that reached it could call every tool. Set 'keys = true' or an 'issuer' in [server] of the settings.\n"
        )


def test_a_console_that_nobody_could_enter_is_not_served_and_the_setting_is_named(folder: Path, start: Start) -> None:
    settings = folder / "toolcrib.toml"
    settings.write_text('[server]\nissuer = "https://id.example"\naudience = "tools"\n')
    for variables, console in (
        ({}, "not served, without a way to log in. Set 'client_id' in [server]: the issuer's."),
        ({"TOOLCRIB_SERVER_CLIENT_ID": "tools"}, "http://127.0.0.1:"),
    ):
        with start("serve", "tools.py", "--port", "0", **variables) as process:
            output = read_to(process, "The console: ")
            assert f"The console: {console}" in output
            base_url = re.findall(r"Serving MCP at (http://127\.0\.0\.1:\d+)/mcp ", output)[0]
            page = httpx2.get(f"{base_url}/login", timeout=30)
            assert page.headers["content-type"].startswith("text/html" if variables else "application/problem+json")
            assert ("Log in with id.example" in page.text) == bool(variables)


def test_a_port_in_use_is_one_line_that_names_the_option(toolcrib: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = toolcrib("serve", "tools.py", "--port", str(port))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"port {port}" in done.stderr
    assert done.stderr.endswith("The port is set with --port.\n")


def test_over_http_it_runs_on_uvloop_and_a_second_ctrl_c_ends_a_tool_that_blocks_it(folder: Path, start: Start) -> None:
    (folder / "loops.py").write_text(
        "import asyncio, sys, time\n\nfrom toolcrib import tool\n\n\n"
        "@tool\nasync def module_of_loop() -> str:\n    return type(asyncio.get_running_loop()).__module__\n\n\n"
        "@tool\nasync def block() -> None:\n"
        '    print("It blocks.", file=sys.stderr, flush=True)\n    time.sleep(600)\n'
    )
    with start("serve", "loops.py", "--port", "0") as process, ThreadPoolExecutor(1) as thread:
        base_url = re.findall(r"Serving MCP at (http://127\.0\.0\.1:\d+)/mcp ", read_to(process, "--stdio\n"))[0]

        def call(tool: str) -> Any:
            return httpx2.post(f"{base_url}/api/tools/{tool}/call", json={}, timeout=60).json()

        assert call("module_of_loop")["content"] == [{"type": "text", "text": "uvloop"}]
        blocked = thread.submit(call, "block")
        read_to(process, "It blocks.\n")
        process.send_signal(signal.SIGINT)
        read_to(process, "Cancelled.\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert isinstance(blocked.exception(30), httpx2.HTTPError)
