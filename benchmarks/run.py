"""`make bench`: Toolcrib beside its floor and its peers. Prints ratios, and writes results.md.

The peers live in an environment of their own, .cache/peers, with Toolcrib from this checkout beside them, so that one
interpreter runs them all. This file sets it up, starts measure.py in it, and shows what that says.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from report import Report, Row, markdown, terminal_lines
from rich.console import Console

HERE = Path(__file__).parent
ROOT = HERE.parent
PEERS = ROOT / ".cache" / "peers"
RESULTS = HERE / "results.md"

Tell = Callable[[str], None]


class Failed(Exception):
    """What ends the run; its text says why and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description="Toolcrib beside its floor and its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under 40 s; results.md stays as it is")
    parser.add_argument("--no-peers", action="store_true", help="without the peers; results.md stays as it is")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    progress = Console(stderr=True)
    try:
        with progress.status("…") as status:

            def tell(what: str) -> None:
                if progress.is_terminal:
                    status.update(what)
                else:
                    print(what, file=sys.stderr, flush=True)

            python = Path(sys.executable) if options.no_peers else peers_python(tell)
            report = measured(python, tell, quick=options.quick, no_peers=options.no_peers)
    except KeyboardInterrupt:
        progress.print("Stopped. Nothing was written.")
        return 130
    except Failed as failure:
        progress.print(str(failure), markup=False, highlight=False, soft_wrap=True)
        return 1
    if options.json:
        print(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        console.print("\n".join(terminal_lines(report)), soft_wrap=True)
    if not options.quick and not options.no_peers:
        RESULTS.write_text(markdown(report), encoding="utf-8")
        progress.print(f"Written: {RESULTS.relative_to(ROOT)}", highlight=False)
    return 0


def measured(python: Path, tell: Tell, *, quick: bool, no_peers: bool) -> Report:
    flags = [flag for flag, given in (("--quick", quick), ("--no-peers", no_peers)) if given]
    command = [str(python), str(HERE / "measure.py"), *flags]
    rows: list[Row] = []
    notes: list[str] = []
    versions: dict[str, str] = {}
    done = False
    environment = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                event = json.loads(line)
                kind = event.pop("event")
                if kind == "doing":
                    tell(event["what"])
                elif kind == "versions":
                    versions = event["versions"]
                elif kind == "note":
                    notes.append(event["text"])
                elif kind == "row":
                    rows.append(Row(**event))
                done = kind == "done"
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise
    if not done:
        raise Failed("The measurement ended early; its output is above.")
    now = datetime.now(UTC)
    return Report(
        rows,
        notes,
        {
            "date": f"{now:%Y-%m-%d %H:%M} UTC",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "versions": versions,
            "quick": quick,
        },
    )


def peers_python(tell: Tell) -> Path:
    """The interpreter of the peers' environment, set up again when what it is made from has changed."""
    made_from = [HERE / "peers.txt", HERE / "data.txt", ROOT / "constraints.txt", ROOT / "pyproject.toml"]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in made_from) + sys.version.encode()).hexdigest()
    python = PEERS / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = PEERS / ".ready"
    if python.exists() and ready.exists() and ready.read_text() == digest:
        return python
    tell("setting up the peers in .cache/peers (once; a minute or two)")
    packages = ["-r", str(HERE / "peers.txt"), "-e", f"{ROOT}[auth,mcp,openapi,sandbox,serve,search]", *pinned()]
    data = ["--no-deps", "-r", str(HERE / "data.txt")]
    shutil.rmtree(PEERS, ignore_errors=True)
    if uv := shutil.which("uv"):
        _run([uv, "venv", "-q", "--python", sys.executable, str(PEERS)])
        for each in (packages, data):
            _run([uv, "pip", "install", "-q", "--python", str(python), *each])
    else:
        _run([sys.executable, "-m", "venv", str(PEERS)])
        for each in (packages, data):
            _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *each])
    ready.write_text(digest)
    return python


def pinned() -> list[str]:
    """What Toolcrib itself needs, in the tested versions. What only its extras need may be another with the peers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=~! ]", line, maxsplit=1)[0] for line in project["dependencies"]}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] in needed]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        printed = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
        raise Failed(
            f"The peers could not be set up:\n{printed}\nTry again, or leave them out: benchmarks/run.py --no-peers"
        )


if __name__ == "__main__":
    sys.exit(main())
