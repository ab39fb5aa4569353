"""npm's conformance suite for MCP clients, in both revisions, against a client made of Toolcrib's public names."""

import os
import re
import sys
from pathlib import Path

import pytest

from ..npm import installed, node

pytestmark = pytest.mark.full

PACKAGE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
CLIENT = Path(__file__).with_name("conformance_client.py")
EXPECTED_FAILURES = re.compile(r"tasks-.*")


@pytest.fixture(scope="module")
def suite() -> str:
    """The script of the suite, installed from npm where it is not yet."""
    return str(installed(PACKAGE, "dist/index.js"))


@pytest.mark.parametrize(("revision", "least"), [("2025-11-25", 19), ("2026-07-28", 33)])
def test_every_scenario_passes(suite: str, revision: str, least: int, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{sys.executable} {CLIENT}"
    options = ("--suite", "all", "--spec-version", revision, "--timeout", "240000")
    ran = node(suite, "client", "--command", command, *options, timeout_s=900)
    output = re.sub(r"\x1b\[\d+m", "", ran.stdout + ran.stderr)
    scenarios = re.findall(r"^([✓✗]) (\S+): (\d+) passed, (\d+) failed", output, re.MULTILINE)
    checks = sum(int(passed) for _, _, passed, _ in scenarios)
    with capsys.disabled():
        passing = sum(mark == "✓" for mark, *_ in scenarios)
        print(
            f"{os.linesep}client conformance {revision}: {passing} of {len(scenarios)} scenarios, {checks} checks pass"
        )
    failed = [name for mark, name, *_ in scenarios if mark == "✗" and not EXPECTED_FAILURES.fullmatch(name)]
    assert failed == [], output[-4000:]
    assert len(scenarios) >= least


@pytest.mark.parametrize(
    "scenario", ["client-credentials-basic", "client-credentials-jwt", "enterprise-managed-authorization"]
)
def test_every_login_of_an_extension_passes(suite: str, scenario: str) -> None:
    command = f"{sys.executable} {CLIENT}"
    ran = node(suite, "client", "--command", command, "--scenario", f"auth/{scenario}", "--timeout", "240000")
    assert "OVERALL: PASSED" in ran.stdout + ran.stderr, (ran.stdout + ran.stderr)[-4000:]
