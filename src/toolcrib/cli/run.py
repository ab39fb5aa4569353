"""One call to its end: shown while it runs, and made again when the person has answered what it waited for."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from ..core import AnswerError, Call, Event, Result
from ..workbench import Workbench
from .ask import Asks
from .live import Live
from .streams import tell


async def settled(bench: Workbench, call: Call, asks: Asks, live: Live) -> Result[Any]:
    """How *call* ended; pending only where the person at the terminal cannot or will not answer."""
    while True:
        result = await _streamed(bench, call, live)
        if result.pending is None or not asks.can_ask(result.pending):
            return result
        answer = await asks.ask(result.pending)
        if answer is None:
            return result
        try:
            await bench.answer(result.pending.id, answer, by=bench.caller.principal)
        except AnswerError as error:
            tell(str(error))
            if error.reason != "expired":
                return result


async def _streamed(bench: Workbench, call: Call, live: Live) -> Result[Any]:
    try:
        async with aclosing(cast(AsyncGenerator[Event | Result[Any]], bench.stream(call))) as events:
            async for event in events:
                if isinstance(event, Result):
                    return event
                live.show(event)
    finally:
        live.clear()
    raise AssertionError("a stream ends with a result")
