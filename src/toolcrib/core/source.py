"""A group of tools with one life and changing content, and a way to tell that the content has changed."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Protocol


class Source(Protocol):
    """A group of tools with one life and changing content: a folder, a connection, an object with state.

    Subclass it and say what differs; only `tools` has to be written, and a source whose content changes calls
    `changed`. A class that is no subclass is a source as well if it has `start`, `stop` and `tools`; what else it lacks
    is as it is here. `start` and `stop` are run in one task, on one event loop, so that what one enters the other may
    leave. A workbench or crib starts each of its sources once; a source that is given to several is started by each.
    """

    @property
    def state_key(self) -> str:
        """Under which name its state is kept: the name of its class. It stays the same from release to release."""
        return type(self).__name__

    async def start(self) -> None:
        """Make ready. Where it raises, it leaves nothing running: `stop` is not called then."""
        return

    async def stop(self) -> None:
        """Give up what `start` took."""
        return

    async def reset(self) -> None:
        """Back to how it was right after `start`."""
        return

    def tools(self) -> Sequence[Callable[..., Any]]:
        """What is offered now: Tools, or functions to make them of. It is asked before `start`, too; does no I/O."""
        ...

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Have *callback* called whenever `tools` gives something else; from any thread. Gives what ends that."""
        return _listeners(self).add(callback)

    def changed(self) -> None:
        """Tell that `tools` gives something else now. From any thread."""
        _listeners(self).tell()

    async def save_state(self) -> Any:
        """Its state as JSON data, for `load_state` in another process; None where there is none to keep."""
        return None

    async def load_state(self, state: Any, /) -> None:
        """Go on from what `save_state` gave. Raises, and is as it was, where *state* is nothing of the kind."""
        raise ValueError("It keeps no state.")


class Listeners:
    """Who wants to be told of a change. `add` and `tell` work from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._callbacks: dict[object, Callable[[], None]] = {}

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have *callback* told. Gives what ends that, any number of times."""
        key = object()
        with self._lock:
            self._callbacks[key] = callback

        def remove() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return remove

    def tell(self) -> None:
        with self._lock:
            callbacks = list(self._callbacks.values())
        for callback in callbacks:
            callback()


def _listeners(source: Any) -> Listeners:
    # Not made in `__init__`: a subclass need not call it.
    listeners: Listeners = source.__dict__.setdefault("_listeners", Listeners())
    return listeners


def is_source(value: Any) -> bool:
    """Whether *value* is a Source: an instance of a subclass, or of a class that has what cannot be missing."""
    if isinstance(value, type):
        return False
    try:
        return Source in type(value).__mro__ or all(callable(getattr(value, name, None)) for name in _NEEDED)
    except Exception:  # a stand-in for something that is not there yet
        return False


_NEEDED = ("start", "stop", "tools")
