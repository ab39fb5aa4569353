"""What every program is given as its environment, and what becomes of what it wrote."""

import logging
from typing import Any

import pytest

from toolcrib import Context, Secret, ToolAuth, Workbench, tool
from toolcrib.auth import CredentialBroker, Grant, Owner, secret_owner
from toolcrib.core import Caller
from toolcrib.sandbox.programs import Ended, ProgramLimits, environment_of, value_of

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
    room = 128 * 1024 - sum(len(key) + len(value) for key, value in own.items()) - len("A")
    assert len((await environment({"A": "x" * room}, ["A"]))["A"]) == room
    assert await environment({"A": "x" * (room + 1)}, ["A"]) == (
        "unavailable",
        "The variables of tool 'use' are larger than 128 KiB together.",
    )


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
