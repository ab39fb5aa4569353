"""`toolcrib.toml` through the real command: its effect, what overrides it, and the report of `toolcrib check`."""

import json
from pathlib import Path

import pytest

from toolcrib.workbench.settings import schema

from .conftest import Run

TOOLS = '''
import asyncio

from toolcrib import Context, tool


@tool(read_only=True)
async def peek(context: Context) -> str:
    """Show what the host gave."""
    return f"{dict(context.variables)} within {context.deadline_at is not None}"


@tool(destructive=True)
async def wipe(disk: str) -> str:
    """Wipe a disk."""
    return f"wiped {disk}"


@tool
async def both() -> list[str]:
    """Call itself twice at a time."""
    return ["one", "two"]


@tool
async def wait() -> None:
    await asyncio.sleep(600)


@tool
def fail() -> None:
    raise RuntimeError("the detail")
'''

SETTINGS = """\
secrets = ["${env:OTHER_KEY}"]

[[source]]
from = "tools.py"
without = "both"
rename = { wait = ["idle", "Do nothing for long."] }
prefix = "my_"

[[rule]]
tools = "my.wipe"
where = { "/disk" = "sd*" }
do = "deny"
message = "That is a real disk."

[variables]
key = "Bearer ${file:key.txt}"
region = "north"

[[deadline]]
tools = "*_idle"
timeout_s = 0.2
"""


@pytest.fixture
def environment(environment: dict[str, str], folder: Path) -> dict[str, str]:
    (folder / "key.txt").write_text("key-in-a-file\n")
    return environment | {"OTHER_KEY": "north-star"}


def test_list_and_show_know_the_tools_of_the_settings(toolcrib: Run) -> None:
    listed = toolcrib("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout == (
        "my_peek\tShow what the host gave.\t\tread-only\n"
        "my_wipe\tWipe a disk.\tdisk\tdestructive\n"
        "my_idle\tDo nothing for long.\t\t\n"
        "my_fail\t\t\t\n"
    )
    shown = toolcrib("show", "my_idle")
    assert shown.returncode == 0
    assert "Timeout   0.2 s\n" in shown.stdout
    assert shown.stdout.endswith("Call it\n  toolcrib call my_idle\n")


def test_variables_secrets_rules_and_deadlines_hold_for_a_call(toolcrib: Run) -> None:
    peeked = toolcrib("call", "my_peek")
    assert (peeked.returncode, peeked.stdout) == (0, "{'key': 'Bearer [secret]', 'region': 'north'} within False\n")
    redacted = toolcrib("call", "my_wipe", "disk=north-star")
    assert (redacted.returncode, redacted.stdout) == (0, "wiped [secret]\n")
    denied = toolcrib("call", "my_wipe", "disk=sda")
    assert (denied.returncode, denied.stdout) == (1, "")
    assert denied.stderr == (
        "Error (denied): Tool 'my_wipe' is not allowed to run with these arguments: That is a real disk.\n"
    )
    late = toolcrib("call", "my_idle")
    assert (late.returncode, late.stdout) == (1, "")
    assert "Error (timeout): Tool 'my_idle' " in late.stderr  # behind a log line, where its start took longer


