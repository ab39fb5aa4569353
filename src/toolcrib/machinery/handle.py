"""Large results: the mark of a parameter that takes one, what is stored, and where."""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from ..core import Content, Data, Repair, Result, Text, Tool, ToolError

RESULT_CHARS = 20_000
"""How many characters of a result are shown, unless the host says otherwise."""

MIN_RESULT_CHARS = 1000
"""The least room that a preview of a large result needs."""

HANDLE_PREFIX = "result_"
"""How every handle begins."""

_HANDLE = re.compile(HANDLE_PREFIX + r"[A-Za-z0-9_-]{43}")


def new_handle() -> str:
    """Return a handle that cannot be guessed: 256 random bits."""
    from secrets import token_urlsafe

    return HANDLE_PREFIX + token_urlsafe(32)


def is_handle(text: str) -> bool:
    """Return whether *text* has the form of a handle."""
    return _HANDLE.fullmatch(text) is not None


@dataclass(frozen=True)
class StoredResult:
    """A result that was too large to be shown whole, for the one principal and thread it belongs to.

    `content` is what may be shown: known secrets are redacted in it. `labels` say where it comes from.
    """

    handle: str
    principal: str
    thread: str
    tool: str
    content: tuple[Content, ...]
    stored_at: datetime
    labels: frozenset[str] = frozenset()

    @cached_property
    def size_bytes(self) -> int:
        return sum(
            len(part.text.encode(errors="surrogatepass")) if isinstance(part, Text | Data) else len(part.data)
            for part in self.content
        )


class ResultStore(Protocol):
    """Stores large results, within bounds of its own. Its methods may be called from any event loop."""

    async def store(self, stored: StoredResult, /) -> bool:
        """Store it, if need be in the place of others. False where it is too large to be stored at all."""
        ...

    async def find(self, handle: str, principal: str, thread: str, /) -> StoredResult | None:
        """Return the result under *handle*, for this principal and thread. None also where it is another's."""
        ...


class ResultHandles(Protocol):
    """Where the pipeline puts results that are too large to be shown, and fetches them again."""

    @property
    def limit_chars(self) -> int:
        """How many characters may be shown."""
        ...

    @property
    def issued(self) -> bool:
        """Whether handles were given out here."""
        ...

    async def follow(
        self, tool: Tool, arguments: Any, repair: bool, labels: set[str], /
    ) -> tuple[Any, tuple[Repair, ...]]:
        """Return *arguments* with the values of their handles, and what was repaired. Raises ToolError.

        The labels of what is read are added to *labels*.
        """
        ...

    async def bound(self, result: Result[Any], tool: str, labels: AbstractSet[str], /) -> None:
        """Replace the content of *result* by a preview, if it is too large, and store the whole with *labels*."""
        ...

    def shorten(self, error: ToolError, /) -> ToolError:
        """Return *error* with a message that may be shown."""
        ...
