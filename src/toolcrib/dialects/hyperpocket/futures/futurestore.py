"""`hyperpocket.futures`: a future for each grant that a person was asked for, bound to no event loop."""

import asyncio
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
        text = super().__new__(cls, code)
        text.query = dict(query)
        return text


class RefusedError(RuntimeError):
    """Nothing was granted: the person or the provider said no."""


class SharedFuture(Future[Any]):
    """A future that can be awaited on any loop and set in any thread. It outlives waiters that give up."""

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

    def create_future(self, uid: str, data: dict[str, Any] | None = None) -> FutureData:
        """Return the future of *uid*: the old one, or a new one with *data*."""
        return self.futures.setdefault(uid, FutureData(SharedFuture(), {} if data is None else data))

    def get_future(self, uid: str) -> FutureData | None:
        """Return the future of *uid*, or None."""
        return self.futures.get(uid)

    def resolve_future(self, uid: str, value: Any) -> None:
        """Complete the future of *uid* with *value*, unless it is done. Raises ValueError for an unknown uid."""
        with suppress(InvalidStateError):
            self._require(uid).set_result(value)

    def reject_future(self, uid: str, message: str) -> None:
        """End the future of *uid* with *message*, unless it is done. Raises ValueError for an unknown uid."""
        with suppress(InvalidStateError):
            self._require(uid).set_exception(RefusedError(message))

    def delete_future(self, uid: str | None) -> None:
        """Forget the future of *uid*: its `state` is worth nothing from now on."""
        self.futures.pop(uid or "", None)

    def _require(self, uid: str) -> SharedFuture:
        if (entry := self.futures.get(uid)) is None:
            raise ValueError("No grant waits for this uid.")  # which is a state, so it is not quoted
        return entry.future
