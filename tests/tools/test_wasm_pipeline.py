"""A tool in the sandbox is a tool like any other: all that holds for calls holds for its calls."""

from toolcrib import Caller, Workbench
from toolcrib.record import CallLog
from toolcrib.tools import Permissions

from .guests import ECHO, ENVIRONMENT, Module, broker, folder

TRUSTED = Permissions(trusted=True)


async def test_its_credentials_are_those_of_the_caller_and_are_nowhere_shown(module: Module) -> None:
    made = folder(module, ENVIRONMENT.format(to=1, status=0), 'auth = [{ secret = "WEATHER_KEY" }]')
    log = CallLog()
    source = TRUSTED.to(made)
    async with Workbench([source], caller=Caller("a"), broker=broker(WEATHER_KEY="canary-5521"), recorder=log) as bench:
        result = await bench.call("guest")
    assert result.text == "WEATHER_KEY=[secret]\0"
    assert "canary" not in repr(list(log))
    async with Workbench([source], caller=Caller("a"), broker=broker()) as bench:
        refused = await bench.call("guest")
    assert refused.status != "success"


async def test_arguments_over_its_own_limit_are_refused(module: Module) -> None:
    made = folder(module, ECHO, "input_mb = 1")
    async with Workbench([TRUSTED.to(made)]) as bench:
        result = await bench.call("guest", {"text": "x" * 2_000_000})
    assert result.error is not None
    assert (result.error.code, result.text) == (
        "too_large",
        "The arguments of 'guest' are larger than 1048576 bytes, its limit.",
    )


async def test_variables_that_are_too_large_together_are_refused(module: Module) -> None:
    made = folder(module, ECHO, 'variables = ["A"]')
    async with Workbench([TRUSTED.to(made)], variables={"A": "x" * 200_000}) as bench:
        result = await bench.call("guest")
    assert result.text == "The variables of tool 'guest' are larger than 128 KiB together."
