"""Large results: bounded when they are shown, kept whole, and followed where an argument takes their handle.

A result is kept as it may be shown, known secrets struck out, so no way of reading it in pieces brings one back.
"""

import asyncio
import json
import logging
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic_core import to_json

from ..core import (
    HANDLE_PREFIX,
    Audio,
    Caller,
    Content,
    File,
    Image,
    Kept,
    Redaction,
    Repair,
    Result,
    ResultStore,
    SetupError,
    Text,
    Tool,
    ToolError,
    is_handle,
    new_handle,
)
from ..schema import members, spoken
from ..schema.text import LIMIT_BYTES
from .preview import LEAST_CHARS, preview, shortened
from .reading import View, as_json, at_pointer

if TYPE_CHECKING:
    from .registry import Registry

_log = logging.getLogger("toolcrib")

LIMIT_FILE_BYTES = 1024 * 1024
LIMIT_BINARY_BYTES = 4 * 1024 * 1024
"""How many bytes of files may be shown, and of images, sound and files in all: of an image a model sees no bytes."""

_READERS = ("read_result", "toolcrib_read_result")
_SEARCHES = 2
"""How many searches run at a time: each is a process."""


class MemoryResults:
    """Keeps results in memory: at most *max_count* of them and *max_bytes* in all, each for *max_age_s* seconds.

    What was not used for the longest time makes room for what is new. *clock* is in seconds.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_count: int = 200,
        max_age_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_bytes < 1 or max_count < 1 or not max_age_s > 0:
            raise SetupError("The bounds of MemoryResults, max_bytes, max_count and max_age_s, are above 0.")
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[Kept, int, float]] = OrderedDict()
        self._bytes = 0

    async def keep(self, kept: Kept, /) -> bool:
        size = kept.size_bytes
        if size > self._max_bytes:
            return False
        with self._lock:
            self._drop_expired()
            while len(self._entries) >= self._max_count or self._bytes + size > self._max_bytes:
                self._drop(next(iter(self._entries)))
            self._entries[kept.handle] = (kept, size, self._clock() + self._max_age_s)
            self._bytes += size
        return True

    async def find(self, handle: str, principal: str, thread: str, /) -> Kept | None:
        with self._lock:
            self._drop_expired()
            kept, _, _ = self._entries.get(handle, (None, 0, 0.0))
            if kept is None or (kept.principal, kept.thread) != (principal, thread):
                return None
            self._entries.move_to_end(handle)
            return kept

    async def holds(self, principal: str, thread: str, /) -> bool:
        with self._lock:
            self._drop_expired()
            return any((kept.principal, kept.thread) == (principal, thread) for kept, _, _ in self._entries.values())

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<MemoryResults: {len(self)} results, {self._bytes} bytes>"

    def _drop_expired(self) -> None:
        now = self._clock()
        for handle in [handle for handle, (_, _, until) in self._entries.items() if until <= now]:
            self._drop(handle)

    def _drop(self, handle: str) -> None:
        _, size, _ = self._entries.pop(handle)
        self._bytes -= size


class Results:
    """The large results of one workbench: the `Shelf` of its calls, and what its `read_result` reads.

    *limit_chars* None bounds nothing; handles are followed all the same. *store* None means memory of its own.
    """

    def __init__(
        self,
        registry: "Registry",
        *,
        caller: Caller,
        limit_chars: int | None,
        store: ResultStore | None,
        redaction: Redaction | None,
    ) -> None:
        if limit_chars is not None and (type(limit_chars) is not int or limit_chars < LEAST_CHARS):
            raise SetupError(
                f"max_result_chars is a number of characters from {LEAST_CHARS} on, or None to bound no result."
            )
        self.limit_chars = sys.maxsize if limit_chars is None else limit_chars
        self.issued = False
        self._registry = registry
        self._caller = caller
        self._redaction = redaction
        self._own: MemoryResults | None = None
        if store is None:
            store = self._own = MemoryResults()
        self._store: ResultStore = store
        self._readers: dict[str, Tool] = {}
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    # As the life of a call sees it

    async def bound(self, result: Result[Any], tool: str, /) -> None:
        limit = self.limit_chars
        content = result.content
        size = sum(len(part.text) + 1 for part in content) - 1
        file_bytes = sum(len(part.data) for part in content if isinstance(part, File))
        data_bytes = file_bytes + sum(len(part.data) for part in content if isinstance(part, Image | Audio))
        whole_data = file_bytes <= LIMIT_FILE_BYTES and data_bytes <= LIMIT_BINARY_BYTES
        if size <= limit and (whole_data or limit == sys.maxsize):
            return
        kept = Kept(new_handle(), self._caller.principal, self._caller.thread, tool, content, time.time())
        handle = kept.handle if await self._keep(kept) else None
        if handle is not None:
            self.issued = True
        result.content = self._shown(content, limit, handle, whole_data=whole_data)
        result.metadata["size_chars"] = size
        if handle is not None:
            result.metadata["handle"] = handle

    def shorten(self, error: ToolError, /) -> ToolError:
        if len(error.message) <= self.limit_chars:
            return error
        message = shortened(error.message, self.limit_chars)
        return ToolError(message, error.code, retry=error.retry, details=error.details)

    async def follow(self, tool: Tool, given: Any, repair: bool, /) -> tuple[Any, tuple[Repair, ...]]:
        text = _text_with_handles(given)
        if text is None or tool in self._readers.values():
            return given, ()
        admitted = tool.handles or {}
        written, at = "", 0
        repairs: tuple[Repair, ...] = ()
        try:
            for member in members(text):
                name = spoken(member.name)
                value = member.value
                if isinstance(value, str) and member.name in admitted:
                    if is_handle(value):
                        raise ToolError(
                            f"Tool '{tool.spec.name}': '{name}' takes a handle only in the form "
                            f'{{"handle": "{HANDLE_PREFIX}..."}}, not as text.',
                            "invalid_arguments",
                        )
                    if repair and (parsed := _reference_in(value)) is not None:
                        value = parsed
                        repairs += (Repair(_pointer(member.name), "string", "object"),)
                if not _is_reference(value):
                    continue
                if member.name not in admitted:
                    raise _not_admitted(tool, name, self.reader_name())
                resolved = await self._value(tool, name, value, admitted[member.name])
                written += text[at : member.start] + resolved
                at = member.end
        except (ValueError, RecursionError):
            return given, ()  # no JSON object: the check says so better
        return (written + text[at:] if at else given), repairs

    # As read_result sees it

    async def view(self, handle: str) -> View:
        """What is kept under *handle*. Raises ToolError, the same for one that is unknown, expired or another's."""
        try:
            kept = await self._store.find(handle, self._caller.principal, self._caller.thread)
        except Exception:
            _log.exception("The store of results could not be read")
            raise ToolError("Kept results cannot be read at the moment. Try again later.", "unavailable") from None
        if kept is None:
            raise ToolError(
                "There is no result under this handle: it is misspelt, or the result is no longer kept. Copy it "
                "exactly, or call the tool that gave it once more.",
                "unavailable",
                retry="changed",
            )
        return View(kept.content, self._redaction)

    def turn(self) -> asyncio.Semaphore:
        """One's turn to search."""
        loop = asyncio.get_running_loop()
        turns = self._turns.get(loop)
        if turns is None:
            turns = self._turns[loop] = asyncio.Semaphore(_SEARCHES)
        return turns

    # As the workbench sees it

    def reader_name(self) -> str | None:
        """The name under which results are read: a tool of the user's own under the first name keeps it."""
        return next((name for name in _READERS if self._is_free(name)), None)

    def reader(self, name: str | None = None) -> Tool | None:
        """The tool that reads results, if *name* is its name."""
        own = self.reader_name()
        if own is None or (name is not None and name != own):
            return None
        if own not in self._readers:
            from .read_result import read_result

            self._readers[own] = read_result(self, name=own)
        return self._readers[own]

    async def start(self) -> None:
        """See whether a store that others share already has something for this caller."""
        if self._own is None:
            try:
                self.issued = self.issued or await self._store.holds(self._caller.principal, self._caller.thread)
            except Exception:
                _log.exception("The store of results could not be asked")

    def forget(self) -> None:
        """Forget what was kept here; what a store of the host's has is the host's."""
        if self._own is not None:
            self._own.clear()
            self.issued = False

    def _is_free(self, name: str) -> bool:
        # To many models and providers, names that differ only in `-` and `_` are one.
        return self._registry.find(name) is None and self._registry.find(name.replace("_", "-")) is None

    async def _keep(self, kept: Kept) -> bool:
        try:
            return await self._store.keep(kept)
        except Exception:
            # The tool has run, and what it did is done: its result is shown as far as it can be.
            _log.exception("A result of '%s' could not be kept", kept.tool)
            return False

    def _shown(
        self, content: tuple[Content, ...], limit: int, handle: str | None, *, whole_data: bool
    ) -> tuple[Content, ...]:
        beside = [part for part in content if whole_data and isinstance(part, Image | Audio | File)]
        room = limit - sum(len(part.text) + 1 for part in beside)
        if room < LEAST_CHARS:
            beside, room = [], limit
        view = View(content, self._redaction)
        return (Text(preview(view, room=room, handle=handle, reader=self.reader_name(), beside=bool(beside))), *beside)

    async def _value(self, tool: Tool, name: str, reference: Mapping[str, Any], schema: Any) -> str:
        """The JSON text that a reference stands for."""
        pointer = reference.get("pointer", "")
        if not isinstance(pointer, str):
            raise ToolError(
                f"Tool '{tool.spec.name}': the pointer of '{name}' is text, a JSON pointer as in /rows.",
                "invalid_arguments",
            )
        try:
            view = await self.view(reference["handle"])
            if not pointer and _takes_base64(schema) and (encoded := view.base64()) is not None:
                return _within_limit(as_json(encoded))
            if view.data is not None:
                raise ToolError("The result is an image or a file, and this argument takes none.", "invalid_arguments")
            return _within_limit(as_json(at_pointer(view.value(), pointer)) if pointer else view.json_text())
        except ToolError as error:
            raise ToolError(
                f"Tool '{tool.spec.name}', '{name}': {error.message}", error.code, retry=error.retry
            ) from None


