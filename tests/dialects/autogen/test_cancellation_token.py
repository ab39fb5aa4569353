"""AutoGen's token: what it cancels, from any thread."""

import asyncio
import concurrent.futures
import threading

import pytest

from toolcrib.dialects.autogen import CancellationToken


async def test_a_token_cancels_what_is_linked_before_and_after_from_any_thread() -> None:
    token = CancellationToken()
    task = token.link_future(asyncio.ensure_future(asyncio.sleep(60)))
    of_threads = token.link_future(concurrent.futures.Future[None]())
    thread = threading.Thread(target=token.cancel)
    thread.start()
    await asyncio.to_thread(thread.join)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert token.is_cancelled()
    assert of_threads.cancelled()
    late = asyncio.get_running_loop().create_future()
    assert token.link_future(late) is late
    assert late.cancelled()


async def test_a_future_that_is_done_is_forgotten_and_a_callback_that_raises_stops_no_other() -> None:
    token, calls = CancellationToken(), []
    done = asyncio.get_running_loop().create_future()
    token.link_future(done)
    done.set_result("kept")
    token.add_callback(lambda: 1 / 0)
    token.add_callback(lambda: calls.append(token.is_cancelled()))
    await asyncio.sleep(0)
    token.cancel()
    assert (calls, done.result()) == ([True], "kept")


async def test_a_coroutine_is_returned_as_it_is_and_other_values_are_refused() -> None:
    token, work = CancellationToken(), asyncio.sleep(0)
    assert token.link_future(work) is work
    await work
    with pytest.raises(TypeError, match="link_future takes a Future, a Task or a coroutine, not a int"):
        token.link_future(3)  # type: ignore[type-var]
