"""`toolcrib list` and `toolcrib show`, and what is said of sources and command lines that do not work."""

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Source, Tool, Workbench
from toolcrib.cli.sources import Opened

from .conftest import Run


def test_a_list_that_is_piped_is_one_plain_line_a_tool(toolcrib: Run) -> None:
    done = toolcrib("list", "tools.py", FORCE_COLOR="1", COLUMNS="20")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:3] == [
        "add\tAdd [bold]two[/bold]: Add two numbers\\x1b[31m.\ta [b]\tread-only, idempotent",
        "echo\tGive back what came.\ttext [tags] [sizes] [number] [ratio] [on] [mode] [options] [anything]\t",
        "wipe\t\tdisk\tdestructive, needs github",
    ]
    assert done.stderr == "printed while loading\n"


def test_a_list_in_json_is_the_specs_and_nothing_else(toolcrib: Run) -> None:
    listed = json.loads(toolcrib("list", "toolcrib.demo", "tools.py", "--json").stdout)
    demo = [spec.to_dict() for spec in Workbench(["toolcrib.demo"]).specs()]
    assert listed[: len(demo)] == demo
    assert [spec["name"] for spec in listed[len(demo) :]][:3] == ["add", "echo", "wipe"]


def test_what_loads_is_listed_beside_what_does_not(toolcrib: Run, folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1\ndef (:\n")
    (folder / "more").mkdir()
    (folder / "more" / "bad.py").write_text("import nowhere_to_be_found\n")
    (folder / "more" / "again.py").write_text(
        "from toolcrib import tool\n@tool\ndef add(a: int) -> int: return a\n@tool\ndef other() -> int: return 1\n"
    )
    done = toolcrib("list", "broken.py", "tools.py", "more", "absent.py", "no_such_module", "os:nothing", "tools.py")
    names = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert (done.returncode, names[0], names[-1], names.count("add")) == (1, "add", "other", 1)
    errors = done.stderr.replace(f"{folder}/", "").splitlines()
    begins = [
        "printed while loading",
        "Not loaded: broken.py:2: SyntaxError: invalid syntax",
        "Not loaded: more/bad.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        "Not loaded: more: a tool in tools.py has the name 'add' too, so this one is left out. "
        'Rename one of them: @tool(name="...").',
        "Not loaded: There is no file absent.py.",
        "Not loaded: 'no_such_module' cannot be imported",
        "Not loaded: 'os:nothing': there is no 'nothing' in os.",
    ]
    assert [line[: len(begin)] for line, begin in zip(errors, begins, strict=True)] == begins


def test_a_server_that_cannot_be_reached_is_named_with_the_reason_once(toolcrib: Run) -> None:
    done = toolcrib("list", "tools.py", "mcp:no-such-server --stdio")
    assert done.stdout.startswith("add\t")
    assert (done.returncode, done.stderr.splitlines()[1:]) == (
        1,
        ["Not loaded: no-such-server: there is no command 'no-such-server'."],
    )


def test_without_a_source_the_command_says_what_one_is(toolcrib: Run) -> None:
    done = toolcrib("list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: No source of tools is named. A source is a .py file, a folder of them, a .wasm file, a folder with "
        "a tool.toml, an OpenAPI document (.json, .yaml, openapi:URL), an MCP server (its URL, 'mcp:COMMAND', "
        "a client's .json), a git address "
        "(git+https://HOST/PATH@REF#FOLDER), or an importable name: 'package.module' or "
        "'package.module:name'. "
        "For example: toolcrib list toolcrib.demo\n"
    )


def test_show_says_everything_about_a_tool(toolcrib: Run) -> None:
    expected = r"""add  Add [bold]two[/bold]

Add two numbers\x1b[31m.

More of it.

Arguments
  a  integer  The first.
  b  integer  The second.  (default 0)

Returns  integer

Hints     read-only, idempotent
Version   1.2
Examples  {"a": 1, "b": 2}
Defined   tools.py:17

Call it
  toolcrib call -s tools.py add '{"a": 1, "b": 2}'
"""
    assert toolcrib("show", "-s", "tools.py", "add").stdout == expected
    shown = toolcrib("show", "-s", "tools.py", "echo").stdout
    assert "\n  options   object or null            (default null)\n    depth  integer" in shown
    assert '\n  mode      one of "soft", 1          (default "soft")\n' in shown
    assert shown.endswith("\nCall it\n  toolcrib call -s tools.py echo text=STRING\n")


def test_a_command_line_that_cannot_be_understood_ends_with_2_and_one_line(toolcrib: Run) -> None:
    lines = {
        "lst": "No such command 'lst'. Did you mean 'list'? Try: toolcrib --help",
        "-s tools.py list": "No such option: -s. Try: toolcrib --help",
        "auth --principal ada list": "No such option: --principal. Try: toolcrib auth --help",
        "--nothing list": "No such option: --nothing. Try: toolcrib --help",
        "call --timeuot 3 x": "No such option: --timeuot (Possible options: --timeout) Try: toolcrib call --help",
        "call": "Missing argument 'TOOL'. Try: toolcrib call --help",
        "call --timeout 0 x": (
            "Invalid value for '--timeout': Input should be greater than or equal to 0.001. Try: toolcrib call --help"
        ),
    }
    for line, message in lines.items():
        done = toolcrib(*line.split())
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {message}\n")


def test_help_is_plain_when_piped_and_has_an_example(toolcrib: Run) -> None:
    done = toolcrib("call", "-h")
    assert done.returncode == 0
    assert "Example: toolcrib call tools.py search query=lathe limit=3" in done.stdout
    assert "│" not in done.stdout
    for group in ((), ("auth",)):
        alone, asked = toolcrib(*group), toolcrib(*group, "--help")
        assert (alone.returncode, asked.returncode, alone.stdout, alone.stderr) == (2, 0, "", asked.stdout)
        assert f"Usage: {' '.join(('toolcrib', *group))} " in asked.stdout
    assert toolcrib("--version").stdout.startswith("toolcrib ")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("call tools.py ec", ["echo"]),
        ("list fol", ["folder/"]),
        ("call tools.py echo mo", ["mode="]),
        ("call tools.py echo mode=", ["mode=soft", "mode=1"]),
        ("call tools.py echo mode = so", ["soft"]),
        ("serve tools.py --tool wi", ["wipe"]),
    ],
)
def test_sources_names_arguments_and_choices_complete(
    toolcrib: Run, folder: Path, line: str, offered: list[str]
) -> None:
    (folder / "folder").mkdir()
    words = f"toolcrib {line}"
    done = toolcrib(_TOOLCRIB_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert (done.stdout.split(), done.stderr) == (offered, "")


TAKES = '''
from typing import Annotated, Any

from pydantic import Field

from toolcrib import tool


@tool(strict=True)
def keep(limit: Annotated[int, Field(ge=1)], rest: dict[str, Any]) -> None:
    """Keep\\x1b[31m it."""
'''


def test_show_says_what_a_provider_gets_and_what_is_lost_there(toolcrib: Run, folder: Path) -> None:
    (folder / "takes.py").write_text(TAKES)
    definition = {
        "name": "keep",
        "description": "Keep\x1b[31m it.",
        "input_schema": {
            "type": "object",
            "properties": {
                "limit": {"minimum": 1, "type": "integer"},
                "rest": {"additionalProperties": True, "type": "object"},
            },
            "required": ["limit", "rest"],
            "additionalProperties": False,
        },
    }
    meaning = (
        "In strict mode 'rest' could have no other members than those listed, and it takes others. "
        "So the tool is sent without strict mode."
    )
    shown = toolcrib("show", "-s", "takes.py", "keep", "--format", "anthropic").stdout
    losses = f"\nLosses\n  /properties/rest  strict\n    {meaning}\n"
    assert shown == f"{json.dumps(definition, indent=2)}\n{losses}"
    output = toolcrib("show", "-s", "takes.py", "keep", "--format", "anthropic", "--json").stdout
    assert json.loads(output) == {
        "definition": definition,
        "losses": [{"path": "/properties/rest", "keyword": "strict", "meaning": meaning, "weight": "high"}],
    }


def test_show_names_the_nearest_format(toolcrib: Run) -> None:
    done = toolcrib("show", "-s", "tools.py", "add", "--format", "openai_response")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[1] == (
        "Error: There is no format 'openai_response'. Did you mean 'openai-responses'? "
        "The formats are: openai, openai-responses, anthropic, gemini, bedrock, mcp."
    )


def test_a_tool_of_a_server_is_shown_with_its_source(toolcrib: Run, folder: Path, environment: dict[str, str]) -> None:
    server = {"command": environment["PROGRAM"], "args": ["serve", "tools.py", "--stdio"], "cwd": str(folder)}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"crib": server}}))
    shown = toolcrib("show", "mcp.json", "add")
    assert "\nSource    crib\n" in shown.stdout, shown.stderr
    assert "Defined" not in shown.stdout


