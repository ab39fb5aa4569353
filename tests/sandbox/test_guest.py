"""What a guest is given as its environment, and what becomes of what it wrote: in this process."""

import importlib
import logging
import sys
from typing import Any

import pytest

from toolcrib import Context, Secret, ToolAuth, Workbench, tool
from toolcrib.auth import CredentialBroker, Grant, Owner, secret_owner
from toolcrib.core import Caller, SetupError, ToolError
from toolcrib.sandbox.guest import environment_of, quoted, text_of, tool_errors
from toolcrib.sandbox.modules import Ended, InputOverLimit, OutputOverLimit, ProgramLimits, Trapped
from toolcrib.sandbox.run import Run

ADA = Caller("ada")


async def environment(variables: dict[str, Any], names: list[str]) -> Any:
    """What a guest that names *names* is given, by a host that has *variables* and one that has granted two things."""

    @tool(auth=[Secret("SHOP_KEY"), ToolAuth("github", "token")])
    async def use(ctx: Context) -> int:
        found.update(environment_of("use", names, ctx))
        return len(found)

    found: dict[str, str] = {}
    broker = CredentialBroker()
    await broker.save(secret_owner("ada", "default", "SHOP_KEY"), Grant("the-shop-key"))
    await broker.save(Owner.of(ADA, "github", "token"), Grant("the-token"))
    result = await Workbench([use], broker=broker, variables=variables, caller=ADA).call("use")
    return found if result.error is None else (result.error.code, result.text)


async def test_a_guest_has_the_variables_that_it_names_and_its_credentials() -> None:
    own = {"SHOP_KEY": "the-shop-key", "GITHUB_TOKEN": "the-token"}
    assert await environment({"A": 1, "B": "b"}, ["A"]) == {"A": "1", **own}
    assert await environment({"A": 1}, []) == own
    assert await environment({"A": 1}, ["B"]) == (
        "unavailable",
        "Tool 'use' needs the variable 'B', which the host does not give.",
    )
    assert (await environment({"A": "\0"}, ["A"]))[1].startswith("A variable of tool 'use' has a NUL")
    room = 128 * 1024 - sum(len(key) + len(value) for key, value in own.items()) - len("A")
    assert len((await environment({"A": "x" * room}, ["A"]))["A"]) == room
    assert await environment({"A": "x" * (room + 1)}, ["A"]) == (
        "unavailable",
        "The variables of tool 'use' are larger than 128 KiB together.",
    )


async def written(ended: Ended) -> Any:
    """What a call gets of what a guest wrote."""

    @tool
    async def use(ctx: Context) -> dict[str, Any]:
        return text_of(ended, "use", ctx)

    result = await Workbench([use]).call("use")
    return result.value if result.error is None else (result.error.code, result.text)


async def test_what_a_guest_wrote_is_its_result_its_log_or_its_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolcrib.tool.use")
    assert await written(Ended(0, "ü".encode(), b"one\ntwo \xff")) == {"text": "ü"}
    assert [record.getMessage() for record in caplog.records if record.name == "toolcrib.tool.use"] == [
        "one",
        "two \ufffd",
    ]
    assert await written(Ended(3, b"x", b" it broke \n")) == (
        "failed",
        "Tool 'use' ended with status 3. It wrote: it broke",
    )
    assert await written(Ended(0, b"\xff", b"")) == ("invalid_result", "Tool 'use' wrote what is not UTF-8 text.")
    assert (quoted(b" \n"), quoted(b"x" * 3000)) == ("", " It wrote: " + "x" * 2000)


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (InputOverLimit(), "too_large", "The arguments of 'use' are larger than 4194304 bytes, its limit."),
        (OutputOverLimit(), "too_large", "Tool 'use' wrote more than 8388608 bytes. Ask for less."),
        (Trapped("it trapped", b"why"), "trapped", "Tool 'use' was stopped: it trapped. It wrote: why"),
    ],
)
def test_what_stops_a_guest_is_an_error_of_its_tool(raised: Exception, code: str, text: str) -> None:
    limits = ProgramLimits()
    assert (limits.memory_bytes, limits.error_bytes) == (64 * 2**20, 16 * 2**10)
    with pytest.raises(ToolError) as error, tool_errors("use", limits):
        raise raised
    assert (error.value.code, str(error.value)) == (code, text)


def test_a_run_takes_so_much_output_and_the_first_of_what_went_wrong() -> None:
    looked: list[int] = []
    run = Run(b"input", output_bytes=4, error_bytes=3, interrupt=lambda: looked.append(1))
    assert [bytes(run.read(size)) for size in (2, 9, 1)] == [b"in", b"put", b""]
    run.write(b"1234")
    assert (run.is_over, run.room, run.stopped.is_set()) == (False, 1, False)
    run.write(b"5")
    assert (run.is_over, run.stopped.is_set(), looked) == (True, True, [1])
    run.write_error(b"12")
    run.write_error(b"345")
    assert (bytes(run.error_output), run.error_room) == (b"123", 0)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("toolcrib.sandbox.guest", "toolcrib.sandbox.modules"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(SetupError, match=r"WebAssembly tools need .*toolcrib\[sandbox\]"):
        importlib.import_module("toolcrib.sandbox.guest")
