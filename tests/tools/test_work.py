"""What the host provides is opened when needed, shared within its scope, and closed in reverse, whatever happens."""

import asyncio
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, Any

import pytest

from toolcrib import Call, Caller, CancellationToken, Context, Crib, Depends, SetupError, Tool, Workbench, tool
from toolcrib.core import Variables

from .. import fuzz
from ..doubled import doubled
from ..waiting import until

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
        assert (await bench.call("query", {"sql": "a"})).value == "a in transaction on real, real"
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
        assert (await bench.call("query", {"sql": "a"})).value == "a in transaction on fake, fake"


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


class Book:
    """What was opened and closed, in order."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.lines: list[tuple[str, str]] = []

    def open(self, what: str) -> None:
        self.opened.append(what)
        self.lines.append(("open", what))

    def close(self, what: str) -> None:
        self.closed.append(what)
        self.lines.append(("close", what))


# One thread


def connect() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE parts (name TEXT)")
    yield db
    db.close()


def cursor_of(db: Annotated[sqlite3.Connection, Depends(connect, scope="call")]) -> sqlite3.Cursor:
    return db.cursor()


@tool
def parts(
    names: list[str],
    db: Annotated[sqlite3.Connection, Depends(connect, scope="call")],
    cursor: Annotated[sqlite3.Cursor, Depends(cursor_of, scope="call")],
) -> list[str]:
    db.executemany("INSERT INTO parts VALUES (?)", [(name,) for name in names])
    return [name for (name,) in cursor.execute("SELECT name FROM parts")]


@tool
def parts_one_by_one(
    names: list[str], db: Annotated[sqlite3.Connection, Depends(connect, scope="call")]
) -> Iterator[int]:
    for name in names:
        db.execute("INSERT INTO parts VALUES (?)", (name,))
        yield db.execute("SELECT count(*) FROM parts").fetchone()[0]


@pytest.mark.parametrize("timeout_s", [None, 30.0])
async def test_a_textbook_sqlite_connection_works_in_parallel_calls(
    timeout_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with Workbench([parts, parts_one_by_one], timeout_s=timeout_s) as bench:
        results = await bench.call_many([("parts", {"names": ["a", str(n)]}) for n in range(80)])
        counted = await bench.call_many([("parts_one_by_one", {"names": ["a", "b"]})] * 40)
    assert [result.value for result in results] == [["a", str(n)] for n in range(80)]
    assert [result.value for result in counted] == [2] * 40
    assert caplog.records == []


async def test_plain_and_async_providers_of_a_plain_tool_open_in_order_and_close_in_reverse() -> None:
    book, threads = Book(), set[int]()

    def plain() -> Iterator[str]:
        book.open("plain")
        yield "plain"
        book.close("plain")

    async def on_loop(below: Annotated[str, Depends(plain, scope="call")]) -> AsyncIterator[str]:
        task = asyncio.current_task()
        book.open("on loop")
        yield f"{below}, on loop"
        assert asyncio.current_task() is task
        book.close("on loop")

    async def alone() -> AsyncIterator[str]:
        book.open("alone")
        yield "alone"
        book.close("alone")

    def top(
        below: Annotated[str, Depends(on_loop, scope="call")],
        alone: Annotated[str, Depends(alone, scope="call")],
        pool: Annotated[str, Depends(lambda: "pool")],
    ) -> Iterator[str]:
        threads.add(threading.get_ident())
        book.open("top")
        yield f"{below}, {alone}, {pool}, top"
        threads.add(threading.get_ident())
        book.close("top")

    def use(
        top: Annotated[str, Depends(top, scope="call")], plain: Annotated[str, Depends(plain, scope="call")]
    ) -> str:
        threads.add(threading.get_ident())
        return f"{top}, {plain}"

    async with Workbench([use]) as bench:
        result = await bench.call("use")
    assert result.value == "plain, on loop, alone, pool, top, plain"
    assert book.opened == ["plain", "on loop", "alone", "top"]
    assert book.closed == ["top", "alone", "on loop", "plain"]
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def kinds(book: Book, release: threading.Event) -> dict[str, Tool[..., Any]]:
    """Tools that go on until they are released or cancelled, with two values each, one made of the other."""

    async def first_async(context: Context) -> AsyncIterator[str]:
        await asyncio.sleep(0.001)
        book.open(f"{context.call.id} first")
        try:
            yield context.call.id
        finally:
            await asyncio.sleep(0.002)
            book.close(f"{context.call.id} first")

    def first_plain(context: Context) -> Iterator[str]:
        release.wait(0.01)
        book.open(f"{context.call.id} first")
        yield context.call.id
        release.wait(0.01)
        book.close(f"{context.call.id} first")

    def tools(first: Any) -> Iterator[Callable[..., Any]]:
        async def second_async(below: Annotated[str, Depends(first, scope="call")]) -> AsyncIterator[str]:
            book.open(f"{below} second")
            yield below
            await asyncio.sleep(0.002)
            book.close(f"{below} second")

        def second_plain(below: Annotated[str, Depends(first, scope="call")]) -> Iterator[str]:
            book.open(f"{below} second")
            yield below
            book.close(f"{below} second")

        for second in (second_async, second_plain):

            async def on_loop(value: Annotated[str, Depends(second, scope="call")]) -> str:
                await asyncio.sleep(0.05)
                return value

            def in_thread(value: Annotated[str, Depends(second, scope="call")]) -> str:
                release.wait(0.02)
                return value

            yield on_loop
            yield in_thread

    made = [*tools(first_async), *tools(first_plain)]
    return {f"kind{n}": Tool(fn, name=f"kind{n}") for n, fn in enumerate(made)}


def in_reverse(book: Book) -> bool:
    """Whether each call has closed what it has opened, in reverse."""
    calls: dict[str, list[tuple[str, str]]] = {}
    for do, what in book.lines:
        call, _, which = what.partition(" ")
        calls.setdefault(call, []).append((do, which))
    whole = [("open", "first"), ("open", "second"), ("close", "second"), ("close", "first")]
    half = [("open", "first"), ("close", "first")]
    return all(lines in (whole, half) for lines in calls.values())


async def storm(seed: int, number: int) -> None:
    """*number* calls that are cancelled at random moments, in every way there is."""
    chance, book, release = random.Random(seed), Book(), threading.Event()
    tools = kinds(book, release)
    async with Workbench(tools.values()) as bench:

        async def one() -> None:
            token = CancellationToken()
            how = chance.choice(["deadline", "token", "task", "none"])
            after_s = chance.choice([0.0, chance.uniform(0, 0.12)])
            call = Call(
                chance.choice(list(tools)), cancellation=token, timeout_s=after_s if how == "deadline" else None
            )
            task = asyncio.create_task(bench.call(call))
            if how in ("token", "task"):
                await asyncio.sleep(after_s)
                token.cancel() if how == "token" else task.cancel()
            try:
                result = await task
            except asyncio.CancelledError:
                assert how == "task"
            else:
                assert result.error is None or result.error.code in ("timeout", "cancelled", "limited")

        waiting = {asyncio.create_task(one()) for _ in range(number)}
        done, late = await asyncio.wait(waiting, timeout=60)
        assert not late
        for task in done:
            task.result()
        await until(lambda: len(book.opened) == len(book.closed))
        assert in_reverse(book)
        assert (await bench.call("kind0")).error is None
        assert (await bench.call("kind3")).error is None


@pytest.mark.parametrize("seed", fuzz.seeds(2))
async def test_what_was_opened_for_a_call_is_closed_in_reverse_whenever_the_call_is_cancelled(seed: int) -> None:
    await storm(seed, 100)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", fuzz.seeds(5))
async def test_a_thousand_calls_cancelled_at_random_moments_close_all_that_they_opened(seed: int) -> None:
    await storm(seed, 1000)


def test_a_loop_that_ends_closes_what_its_calls_have_opened() -> None:
    book = Book()

    async def below() -> AsyncIterator[str]:
        book.open("below")
        yield "below"
        await asyncio.sleep(0)
        book.close("below")

    async def above(below: Annotated[str, Depends(below, scope="call")]) -> AsyncIterator[str]:
        book.open("above")
        yield "above"
        book.close("above")

    begun = asyncio.Event()

    @tool
    async def use(value: Annotated[str, Depends(above, scope="call")]) -> None:
        begun.set()
        await asyncio.Event().wait()

    kept: list[asyncio.Task[Any]] = []

    async def main() -> None:
        kept.append(asyncio.create_task(Workbench([use]).call("use")))
        await begun.wait()

    asyncio.run(main())
    assert book.opened == ["below", "above"]
    assert book.closed == ["above", "below"]


# A stop


def tenant(caller: Caller, variables: Variables) -> str:
    return f"{caller.principal} of {variables['company']}"


async def tenant_on_loop(variables: Variables, who: Caller | None = None) -> str:
    return f"{who.principal} of {variables['company']}"


def above_tenant(name: Annotated[str, Depends(tenant, scope="program")]) -> list[str]:
    return [name]


@pytest.mark.parametrize("scope", ["call", "session", "program"])
async def test_providers_of_any_scope_may_have_the_caller_and_the_variables(scope: Any) -> None:
    @tool
    def plain(a: Annotated[str, Depends(tenant, scope=scope)]) -> str:
        return a

    @tool
    async def on_loop(
        a: Annotated[str, Depends(tenant, scope=scope)], b: Annotated[str, Depends(tenant_on_loop, scope=scope)]
    ) -> list[str]:
        return [a, b]

    variables: Mapping[str, Any] = {"company": "Acme"}
    async with Workbench([plain, on_loop], caller=Caller("ada"), variables=variables) as bench:
        assert (await bench.call("plain")).value == "ada of Acme"
        assert (await bench.call("on_loop")).value == ["ada of Acme"] * 2
    async with Crib([plain, on_loop], variables=variables) as crib:
        for name in ("ada", "bob", "ada"):
            bench = crib.workbench(Caller(name), variables={"company": "Other"} if scope != "program" else None)
            company = "Acme" if scope == "program" else "Other"
            assert (await bench.call("plain")).value == f"{name} of {company}"
            assert (await bench.call("on_loop")).value == [f"{name} of {company}"] * 2


async def test_a_value_of_the_program_is_one_for_each_caller_where_it_is_made_for_the_caller() -> None:
    made: list[list[str]] = []

    def note(value: Annotated[list[str], Depends(above_tenant, scope="program")]) -> list[str]:
        made.append(value)
        return value

    @tool
    async def use(value: Annotated[list[str], Depends(note, scope="program")]) -> list[str]:
        return value

    async with Crib([use], variables={"company": "Acme"}) as crib:
        for name in ("ada", "bob", "ada"):
            result = await crib.workbench(Caller(name), variables={"company": "mine"}).call("use")
            assert result.value == [f"{name} of Acme"], "what is shared has the variables of the crib"
    assert len(made) == 2


async def test_tools_may_take_the_caller_and_the_variables_too() -> None:
    @tool
    async def who(caller: Caller, variables: Variables, greeting: str = "hello") -> str:
        return f"{greeting} {caller.principal} of {variables['company']}"

    async with Workbench([who], caller=Caller("ada"), variables={"company": "Acme"}) as bench:
        assert list(bench.specs()[0].input_schema["properties"]) == ["greeting"]
        assert (await bench.call("who")).value == "hello ada of Acme"
        assert (await bench.call("who", {"caller": {"principal": "root"}})).error.code == "invalid_arguments"
