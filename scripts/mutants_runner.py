"""Run tests in forks of a process that has imported what is slow to import, but none of the code under test.

Each line of standard input is a request in JSON, and its answer is one on standard output: see scripts/mutants.py.
"""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SLOW = (
    *("cryptography.fernet", "griffe", "httpx2", "hypothesis", "jsonschema_rs", "mcp", "mcp.server", "prompt_toolkit"),
    *("pydantic_settings", "rich.console", "sqlalchemy.ext.asyncio", "typer", "uvicorn"),
)
MEMORY_BYTES = 8 << 30
FILE_BYTES = 1 << 30
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    if sys.platform == "linux":  # what a broken test run leaves behind becomes a child of this process
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for name in SLOW:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder) / "answer"
            child = os.fork()
            if child == 0:
                os._exit(_run(request, answer, folder))
            _, status = os.waitpid(child, 0)
            _kill_the_rest(child)
            found = json.loads(answer.read_text()) if answer.exists() else {"hits": {}, "failed": request["tests"]}
        print(json.dumps({**found, "status": status}), file=answers, flush=True)


def _kill_the_rest(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while children.exists() and (left := children.read_text().split()):
        for each in left:
            os.kill(int(each), signal.SIGKILL)
            os.waitpid(int(each), 0)


def _run(request: dict[str, Any], answer: Path, folder: str) -> int:
    try:
        os.setpgid(0, 0)
        # Not of the address space: guests in WebAssembly reserve much more of that than they use.
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        signal.alarm(int(request["limit_s"]) + 1)
        probing = "log" in request
        plugins = [_Probes(Path(request["log"]), answer)] if probing else []
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--assert=plain",
            f"--basetemp={folder}/tests",
            "-m",
            "not full and not nightly",
        ]
        return int(pytest.main([*options, *([] if probing else ["-x"]), *request["tests"]], plugins=plugins))
    except BaseException:  # pytest raises for warnings that come after the last test, as for an unawaited coroutine
        return 1


class _Probes:
    """Writes which probes each test reaches. What a fixture reaches may be for every test of the file."""

    def __init__(self, log: Path, answer: Path) -> None:
        self._log, self._answer = log, answer
        self._probe = importlib.import_module("mutants_probe")
        self._position = 0
        self._hits: dict[int, set[str]] = defaultdict(set)
        self._durations: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self._new_hits()
        yield
        self._note(item.nodeid, item.nodeid.partition("::")[0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[object]:
        outcome = yield
        self._note(item.nodeid)
        return outcome

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._durations[report.nodeid] += report.duration
        self._durations[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        left_out = self._failed | {test.partition("::")[0] for test in self._failed}
        hits = {
            number: {test: self._durations[test] for test in tests - left_out} for number, tests in self._hits.items()
        }
        self._answer.write_text(json.dumps({"hits": hits, "failed": sorted(self._failed)}))

    def _note(self, *tests: str) -> None:
        for number in self._new_hits():
            self._hits[number] |= {*tests}

    def _new_hits(self) -> set[int]:
        with self._log.open() as file:
            file.seek(self._position)
            text = file.read()
        self._position += len(text)
        self._probe.seen = set()
        return {int(number) for line in text.splitlines() for number in line.strip("[]").split(", ")}


if __name__ == "__main__":
    main()
