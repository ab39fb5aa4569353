"""What all tests share. The last line counts what ran, and what was skipped and why."""

import os
from collections import Counter

import pytest

_skips: Counter[str] = Counter()
_outcomes: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skips[reason.removeprefix("Skipped: ")] += 1
    elif report.failed:
        _outcomes["failed"] += 1
    elif report.when == "call":
        _outcomes["passed"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skips and os.environ.get("TOOLCRIB_NO_SKIP"):
        session.exitstatus = 1


def pytest_unconfigure(config: pytest.Config) -> None:
    if not (_outcomes or _skips):
        return
    for reason, count in _skips.items():
        print(f"skipped {count}: {reason}")
    print(f"tests: {_outcomes['passed']} passed, {_outcomes['failed']} failed, {sum(_skips.values())} skipped")
