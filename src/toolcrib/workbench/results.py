"""Large results: bounded when they are shown, stored whole, and put in where an argument has their handle.

A result is stored with known secrets redacted, so no way of reading it in pieces brings one back.
"""

import json
import logging
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeGuard

from pydantic_core import to_json

from ..core import Audio, Caller, Content, File, Image, Redaction, Repair, Result, Text, Tool, ToolError
from ..machinery import (
    HANDLE_PREFIX,
    LONG_CHARS,
    MIN_RESULT_CHARS,
    ResultStore,
    StoredResult,
    in_thread,
    in_thread_if_long,
    is_handle,
    log_failure,
    new_handle,
)
from ..schema import display_name, object_members
from ..schema.json_text import LIMIT_BYTES
from .memory import MemoryResults
from .read_result import ResultContent, as_json, escaped, preview, read_result, shortened
from .registry import Registry, free_name

_log = logging.getLogger("toolcrib")

MAX_BINARY_BYTES = 4 * 1024 * 1024
"""The limit for images, sound and files together."""

READERS = ("read_result", "toolcrib_read_result")


class Results:
    """The large results of one workbench, for its calls and for its tool `read_result`.

    *limit_chars* None bounds nothing; handles are resolved all the same. `forget` clears *store* if it *owns_store*.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        caller: Caller,
        limit_chars: int | None,
        store: ResultStore,
        owns_store: bool,
        redaction: Redaction | None,
    ) -> None:
        self.limit_chars = sys.maxsize if limit_chars is None else limit_chars
        self._registry = registry
        self._caller = caller
        self._redaction = redaction
        self._store = store
        self._own = store if owns_store and isinstance(store, MemoryResults) else None
        self.issued = False
        self._outlives = limit_chars is not None and not isinstance(store, MemoryResults)
        self._readers: dict[str, Tool] = {}

    # For a call

    async def bound(self, result: Result[Any], tool: str, labels: AbstractSet[str], /) -> None:
        limit = self.limit_chars
        content = result.content

        def measured() -> tuple[int, list[Image | Audio | File]]:
            media = [part for part in content if isinstance(part, Image | Audio | File)]
            return sum(len(part.text) + 1 for part in content) - 1, media

        size, media = await in_thread_if_long(measured, content)
        data_fits = sum(len(part.data) for part in media) <= MAX_BINARY_BYTES
        if size <= limit and (data_fits or limit == sys.maxsize):
            return
        handle = await self._put(content, tool, labels)
        result.metadata["size_chars"] = size
        if handle is not None:
            self.issued = True
            result.metadata["handle"] = handle
        # Images and files that are not too large stay beside the preview, if there is room for it.
        beside = media if data_fits else []
        room = limit - sum(len(part.text) + 1 for part in beside)
        if room < MIN_RESULT_CHARS:
            beside, room = [], limit
        reader = self.reader_name()

        def show() -> str:
            whole = ResultContent(content, self._redaction)
            return preview(whole, room=room, handle=handle, reader=reader, beside=bool(beside))

        text = await in_thread(show) if size > LONG_CHARS else show()
        result.content = (Text(text), *beside)

    def shorten(self, error: ToolError, /) -> ToolError:
        if len(error.message) <= self.limit_chars:
            return error
        message = shortened(error.message, self.limit_chars)
        return ToolError(message, error.code, retry=error.retry, details=error.details)

    async def follow(
        self, tool: Tool, arguments: Any, repair: bool, labels: set[str], /
    ) -> tuple[Any, tuple[Repair, ...]]:
        text = _text_with_handles(arguments)
        if text is None or tool in self._readers.values():
            return arguments, ()
        handles = tool.handles or {}
        text_resolved, at = "", 0
        repairs: tuple[Repair, ...] = ()
        try:
            for member in object_members(text):
                name = display_name(member.name)
                value = member.value
                if isinstance(value, str) and member.name in handles:
                    if is_handle(value):
                        raise ToolError(
                            f"Tool '{tool.spec.name}': '{name}' takes a handle only in the form "
                            f'{{"handle": "{HANDLE_PREFIX}..."}}, not as text.',
                            "invalid_arguments",
                        )
                    if repair and (reference := _parsed_reference(value)) is not None:
                        value = reference
                        repairs += (Repair("/" + escaped(member.name), "string", "object"),)
                if not _is_reference(value):
                    continue
                if member.name not in handles:
                    raise _not_accepted(tool, name, self.reader_name())
                value_text = await self._value(tool, name, value, handles[member.name], labels)
                text_resolved += text[at : member.start] + value_text
                at = member.end
        except (ValueError, RecursionError):
            return arguments, ()  # not a JSON object: the check has a better message
        return (text_resolved + text[at:] if at else arguments), repairs

    # For read_result

    async def view(self, handle: str) -> ResultContent:
        """Return the result under *handle*. Raises ToolError, the same if it is unknown, expired or another's."""
        try:
            entry = await self._store.find(handle, self._caller.principal, self._caller.thread)
        except Exception as error:
            log_failure("The store of results could not be read", error, self._redaction)
            raise ToolError("Stored results cannot be read at the moment. Try again later.", "unavailable") from None
        if entry is None:
            raise ToolError(
                "There is no result under this handle: it is misspelled, or the result is no longer stored. Copy it "
                "exactly, or call the tool that returned it once more.",
                "unavailable",
                retry="changed",
            )
        view = partial(ResultContent, entry.content, self._redaction, entry.labels)
        return await in_thread(view) if entry.size_bytes > LONG_CHARS else view()

    # For the workbench

    def reader_name(self) -> str | None:
        """Return the name of the tool that reads results: the second, if a tool of the user has the first."""
        return free_name(self._registry, READERS)

    def reader(self, name: str | None = None) -> Tool | None:
        """Return the tool that reads results, if *name* is its name."""
        own = self.reader_name()
        if own is None or (name is not None and name != own):
            return None
        if own not in self._readers:
            self._readers[own] = read_result(self.view, name=own, limit_chars=self.limit_chars)
        return self._readers[own]

    @property
    def is_listed(self) -> bool:
        """Whether `read_result` is listed: with the first handle, or from the start where the store outlives this
        process, so that all processes that share it list the same.
        """
        return self.issued or self._outlives

    def forget(self) -> None:
        """Clear the store, unless it is the host's."""
        if self._own is not None:
            self._own.clear()
            self.issued = False

    async def _put(self, content: tuple[Content, ...], tool: str, labels: AbstractSet[str]) -> str | None:
        """Store *content*. Returns its handle, None where it cannot be stored."""
        entry = StoredResult(
            *(new_handle(), self._caller.principal, self._caller.thread, tool, content, datetime.now(UTC)),
            frozenset(labels),
        )
        await in_thread_if_long(lambda: entry.size_bytes, content)
        try:
            return entry.handle if await self._store.store(entry) else None
        except Exception as error:
            # The tool has run, and what it did is done: its result is shown as far as it can be.
            log_failure(f"A result of '{tool}' could not be stored", error, self._redaction)
            return None

    async def _value(self, tool: Tool, name: str, reference: Mapping[str, Any], schema: Any, labels: set[str]) -> str:
        """Return the JSON text that a reference stands for. Its labels are added to *labels*."""
        pointer = reference.get("pointer", "")
        try:
            if not isinstance(pointer, str):
                raise ToolError("The pointer is text, a JSON pointer as in /rows.", "invalid_arguments")
            content = await self.view(reference["handle"])
            labels |= content.labels
            if not pointer and _takes_base64(schema) and (base64_text := content.base64()) is not None:
                text = as_json(base64_text)
            elif content.data is not None:
                raise ToolError("The result is an image or a file, and this argument takes none.", "invalid_arguments")
            elif len(content.text) > LONG_CHARS:
                text = await in_thread(partial(content.json_text, pointer))
            else:
                text = content.json_text(pointer)
            if len(text) > LIMIT_BYTES:
                raise ToolError(
                    f"The result has {len(text)} characters of JSON, and arguments have at most {LIMIT_BYTES}. "
                    "Use a part of it, with a JSON pointer.",
                    "too_large",
                )
        except ToolError as error:
            message = f"Tool '{tool.spec.name}', '{name}': {error.message}"
            raise ToolError(message, error.code, retry=error.retry) from None
        return text


