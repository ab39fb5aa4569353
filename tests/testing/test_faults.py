"""Fault injection, through real calls."""

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from toolcrib import Result, SetupError, Workbench, tool
from toolcrib.core import UnknownToolError
from toolcrib.testing import Faults, InjectedFault, failing, garbled, late, oversized
from toolcrib.workbench import Retry


@tool(read_only=True)
async def search(query: str) -> list[str]:
    """Search."""
    return [query]


@tool
def read(path: str) -> str:
    """Read."""
    return f"the text of {path}"


@tool
async def stream() -> AsyncIterator[str]:
    """Stream."""
    yield "one"
    yield "two"


@tool
def pieces() -> Iterator[str]:
    """Stream."""
    yield "one"
    yield "two"


@tool
def count() -> int:
    """Count."""
    return 12345


EVERY = [search, read, stream, pieces]
CALLS: list[tuple[str, Any]] = [("search", {"query": "a"}), ("read", {"path": "a"}), ("stream", None), ("pieces", None)]


def codes(results: list[Result[Any]]) -> list[str | None]:
    return [None if result.error is None else result.error.code for result in results]


async def test_a_late_tool_is_answered_for_at_its_deadline() -> None:
    faults = Faults({"*": late(60)})
    async with Workbench([faults(*EVERY)], timeout_s=0.1) as bench:
        began = time.monotonic()
        results = await bench.call_many(CALLS)
        took_s = time.monotonic() - began
    assert codes(results) == ["timeout"] * 4
    assert took_s < 50
    assert sorted(fault.tool for fault in faults.injected) == ["pieces", "read", "search", "stream"]


async def test_a_failing_tool_is_tried_again_as_any_other() -> None:
    faults = Faults({"search": failing().on(1, 2, 5), "read": failing(ValueError("the detail"))})
    plan = Retry("*", times=2, first_s=0.001)
    async with Workbench([faults(*EVERY)], retries=[plan]) as bench:
        results = [await bench.call("search", {"query": "a"}) for _ in range(2)]
        plain = await bench.call("read", {"path": "a"})
        unchecked = await bench.call("search", {"kwery": "a"})
    assert [result.text for result in results] == ['["a"]', '["a"]']
    assert [len(result.metadata.get("retries", [])) for result in results] == [2, 0]
    assert plain.error is not None
    assert (plain.error.code, "ValueError" in plain.text, "the detail" in plain.text) == ("failed", True, False)
    assert unchecked.error is not None
    assert unchecked.error.code == "invalid_arguments"
    assert faults.injected == [
        InjectedFault("search", 1, "failing"),
        InjectedFault("search", 2, "failing"),
        InjectedFault("read", 1, "failing"),
    ]


async def test_what_is_too_large_is_kept_under_a_handle() -> None:
    async with Workbench([Faults({"*": oversized(50_000)})(*EVERY, count)]) as bench:
        results = await bench.call_many([*CALLS, ("count", None)])
        whole = [await bench.stored_result(result.metadata["handle"]) for result in results[:4]]
    assert codes(results) == [None, None, None, None, "invalid_result"]
    assert [len(result.text) < 50_000 <= len(parts[0].text) for result, parts in zip(results, whole, strict=False)] == [
        True
    ] * 4
    assert set(results[0].value) == {"a"}


async def test_a_garbled_result_is_refused_where_something_was_promised() -> None:
    runs: list[list[str]] = []
    for seed in (1, 1, 2):
        async with Workbench([Faults({"*": garbled()}, seed=seed)(read, search, count, stream)]) as bench:
            results = [await bench.call("read", {"path": "a" * 100}) for _ in range(5)]
            others = [await bench.call(*call) for call in (CALLS[0], ("count", None), CALLS[2])]
        runs.append([result.text for result in results])
        assert codes(others) == ["invalid_result", "invalid_result", None]
    whole, end = f"the text of {'a' * 100}", "\ufffd\x00\x1b[2J"
    assert all(text.endswith(end) and whole.startswith(text.removesuffix(end)) for text in runs[0])
    assert runs[0] == runs[1] != runs[2]


async def test_which_calls_meet_a_fault_is_the_same_for_a_seed_however_they_run() -> None:
    async def injected(seed: int, *, parallel: bool) -> list[int]:
        faults = Faults({"search": failing().sometimes(0.5)}, seed=seed)
        async with Workbench([faults(search)]) as bench:
            await bench.call_many([("search", {"query": str(n)}) for n in range(40)], parallel=parallel)
        return sorted(one.number for one in faults.injected)

    one = await injected(7, parallel=False)
    assert one == await injected(7, parallel=True)
    assert one != await injected(8, parallel=True)
    assert 5 < len(one) < 35


def test_a_plan_that_cannot_work_is_refused() -> None:
    with pytest.raises(UnknownToolError, match="Did you mean 'search'"):
        Workbench([Faults({"serch": late(1)})(*EVERY)])
    for wrong in (
        lambda: Faults({"a": []}),
        lambda: Faults({"": late(1)}),
        lambda: late(-1),
        lambda: late(float("nan")),
        lambda: oversized(0),
        lambda: late(1).on(),
        lambda: late(1).on(0),
        lambda: late(1).every(0),
        lambda: late(1).sometimes(1.5),
    ):
        with pytest.raises(SetupError):
            wrong()
