"""What two threads do at the same moment: one is stopped at each of its instructions, while the other goes on."""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from toolcrib.core import CancellationToken, cancel
from toolcrib.core import semaphore as semaphores
from toolcrib.core.semaphore import Permit, Semaphore, SemaphoreFull

BLOCKED_S = 0.01
"""A thread that does not end within this time waits for a lock; where it is only slow, that moment is not tried."""


def meet(file: str, work: Callable[[], Any], meanwhile: Callable[[], Any], moment: int) -> bool:
    """Do *work*, and at its instruction *moment* in *file*, *meanwhile* in another thread; whether it has as many."""
    other = threading.Thread(target=meanwhile)
    count = -1

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != file:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
            if count == moment:
                other.start()
                other.join(BLOCKED_S)
        return trace

    def traced() -> None:
        sys.settrace(trace)
        work()

    one = threading.Thread(target=traced)
    one.start()
    for each in (one, other):
        if each.ident is not None:
            each.join(20)
            assert not each.is_alive()
    return count >= moment


Prepared = tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]
"""The work, what another thread does meanwhile, and what is asserted after both."""


def each_moment(file: str | None, prepare: Callable[[], Prepared]) -> None:
    """For each instruction of the work: prepare it, do both, and look at what came of it."""
    assert file is not None
    for moment in range(10_000):
        work, meanwhile, look = prepare()
        if not meet(file, work, meanwhile, moment):
            assert moment > 10, "The work is in another file."
            return
        look()


def test_a_callback_of_a_token_is_called_once_also_where_it_is_cancelled_at_that_moment() -> None:
    def prepare() -> Prepared:
        token, calls = CancellationToken(), list[int]()

        def look() -> None:
            assert calls == [1]

        return lambda: token.add_callback(lambda: calls.append(1)), token.cancel, look

    each_moment(cancel.__file__, prepare)


class Visits:
    """Who was admitted to a semaphore, from any thread."""

    def __init__(self, semaphore: Semaphore) -> None:
        self.semaphore = semaphore
        self.admitted: list[Permit] = []

    def come(self) -> None:
        with suppress(SemaphoreFull):
            self.admitted.append(asyncio.run(self.semaphore.acquire(patience_s=0)))

    def leave(self) -> None:
        self.semaphore.release(self.admitted[0])


def test_a_semaphore_admits_no_more_than_it_may_also_at_the_same_moment() -> None:
    def prepare() -> Prepared:
        visits = Visits(Semaphore(1))

        def look() -> None:
            assert len(visits.admitted) == 1
            visits.leave()
            assert visits.semaphore.is_idle()

        return visits.come, visits.come, look

    each_moment(semaphores.__file__, prepare)


def test_a_permit_that_two_release_at_the_same_moment_is_free_once() -> None:
    def prepare() -> Prepared:
        visits = Visits(Semaphore(2))
        visits.come()
        visits.semaphore.share(visits.admitted[0])

        def look() -> None:
            assert visits.semaphore.is_idle()

        return visits.leave, visits.leave, look

    each_moment(semaphores.__file__, prepare)


def test_a_permit_that_is_shared_while_it_is_released_is_held_or_is_not() -> None:
    def prepare() -> Prepared:
        visits, shared = Visits(Semaphore(1)), list[bool]()
        visits.come()

        def look() -> None:
            assert shared == [not visits.semaphore.is_idle()]

        return lambda: shared.append(visits.semaphore.share(visits.admitted[0])), visits.leave, look

    each_moment(semaphores.__file__, prepare)


def test_a_look_at_a_semaphore_gives_no_place_of_its_rate_back() -> None:
    def prepare() -> Prepared:
        visits = Visits(Semaphore(burst=1, per_s=0.001, clock=lambda: 0.0))

        def look() -> None:
            visits.come()
            assert len(visits.admitted) == 1

        return visits.semaphore.is_idle, visits.come, look

    each_moment(semaphores.__file__, prepare)
