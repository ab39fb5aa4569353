"""`toolcrib chat` with the repository tools and a model scripted in `script.toml`; this prints the chat.

Run it with `make demo`. It exits with status 1 if a turn does not show what is expected, so it is a check as well.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "repository.py"
SCRIPT = HERE / "script.toml"


@dataclass(frozen=True)
class Step:
    """What a person types, and text that is expected in return."""

    typed: str
    shows: tuple[str, ...]


STEPS = [
    Step(
        "Can it turn Fahrenheit into Celsius?",
        (
            "I look for it, and at what was changed last.\n",
            " s, 1 repaired)\n",
            '[history {"limit": 1}] {"commits":[{"id":',
            "error (invalid_arguments): Tool 'read_lines' takes no argument 'pth'. Did you mean 'path'?",
            "Yes: celsius(fahrenheit) in convert.py",
            "Tokens: 3607 in (2304 cached), 148 out; in total 3607 in (2304 cached), 148 out.\n",
        ),
    ),
    Step(
        "Who wrote it?",
        (
            '[history {"path": "convert.py", "limit": 2}] {"commits":[',
            "Ada Example, in two commits.\n",
            "in total 6165 in (4352 cached), 179 out.\n",
        ),
    ),
]


def main() -> int:
    print("$ toolcrib chat examples/repository.py --model scripted:examples/chat/script.toml")
    command = [sys.executable, "-m", "toolcrib", "chat", str(TOOLS), "--model", f"scripted:{SCRIPT}"]
    # In a folder of no repository, so that the tools read the sample.
    environment = {name: of for name, of in os.environ.items() if name != "TOOLCRIB_EXAMPLE_REPOSITORY"}
    wrong = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603 - the whole command is written here
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            cwd=folder,
            env={**environment, "PYTHONIOENCODING": "utf-8"},
        ) as chat,
    ):
        assert chat.stdin is not None
        assert chat.stdout is not None
        for step in STEPS:
            print(f"> {step.typed}", flush=True)
            chat.stdin.write(f"{step.typed}\n")
            chat.stdin.flush()
            shown = "".join(turn(chat.stdout))
            missing = [words for words in step.shows if words not in shown]
            wrong += bool(missing)
            for words in missing:
                print(f"UNEXPECTED: {words!r} is not shown")
        chat.stdin.close()
        status = chat.wait()
    print(f"\n{len(STEPS) - wrong} of {len(STEPS)} turns ended as expected.")
    return 1 if wrong or status else 0


def turn(lines: IO[str]) -> Iterator[str]:
    """The lines of one turn, each printed as it comes. The tokens are the last of them."""
    for line in lines:
        print(line, end="", flush=True)
        yield line
        if line.startswith("Tokens: "):
            return


if __name__ == "__main__":
    sys.exit(main())
