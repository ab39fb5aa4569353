"""CancellationToken."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

from autogen_core import CancellationToken
from probing import probe


@probe
def a_token_is_cancelled_once_for_all() -> Any:
    token = CancellationToken()
    before = token.is_cancelled()
    return [before, token.cancel(), token.is_cancelled(), token.cancel(), token.is_cancelled()]


@probe
def callbacks_run_in_order() -> Any:
    token, ran = CancellationToken(), []
    for number in range(3):
        token.add_callback(lambda number=number: ran.append(number))
    token.cancel()
    token.cancel()
    return ran


@probe
def a_callback_of_a_cancelled_token_runs_at_once() -> Any:
    token, ran = CancellationToken(), []
    token.cancel()
    token.add_callback(lambda: ran.append(1))
    return ran


@probe
def a_callback_that_asks_its_token() -> Any:
    token, ran = CancellationToken(), []
    token.add_callback(lambda: ran.append(token.is_cancelled()))
    thread = threading.Thread(target=token.cancel, daemon=True)
    thread.start()
    thread.join(2)
    return [ran, thread.is_alive()]


@probe
def a_callback_that_raises() -> Any:
    token, ran = CancellationToken(), []

    def bad() -> None:
        raise ValueError("bad")

    token.add_callback(bad)
    token.add_callback(lambda: ran.append(1))
    try:
        token.cancel()
    except ValueError as error:
        return [ran, str(error)]
    return ran


@probe
async def a_linked_future_is_cancelled() -> Any:
    token = CancellationToken()
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    same = token.link_future(future) is future
    token.cancel()
    return [same, future.cancelled()]


@probe
async def a_future_that_is_linked_to_a_cancelled_token() -> Any:
    token = CancellationToken()
    token.cancel()
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    token.link_future(future)
    return future.cancelled()


@probe
async def a_linked_task_ends() -> Any:
    token = CancellationToken()
    task = token.link_future(asyncio.ensure_future(asyncio.sleep(15)))
    await asyncio.sleep(0)
    token.cancel()
    await task


@probe
async def a_future_that_is_done_stays_done() -> Any:
    token = CancellationToken()
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    token.link_future(future)
    future.set_result(3)
    token.cancel()
    return future.result()


@probe
def a_linked_future_of_threads() -> Any:
    token, future = CancellationToken(), Future[int]()
    token.link_future(future)
    token.cancel()
    return future.cancelled()


@probe
async def two_futures_of_one_token() -> Any:
    token = CancellationToken()
    futures = [token.link_future(asyncio.get_running_loop().create_future()) for _ in range(2)]
    token.cancel()
    return [future.cancelled() for future in futures]
