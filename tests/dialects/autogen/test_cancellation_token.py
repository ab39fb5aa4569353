import asyncio
import concurrent.futures
import gc
import threading
import weakref

import toolcrib
from toolcrib import Call, Workbench
from toolcrib.dialects.autogen import CancellationToken


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
