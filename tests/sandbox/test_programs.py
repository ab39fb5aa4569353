"""What every program is given as its environment, and what becomes of what it wrote."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Context, Secret, ToolAuth, Workbench, tool
from toolcrib.auth import CredentialBroker, Grant, Owner, secret_owner
from toolcrib.core import Caller, LoadError
from toolcrib.sandbox.folders import folder_digest
from toolcrib.sandbox.programs import Ended, NativePrograms, ProgramLimits, environment_of, value_of

ADA = Caller("ada")


async def environment(variables: dict[str, Any], names: list[str]) -> Any:
    """What a program that names *names* is given, by a host that has *variables* and two grants."""

    @tool(auth=[Secret("SHOP_KEY"), ToolAuth("github", "token")])
    async def use(ctx: Context) -> int:
        texts.update(environment_of("use", names, ctx))
        return len(texts)

    texts: dict[str, str] = {}
    broker = CredentialBroker()
    await broker.save(secret_owner("ada", "default", "SHOP_KEY"), Grant("the-shop-key"))
    await broker.save(Owner.of(ADA, "github", "token"), Grant("the-token"))
    result = await Workbench([use], broker=broker, variables=variables, caller=ADA).call("use")
    return texts if result.error is None else (result.error.code, result.text)


async def test_a_program_has_the_variables_that_it_names_and_its_credentials() -> None:
    own = {"SHOP_KEY": "the-shop-key", "GITHUB_TOKEN": "the-token"}
    assert await environment({"A": 1, "B": "b"}, ["A"]) == {"A": "1", **own}
    assert await environment({"A": 1}, ["B"]) == (
        "unavailable",
        "Tool 'use' needs the variable 'B', which the host does not give.",
    )
    assert (await environment({"A": "\0"}, ["A"]))[1].startswith("A variable of tool 'use' has a NUL")


async def outcome(ended: Ended) -> Any:
    """What a call gets of a program that ended so."""

    @tool
    async def use(ctx: Context) -> dict[str, Any]:
        return value_of(ended, "use", ProgramLimits(), ctx)

    result = await Workbench([use]).call("use")
    return result.value if result.error is None else (result.error.code, result.text)


async def test_what_a_program_wrote_is_its_result_its_log_or_its_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolcrib.tool.use")
    assert await outcome(Ended(0, "ü".encode(), b"one\ntwo \xff")) == {"text": "ü"}
    lines = [record.getMessage() for record in caplog.records if record.name == "toolcrib.tool.use"]
    assert lines == ["one", "two \ufffd"]
    assert await outcome(Ended(0, b"\xff", b"")) == ("invalid_result", "Tool 'use' wrote what is not UTF-8 text.")
    for ended, code, text in (
        (Ended(3, b"x", b" it broke \n"), "failed", "Tool 'use' ended with status 3. It wrote: it broke"),
        (Ended(3, b"", b"x" * 3000), "failed", f"Tool 'use' ended with status 3. It wrote: {'x' * 2000}"),
        (Ended(0, b"", b"why", "it trapped"), "trapped", "Tool 'use' was stopped: it trapped. It wrote: why"),
        (Ended(0, b"", b"", is_over=True), "too_large", "Tool 'use' wrote more than 8388608 bytes. Ask for less."),
        (Ended(1, b"", b"trace", exception="KeyError: 1"), "failed", "Tool 'use' failed: KeyError: 1"),
    ):
        assert await outcome(ended) == (code, text)


# Programs of an interpreter of their own: what they are given, what they give, and how they are ended


LIMITS = {"memory_bytes": 0, "output_bytes": 1000, "error_bytes": 100}


def place(folder: Path, code: str, **more: Any) -> dict[str, Any]:
    (folder / "tool.py").write_text(code)
    sha256 = folder_digest(folder)
    where = {"folder": str(folder), "program": "tool.py", "python": sys.executable, "sha256": sha256}
    return {**where, "variables": [], "limits": LIMITS, **more}


async def ran(folder: Path, code: str, arguments: str = "{}", **more: Any) -> tuple[str, Any]:
    """How a program of *code* ends in *folder*: its status or code, and what it wrote or why it failed."""
    run = NativePrograms().load(place(folder, code, **more), "use")

    @tool
    async def use(ctx: Context) -> dict[str, Any]:
        return await run(arguments, ctx)

    result = await Workbench([use], variables={"UNITS": "metric", "OTHER": "x"}).call("use")
    return (result.status, result.unwrap()["text"]) if result.error is None else (result.error.code, result.text)


async def test_a_program_has_its_arguments_its_folder_and_the_variables_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "not for guests")
    monkeypatch.setenv("TZ", "Europe/Oslo")
    code = """
import json, os, sys, toolcrib_guest
names = ("OF_THE_HOST", "TZ", "UNITS", "OTHER")
print(json.dumps([json.load(sys.stdin), os.getcwd(), *map(os.environ.get, names), sys.dont_write_bytecode]), end="")
"""
    status, text = await ran(tmp_path, code, '{"a": 1}', variables=["UNITS"])
    assert (status, json.loads(text)) == (
        "success",
        [{"a": 1}, str(tmp_path), None, "Europe/Oslo", "metric", None, True],
    )


async def test_what_it_writes_has_its_limit(tmp_path: Path) -> None:
    assert await ran(tmp_path, "print('x' * 1000, end='')") == ("success", "x" * 1000)
    over = ("too_large", "Tool 'use' wrote more than 1000 bytes. Ask for less.")
    assert await ran(tmp_path, "print('x' * 1001, end='')") == over
    assert await ran(tmp_path, "while True: print('x' * 100_000)") == over


async def test_how_it_fails_is_its_last_line_and_the_rest_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "import sys\nsys.stderr.write('x' * 200_000 + '\\n')\nraise ValueError('no such city')"
    limits = {**LIMITS, "error_bytes": 1000}
    assert await ran(tmp_path, code, limits=limits) == ("failed", "Tool 'use' failed: ValueError: no such city")
    (logged,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert (len(logged), logged.count("Traceback")) == (999, 1)  # without the end of the line
    code = "import sys\nprint('why', file=sys.stderr)\nsys.exit(3)"
    assert await ran(tmp_path, code) == ("failed", "Tool 'use' ended with status 3. It wrote: why")
    code = "import os, sys\nprint('why', file=sys.stderr, flush=True)\nos.kill(os.getpid(), 9)"
    assert await ran(tmp_path, code) == ("trapped", "Tool 'use' was stopped: it was ended by signal 9. It wrote: why")


async def test_it_need_not_read_its_arguments_nor_write_anything_but_a_traceback(tmp_path: Path) -> None:
    large = json.dumps({"text": "x" * 3_000_000})
    assert await ran(tmp_path, "import os\nos.close(0)", large) == ("success", "")
    code = "import sys\nprint('Traceback (most recent call last):', file=sys.stderr)"
    assert await ran(tmp_path, code) == ("success", "")
    code = "import sys\nprint(len(sys.stdin.read()), end='')"
    assert await ran(tmp_path, code, large) == ("success", str(len(large)))


def test_a_folder_that_has_changed_does_not_run(tmp_path: Path) -> None:
    where = place(tmp_path, "print(1)")
    os.truncate(tmp_path / "tool.py", 1)
    with pytest.raises(LoadError, match="has changed since the host loaded it"):
        NativePrograms().load(where, "use")
