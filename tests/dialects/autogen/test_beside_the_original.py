"""Beside the original: the same programs, with AutoGen's own package and with the import root changed.

The results of the probes in `beside/` are compared to the byte. intended.toml has the differences and their reasons.
`python tests/dialects/autogen/test_beside_the_original.py PYTHON` writes that file again, with the interpreter of an
environment that has both packages. A new difference gets an empty reason, which the test does not accept.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
INTENDED = HERE / "intended.toml"
ORIGINAL = ("autogen-core==0.7.5", "pillow==13.0.0")
AT_LEAST = 250
_IMPORT = re.compile(r"^( *(?:from|import) )autogen_core\b", re.M)


def both(python: Path, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the results of the probes with the original, and here."""
    for name in ("original", "here"):
        shutil.copytree(HERE / "beside", folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (folder / "here").glob("*.py"):
        file.write_text(_IMPORT.sub(r"\1toolcrib.dialects.autogen", file.read_text()))
    originals, ours = (outcomes(python, folder / name) for name in ("original", "here"))
    return originals, ours


def outcomes(python: Path, folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [python, "-X", "utf8", "run.py"], cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def different(originals: dict[str, str], ours: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the probes whose result is another one here, as intended.toml has them."""
    return {name: {"original": text, "here": ours[name]} for name, text in originals.items() if text != ours[name]}


@pytest.mark.full
def test_programs_return_the_same_to_the_byte_except_for_the_listed_differences(
    clean_env: Callable[..., Path], tmp_path: Path
) -> None:
    # Free of the constraints: it needs an older protobuf than the tests of traces.
    programs = clean_env("--free", *(part for package in ORIGINAL for part in ("--with", package)))
    originals, ours = both(programs / "python", tmp_path)
    assert list(originals) == list(ours)
    assert len(originals) >= AT_LEAST
    listed = intended()
    found = different(originals, ours)
    assert {name: {"original": each["original"], "here": each["here"]} for name, each in listed.items()} == found


def test_every_intended_difference_has_a_reason() -> None:
    reasons = tomllib.loads(INTENDED.read_text())["why"]
    assert [name for name, each in intended().items() if each["why"] not in reasons] == []
    assert set(reasons) == {each["why"] for each in intended().values()}
    assert all(reasons.values())


def intended() -> dict[str, dict[str, str]]:
    listed: dict[str, dict[str, str]] = tomllib.loads(INTENDED.read_text())["probe"]
    return listed


def write(python: Path) -> None:
    known: dict[str, Any] = tomllib.loads(INTENDED.read_text()) if INTENDED.exists() else {"why": {}, "probe": {}}
    with tempfile.TemporaryDirectory() as folder:
        found = different(*both(python, Path(folder)))
    lines = [
        "# The programs with another result than with autogen-core 0.7.5: both results, and why that is intended.",
        "# Written by test_beside_the_original.py, except for the reasons.",
        "",
        "[why]",
        *(f"{_text(name)} = {_text(why)}" for name, why in known["why"].items()),
    ]
    for name, each in found.items():
        why = known["probe"].get(name, {}).get("why", "")
        lines += ["", f"[probe.{_text(name)}]", f"why = {_text(why)}"]
        lines += [f"{side} = {_text(each[side])}" for side in ("original", "here")]
    INTENDED.write_text("\n".join(lines) + "\n")


def _text(text: str) -> str:
    """Return *text* as a TOML string."""
    if "'" not in text and "\n" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)  # a basic string of TOML is one of JSON


if __name__ == "__main__":
    write(Path(sys.argv[1]))