def test_options_override_variables_and_these_override_the_file(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text(f"timeout_s = 600\n{SETTINGS}")
    assert toolcrib("call", "my_peek").stdout.endswith("within True\n")
    for arguments, variables in (
        (["call", "my_fail", "--show-errors"], {"TOOLCRIB_SHOW_ERRORS": "no"}),
        (["call", "my_fail"], {"TOOLCRIB_SHOW_ERRORS": "yes"}),
    ):
        assert toolcrib(*arguments, **variables).stderr.endswith(" the detail\n")
    quiet = toolcrib("call", "my_fail", TOOLCRIB_SHOW_ERRORS="no")
    assert "the detail" not in quiet.stderr
    (folder / "toolcrib.toml").write_text('repair = false\n[[source]]\nfrom = "tools.py"\n')
    assert toolcrib("call", "wipe", '{"disk": 3}').returncode == 1
    assert toolcrib("call", "wipe", '{"disk": 3}', TOOLCRIB_REPAIR="true").returncode == 0


def test_the_file_is_found_by_option_by_variable_or_here(toolcrib: Run, folder: Path) -> None:
    deep = folder / "deep"
    deep.mkdir()
    for name in ("tools.py", "toolcrib.toml", "key.txt"):
        (folder / name).rename(deep / name)
    nothing = toolcrib("list")
    assert (nothing.returncode, nothing.stderr[:32]) == (2, "Error: No source of tools is nam")
    named = toolcrib("call", "my_peek", "--config", "deep/toolcrib.toml")
    assert (named.returncode, named.stdout) == (0, "{'key': 'Bearer [secret]', 'region': 'north'} within False\n")
    assert toolcrib("call", "my_peek", TOOLCRIB_CONFIG="deep/toolcrib.toml").stdout == named.stdout
    absent = toolcrib("list", "--config", "absent.toml")
    assert (absent.returncode, absent.stderr) == (1, "Error: There is no file absent.toml.\n")
    shown = toolcrib("show", "my_idle", "-c", "deep/toolcrib.toml")
    assert shown.stdout.endswith("Call it\n  toolcrib call -c deep/toolcrib.toml my_idle\n")


def test_a_secret_in_the_error_of_a_source_is_redacted(toolcrib: Run, folder: Path) -> None:
    (folder / "tools.py").write_text("import os\nraise RuntimeError(f\"no entry with {os.environ['OTHER_KEY']}\")\n")
    done = toolcrib("list")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"Error: toolcrib.toml:3: {folder}/tools.py:2: RuntimeError: no entry with [secret]\n")


