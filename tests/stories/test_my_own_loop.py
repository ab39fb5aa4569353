"""Story 1, my own loop: the OpenAI SDK against a model that errs."""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..agent.wire import Wire, answer, wire
from ..dialects.spark.test_agent_models import completion
from .running import run, type_checked

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


@contextmanager
def provider(turns: list[dict[str, Any]]) -> Generator[Wire]:
    """A provider that answers its n-th request with the n-th of *turns*, an assistant's message."""
    with wire(*(answer(completion(turn)) for turn in turns)) as model:
        model.url += "/v1"
        yield model


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
        done = run(story.parent, environ, "python", "-W", "error", story.name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == OUTPUT
    assert [request.path for request in model.requests] == ["/v1/chat/completions"] * 3
    assert [request.body["tools"] for request in model.requests] == [TOOLS] * 3
    roles = [(m["role"], [call["id"] for call in m.get("tool_calls", [])]) for m in model.requests[-1].body["messages"]]
    assert roles == [
        ("user", []),
        ("assistant", ["c1"]),
        ("tool", []),
        ("assistant", ["c2", "c3"]),
        ("tool", []),
        ("tool", []),
    ]
    answers = [(m["tool_call_id"], m["content"]) for m in model.requests[-1].body["messages"] if m["role"] == "tool"]
    assert answers == [
        ("c1", f"Error (invalid_arguments): {MISSPELT}"),
        ("c2", "40"),
        ("c3", "3"),
    ]


@pytest.mark.full
def test_mypy_and_pyright_accept_the_file_strictly(story: Path, clean_env: Callable[..., Path]) -> None:
    for done in type_checked(story, clean_env("--extra", "models")):
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_both_checkers_refuse_the_file_once_a_typed_call_is_wrong(story: Path, clean_env: Callable[..., Path]) -> None:
    story.write_text(story.read_text().replace("bench.call(total, [1, 2])", 'bench.call(total, "1, 2")'))
    for done in type_checked(story, clean_env("--extra", "models")):
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"{story.name}:" in done.stdout
