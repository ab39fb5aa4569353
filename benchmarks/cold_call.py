"""A cold `toolcrib call tools.py add a=1 b=2`: its processor time, and how often it goes from file to file.

`python benchmarks/cold_call.py` prints it. A call of a function in another of our files than the call before is a
*border*; a *return* is a border into a file that was entered before. The bodies of modules and classes are not counted.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

TITLE = "a cold `toolcrib call tools.py add a=1 b=2`: its processor time"
FLOOR_PROGRAM = "import typer, pydantic"

_TOOLS = "from toolcrib import tool\n\n\n@tool\ndef add(a: int, b: int = 0) -> int:\n    return a + b\n"
_ARGUMENTS = ["call", "tools.py", "add", "a=1", "b=2"]
_COUNT = """
import inspect, json, os, sys
import toolcrib.cli
figures = open(os.dup(1), "w")  # a command that makes calls keeps standard output for its results
place, files, borders, returns = toolcrib.__path__[0], set(), 0, 0
last = None
def profile(frame, event, argument):
    global last, borders, returns
    file = frame.f_code.co_filename
    # The bodies of modules and classes are not optimized: they run at the import.
    if event != "call" or not file.startswith(place) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return
    if file != last:
        borders, returns = borders + 1, returns + (file in files)
        files.add(file)
        last = file
sys.setprofile(profile)
status = toolcrib.cli.main(sys.argv[1:])
sys.setprofile(None)
print(json.dumps({"files": len(files), "borders": borders, "returns": returns}), file=figures)
"""


@dataclass(frozen=True, slots=True)
class Crossings:
    """The files whose functions were entered, the borders that were crossed, and the returns among these."""

    files: int
    borders: int
    returns: int


def crossings() -> Crossings:
    """Count in one cold process."""
    with TemporaryDirectory() as folder:
        Path(folder, "tools.py").write_text(_TOOLS)
        return Crossings(**json.loads(_run(["-c", _COUNT, *_ARGUMENTS], folder).splitlines()[-1]))


def seconds(rounds: int) -> dict[str, list[float]]:
    """Return the processor time of whole processes: the call, and a floor that imports what it needs."""
    programs = {"floor": ["-c", FLOOR_PROGRAM], "Toolcrib": ["-m", "toolcrib", *_ARGUMENTS]}
    times: dict[str, list[float]] = {name: [] for name in programs}
    with TemporaryDirectory() as folder:
        Path(folder, "tools.py").write_text(_TOOLS)
        for program in programs.values():
            _run(program, folder)  # writes the bytecode
        for _ in range(rounds):
            for name, program in programs.items():
                times[name].append(_processor_s(program, folder))
    return times


def help_seconds(rounds: int) -> list[float]:
    """Return the processor time of whole processes that print the help."""
    return [_processor_s(["-m", "toolcrib", "--help"], "/") for _ in range(rounds + 1)][1:]  # the first writes bytecode


def _processor_s(program: Sequence[str], folder: str) -> float:
    before = os.times()
    _run(program, folder)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _run(program: Sequence[str], folder: str) -> str:
    done = subprocess.run([sys.executable, *program], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    print(crossings())
    print({name: f"{min(times):.3f} s, in the median {median(times):.3f} s" for name, times in seconds(7).items()})
