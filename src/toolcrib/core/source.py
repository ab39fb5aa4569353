"""A group of tools with one life and changing content, how it reports a change, and what it may offer beside tools.

Resources, which are read, and prompts, which are filled in, are as MCP has them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .call import Caller
from .content import Content


class Source(Protocol):
    """A group of tools with one life and changing content: a folder, a connection, an object with state.

    Subclass it and override what differs; only `tools` has to be written, and a source whose content changes calls
    `changed`. A class that is not a subclass is a source too if it has `start`, `stop` and `tools`; what else it lacks
    is as it is here. `start` and `stop` run in one task, on one event loop, so that what one enters the other may
    leave. A workbench or crib starts each of its sources once; a source that is given to several is started by each.

    Where a *required* source cannot start, neither can the workbench. Any other source that cannot start, or is lost,
    is tried again after `restart_after_s` seconds, twice as long each time, up to a minute; meanwhile its tools answer
    `unavailable`, and the tools of other sources run.

    A source with a method `open(caller)` is opened for each workbench, when a tool of it is first called: the source
    that `open` returns, plain or awaited, starts and stops with that workbench, and does the work of the tools.

    A source of resources has the async methods `resources`, `resource_templates` and `read_resource(uri)`; one of
    prompts `prompts` and `get_prompt(name, arguments)`. They raise ToolError `unknown_tool` for what is not there.
    `only` has patterns of what is offered of these, by kind (`resource`, `prompt`): set by the host, or None for all.
    """

    required: bool = True
    only: Mapping[str, re.Pattern[str]] | None = None
    restart_after_s: float = 1.0

    @property
    def state_key(self) -> str:
        """The name under which its state is saved: the name of its class. It stays the same from release to release."""
        return type(self).__name__

    async def start(self) -> None:
        """Make ready. Where it raises, it leaves nothing running: `stop` is not called then."""
        return

    async def stop(self) -> None:
        """Release what `start` took."""
        return

    async def reset(self) -> None:
        """Back to how it was right after `start`."""
        return

    def tools(self) -> Sequence[Any]:
        """Return what is offered now: tools, or functions to make them of. Called before `start`, too; does no I/O."""
        ...

    def on_change(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call *callback* whenever `tools` has changed; from any thread. Returns a function that ends that."""
        return _listeners(self, "_on_change").add(callback)

    def changed(self) -> None:
        """Report that `tools` has changed. From any thread."""
        _listeners(self, "_on_change").notify()

    def on_lost(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call *callback* when the source is lost; from any thread. Returns a function that ends that."""
        return _listeners(self, "_on_lost").add(callback)

    def lost(self) -> None:
        """Report that it has died: it is stopped, and started again. From any thread."""
        _listeners(self, "_on_lost").notify()

    def on_offers_change(self, callback: "Callable[[OffersChange], None]", /) -> Callable[[], None]:
        """Call *callback* when resources or prompts have changed; from any thread. Returns a function that ends it."""
        return _listeners(self, "_on_offers_change").add(callback)

    def offers_changed(self, change: "OffersChange") -> None:
        """Report that its resources or prompts have changed. From any thread."""
        _listeners(self, "_on_offers_change").notify(change)

    async def save_state(self) -> Any:
        """Return its state as JSON data, for `load_state` in another process; None where it has none."""
        return None

    async def load_state(self, state: Any, /) -> None:
        """Continue from what `save_state` returned. Raises, and is as it was, where *state* does not fit."""
        raise ValueError("It has no state.")


class Listeners:
    """Callbacks for a change. `add` and `notify` work from any thread: each touches the dictionary once."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[..., None]] = {}

    def add(self, callback: Callable[..., None]) -> Callable[[], None]:
        """Call *callback* from now on. Returns a function that ends that, and may be called any number of times."""
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def notify(self, *arguments: Any) -> None:
        for callback in list(self._callbacks.values()):
            callback(*arguments)


def _listeners(source: Any, name: str) -> Listeners:
    # Not made in `__init__`: a subclass need not call it.
    listeners: Listeners = source.__dict__.setdefault(name, Listeners())
    return listeners


def is_source(value: Any) -> bool:
    """Return whether *value* is a Source: an instance of a subclass, or of a class that has what cannot be missing."""
    if isinstance(value, type):
        return False
    try:
        return Source in type(value).__mro__ or all(callable(getattr(value, name, None)) for name in _NEEDED)
    except Exception:  # a stand-in for something that is not there yet
        return False


_NEEDED = ("start", "stop", "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something to read, by its *uri*. *meta* has what a remote server says of it beside (`annotations`, `icons`)."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate:
    """Many resources, by a URI template (RFC 6570)."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    media_type: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceContent:
    """What was read at *uri*: text, or bytes. *meta* is for programs, as MCP's `_meta`."""

    uri: str
    data: str | bytes
    media_type: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt, which is text."""

    name: str
    description: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A template of messages that a person chooses, with its arguments."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a filled-in prompt."""

    role: Literal["user", "assistant"]
    content: Content


@dataclass(frozen=True, slots=True)
class OffersChange:
    """The list of resources, or of prompts, has changed; with *uri*, the resource there. For *caller*, or for all."""

    what: Literal["resources", "prompts"]
    uri: str | None = None
    caller: Caller | None = None
