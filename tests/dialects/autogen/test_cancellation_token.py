import asyncio
import concurrent.futures
import gc
import threading
import weakref

import pytest

import toolcrib
from toolcrib import Call, Workbench
from toolcrib.dialects.autogen import CancellationToken


async def test_a_token_may_be_cancelled_and_linked_in_another_thread() -> None:
    loop, token = asyncio.get_running_loop(), CancellationToken()
    linked_here = token.link_future(loop.create_future())
    linked_there = loop.create_future()

    def elsewhere() -> None:
        token.link_future(linked_there)
        token.cancel()

    await asyncio.to_thread(elsewhere)
    for future in (linked_here, linked_there):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(future, 30)


async def test_what_is_not_a_future_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^link_future takes a Future, a Task or a coroutine, not a int"):
        CancellationToken().link_future(3)  # type: ignore[type-var]


async def test_a_token_keeps_no_reference_to_a_future_that_is_done() -> None:
    loop, token = asyncio.get_running_loop(), CancellationToken()
    linked_here = token.link_future(loop.create_future())
    linked_there = await asyncio.to_thread(token.link_future, loop.create_future())
    of_threads = token.link_future(concurrent.futures.Future[int]())
    kept = [weakref.ref(linked_here), weakref.ref(linked_there), weakref.ref(of_threads)]
    for future in (linked_here, linked_there, of_threads):
        future.set_result(1)
    for _ in range(3):  # turns of the loop: the link is noted, the future is done, the link goes
        await asyncio.sleep(0)
    del future, linked_here, linked_there, of_threads
    gc.collect()
    assert [each() for each in kept] == [None, None, None]


async def test_a_call_takes_the_token_as_it_is() -> None:
    started = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    token = CancellationToken()
    assert isinstance(token, toolcrib.CancellationToken)
    async with Workbench([wait]) as bench:
        calling = asyncio.create_task(bench.call(Call("wait", {}, cancellation=token)))
        await started.wait()
        threading.Thread(target=token.cancel).start()
        result = await calling
    assert result.error is not None
    assert (result.error.code, result.status) == ("cancelled", "error")


async def test_a_coroutine_is_returned_as_it_is() -> None:
    token = CancellationToken()
    token.cancel()
    assert await token.link_future(asyncio.sleep(0, "done")) == "done"
