"""A coroutine that was stepped by hand until it first waited, and goes on where somebody awaits it."""

from collections.abc import Coroutine, Generator
from typing import Any


class Resumed:
    """What is left of a coroutine that was stepped by hand, and waits for *waiting*."""

    def __init__(self, work: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self._work = work
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        try:
            while True:
                try:
                    sent = yield waiting
                except BaseException as thrown:
                    waiting = self._work.throw(thrown)
                else:
                    waiting = self._work.send(sent)
        except StopIteration as ended:
            return ended.value