def _text_with_handles(given: Any) -> str | None:
    """Arguments as JSON text, if there may be handles in them."""
    if isinstance(given, str):
        return given if HANDLE_PREFIX in given else None
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
        return data.decode(errors="replace") if HANDLE_PREFIX.encode() in data else None
    if not isinstance(given, Mapping):
        return None
    if not any(_may_refer(value) for value in given.values()):
        return None
    try:
        return to_json(dict(given), by_alias=True).decode()
    except (ValueError, RecursionError):
        return None  # the check says why


def _may_refer(value: Any) -> bool:
    return _is_reference(value) or (isinstance(value, str) and HANDLE_PREFIX in value)


def _is_reference(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return (
        isinstance(value, Mapping)
        and isinstance(handle := value.get("handle"), str)
        and handle.startswith(HANDLE_PREFIX)
        and value.keys() <= {"handle", "pointer"}
    )


def _reference_in(text: str) -> Any:
    """The reference that was sent as text."""
    if HANDLE_PREFIX not in text or not text.lstrip().startswith("{"):
        return None
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if _is_reference(parsed) else None


def _not_admitted(tool: Tool, name: str, reader: str | None) -> ToolError:
    those = f" These do: {', '.join(map(spoken, tool.handles))}." if tool.handles else ""
    how = f"Read what you need with {reader} and send that" if reader else "Send the value itself"
    return ToolError(
        f"Tool '{tool.spec.name}': '{name}' takes no handle of a result.{those} {how}.", "invalid_arguments"
    )


def _within_limit(text: str) -> str:
    if len(text) > LIMIT_BYTES:
        raise ToolError(
            f"The result has {len(text)} characters of JSON, and arguments have at most {LIMIT_BYTES}. "
            "Hand on a part of it, with a JSON pointer.",
            "too_large",
        )
    return text


def _takes_base64(schema: Any) -> bool:
    branches = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
    return any(isinstance(of, Mapping) and of.get("format") in ("base64", "base64url") for of in branches)


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
