"""Futures of grants: one for each uid, awaited and set from anywhere."""

import pytest

from toolcrib.dialects.hyperpocket.futures.futurestore import FutureStore, RefusedError


async def test_what_was_refused_raises_and_the_first_outcome_stays() -> None:
    store = FutureStore()
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