class Late(Source):
    """A server that starts once a person was told that it is waited for."""

    listed_at_start, required = True, False

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.told = ""
        self.runs = False

    async def start(self) -> None:
        while "\n" not in self.told:
            await asyncio.sleep(0.01)
            self.told += self.capsys.readouterr().err
        self.runs = True

    def tools(self) -> Sequence[Any]:
        return [Tool(lambda a: a, name="late")] if self.runs else []


def test_a_server_that_takes_long_to_start_is_waited_for_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("toolcrib.workbench.lifespan.PATIENCE_S", 0.01)
    monkeypatch.setattr("toolcrib.cli.sources.SAY_AFTER_S", 0.1)
    log = logging.getLogger("toolcrib")
    monkeypatch.setattr(log, "setLevel", lambda level: None)  # it is the log of the tests that follow, too
    late = Late(capsys)
    opened = Opened([late], {}, (), has_servers=True)
    assert [spec.name for spec in opened.listed().specs()] == ["late"]
    assert (late.told, opened.problems) == ("Waiting for Late to start, for at most 60 seconds ...\n", ())


def test_only_the_servers_that_the_tool_can_be_in_are_started(
    toolcrib: Run, folder: Path, environment: dict[str, str]
) -> None:
    serves = [environment["PROGRAM"], "serve", "tools.py", "--stdio"]
    commands = {name: ["sh", "-c", f'touch {name}; exec "$0" "$@"', *serves] for name in ("first", "second", "third")}
    (folder / "toolcrib.toml").write_text(
        f"""[[source]]
from = "tools.py"
[[source]]
command = {json.dumps(commands["first"])}
prefix = "first_"
[[source]]
command = {json.dumps(commands["second"])}
tools = "much"
rename = {{ much = "many" }}
[[source]]
command = {json.dumps(commands["third"])}
tools = "absent*"
"""
    )

    def started() -> list[str]:
        names = [name for name in commands if (folder / name).exists()]
        for name in names:
            (folder / name).unlink()
        return names

    for name, servers in ({"add": [], "first_add": ["first"], "many": ["second"], "absent": ["third"]}).items():
        shown = toolcrib("show", name)
        assert (shown.returncode, started()) == (0 if name != "absent" else 1, servers), shown.stderr
    assert toolcrib("list").returncode == 0
    assert started() == list(commands)


def test_names_that_collide_in_a_client_s_file_are_prefixed_which_is_said_once(
    toolcrib: Run, folder: Path, environment: dict[str, str]
) -> None:
    server = {
        "command": environment["PROGRAM"],
        "args": ["serve", "tools.py", "--tool", "add", "--tool", "much", "--stdio"],
        "cwd": str(folder),
    }
    servers = {"first": server, "the second.": server}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    listed = toolcrib("list", "mcp.json")
    names = [line.partition("\t")[0] for line in listed.stdout.splitlines()]
    assert (listed.returncode, names) == (0, ["add", "much", "the_second_add", "the_second_much"]), listed.stderr
    said = [line for line in listed.stderr.splitlines() if "the_second_add" in line]
    assert said == [
        "the second.: another server has tools of these names, so here they are the_second_add, the_second_much"
    ]
    called = toolcrib("call", "mcp.json", "the_second_add", "a=1", "b=2")
    assert (called.returncode, called.stdout) == (0, '{"result":3}\n')
