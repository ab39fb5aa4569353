"""What a running call says, on its way to whoever streams it. A slow reader holds back the tool, not the memory."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ..core import Content, Data, Deny, Emitted, Event, Input, Progress, Redaction, Text, Tool, ToolError
from .approve import denied
from .normalize import content_of
from .waiting import Asking

_WAITING = 16
"""How many emitted pieces may wait for the reader."""


class Feed:
    """Events of one call, in order, on one event loop. Of progress only the newest is kept."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._emitted: deque[Emitted] = deque()
        self._progress: Progress | None = None
        self._ended = False
        self._news = asyncio.Event()
        self._space = asyncio.Event()

    async def put(self, emitted: Emitted) -> None:
        while len(self._emitted) >= _WAITING and not self._ended:
            self._space.clear()
            await self._space.wait()
        self._emitted.append(emitted)
        self._news.set()

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        self._news.set()

    def end(self, _: object = None) -> None:
        self._ended = True
        self._news.set()
        self._space.set()

    def __aiter__(self) -> "Feed":
        return self

    async def __anext__(self) -> Event:
        while True:
            # Progress first: what was emitted after it may say that the work has gone on.
            if self._progress is not None:
                progress, self._progress = self._progress, None
                return progress
            if self._emitted:
                self._space.set()
                return self._emitted.popleft()
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()


class CallPort:
    """The `Port` of one call: what its tool says goes to the feed, secrets struck out, or nowhere if nobody listens."""

    def __init__(
        self,
        tool: Tool,
        feed: Feed | None,
        redaction: Redaction | None,
        begin_asking: Callable[[], Asking | None] = lambda: None,
    ) -> None:
        self._tool = tool
        self._begin_asking = begin_asking
        self._asking: Asking | None = None
        self._feed = feed
        self._redaction = redaction
        self._loop = asyncio.get_running_loop()
        self._held = ""

    def progress(self, progress: Progress, /) -> None:
        feed, redaction = self._feed, self._redaction
        if feed is None:
            return
        if redaction is not None and progress.message:
            progress = Progress(progress.done, progress.total, redaction.strike(progress.message))
        self._loop.call_soon_threadsafe(feed.progress, progress)

    async def emit(self, content: Any, /) -> None:
        if self._feed is None:
            return
        if isinstance(content, Emitted):
            await self._feed.put(content)
            return
        parts: list[Content] = []
        from ..schema import write_any

        for part in content_of(content, partial(write_any, self._tool.spec.name)):
            if self._redaction is None:
                parts.append(part)
            elif isinstance(part, Text):
                self._held, ready = self._redaction.split(self._held + part.text)
                if ready:
                    parts.append(Text(ready))
            else:
                parts += self._rest()
                parts.append(Data(self._redaction.strike(part.json)) if isinstance(part, Data) else part)
        if parts:
            await self._feed.put(Emitted(tuple(parts)))

    async def finish(self) -> None:
        """Give what was held back because it might have been the beginning of a secret."""
        if self._feed is not None and (rest := self._rest()):
            await self._feed.put(Emitted(tuple(rest)))

    async def ask(self, key: str, schema: Any, message: str, /) -> Any:
        """The answer, as a *schema*: a type, or a JSON Schema, which gives JSON values.

        Raises Waiting where there is none yet, and ToolError `denied` where a person has refused to answer.
        """
        asking = self._asking = self._asking or self._begin_asking()
        name = self._tool.spec.name
        if asking is None:
            raise ToolError(f"Tool '{name}' asks a question, and nobody here can answer.", "unavailable")
        from ..schema import Question

        question = Question(schema)
        asked = await asking.ask("input", key, message, question)
        if isinstance(asked.answer, Input):
            return question.read(asked.answer.value)
        raise denied(name, asked.answer if isinstance(asked.answer, Deny) else Deny(), asked.by)

    async def suspend(self) -> None:
        """The call ends waiting for something: its answers are kept for when it is made again."""
        if self._asking is not None:
            await self._asking.give_back()

    def _rest(self) -> list[Content]:
        held, self._held = self._held, ""
        return [Text(held)] if held else []
