"""`hyperpocket.futures`: a future for each grant that somebody has been asked for. None is bound to an event loop."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any


class CallbackCode(str):
    """The code of a callback, with the *query* that it came in."""

    query: Mapping[str, str]

    def __new__(cls, code: str, query: Mapping[str, str]) -> "CallbackCode":
        made = super().__new__(cls, code)
        made.query = dict(query)
        return made


class RefusedError(RuntimeError):
    """Nothing was granted: the person or the provider said no."""


class SharedFuture(Future[Any]):
    """A future that is awaited on any loop, and set in any thread. It stays when somebody gives up waiting for it."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return asyncio.shield(asyncio.wrap_future(self)).__await__()


@dataclass(frozen=True, slots=True)
class FutureData:
    """A *future*, and the *data* that its grant needs later. `created_at` is by the monotonic clock."""

    future: SharedFuture
    data: dict[str, Any] = field(repr=False)
    created_at: float = field(default_factory=monotonic, repr=False)


class FutureStore:
    """Futures by the uid of a grant, which is also its `state` at the provider."""

    def __init__(self) -> None:
        self.futures: dict[str, FutureData] = {}
        self._lock = threading.Lock()

    def create_future(self, uid: str, data: dict[str, Any] | None = None) -> FutureData:
        """The future of *uid*: the one that there is, or a new one with *data*."""
        with self._lock:
            return self.futures.setdefault(uid, FutureData(SharedFuture(), {} if data is None else data))

    def get_future(self, uid: str) -> FutureData | None:
        """The future of *uid*, or None."""
        return self.futures.get(uid)

    def resolve_future(self, uid: str, value: Any) -> None:
        """Complete the future of *uid* with *value*; one that is done stays. Raises ValueError for an unknown one."""
        with suppress(InvalidStateError):
            self._known(uid).future.set_result(value)

    def reject_future(self, uid: str, message: str) -> None:
        """End the future of *uid* with *message*; one that is done stays. Raises ValueError for an unknown one."""
        with suppress(InvalidStateError):
            self._known(uid).future.set_exception(RefusedError(message))

    def delete_future(self, uid: str | None) -> None:
        """Forget the future of *uid*: its `state` is worth nothing from now on."""
        with self._lock:
            self.futures.pop(uid or "", None)

    def _known(self, uid: str) -> FutureData:
        found = self.futures.get(uid)
        if found is None:
            raise ValueError("Nobody waits for this uid.")  # which is not quoted: it is a state
        return found
