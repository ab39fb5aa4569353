"""What the host provides is opened when needed, shared within its scope, and closed in reverse order."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from toolcrib import Caller, Context, Depends, SetupError, Workbench, tool

from ..doubled import doubled

events: list[str] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    events.clear()


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name


async def get_settings() -> AsyncIterator[str]:
    events.append("open settings")
    yield "settings"
    events.append("close settings")


async def get_pool(settings: Annotated[str, Depends(get_settings)]) -> AsyncIterator[Pool]:
    events.append(f"open pool with {settings}")
    task = asyncio.current_task()
    yield Pool("real")
    events.append("close pool in the same task" if asyncio.current_task() is task else "close pool elsewhere")


def get_transaction(pool: Annotated[Pool, Depends(get_pool)], ctx: Context) -> Iterator[str]:
    events.append(f"begin for {ctx.caller.principal} off the loop: {threading.current_thread().name != 'MainThread'}")
    yield f"transaction on {pool.name}"
    events.append("end")


@tool
async def query(
    sql: str,
    pool: Annotated[Pool, Depends(get_pool)],
    transaction: Annotated[str, Depends(get_transaction, scope="call")],
) -> str:
    """Run a query."""
    events.append(f"run {sql}")
    return f"{sql} in {transaction}, {pool.name}"


async def test_scopes_are_opened_once_and_closed_in_reverse() -> None:
    async with Workbench([query], caller=Caller("alice")) as bench:
        assert list(bench.specs()[0].input_schema["properties"]) == ["sql"]
        first = await bench.call("query", {"sql": "a"})
        assert first.value == "a in transaction on real, real"
        await bench.call("query", {"sql": "b"})
    assert events == [
        "open settings",
        "open pool with settings",
        "begin for alice off the loop: True",
        "run a",
        "end",
        "begin for alice off the loop: True",
        "run b",
        "end",
        "close pool in the same task",
        "close settings",
    ]


async def test_many_first_calls_open_one_value() -> None:
    async def slow_pool() -> AsyncIterator[Pool]:
        events.append("open")
        await asyncio.sleep(0.01)
        yield Pool("one")
        events.append("close")

    @tool
    async def use(pool: Annotated[Pool, Depends(slow_pool)]) -> int:
        return id(pool)

    async with Workbench([use]) as bench:
        values = {result.value for result in await bench.call_many([("use", None)] * 50)}
    assert len(values) == 1
    assert events == ["open", "close"]


async def test_giving_up_on_a_call_does_not_take_the_value_from_others() -> None:
    release = asyncio.Event()

    async def slow() -> str:
        await release.wait()
        return "value"

    @tool
    async def use(value: Annotated[str, Depends(slow)]) -> str:
        return value

    async with Workbench([use]) as bench:
        first, second = asyncio.create_task(bench.call("use")), asyncio.create_task(bench.call("use"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        release.set()
        assert (await second).value == "value"
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_provider_that_fails_fails_the_call_and_is_tried_again() -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("db password=hunter2")
        return "up"

    @tool
    async def use(value: Annotated[str, Depends(flaky)]) -> str:
        return value

    async with Workbench([use]) as bench:
        result = await bench.call("use")
        assert result.error is not None
        assert result.error.code == "failed"
        assert "hunter2" not in result.text
        assert (await bench.call("use")).value == "up"


async def test_what_was_opened_is_closed_when_a_later_provider_fails() -> None:
    async def outer() -> AsyncIterator[str]:
        events.append("open")
        yield "outer"
        events.append("close")

    async def failing(value: Annotated[str, Depends(outer, scope="call")]) -> str:
        raise ValueError(value)

    @tool
    async def use(value: Annotated[str, Depends(failing, scope="call")]) -> str:
        return value

    async with Workbench([use]) as bench:
        assert (await bench.call("use")).status == "error"
        assert events == ["open", "close"]


async def test_a_provider_that_fails_to_close_is_logged_and_the_others_close(caplog: pytest.LogCaptureFixture) -> None:
    async def bad() -> AsyncIterator[str]:
        yield "bad"
        raise OSError("cannot close")

    @tool
    async def use(pool: Annotated[Pool, Depends(get_pool)], value: Annotated[str, Depends(bad)]) -> str:
        return value

    async with Workbench([use]) as bench:
        assert (await bench.call("use")).value == "bad"
    assert "cannot close" in caplog.text
    assert events[-1] == "close settings"


async def test_overrides_take_the_place_of_providers_nested_ones_too() -> None:
    def fake_settings() -> str:
        return "fake settings"

    async with doubled([query], overrides={get_settings: fake_settings}) as bench:
        await bench.call("query", {"sql": "a"})
    assert "open pool with fake settings" in events

    events.clear()
    async with doubled([query], overrides={get_pool: lambda: Pool("fake")}) as bench:
        result = await bench.call("query", {"sql": "a"})
        assert result.value == "a in transaction on fake, fake"


async def test_an_override_that_no_tool_uses_is_an_error() -> None:
    def unused() -> str:
        return "nothing"

    def fake() -> str:
        return "fake"

    overrides = {get_settings: fake, unused: fake}
    with pytest.raises(SetupError, match=r"No tool uses the provider .*unused' of 'overrides'"):
        await doubled([query], overrides=overrides).start()

    # What only a replacement needs is used, and so is what a replacement makes needless.
    def fake_pool(name: Annotated[str, Depends(unused)]) -> Pool:
        return Pool(name)

    async with doubled([query], overrides={get_pool: fake_pool, unused: fake}) as bench:
        assert (await bench.call("query", {"sql": "a"})).value == "a in transaction on fake, fake"
    async with doubled([query], overrides={get_pool: lambda: Pool("fake"), get_settings: fake}) as bench:
        assert (await bench.call("query", {"sql": "a"})).value == "a in transaction on fake, fake"


async def test_reset_closes_and_the_next_call_opens_anew() -> None:
    async with Workbench([query]) as bench:
        await bench.call("query", {"sql": "a"})
        await bench.reset()
        assert events[-1] == "close settings"
        assert (await bench.call("query", {"sql": "b"})).status == "success"
    assert events.count("open settings") == 2
    assert events.count("close settings") == 2


async def test_a_stopped_workbench_opens_nothing_any_more() -> None:
    bench = Workbench([query])
    async with bench:
        pass
    with pytest.raises(SetupError, match="stopped"):
        await bench.call("query", {"sql": "a"})
    assert events == []


async def test_two_workbenches_share_no_session_values() -> None:
    @tool
    async def use(pool: Annotated[Pool, Depends(lambda: Pool("own"))]) -> int:
        return id(pool)

    async with Workbench([use]) as one, Workbench([use]) as other:
        values: list[Any] = [(await bench.call("use")).value for bench in (one, one, other)]
    assert values[0] == values[1]
    assert values[0] != values[2]