def test_check_reports_what_does_not_load_and_where(toolcrib: Run, folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1\ndef (:\n")
    (folder / "toolcrib.toml").write_text(
        '[[source]]\nfrom = "tools.py"\ntools = ["wipe", "peek"]\n\n[[source]]\nfrom = "broken.py"\n'
        '[[source]]\nfrom = "tools.py"\nrename = { wipes = "clean" }\n'
        '[[source]]\nfrom = "tools.py"\ntools = ["w*"]\n'
    )
    done = toolcrib("check")
    assert done.returncode == 1
    assert done.stdout == (
        "toolcrib.toml:1: tools.py: peek, wipe\n"
        "toolcrib.toml:5: broken.py: no tools\n"
        "toolcrib.toml:7: tools.py: no tools\n"
        "toolcrib.toml:10: tools.py: wait\n"
        f"problem: toolcrib.toml:5: {folder}/broken.py:2: SyntaxError: invalid syntax\n"
        "problem: toolcrib.toml:7: tools.py: There is no tool 'wipes'. Did you mean 'wipe'? "
        "The tools are: peek, wipe, both, wait, fail.\n"
        "problem: toolcrib.toml:10: tools.py: a tool in tools.py has the name 'wipe' too, so this one is left out. "
        'Rename one of them: prefix = "...".\n'
        "toolcrib.toml: 4 sources, 3 tools, 0 rules, 0 limits: 3 problems.\n"
    )
    found = json.loads(toolcrib("check", "--json").stdout)
    assert (found["ok"], [len(source["tools"]) for source in found["sources"]]) == (False, [2, 0, 0, 1])


def test_check_warns_of_what_has_no_effect(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text("""\
[[source]]
from = "tools.py"
prefix = "my_"
[[source]]
from = "toolcrib.demo"
tools = "x*"
[[rule]]
tools = "wipe"
do = "deny"
[[rule]]
hint = "destructive"
where = { "/disc" = "sd*" }
do = "deny"
[[limit]]
tools = ["your_*"]
concurrency = 1
[[retry]]
tools = "my_wipe"
[[retry]]
tools = "my_peek"
[[deadline]]
tools = "wait"
timeout_s = 3
[variables]
api_key = "spelled-out"
""")
    done = toolcrib("check", TOOLCRIB_TIMEOUT="3")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        1,
        "toolcrib.toml: 2 sources, 5 tools, 2 rules, 1 limit: 2 problems and 6 warnings.",
    )
    wrong = "This rule (deny) can never match: 'my_wipe' takes nothing at '/disc'. Did you mean 'disk'?"
    nothing = "This rule (deny) names 'wipe', which no tool has. Did you mean 'my_wipe'?"
    assert done.stdout.splitlines()[2:-1] == [
        f"problem: toolcrib.toml:12: {wrong}",
        "warning: TOOLCRIB_TIMEOUT: There is no setting of this name. Did you mean 'TOOLCRIB_TIMEOUT_S'?",
        "warning: toolcrib.toml:4: The filters of this source leave none of its tools.",
        f"problem: toolcrib.toml:7: {nothing} If it may be missing: optional = true.",
        "warning: toolcrib.toml:14: This limit matches no tool.",
        "warning: toolcrib.toml:17: This retry matches no tool that can be repeated (idempotent or read_only).",
        "warning: toolcrib.toml:21: This deadline matches no tool.",
        "warning: toolcrib.toml:25: 'api_key' is written out here. Keep a secret elsewhere, and write '${env:NAME}'.",
    ]
    found = json.loads(toolcrib("check", "--json").stdout)
    finding = {"level": "problem", "subject": "toolcrib.toml:12", "line": 12, "message": wrong}
    assert (found["ok"], found["findings"][0]) == (False, finding)
    (folder / "toolcrib.toml").write_text(
        (folder / "toolcrib.toml").read_text().replace("/disc", "/disk").replace('"wipe"', '"w*"\noptional = true')
    )
    assert [toolcrib("check", *strict).returncode for strict in ([], ["--strict"])] == [0, 1]


def test_check_reports_wrong_settings_as_json_too(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").write_text("timeout_s = -1\n")
    done = toolcrib("check", "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (
        1,
        "",
        {
            "file": "toolcrib.toml",
            "ok": False,
            "sources": [],
            "findings": [
                {
                    "level": "problem",
                    "subject": "toolcrib.toml:1",
                    "line": 1,
                    "message": "'timeout_s': expected more than 0.",
                },
            ],
        },
    )
    (folder / "toolcrib.toml").unlink()
    none = toolcrib("check")
    assert (none.returncode, none.stderr) == (2, "Error: There is no toolcrib.toml here. Name a file: --config FILE.\n")


def test_check_prints_the_schema_for_editors(toolcrib: Run, folder: Path) -> None:
    (folder / "toolcrib.toml").unlink()
    done = toolcrib("check", "--schema")
    assert (done.returncode, json.loads(done.stdout)) == (0, schema())


def test_a_misspelt_rule_stops_call_and_check_and_only_warns_where_other_sources_are_given(
    toolcrib: Run, folder: Path
) -> None:
    rule = '[[rule]]\ntools = "wpe"\ndo = "ask"\n'
    message = "(ask) names 'wpe', which no tool has. Did you mean 'wipe'? If it may be missing: optional = true."
    (folder / "toolcrib.toml").write_text(f'[[source]]\nfrom = "tools.py"\n{rule}')
    for command in (["call", "wipe", "disk=a"], ["serve", "--stdio"]):
        done = toolcrib(*command)
        assert (done.returncode, "wiped" in done.stdout, f"rule 1 {message}" in done.stderr) == (1, False, True)
    checked = toolcrib("check")
    assert (checked.returncode, f"problem: toolcrib.toml:3: This rule {message}" in checked.stdout) == (1, True)
    for words in (["call", "tools.py", "wipe", "disk=a"], ["call", "-s", "tools.py", "wipe", "disk=a"]):
        done = toolcrib(*words)
        assert (done.returncode, done.stdout) == (0, "wiped a\n")
        assert f"toolcrib.toml:3: This rule {message}" in done.stderr
    (folder / "toolcrib.toml").write_text(rule)  # which has no sources that others could stand in for
    assert toolcrib("call", "tools.py", "wipe", "disk=a").returncode == 1
    (folder / "toolcrib.toml").write_text('[[limit]]\ntools = "wpe"\nrate = "1/s"\n')
    limited = toolcrib("call", "tools.py", "wipe", "disk=a")
    assert (limited.returncode, "limit 1 names 'wpe', which no tool has." in limited.stderr) == (1, True)
