"""The MCP project's own conformance suite, against a server of Toolcrib's public names, in both eras."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..npm import installed, node

pytestmark = pytest.mark.full

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
FIXTURE = str(Path(__file__).with_name("mcp_server.py"))
LEAST = {"2025-11-25": 84, "2026-07-28": 152}
TASKS = (
    *("lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers"),
    *("dispatch-and-envelope", "status-notifications", "required-task-error", "mrtr-composition"),
)
UNCHECKED = "tasks-status-notifications"
"""The suite skips it: its harness does not listen yet."""
OPTIONAL = "server-sse-streams-functional"
"""Of no server whose answers are JSON where they come at once: the suite says so, and makes no check of it."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, FIXTURE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.mark.parametrize("revision", LEAST)
def test_the_server_passes_every_scenario_of_a_revision(
    url: str, revision: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(installed(SUITE, "dist/index.js"))
    options = ("--suite", "all", "--spec-version", revision, "--output-dir", str(tmp_path))
    ran = node(script, "server", "--url", url, *options)
    counts: Counter[str] = Counter()
    problems: set[str] = set()
    warnings: set[str] = set()
    for file in sorted(tmp_path.glob("**/checks.json")):
        scenario = file.parent.name
        for check in json.loads(file.read_text()):
            is_left_out = check["id"] == OPTIONAL and check["status"] == "INFO"
            counts["SUCCESS" if is_left_out else check["status"]] += 1
            if check["status"] == "FAILURE":
                problems.add(f"{scenario}: {check['id']}: {check.get('errorMessage')}")
            if check["status"] == "WARNING":
                warnings.add(check["id"])
    with capsys.disabled():
        scenarios = len(list(tmp_path.glob("**/checks.json")))
        print(f"\nconformance {revision}: {scenarios} scenarios, {dict(counts)}")
    assert not problems, "\n".join(sorted(problems))
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert (warnings, counts["SUCCESS"] >= LEAST[revision]) == (set(), True), counts


def test_the_server_passes_every_scenario_of_tasks(url: str, tmp_path: Path) -> None:
    script = str(installed(SUITE, "dist/index.js"))
    for scenario in TASKS:
        node(script, "server", "--url", url, "--scenario", f"tasks-{scenario}", "--output-dir", str(tmp_path))
    checks = [check for file in tmp_path.glob("**/checks.json") for check in json.loads(file.read_text())]
    assert {check["id"] for check in checks if check["status"] != "SUCCESS"} == {UNCHECKED}, checks
    assert len(checks) == 45
