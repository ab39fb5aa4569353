"""Bytes to a real process and back: what no well-behaved client sends, and how serving ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib.serve.stdio import _standard_input

CRIB = str(Path(__file__).with_name("crib.py"))


class Wire:
    """A server process, and a connection to it that has shaken hands."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.server = self.ask("initialize", params)["result"]["serverInfo"]
        self.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode())

    def send(self, line: bytes) -> None:
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: Any) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        answer = self.receive()
        assert (answer.pop("jsonrpc"), answer.pop("id")) == ("2.0", 1)
        return answer

    def call(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}})["result"]["content"][0]["text"]

    def end(self) -> tuple[bytes, str]:
        """What is left on standard output, and all of standard error. Closes standard input."""
        out, err = self.process.communicate(timeout=60)
        return out, err.decode()


@pytest.fixture
def wire(forked_python: str) -> Iterator[Wire]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [forked_python, CRIB, "stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=buffered,
    ) as process:
        yield Wire(process)
        process.kill()


def refusal(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


def test_what_is_no_message_is_answered_and_the_server_lives(wire: Wire) -> None:
    assert wire.server["name"] == "toolcrib"
    no_json = refusal(-32700, "This line is not valid JSON. A message is one line of UTF-8.")
    no_message = refusal(-32600, "This line is not a JSON-RPC 2.0 message.")
    for line in [b'{"jsonrpc": "2.0", "id": 1, "method":', b"hello", b"", b"\xff\xfe{", b"[" * 100_000]:
        wire.send(line)
        assert wire.receive() == no_json, line[:40]
    for line in [b'{"a": 1}', b"[]", b"7", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": 5}']:
        wire.send(line)
        assert wire.receive() == no_message, line[:40]
    assert wire.ask("tools/unknown", {})["error"]["code"] == -32601
    assert wire.ask("tools/call", {"arguments": {}})["error"]["code"] == -32602
    assert wire.ask("tools/call", {"name": "add", "arguments": [1, 2]})["error"]["code"] == -32602
    assert wire.call("add", {"a": 1, "b": 2}) == "3"


def test_a_name_that_stands_twice_is_refused_to_whoever_waits_for_the_answer(wire: Wire) -> None:
    wire.send(b'{"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "add", "name": "drop"}}')
    answer = wire.receive()
    assert (answer["id"], answer["error"]["code"]) == ("x", -32600)
    assert "the name 'name' appears twice in an object, at line 1 column" in answer["error"]["message"]
    assert wire.call("add", {"a": 1, "b": 2}) == "3"


def test_a_decimal_has_the_digits_that_were_sent(wire: Wire) -> None:
    start = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "prices", '
    for amounts, shown in [
        ("98765432109876543.21, 0.1000000000000000055", ["98765432109876543.21", "0.1000000000000000055"]),
        ("0.30000000000000004, 1e2, 98765432109876543210", ["0.30000000000000004", "100", "98765432109876543210"]),
    ]:
        wire.send(f'{start}"arguments": {{"amounts": [{amounts}]}}}}}}'.encode())
        result = wire.receive()["result"]
        assert result["structuredContent"] == {"result": shown}
        assert json.loads(result["content"][0]["text"]) == shown
    assert wire.call("prices", {"amounts": ["7.10"]}) == '["7.10"]'


def test_a_tool_that_leaves_the_cancellation_of_its_task_for_later_ends_no_server(wire: Wire) -> None:
    assert wire.call("cancel_later") == "done"
    assert wire.call("wait_for_that") == "cancelled"
    assert wire.call("add", {"a": 1, "b": 2}) == "3"


def test_what_tools_and_their_children_print_stays_out_of_the_protocol(wire: Wire) -> None:
    # And they find standard input empty, so that the next message is not eaten.
    assert "EOFError" in wire.call("shout", {"text": "{noise"})
    assert wire.call("add", {"a": 1, "b": 2}) == "3"
    out, err = wire.end()
    assert out == b""
    assert err.splitlines().count("{noise") == 5


def test_what_is_printed_is_seen_when_it_is_printed(wire: Wire) -> None:
    assert wire.call("print_both") == "null"
    _, err = wire.end()
    assert err.splitlines() == ["printed", "to standard error"]


def test_an_argument_of_many_megabytes_is_refused_and_the_server_lives(wire: Wire) -> None:
    assert wire.call("length", {"text": "x" * 4_000_000}) == "4000000"
    assert wire.call("length", {"text": "x" * 20_000_000}).endswith("Send less, or in several calls.")
    assert wire.call("add", {"a": 1, "b": 2}) == "3"


def test_closing_standard_input_ends_the_server_and_closes_what_was_opened(wire: Wire) -> None:
    assert wire.call("use") == "open for local"
    params = {"name": "hang", "arguments": {"me": "x"}}
    wire.send(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).encode())
    out, err = wire.end()
    assert wire.process.returncode == 0
    # The call that still ran is given up; if it is answered, then with an error.
    assert all("error" in json.loads(line) for line in out.splitlines())
    assert err == "closed what was opened\n"


def test_an_interrupt_ends_the_server_while_the_client_is_silent(wire: Wire) -> None:
    assert wire.call("use") == "open for local"
    wire.process.send_signal(signal.SIGINT)
    wire.process.wait(timeout=60)  # standard input is still open
    _, err = wire.end()
    assert err.splitlines()[0] == "closed what was opened"
    assert err.splitlines()[-1] == "KeyboardInterrupt"


def test_a_client_that_vanishes_ends_the_server_without_a_word(wire: Wire) -> None:
    wire.process.stdout.close()
    wire.send(b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}')
    assert wire.process.wait(timeout=60) == 0
    assert wire.process.stderr.read() == b""


HOST = """
import asyncio, os, threading
from toolcrib import Caller, Context, Crib, tool
from toolcrib.serve import serve_stdio

@tool
async def leave(context: Context) -> str:
    asyncio.get_running_loop().call_later(0.1, serving.cancel)
    return context.caller.principal

async def serve():
    global serving
    serving = asyncio.create_task(serve_stdio(Crib([leave]), Caller("ada"), name="mine", version="7"))
    await asyncio.wait([serving])

def descriptors():
    return {name: os.stat(f"/dev/fd/{name}").st_ino for name in ("0", "1", "2")}, len(os.listdir("/dev/fd"))

before = descriptors()
asyncio.run(serve())
after = descriptors()
print(after[0] == before[0], after[1] - before[1], flush=True)
for thread in threading.enumerate():
    if thread.name == "toolcrib-stdin":
        thread.join()
"""


def test_a_host_that_goes_on_has_its_standard_streams_back() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wire = Wire(process)
        assert (wire.server["name"], wire.server["version"]) == ("mine", "7")
        assert wire.call("leave") == "ada"
        # Two are kept, and never closed: what the server read from, and the SDK's own for what it wrote to.
        assert process.stdout.readline() == b"True 2\n"
        # What the client still sends is nobody's.
        wire.send(b'{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}')
        assert wire.end() == (b"", "")
        process.kill()


def test_whoever_reads_standard_input_meanwhile_finds_it_empty() -> None:
    read, write = os.pipe()
    before = os.dup(0)
    os.dup2(read, 0)
    try:
        with _standard_input() as stdin:
            opened = len(os.listdir("/dev/fd"))
            os.write(write, b"a line\n")
            assert os.read(0, 10) == b""
            assert stdin.readline() == b"a line\n"
        assert len(os.listdir("/dev/fd")) == opened
        os.write(write, b"more")
        assert os.read(0, 10) == b"more"
        with _standard_input():
            assert len(os.listdir("/dev/fd")) == opened + 1
    finally:
        os.dup2(before, 0)
        for each in (read, write, before):
            os.close(each)
