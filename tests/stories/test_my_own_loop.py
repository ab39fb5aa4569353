"""Story 1, my own loop: the OpenAI SDK against a model that errs."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent

TURNS: list[dict[str, Any]] = [
    {
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "in_stock", "arguments": '{"prt": "bolt"}'}}
        ]
    },
    {
        "tool_calls": [
            {"id": "c2", "type": "function", "function": {"name": "in_stock", "arguments": '{"part": "bolt"}'}},
            {"id": "c3", "type": "function", "function": {"name": "total", "arguments": '{"prices": "[1,2]"}'}},
        ]
    },
    {"content": "40 bolts are left, and the bill is 3."},
]

MISSPELT = "Tool 'in_stock' takes no argument 'prt'. Did you mean 'part'? It takes: part."

OUTPUT = f"""\
error {MISSPELT}
pool opened
success 40
success 3 Repair(path='/prices', from_kind='string', to_kind='array')
40 bolts are left, and the bill is 3.
4
pool closed
"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "in_stock",
            "description": "How many of a part are in stock.",
            "parameters": {
                "type": "object",
                "properties": {"part": {"type": "string"}},
                "required": ["part"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "total",
            "description": "Add prices up.",
            "parameters": {
                "type": "object",
                "properties": {"prices": {"type": "array", "items": {"type": "integer"}}},
                "required": ["prices"],
                "additionalProperties": False,
            },
        },
    },
]


@dataclass
class Provider:
    """What was asked of it, and at which address it is."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@contextmanager
def provider(turns: list[dict[str, Any]]) -> Generator[Provider]:
    """A provider that answers its n-th request with the n-th of *turns*, an assistant's message."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append({"path": self.path, **request})
            turn = turns[len(state.requests) - 1]
            answer = {
                "id": f"chatcmpl-{len(state.requests)}",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": None, **turn},
                        "finish_reason": "tool_calls" if "tool_calls" in turn else "stop",
                    }
                ],
            }
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state = Provider(f"http://127.0.0.1:{server.server_address[1]}/v1")
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield state
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """The story's file, alone in a folder."""
    return Path(shutil.copy(HERE / "my_own_loop.py", tmp_path))


@pytest.mark.full
def test_an_agent_loop_with_the_openai_sdk_survives_a_model_that_errs(
    story: Path, clean_env: Callable[..., Path], user_environ: Callable[[Path], dict[str, str]]
) -> None:
    programs = clean_env("--extra", "models")
    with provider(TURNS) as model:
        environ = {**user_environ(programs), "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        done = subprocess.run(
            ["python", "-W", "error", story.name],
            cwd=story.parent,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == OUTPUT
    assert [request["path"] for request in model.requests] == ["/v1/chat/completions"] * 3
    assert [request["tools"] for request in model.requests] == [TOOLS] * 3
    roles = [(m["role"], [call["id"] for call in m.get("tool_calls", [])]) for m in model.requests[-1]["messages"]]
    assert roles == [
        ("user", []),
        ("assistant", ["c1"]),
        ("tool", []),
        ("assistant", ["c2", "c3"]),
        ("tool", []),
        ("tool", []),
    ]
    answers = [(m["tool_call_id"], m["content"]) for m in model.requests[-1]["messages"] if m["role"] == "tool"]
    assert answers == [
        ("c1", f"Error (invalid_arguments): {MISSPELT}"),
        ("c2", "40"),
        ("c3", "3"),
    ]


@pytest.mark.full
def test_mypy_and_pyright_accept_the_file_strictly(story: Path, clean_env: Callable[..., Path]) -> None:
    python = clean_env("--extra", "models") / "python"
    (story.parent / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), story.name]
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", str(python), "-p", str(story.parent)]
    for command in (mypy, pyright):
        done = subprocess.run(command, cwd=story.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_both_checkers_refuse_the_file_once_a_typed_call_is_wrong(story: Path, clean_env: Callable[..., Path]) -> None:
    python = clean_env("--extra", "models") / "python"
    story.write_text(story.read_text().replace("bench.call(total, [1, 2])", 'bench.call(total, "1, 2")'))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), story.name]
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", str(python), story.name]
    for command in (mypy, pyright):
        done = subprocess.run(command, cwd=story.parent, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"{story.name}:" in done.stdout
