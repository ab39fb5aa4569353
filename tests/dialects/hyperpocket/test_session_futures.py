"""Futures of grants: one for each uid, awaited and set from anywhere."""

import asyncio
import threading

import pytest

from toolcrib.dialects.hyperpocket.futures import FutureData
from toolcrib.dialects.hyperpocket.futures.futurestore import FutureStore, RefusedError


@pytest.fixture
def store() -> FutureStore:
    return FutureStore()


def test_a_second_future_of_a_uid_is_the_first_with_what_it_knows(store: FutureStore) -> None:
    first = store.create_future("one", data={"redirect_uri": "a"})
    assert isinstance(first, FutureData)
    assert store.create_future("one", data={"redirect_uri": "b"}) is first
    assert store.get_future("one") is first
    assert first.data == {"redirect_uri": "a"}
    assert store.create_future("two").data == {}
    assert store.get_future("three") is None


async def test_a_future_is_resolved_in_a_thread_and_awaited_by_several(store: FutureStore) -> None:
    future = store.create_future("one").future
    waiting = [asyncio.ensure_future(asyncio.wait_for(future, 30)) for _ in range(3)]
    await asyncio.sleep(0)
    threading.Thread(target=store.resolve_future, args=("one", "value")).start()
    assert await asyncio.gather(*waiting) == ["value"] * 3
    assert (future.done(), await future) == (True, "value")


async def test_what_was_refused_raises_and_the_first_outcome_stays(store: FutureStore) -> None:
    future = store.create_future("one").future
    store.reject_future("one", "Nothing was granted.")
    store.resolve_future("one", "too late")
    with pytest.raises(RefusedError, match=r"^Nothing was granted.$"):
        await future
    resolved = store.create_future("two").future
    for value in ("first", "second"):
        store.resolve_future("two", value)
    store.reject_future("two", "too late")
    assert await resolved == "first"


def test_an_unknown_uid_is_refused_without_being_quoted(store: FutureStore) -> None:
    store.create_future("one")
    store.delete_future("one")
    store.delete_future("one")
    store.delete_future(None)
    for settle in (store.resolve_future, store.reject_future):
        with pytest.raises(ValueError, match=r"^Nobody waits for this uid.$"):
            settle("one", "value")


def test_a_future_needs_no_event_loop_and_shows_nothing(store: FutureStore) -> None:
    begun = store.create_future("one", data={"code_verifier": "canary-1"})
    store.resolve_future("one", "canary-2")
    assert begun.future.result() == "canary-2"
    assert "canary" not in repr(begun)
