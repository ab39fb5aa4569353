"""`toolcrib dialects`: which imports from other tool layers work here, and what to write instead."""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib.cli.dialects import read_programs

Run = Callable[..., subprocess.CompletedProcess[str]]
ONLY = " A dialect has the tool layer only."


def lines(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_each_import_is_listed_with_its_line_and_the_new_import(toolcrib: Run, folder: Path) -> None:
    (folder / "swarm.py").write_text(
        "raise SystemExit('this file must not be run')\n"
        "from agent_swarm_kit import addTool, IAgentTool as Tool, addAgent\n"
        "from agent_swarm_kit.functions import nothing\n"
        "def later():\n"
        "    from autogen_core import CancellationToken\n"
        "from .agent_swarm_kit import ignored\n"
        "from hyperpocket.tool import function_tool\n"
        "import hyperpocket, json\n"
        "from hyperpocket.auth.slack.oauth2_handler import SlackOAuth2AuthHandler\n"
        "from hyperpocket_langchain import PocketLangchain\n"
    )
    done = toolcrib("dialects", "swarm.py")
    slack = "auth.slack.oauth2_handler"
    assert lines(done) == [
        [
            "swarm.py:2",
            "agent_swarm_kit.IAgentTool",
            "covered",
            "from toolcrib.dialects.swarm import IAgentTool as Tool",
        ],
        ["swarm.py:2", "agent_swarm_kit.addAgent", "not covered", f"toolcrib.dialects.swarm has no 'addAgent'.{ONLY}"],
        ["swarm.py:2", "agent_swarm_kit.addTool", "covered", "from toolcrib.dialects.swarm import add_tool as addTool"],
        [
            "swarm.py:3",
            "agent_swarm_kit.functions.nothing",
            "not covered",
            f"toolcrib.dialects.swarm has no 'functions'.{ONLY}",
        ],
        [
            "swarm.py:5",
            "autogen_core.CancellationToken",
            "covered",
            "from toolcrib.dialects.autogen import CancellationToken",
        ],
        [
            "swarm.py:7",
            "hyperpocket.tool.function_tool",
            "covered",
            "from toolcrib.dialects.hyperpocket.tool import function_tool",
        ],
        ["swarm.py:8", "hyperpocket", "covered", "import toolcrib.dialects.hyperpocket as hyperpocket"],
        [
            "swarm.py:9",
            f"hyperpocket.{slack}.SlackOAuth2AuthHandler",
            "covered",
            f"from toolcrib.dialects.hyperpocket.{slack} import SlackOAuth2AuthHandler",
        ],
        [
            "swarm.py:10",
            "hyperpocket_langchain.PocketLangchain",
            "not covered",
            "hyperpocket_langchain is left out. What to write instead: docs/dialects/hyperpocket.md.",
        ],
    ]
    assert (done.returncode, done.stderr) == (1, "9 uses of other tool layers in 1 file: 6 covered, 3 not covered.\n")


def test_what_stays_beside_a_dialect_is_reported_with_what_works_there(toolcrib: Run, folder: Path) -> None:
    (folder / "team.py").write_text(
        "from autogen_agentchat.agents import AssistantAgent, UserProxyAgent\n"
        "from autogen_core.tools import FunctionTool\n"
        "from autogen_core.tool_agent import ToolAgent\n"
    )
    done = toolcrib("dialects", "team.py")
    assert [line[:3] for line in lines(done)] == [
        ["team.py:1", "autogen_agentchat.agents.AssistantAgent", "not covered"],
        ["team.py:1", "autogen_agentchat.agents.UserProxyAgent", "not covered"],
        ["team.py:2", "autogen_core.tools.FunctionTool", "covered"],
        ["team.py:3", "autogen_core.tool_agent.ToolAgent", "not covered"],
    ]
    agent, other, _, left_out = (line[3] for line in lines(done))
    assert agent == (
        "It stays AutoGen's own. It takes tools (tools=[...]) and workbenches (workbench=...) of the dialect."
    )
    assert other.startswith("It stays AutoGen's own, with the autogen_core that it needs.")
    assert left_out == f"toolcrib.dialects.autogen has no 'tool_agent'.{ONLY}"


def test_modules_are_followed_to_their_attributes(toolcrib: Run, folder: Path) -> None:
    (folder / "modules.py").write_text(
        "import agent_swarm_kit\n"
        "import agent_swarm_kit as kit\n"
        "import autogen_core.tools\n"
        "tool = kit.IAgentTool(tool_name='x').callbacks\n"
        "kit.IAgentTool\n"
        "agent_swarm_kit.emit('x')\n"
        "kit.emit('x').y\n"
        "def own(kit):\n"
        "    return kit.anything\n"
        "def local():\n"
        "    agent_swarm_kit = {}\n"
        "    return agent_swarm_kit.items\n"
        "each = lambda kit: kit.something\n"
        "class Agent:\n"
        "    async def run(self):\n"
        "        def inner():\n"
        "            kit = {}\n"
        "        await kit.execute_tools()\n"
        "autogen_core.tools.BaseTool\n"
    )
    done = toolcrib("dialects", "modules.py")
    stays = "nothing to change here"
    no_emit = f"toolcrib.dialects.swarm has no 'emit'.{ONLY}"
    assert lines(done) == [
        ["modules.py:1", "agent_swarm_kit", "covered", "import toolcrib.dialects.swarm as agent_swarm_kit"],
        ["modules.py:2", "agent_swarm_kit", "covered", "import toolcrib.dialects.swarm as kit"],
        [
            "modules.py:3",
            "autogen_core.tools",
            "covered",
            "import toolcrib.dialects.autogen as autogen_core, toolcrib.dialects.autogen.tools",
        ],
        ["modules.py:4", "agent_swarm_kit.IAgentTool", "covered", stays],
        ["modules.py:6", "agent_swarm_kit.emit", "not covered", no_emit],
        ["modules.py:7", "agent_swarm_kit.emit", "not covered", no_emit],
        ["modules.py:18", "agent_swarm_kit.execute_tools", "covered", stays],
        ["modules.py:19", "autogen_core.tools.BaseTool", "covered", stays],
    ]


def test_the_new_imports_work(toolcrib: Run, folder: Path) -> None:
    (folder / "agent.py").write_text(
        "import autogen_core\n"
        "import autogen_core.tools as act\n"
        "import spark.tools\n"
        "from autogen_core import CancellationToken as Token, tools\n"
        "from autogen_core.tools import BaseTool, FunctionTool, StaticWorkbench\n"
        "from spark.tools import tool, registry\n"
        "from spark.tools.types import ToolSpec\n"
        "from agent_swarm_kit import *\n"
        "print(tools.FunctionTool, registry.ToolRegistry, act.ToolSchema, autogen_core.tools, spark.tools.tool)\n"
        "print(add_tool, execute_tools)\n"
    )
    done = toolcrib("dialects", "agent.py", "--json")
    report = json.loads(done.stdout)
    assert [each for each in report["imports"] if not each["covered"]] == []
    assert (report["ok"], report["files"], report["problems"], done.returncode) == (True, 1, [], 0)
    imports = [each["write"] for each in report["imports"] if each["write"]]
    uses = (folder / "agent.py").read_text().splitlines()[-2:]
    command = [sys.executable, "-c", "\n".join([*imports, *uses])]
    moved = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    assert moved.returncode == 0, moved.stderr


def test_names_that_only_a_star_import_can_bind_are_looked_up(toolcrib: Run, folder: Path) -> None:
    program = "from agent_swarm_kit import *\nown = [add_tool(each) for each in ()]\nsession(own, len(own))\n"
    (folder / "star.py").write_text(program)
    done = toolcrib("dialects", "star.py")
    assert lines(done) == [
        ["star.py:1", "agent_swarm_kit.*", "covered", "from toolcrib.dialects.swarm import *"],
        [
            "star.py:3",
            "agent_swarm_kit.session",
            "not covered",
            "'session' is used, can only come from agent_swarm_kit, and is not in the dialect.",
        ],
    ]
    (folder / "star.py").write_text(f"from elsewhere import *\n{program}")
    assert toolcrib("dialects", "star.py").returncode == 0  # it may come from elsewhere


def test_folders_are_read_and_unreadable_files_are_reported(toolcrib: Run, folder: Path) -> None:
    source = folder / "src"
    for name in ("deep/inner", ".hidden", "env", "__pycache__"):
        (source / name).mkdir(parents=True)
        (source / name / "agent.py").write_text("from agent_swarm_kit import IAgentTool\n")
    (source / "env" / "pyvenv.cfg").write_text("")
    (source / "broken.py").write_text("x = 1\ndef (:\n")
    (source / "nul.py").write_bytes(b"x = '\0'\n")
    (source / "nowhere.py").symlink_to("gone.py")
    (source / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nfrom agent_swarm_kit import ITool  # \xe9\n")
    (source / "notes.txt").write_text("import agent_swarm_kit")
    done = toolcrib("dialects", "src", "src/deep/inner/agent.py", "--json")
    report = json.loads(done.stdout)
    assert [(each["file"], each["line"]) for each in report["imports"]] == [
        ("src/latin.py", 2),
        ("src/deep/inner/agent.py", 1),
    ]
    problems: list[Any] = report["problems"]
    assert [each["file"] for each in problems] == ["src/broken.py", "src/nowhere.py", "src/nul.py"]
    assert problems[0]["line"] == 2
    assert problems[0]["message"] == "It is not valid Python: invalid syntax."
    assert problems[1]["message"] == "It cannot be read: No such file or directory."
    assert (report["ok"], report["files"], done.returncode) == (False, 5, 1)
    text = toolcrib("dialects", "src/broken.py")
    assert text.stderr.splitlines() == [
        "src/broken.py:2: It is not valid Python: invalid syntax.",
        "0 uses of other tool layers in 1 file: 0 covered, 0 not covered, 1 not read.",
    ]


def test_what_a_program_warns_of_is_not_our_concern_and_ours_still_is(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text('from agent_swarm_kit import ITool\npath = "\\d"\n')
    before = [*warnings.filters]
    with warnings.catch_warnings(record=True) as warned:
        assert read_programs([program]).is_well
    assert (warned, warnings.filters) == ([], before)


def test_a_program_that_uses_nothing_of_the_originals_is_ok(toolcrib: Run, folder: Path) -> None:
    (folder / "plain.py").write_text("import autogen_agents, sparkle\nfrom pyspark.sql import spark\nspark.tools\n")
    done = toolcrib("dialects", "plain.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "0 uses of other tool layers in 1 file: 0 covered, 0 not covered.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Error: No file is given. Name Python files, or folders of them: toolcrib dialects agent.py\n"),
        (("tools.py", "absent.py"), "Error: There is no file or folder 'absent.py'.\n"),
        (("tools.py", "--jsno"), "Error: No such option: --jsno"),
    ],
)
def test_an_invalid_command_line_is_refused(toolcrib: Run, arguments: Any, message: str) -> None:
    done = toolcrib("dialects", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)


def test_at_a_terminal_the_new_import_is_on_a_line_of_its_own(
    folder: Path, environment: dict[str, str], at_terminal: Callable[..., Any]
) -> None:
    (folder / "agent.py").write_text("from agent_swarm_kit import ITool, emit\n")
    with at_terminal(folder, environment, "dialects", "agent.py") as session:
        status, seen = session.read_to_end()
    assert status == 1
    assert "    from toolcrib.dialects.swarm import ITool\r\n" in seen
    assert "agent.py:1: agent_swarm_kit.emit: \x1b[1;31mnot covered\x1b[0m" in seen


def test_a_module_that_is_imported_by_name_is_followed_to_its_attributes(toolcrib: Run, folder: Path) -> None:
    (folder / "agent.py").write_text("from autogen_core import tools as act\nact.Nothing\nact.BaseTool\n")
    assert [line[:3] for line in lines(toolcrib("dialects", "agent.py"))] == [
        ["agent.py:1", "autogen_core.tools", "covered"],
        ["agent.py:2", "autogen_core.tools.Nothing", "not covered"],
        ["agent.py:3", "autogen_core.tools.BaseTool", "covered"],
    ]
