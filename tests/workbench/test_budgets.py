"""What calls spend of budgets: in one process and, in real databases, in several that are killed."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, Caller, Context, Crib, SetupError, Tool, Workbench, tool
from toolcrib.core import DefinitionError
from toolcrib.store import Store
from toolcrib.workbench import Limit, Limiter

from ..call.outcomes import code
from .conftest import Start
from .spending import BUDGET, LIMITS, PLACES

ISOLATED = Path(__file__).parents[1] / "sandbox" / "isolated_tools.py"


@pytest.fixture(params=["own", "shared"])
async def start(request: pytest.FixtureRequest, stores: Callable[[], Store]) -> AsyncGenerator[Callable[..., Any]]:
    """Give workbenches with one budget, which counts in this process, or in the store."""
    store = stores() if request.param == "shared" else None
    async with AsyncExitStack() as stack:

        async def start(tools: list[Any], budget: str, *, caller: str = "ada", **options: Any) -> Workbench:
            limit = Limit(per="principal", budget=budget, wait_s=0, shared=store is not None)
            crib = await stack.enter_async_context(Crib(tools, store=store, limits=[limit], **options))
            return crib.workbench(Caller(caller))

        yield start


@tool(cost=4)
async def heavy(number: int = 0) -> str:
    return "done"


@tool
async def light() -> str:
    return "done"


@tool
async def read(ctx: Context, tokens: int) -> str:
    await ctx.spend("tokens", tokens)
    return "read"


async def test_a_call_costs_what_its_tool_declares(start: Callable[..., Any]) -> None:
    bench = await start([heavy, light], "10 calls/d")
    results = [await bench.call(name) for name in ("heavy", "heavy", "heavy", "light", "light", "light")]
    assert [code(result) for result in results] == [None, None, "limited", None, None, "limited"]
    error = results[2].error
    assert error.message.startswith("Tool 'heavy' is at its limit of 10 calls/d. Try again in ")
    assert 0 < error.details["retry_after_s"] <= 2 * 8640
    assert code(await bench.crib.workbench(Caller("bob")).call("heavy")) is None


async def test_a_report_of_more_than_is_left_counts_and_ends_the_call(start: Callable[..., Any]) -> None:
    bench = await start([read, light], "100 tokens/d")
    assert code(await bench.call("read", {"tokens": 90})) is None
    last = await bench.call("read", {"tokens": 60})  # half of the budget is owed
    assert last.error.message.startswith("Tool 'read' has used up its limit of 100 tokens/d. Try again in ")
    assert last.error.retry == "later"
    assert 43_000 < last.error.details["retry_after_s"] <= 43_200
    assert code(await bench.call("light")) == "limited", "nothing begins while the budget is overdrawn"


async def test_what_was_declared_and_not_used_is_given_back(start: Callable[..., Any]) -> None:
    @tool(cost={"tokens": 80})
    async def ask(ctx: Context, tokens: list[float]) -> str:
        for number in tokens:
            await ctx.spend("tokens", number)
        return "asked"

    bench = await start([ask], "100 tokens/d")
    assert code(await bench.call("ask", {"tokens": [10, 5.5]})) is None  # 15.5
    assert code(await bench.call("ask", {"tokens": [0]})) is None
    assert code(await bench.call("ask", {"tokens": []})) is None, "without a report it costs what it declares"  # 95.5
    assert code(await bench.call("ask", {"tokens": []})) == "limited"


async def test_a_call_whose_work_has_not_begun_costs_nothing(start: Callable[..., Any]) -> None:
    async def refuse(spec: Any, arguments: Any, caller: Any) -> str:
        return "deny" if arguments.get("number") == 1 else "allow"

    bench = await start([heavy], "4 calls/d", policy=refuse)
    for arguments, expected in (({"nmber": "x"}, "invalid_arguments"), ({"number": 1}, "denied"), ({}, None)):
        assert code(await bench.call("heavy", arguments)) == expected
    assert code(await bench.call("heavy")) == "limited"


async def test_seconds_are_those_of_the_work(start: Callable[..., Any]) -> None:
    async def rest(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    bench = await start([rest], "0.5 seconds/366d")
    assert code(await bench.call("rest", {"seconds": 0.01})) is None
    assert code(await bench.call(Call("rest", {"seconds": 60}, timeout_s=0.6))) == "timeout"
    async with asyncio.timeout(60):  # what was cut short is counted a moment later
        while code(await bench.call("rest", {"seconds": 0})) is None:
            await asyncio.sleep(0.01)


async def test_calls_at_the_same_time_never_take_more_than_there_is(start: Callable[..., Any]) -> None:
    bench = await start([heavy, light], "101 calls/366d")
    calls = [bench.call("heavy" if number % 2 else "light") for number in range(60)]
    names = [
        name for result, name in zip(await asyncio.gather(*calls), ["light", "heavy"] * 30) if code(result) is None
    ]
    assert sum({"light": 1, "heavy": 4}[name] for name in names) in range(98, 102)


async def test_tools_in_threads_and_processes_report_too() -> None:
    def read_in_thread(ctx: Context, tokens: int) -> str:
        ctx.wait(ctx.spend("tokens", tokens))
        return "read"

    limits = [Limit(per="principal", budget="100 tokens/d", wait_s=0)]
    async with Workbench([f"{ISOLATED}:spend", read_in_thread], limits=limits) as bench:
        assert code(await bench.call("read_in_thread", {"tokens": 50})) is None
        assert (await bench.call("spend", {"amount": 40})).value == "spent"
        over = await bench.call("spend", {"amount": 20})
    assert (over.error and over.error.code, over.error and over.error.retry) == ("limited", "later")


async def test_a_budget_is_refilled_evenly() -> None:
    now = 0.0
    limiter = Limiter([Limit(per="principal", budget="10 calls/10s", wait_s=0)], clock=lambda: now)
    bench = Workbench([heavy, light], limits=limiter)
    assert [code(await bench.call("heavy")) for _ in range(3)] == [None, None, "limited"]
    assert len(limiter) == 1
    now = 2.0
    assert [code(await bench.call("heavy")) for _ in range(2)] == [None, "limited"]
    now = 12.0
    assert len(limiter) == 0


async def test_what_is_left_of_a_budget_is_known(stores: Callable[[], Store]) -> None:
    store = stores()
    limits = [
        Limit(budget="30 calls/d", per="tool", shared=False),
        Limit("heavy", budget="100 calls/d", per="principal", shared=True),
        Limit("other", budget="1 calls/d", optional=True),
        Limit("light", budget="5 calls/d", per="workbench"),
        Limit("light", rate="10/s"),
    ]
    crib = Crib([heavy, light], limits=limits, store=store)
    for principal in ("ada", "ada", "bob"):
        assert code(await crib.workbench(Caller(principal)).call("heavy")) is None
    await crib.workbench(Caller("ada")).call("light")
    stored = store.limits

    async def left(principal: str) -> list[Any]:
        rows = await crib.limiter.budgets(crib.registry.specs(), Caller(principal), stored)
        return [(row["id"], row["of"], None if row["left"] is None else round(row["left"])) for row in rows]

    assert await left("ada") == [("0", "heavy", 18), ("1", "ada", 92), ("3", None, None)]
    assert await left("bob") == [("0", "heavy", 18), ("1", "bob", 96), ("3", None, None)]
    assert await left("eve") == [("0", "heavy", 18), ("1", None, 100), ("3", None, None)]
    await crib.stop()


async def test_who_waits_gets_what_is_refilled_in_time() -> None:
    bench = Workbench([heavy], limits=[Limit(budget="4 calls/s", wait_s=60)])
    begin = time.monotonic()
    assert [code(await bench.call("heavy")) for _ in range(2)] == [None, None]
    assert time.monotonic() - begin > 0.9


async def test_a_call_that_costs_more_than_the_budget_never_runs() -> None:
    result = await Workbench([heavy], limits=[Limit(budget="3 calls/d")]).call("heavy")
    assert (result.error.code, result.error.retry) == ("limited", "never")
    assert result.error.message == "A call of 'heavy' takes 4 calls, and its limit is 3 calls/d."


async def test_a_debt_is_bounded() -> None:
    bench = Workbench([read], limits=[Limit(budget="1 tokens/s", wait_s=0)])
    result = await bench.call("read", {"tokens": 10**12})
    assert result.error is not None
    assert code(await bench.call("read", {"tokens": 1})) == "limited"
    assert 9 < (await bench.call("read", {"tokens": 1})).error.details["retry_after_s"] <= 10  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        *(
            (budget, "amount of a unit per time")
            for budget in ("-5 tokens/d", "nan tokens/d", "0 tokens/d", "10/d", "5 T/d")
        ),
        *((budget, "an amount of a unit per time") for budget in ("5 tokens/0d", "5 tokens", "5 tokens/week")),
        ("5 call/d", "counts 'call'. Did you mean 'calls'?"),
        ("5 second/d", "counts 'second'. Did you mean 'seconds'?"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(budget: str, message: str) -> None:
    with pytest.raises(SetupError, match=message.replace("?", r"\?")):
        Limit(budget=budget)


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf"), True, "5", {"tokens": -1}, {"To kens": 1}])
def test_a_cost_that_cannot_be_is_refused(cost: Any) -> None:
    with pytest.raises(DefinitionError, match="cost is a number of calls from 0"):
        Tool(light, cost=cost)


@pytest.mark.parametrize(("unit", "amount"), [("tokens", -1), ("tokens", float("nan")), ("calls", 1), ("", 1), (3, 1)])
async def test_a_report_that_cannot_be_is_an_error_of_the_tool(unit: Any, amount: Any) -> None:
    async def report(ctx: Context) -> str:
        await ctx.spend(unit, amount)
        return "reported"

    result = await Workbench([report], show_errors=True).call("report")
    assert "ctx.spend takes a unit" in result.error.message


async def test_a_tool_that_declares_units_reports_no_others() -> None:
    @tool(cost={"tokens": 0})
    async def report(ctx: Context) -> str:
        await ctx.spend("tokns", 1)
        return "reported"

    result = await Workbench([report], show_errors=True).call("report")
    assert "spends 'tokns', and declares tokens. Did you mean 'tokens'?" in result.error.message
    with pytest.raises(SetupError, match=r"budget of tokns, which none of its tools spends. Did you mean 'tokens'\?"):
        await Workbench([report], limits=[Limit(budget="5 tokns/d")]).start()
    async with Workbench([report, read], limits=[Limit(budget="5 tokns/d")]):
        pass  # what `read` reports is not known


@pytest.mark.parametrize(
    "kills", [pytest.param(4, marks=pytest.mark.full), pytest.param(50, marks=pytest.mark.nightly)]
)
async def test_four_processes_that_are_killed_overdraw_no_budget_and_lose_no_place(
    start_program: Start, stores: Callable[[], Store], tmp_path: Path, kills: int
) -> None:
    def begin() -> Any:
        return start_program("spending.py", tmp_path / "begun")

    chance = random.Random(5)
    processes = [begin() for _ in range(4)]
    assert {process.stdout.readline() for process in processes} == {"ready\n"}

    def go(process: Any) -> None:
        process.stdin.write("\n")
        process.stdin.flush()

    for _ in range(kills):
        for process in processes:
            go(process)
        victim = processes.pop(chance.randrange(4))
        time.sleep(chance.random() * 0.03)  # no matter when
        victim.kill()
        victim.wait()
        assert all(set(process.stdout.readline().split()) == {"worked"} for process in processes)
        processes.append(begin())
        assert processes[-1].stdout.readline() == "ready\n"
    ends: set[str] = set()
    while "limited" not in ends:
        for process in processes:
            go(process)
        ends = {end for process in processes for end in process.stdout.readline().split()}
    # What a killed process had reserved stays spent, whether its work had begun or not.
    assert BUDGET - 4 * kills <= (tmp_path / "begun").stat().st_size <= BUDGET
    store = stores()
    name = LIMITS[0].shared_name("work")
    places = [await store.limits.take(name, PLACES, 60) for _ in range(PLACES)]
    assert None not in places
    assert await store.limits.take(name, PLACES) is None
