"""`toolcrib install` writes the settings of MCP clients, and changes nothing else in them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from toolcrib.cli.edits import JSONC, TOML

from .conftest import Run

CLIENTS = Path(__file__).with_name("clients")
SETTINGS = '[[source]]\nfrom = "mine.py"\n'
TOOL = 'from toolcrib import tool\n\n\n@tool\ndef add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n'

# Their files in `clients` are as their own pages show them: https://code.claude.com/docs/en/mcp, https://modelcontextprotocol.io/quickstart/
# user, https://cursor.com/docs/mcp, https://code.visualstudio.com/docs/copilot/reference/mcp-configuration,
# https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md, https://developers.openai.com/codex/mcp
FILES = {
    "claude-code": ".mcp.json",
    "claude-desktop": "home/.config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "gemini-cli": ".gemini/settings.json",
    "codex": ".codex/config.toml",
}
KEYS = {"vscode": "servers", "codex": "mcp_servers"}


@pytest.fixture
def toolcrib(toolcrib: Run, folder: Path) -> Run:
    (folder / "mine.py").write_text(TOOL)

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", "CODEX_HOME": ""}
        return toolcrib(*arguments, **home, **variables)

    return run


def parsed(file: Path) -> Any:
    text = file.read_bytes().decode()
    return tomllib.loads(text) if file.suffix == ".toml" else JSONC.parse(text)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("client", FILES)
def test_a_server_is_added_beside_what_is_there_and_removed_again(toolcrib: Run, folder: Path, client: str) -> None:
    place, key = FILES[client], KEYS.get(client, "mcpServers")
    text = (CLIENTS / f"{client}{Path(place).suffix}").read_text()
    if client == "vscode":
        text = text.replace("\n", "\r\n")
    file = write(folder / place, text)
    before = parsed(file)

    shown = toolcrib("install", client, "--dry-run")
    assert (shown.returncode, file.read_bytes().decode()) == (0, text)
    assert shown.stdout.startswith(f"--- {file}\n+++ {file}\n@@")
    assert "API_KEY" not in shown.stdout

    done = toolcrib("install", client)
    backup = file.with_name(f"{file.name}.toolcrib-backup")
    assert (done.returncode, f"Written: {file}." in done.stderr) == (0, True), done.stderr
    assert (backup.read_bytes().decode(), backup.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (
        text,
        0o600,
        0o600,
    )
    after = parsed(file)
    entry = after[key].pop("toolcrib")
    assert after == before
    assert entry.pop("type", None) == ("stdio" if client in ("claude-code", "cursor", "vscode") else None)
    arguments = ["serve", "--config", str(folder / "toolcrib.toml"), "--stdio"]
    assert (entry.pop("args"), Path(entry.pop("command")).is_absolute(), entry) == (arguments, True, {})
    lines = text.splitlines()
    kept = [line for line in lines if line not in file.read_bytes().decode().splitlines()]
    assert len(kept) <= 1, kept  # it got a comma

    written = file.read_bytes()
    again = toolcrib("install", client)
    assert (again.returncode, file.read_bytes(), "stays as it is" in again.stderr) == (0, written, True)

    gone = toolcrib("uninstall", client)
    assert (gone.returncode, parsed(file)) == (0, before), gone.stderr
    assert [line.strip(", ") for line in file.read_bytes().decode().split()] == [
        word.strip(", ") for word in text.split()
    ]


def test_without_settings_of_the_client_there_are_new_ones_of_the_project_or_the_user(
    toolcrib: Run, folder: Path
) -> None:
    for client, name in {
        "claude-code": ".claude.json",
        "cursor": ".cursor/mcp.json",
        "gemini-cli": ".gemini/settings.json",
        "codex": ".codex/config.toml",
    }.items():
        for file, user in ((folder / "home" / name, ["--user"]), (folder / FILES[client], [])):
            assert not file.exists()
            done = toolcrib("install", client, "--name", "parts", *user)
            assert (done.returncode, f"Written: {file}." in done.stderr) == (0, True)
            assert list(parsed(file)[KEYS.get(client, "mcpServers")]) == ["parts"]
    assert not list(folder.rglob("*toolcrib-backup"))
    assert toolcrib("uninstall", "codex", "--name", "parts", "--user").returncode == 0


@pytest.mark.parametrize(
    ("client", "text", "message"),
    [
        ("cursor", '{\n  "mcpServers": {\n    "a": {"command": "x"\n  }\n}\n', "line 5: Expecting"),
        ("vscode", '{\n  "servers": {}, /* open\n}\n', "line 2: Expecting property name"),
        ("claude-code", "[]", "is not an object"),
        ("claude-code", '{"mcpServers": []}', "its 'mcpServers' is none"),
        ("claude-code", '{"mcpServers": {"toolcrib": {"command": "other"}}}', "Choose another name with --name"),
        ("cursor", "[" * 10_000, "nested too deep"),
        ("gemini-cli", "\ufffe".encode("utf-16").decode("latin-1"), "line 1: Expecting value"),
        ("codex", 'a = 1\nb = "\n', "at line 2"),
        ("codex", 'mcp_servers = { a = { command = "x" } }\n', "changed only by hand"),
    ],
)
def test_what_cannot_be_changed_safely_stays_as_it_is(
    toolcrib: Run, folder: Path, client: str, text: str, message: str
) -> None:
    file = write(folder / FILES[client], text)
    before = sorted(folder.rglob("*"))
    done = toolcrib("install", client)
    assert (done.returncode, done.stdout, file.read_bytes().decode()) == (1, "", text)
    assert str(file) in done.stderr
    assert "Nothing was changed" in done.stderr
    assert message in " ".join(done.stderr.split())
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["install", "cluade-code"], "Did you mean 'claude-code'?"),
        (["install", "codex", "--name", "a.b"], "--name takes letters"),
        (["install", "codex", "https://me:secret@example.com/mcp"], "may have a key in it"),
        (["install", "codex", "https://example.com/mcp?api_key=secret"], "may have a key in it"),
        (["uninstall", "json"], "There is no client 'json'"),
        (["install"], "Missing argument 'CLIENT'"),
    ],
)
def test_a_command_line_that_is_wrong_writes_nothing(
    toolcrib: Run, folder: Path, arguments: list[str], message: str
) -> None:
    before = sorted(folder.rglob("*"))
    done = toolcrib(*arguments)
    assert (done.returncode, done.stdout, sorted(folder.rglob("*"))) == (2, "", before)
    assert message in " ".join(done.stderr.split())
    assert "secret" not in done.stderr


def test_a_server_that_is_not_there_is_not_removed(toolcrib: Run, folder: Path) -> None:
    write(folder / ".mcp.json", '{"mcpServers": {"parts": {}}}')
    done = toolcrib("uninstall", "claude-code", "--name", "part")
    assert (done.returncode, "no server 'part'. Did you mean 'parts'?" in done.stderr) == (1, True)


def test_a_client_that_is_not_known_is_named_before_sources_are_asked_for(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").unlink()
    done = toolcrib("install", "claude")
    assert (done.returncode, "There is no client 'claude'" in done.stderr) == (2, True)


def test_a_project_without_sources_is_refused(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text("")
    assert toolcrib("install", "json").returncode == 2
    done = toolcrib("install", "json", "mine.py")
    assert json.loads(done.stdout)["mcpServers"]["toolcrib"]["args"][1] == str(folder / "mine.py")


def test_an_environment_that_was_moved_is_corrected_and_what_a_person_added_stays(toolcrib: Run, folder: Path) -> None:
    toolcrib("install", "codex")
    toolcrib("install", "cursor")
    for name in (".codex/config.toml", ".cursor/mcp.json"):
        file = folder / name
        written = file.read_text()
        command = next(line for line in written.splitlines() if "command" in line)
        added = "timeout = 5 # mine" if file.suffix == ".toml" else '      "timeout": 5, // mine'
        lines = [line for text in written.splitlines() for line in ([text] if text != command else [added, text])]
        write(file, "\n".join(lines).replace(sys.prefix, "/gone") + "\n")
        assert toolcrib("install", "codex" if file.suffix == ".toml" else "cursor").returncode == 0
        assert [line for line in file.read_text().splitlines() if line != added] == written.splitlines()


async def test_the_official_client_starts_what_install_json_prints(
    toolcrib: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = json.loads(toolcrib("install", "json").stdout)["mcpServers"]["toolcrib"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    parameters = StdioServerParameters(**server, cwd=elsewhere, env={"XDG_DATA_HOME": str(elsewhere)})
    async with Client(parameters) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("add", {"a": "1", "b": 2})
    assert ([tool.name for tool in tools.tools], answer.structured_content) == (["add", "read_result"], {"result": 3})


@pytest.mark.parametrize(
    ("before", "after", "without"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n', '{\n  "a": {\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "a": {\n    "b": 1\n  }\n}\n', '// mine\n{\n  "a": {\n  }\n}\n'),
        ("\ufeff{}", '\ufeff{\n  "a": {\n    "b": 1\n  }\n}', '\ufeff{\n  "a": {\n  }\n}'),
        ('{"a":{"c":2}}', '{"a":{"c":2,\n    "b": 1\n  }}', '{"a":{"c":2\n  }}'),
        ('{"a":{"b":2,"c":"//,"}}', '{"a":{"b":1,"c":"//,"}}', '{"a":{"c":"//,"}}'),
        ('{"a":{"c":[1,],/*x*/},}', '{"a":{"c":[1,],/*x*/\n    "b": 1\n  },}', '{"a":{"c":[1,]/*x*/\n  },}'),
        (
            '{\n    "a": {\n        "c": {} // of c\n        // the end\n    }\n}',
            '{\n    "a": {\n        "c": {}, // of c\n        // the end\n        "b": 1\n    }\n}',
            '{\n    "a": {\n        "c": {} // of c\n        // the end\n    }\n}',
        ),
    ],
)
def test_one_member_is_changed_and_nothing_beside_it(before: str, after: str, without: str) -> None:
    assert JSONC.insert(before, ("a", "b"), 1) == after
    assert JSONC.drop(after, ("a", "b")) == without
    assert JSONC.parse(without) == {"a": {key: value for key, value in JSONC.parse(after)["a"].items() if key != "b"}}


def test_a_table_is_removed_with_those_below_it_wherever_they_are() -> None:
    text = "[s.a]\nk = 1\n# of b\n[s.b]\nk = 2\n[s.a.env]\nx = [\n  1, # y\n]\n\n# the end\n"
    assert TOML.drop(text, ("s", "a")) == "# of b\n[s.b]\nk = 2\n\n# the end\n"
