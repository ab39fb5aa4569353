"""What `toolcrib check` finds weak or wrong in tools, each thing by itself, and what answers with `--connect`."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from toolcrib import Tool
from toolcrib.cli.check import findings

from ..tools.tool_folders import module
from .conftest import Run

FINE = "Look for a thing in a list."
NO_HINT = "It declares neither read_only nor destructive, so it is taken to change things."
NO_EXAMPLES = "It has no examples, so nothing of it was tried."
PROGRAM = 'file = "tool.wasm"\n'
TRAPS = '(func (export "_start") unreachable)'
NO_SCHEMA = "Its schema takes any arguments. Name those that it takes."


def look(thing: Annotated[str, Field(description="What to look for.")]) -> None: ...


def found(function: Any = look, **options: Any) -> list[str]:
    """The messages about a tool of *function*, which is well but for the *options*."""
    return [one.message for one in findings(Tool(function, **{"description": FINE, "read_only": True, **options}))]


def test_a_tool_in_which_all_is_well_has_no_findings() -> None:
    assert found() == []
    assert found(read_only=None, destructive=True) == []
    assert found(read_only=None, destructive=False) == []
    assert found(read_only=False) == []
    assert found(open_world=False) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"description": " "}, "It has no description: a model cannot tell when to call it."),
        ({"description": "x" * 14}, "Its description has 14 characters. Say what it does, and when."),
        ({"description": "x" * 1025}, "Its description is longer than 1024 characters, which some providers cut."),
        ({"read_only": None}, NO_HINT),
        ({"destructive": True}, "It is declared read_only and destructive."),
        (
            {"title": "a\u200b\u200c\u200d\u2060\tb\nc"},
            "'title' has characters that a model reads and a person does not see: U+200B, U+200C, U+200D.",
        ),
        (
            {"description": f"{FINE}\u200b"},
            "'description' has characters that a model reads and a person does not see: U+200B.",
        ),
    ],
)
def test_texts_and_hints_that_mislead_a_model_are_found(options: dict[str, Any], message: str) -> None:
    assert found(**options) == [message]


def test_arguments_that_say_little_are_found() -> None:
    def weak(api_key: str, tokens: int, untyped: Any, plain: Annotated[str, Field(description="It.")]) -> None: ...

    assert found(weak) == [
        "Argument 'api_key' looks like a credential, which a model would write. Use auth.",
        "Argument 'api_key' has no description.",
        "Argument 'tokens' has no description.",
        "Argument 'untyped' has no type.",
        "Argument 'untyped' has no description.",
    ]
    assert found(lambda: None, name="nothing") == []


def test_what_a_folder_needs_is_held_against_what_it_declares_and_its_examples_are_tried(
    toolcrib: Run, tmp_path: Path
) -> None:
    python = 'file = "main.py"\nruntime = "python"\nhosts = ["example.com"]\n'
    manifests = {
        "anything": f"{PROGRAM}read_only = true",
        "closed": f"{PROGRAM}read_only = true\n[parameters]\nadditionalProperties = false",
        "apart": f"{python}open_world = false\nread_only = true",
        "outside": f"{python}open_world = true\nread_only = true",
        "everywhere": f"{python}read_only = true".replace("example.com", "*"),
        "tried": f"{PROGRAM}read_only = true\nexamples = [{{ a = 1 }}, {{ a = 2 }}]",
        "traps": f"{PROGRAM}read_only = true\nexamples = [{{ a = 1 }}]",
        "needing": f'{python}read_only = true\nexamples = [{{ a = 1 }}]\nvariables = ["REGION"]',
        "a" * 65: f"{PROGRAM}read_only = true",
        "broken": "name = 1",
    }
    for name, more in manifests.items():
        made = tmp_path / "t" / name
        made.mkdir(parents=True)
        (made / "tool.toml").write_text(f'name = "{name}"\ndescription = "{FINE}"\n{more}\n')
        (made / "tool.wasm").write_bytes(module(TRAPS) if name == "traps" else module())
        (made / "main.py").write_text("")
    done = toolcrib("check", "t", "--json", XDG_CACHE_HOME=str(tmp_path / "cache"))
    messages: dict[str, list[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        messages.setdefault(finding["subject"].removeprefix("t: "), []).append(finding["message"])
    assert done.returncode == 1
    (problem,) = messages.pop("t")
    assert "t/broken/tool.toml is not valid TOML" in problem
    _, failure, count = messages.pop("traps")
    assert failure.startswith("Example 1 does not work (trapped)")
    assert count == "0 of 1 examples work in the sandbox."
    weak = [NO_EXAMPLES, NO_SCHEMA]
    assert messages == {
        "anything": weak,
        "closed": [NO_EXAMPLES],
        "apart": ["It is declared open_world = false, and needs to reach hosts.", NO_EXAMPLES, NO_SCHEMA],
        "outside": weak,
        "everywhere": ["It needs to reach every host. Name those that it uses.", NO_EXAMPLES, NO_SCHEMA],
        "tried": [NO_SCHEMA, "2 of 2 examples work in the sandbox."],
        "needing": [NO_SCHEMA, "Its examples were not tried: it needs variables, hosts."],
        "a" * 65: [
            "Its name is not one that all providers take: they get another (64 letters, digits, _ -).",
            *weak,
        ],
    }


def test_warnings_fail_only_where_they_should_and_all_sources_count(toolcrib: Run, tmp_path: Path) -> None:
    fine = '@tool(read_only=True)\ndef {}() -> None:\n    """Look for a thing in a list."""\n'
    (tmp_path / "fine.py").write_text(f"from toolcrib import tool\n{fine.format('fine')}")
    (tmp_path / "weak.py").write_text(f"from toolcrib import tool\n{fine.format('weak').replace('read_only=True', '')}")
    (tmp_path / "broken.py").write_text("def (:\n")

    def check(*arguments: str) -> tuple[int, list[str]]:
        done = toolcrib("check", *arguments)
        return done.returncode, done.stdout.splitlines()

    warning = ["weak.py: weak", f"warning: weak.py: weak: {NO_HINT}", "1 source, 1 tool: 1 warning."]
    assert check("fine.py", "--strict") == (0, ["fine.py: fine", "1 source, 1 tool: no problems."])
    assert check("weak.py") == (0, warning)
    assert check("weak.py", "--strict") == (1, warning)
    assert check("broken.py", "fine.py", "weak.py") == (
        1,
        [
            "broken.py: no tools",
            "fine.py: fine",
            "weak.py: weak",
            f"problem: broken.py: {tmp_path}/broken.py:1: SyntaxError: invalid syntax",
            warning[1],
            "3 sources, 2 tools: 1 problem and 1 warning.",
        ],
    )


def test_a_server_that_is_connected_to_answers_or_is_a_problem(
    toolcrib: Run, folder: Path, environment: dict[str, str]
) -> None:
    command = json.dumps([environment["PROGRAM"], "serve", "toolcrib.demo", "--stdio"])
    settings = f'[[source]]\nname = "demo"\ncommand = {command}\n[store]\nurl = "store.db"\n'
    (folder / "toolcrib.toml").write_text(settings)

    def answers(status: int) -> dict[str, tuple[str, str]]:
        done = toolcrib("check", "--connect", "--json")
        found = json.loads(done.stdout)
        assert (done.returncode, found["ok"]) == (status, status == 0), done.stderr
        assert found["sources"][0]["source"] == "demo"
        return {one["subject"]: (one["level"], one["message"]) for one in found["findings"]}

    status, detail = answers(0)["demo"]
    assert (status, detail.split(" in ")[0]) == ("ok", "4 tools")
    (folder / "toolcrib.toml").write_text(settings.replace('"toolcrib.demo"', '"nowhere.py"'))
    assert answers(1)["demo"][0] == "problem"


def test_the_store_and_its_key_answer_without_being_made(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text('[store]\nurl = "store.db"\n')
    fresh = toolcrib("check", "--connect").stdout
    assert f"missing: store: {folder / 'store.db'}: not made yet; it is when it is first used\n" in fresh
    assert not (folder / "store.db").exists()
    assert toolcrib("keys", "add", "alice").returncode == 0
    key = folder / "store.key"
    secret = key.read_text().strip()
    well = toolcrib("check", "--connect")
    # Only the keys were used: the tables of credentials and of the call log come when they are.
    assert "store.db: reachable; tables that come with the next use: auth, record, sessions\n" in well.stdout
    assert (well.returncode, f"ok: key of the store: readable: {key}" in well.stdout) == (0, True), well.stdout
    for spoil, problem in (
        (lambda: key.chmod(0o644), "can be read by others (mode 0644)"),
        (key.unlink, "Without it, what is sealed in the store cannot be opened."),
    ):
        spoil()
        done = toolcrib("check", "--connect")
        assert (done.returncode, "problem: key of the store: " in done.stdout, problem in done.stdout) == (
            1,
            True,
            True,
        )
        assert secret not in done.stdout + done.stderr
