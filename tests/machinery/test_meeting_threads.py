"""What two threads do at the same moment with a token or a semaphore."""

import asyncio
from contextlib import suppress

from tests.meeting import Prepared, each_moment
from toolcrib.core import CancellationToken, cancel
from toolcrib.machinery import semaphore as semaphores
from toolcrib.machinery.semaphore import Permit, Semaphore, SemaphoreFull


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