def _text_with_handles(arguments: Any) -> str | None:
    """Return arguments as JSON text, if there may be handles in them."""
    if isinstance(arguments, str):
        return arguments if HANDLE_PREFIX in arguments else None
    if isinstance(arguments, bytes | bytearray | memoryview):
        data = bytes(arguments)
        return data.decode(errors="replace") if HANDLE_PREFIX.encode() in data else None
    if not isinstance(arguments, Mapping) or not any(map(_may_refer, arguments.values())):
        return None
    try:
        return to_json(dict(arguments), by_alias=True).decode()
    except (ValueError, RecursionError):
        return None  # the check has the message


def _may_refer(value: Any) -> bool:
    return HANDLE_PREFIX in value if isinstance(value, str) else _is_reference(value)


def _is_reference(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return (
        isinstance(value, Mapping)
        and isinstance(handle := value.get("handle"), str)
        and handle.startswith(HANDLE_PREFIX)
        and value.keys() <= {"handle", "pointer"}
    )


def _parsed_reference(text: str) -> Any:
    """Return the reference that was sent as text; None where *text* is not one."""
    if HANDLE_PREFIX not in text or not text.lstrip().startswith("{"):
        return None
    try:
        reference = json.loads(text)
    except ValueError:
        return None
    return reference if _is_reference(reference) else None


def _not_accepted(tool: Tool, name: str, reader: str | None) -> ToolError:
    handles_hint = f" These do: {', '.join(map(display_name, tool.handles))}." if tool.handles else ""
    remedy = f"Read what you need with {reader} and send that" if reader else "Send the value itself"
    message = f"Tool '{tool.spec.name}': '{name}' does not take the handle of a result.{handles_hint} {remedy}."
    return ToolError(message, "invalid_arguments")


def _takes_base64(schema: Any) -> bool:
    branches = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else []
    return any(isinstance(of, Mapping) and of.get("format") in ("base64", "base64url") for of in branches)
