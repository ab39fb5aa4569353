"""Runs the work of a tool: with its Context if it needs one, within its deadline, cancellable as far as its kind is.

Nothing here knows a kind of tool: the work is an async callable, and `at_deadline` is what its kind promises.

Within a deadline, a task of its own would be simpler and three times as slow: most tools end without ever suspending.
So the coroutine is driven by hand. While it behaves it runs in the waiting task; when the deadline has passed it is
cancelled; when it goes on all the same, what is left of it moves to a task of its own, and the answer is given. A
watchdog names tools that block the event loop past their deadline: nothing on a blocked loop can.
"""

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from functools import partial
from math import inf
from time import monotonic
from types import CoroutineType
from typing import Any

from ..core import (
    AtDeadline,
    Call,
    CancellationToken,
    Content,
    Context,
    Credential,
    Deadline,
    Deny,
    Emitted,
    Input,
    Permit,
    Progress,
    Result,
    Text,
    Tool,
    ToolError,
    content_of,
    current_client,
    current_deadline,
    redacted,
    redacted_content,
    release_permits,
    share_permits,
)
from .events import EventStream
from .pending import Questions, denied, pending_of
from .resumed import Resumed
from .runtime import Runtime

_log = logging.getLogger("toolcrib")

Credentials = Mapping[str, Credential]
Asked = list[Questions]
"""The questions of a call, once there are any; its attempts share them."""

_GRACE_S = 0.1
"""How long cancelled work may take to end before it is left to itself."""
_LOOK_S = 0.25
_BLOCKED_S = 0.5
"""How often the watchdog looks, and how long after its deadline it reports a call that blocks the loop."""


def execute(
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    runtime: Runtime,
    events: EventStream | None,
    credentials: Credentials,
    asked: Asked,
) -> Awaitable[Any]:
    """Return the value of the work of *tool*. Raises what the work raises, and ToolError `timeout` or `cancelled`."""
    deadline = current_deadline.get()
    if not tool.needs_context:
        if deadline is None and call.cancellation is None:
            return tool.work(arguments, None)
        return Bounded(tool.work(arguments, None), tool.spec.name, deadline, call.cancellation, None, tool.at_deadline)
    cancellation = CancellationToken()
    port = CallPort(tool, call, runtime, events, asked)
    context = Context(call, runtime, port, deadline, cancellation, credentials, asyncio.get_running_loop())
    work = _with_context(tool, arguments, context)
    if deadline is None and call.cancellation is None:
        return work
    return Bounded(work, tool.spec.name, deadline, call.cancellation, cancellation, tool.at_deadline)


async def _with_context(tool: Tool, arguments: dict[str, Any], context: Context) -> Any:
    port: CallPort = context.port  # type: ignore[assignment]
    try:
        value = await tool.work(arguments, context)
        if isinstance(value, Result) and value.pending is not None:
            value.unwrap()
        return value
    except BaseException as raised:
        if isinstance(raised, asyncio.CancelledError):
            context.cancellation.cancel()  # where there is no deadline, nobody else cancels it
        if pending_of(raised) is not None:
            await port.suspend()
        raise
    finally:
        await port.finish()


class CallPort:
    """The `Port` of one call: what its tool reports goes to *events*, secrets redacted, if anybody listens."""

    def __init__(self, tool: Tool, call: Call, runtime: Runtime, events: EventStream | None, asked: Asked) -> None:
        self._tool = tool
        self._call = call
        self._runtime = runtime
        self._events, self._asked = events, asked
        self._client = current_client.get()  # a tool may ask from a task that others share
        self._loop = asyncio.get_running_loop()
        self._tail = ""  # of emitted text: what may be the beginning of a secret
        self._clients: list[Any] = []

    def progress(self, progress: Progress, /) -> None:
        events, redaction = self._events, self._runtime.redaction
        if events is None:
            return
        if redaction is not None and progress.message:
            progress = Progress(progress.done, progress.total, redaction.redact(progress.message))
        self._loop.call_soon_threadsafe(events.progress, progress)

    async def emit(self, content: Any, /) -> None:
        if self._events is None:
            return
        from ..schema import serialize_any

        redaction = self._runtime.redaction
        parts: list[Content] = []
        is_ready = isinstance(content, Emitted)
        given = content.content if is_ready else content_of(content, partial(serialize_any, self._tool.spec.name))
        for part in given:
            if redaction is None:
                parts.append(part)
            elif isinstance(part, Text):
                self._tail, ready = redaction.split(self._tail + part.text)
                if ready:
                    parts.append(Text(ready))
            else:
                parts += self._rest()
                parts.append(redacted_content(part, redaction))
        if parts or is_ready:
            await self._events.put(Emitted(tuple(parts), content.value if is_ready else None))

    def http(self, credential: Credential, /) -> Any:
        from ..net import authorized

        self._clients.append(authorized(credential))
        return self._clients[-1]

    async def finish(self) -> None:
        """Close clients, and send what was held back because it might have been the beginning of a secret."""
        while self._clients:
            await self._clients.pop().aclose()
        if self._events is not None and (rest := self._rest()):
            await self._events.put(Emitted(tuple(rest)))

    async def ask(self, key: str, schema: Any, message: str, /) -> Any:
        """Return the answer, as a *schema*: a type, or a JSON Schema, for JSON values.

        Raises Suspended where there is none yet, and ToolError `denied` where a person has refused to answer.
        """
        from ..schema import Elicitation

        question = Elicitation(schema)
        stored = await self._questions().ask("input", key, message, question)
        if isinstance(stored.answer, Input):
            return question.read(stored.answer.value)
        answer = stored.answer if isinstance(stored.answer, Deny) else Deny()
        raise denied(self._tool.spec.name, answer, stored.by)

    async def approve(self, message: str, /) -> None:
        """Return once a person has approved this call, as where the policy has asked for that. Raises as `ask` does."""
        stored = await self._questions().ask("approval", "", message)
        if isinstance(stored.answer, Deny):
            raise denied(self._tool.spec.name, stored.answer, stored.by)

    def _questions(self) -> Questions:
        if not self._asked:
            self._asked.append(self._runtime.questions(self._tool, self._call, self._client))
        return self._asked[0]

    async def suspend(self) -> None:
        """The call ends waiting for something: its answers are stored for when it is made again."""
        for questions in self._asked:
            await questions.give_back()

    def _rest(self) -> list[Content]:
        tail, self._tail = self._tail, ""
        return [Text(redacted(tail, self._runtime.redaction))] if tail else []


_left_behind: set[asyncio.Task[Any]] = set()


class Bounded:
    """`await Bounded(...)`: the value of *work*, or ToolError `timeout` or `cancelled`.

    *tool* is its name. *token* is the caller's. *cancellation* is the call's own, if it has one: it is cancelled with
    the call, for what cannot be cancelled from outside. *at_deadline* is what becomes of the work then.
    """

    __slots__ = ("_at_deadline", "_cancellation", "_deadline", "_token", "_work", "tool")

    def __init__(
        self,
        work: Awaitable[Any],
        tool: str,
        deadline: Deadline | None,
        token: CancellationToken | None,
        cancellation: CancellationToken | None = None,
        at_deadline: AtDeadline = "cancelled",
    ) -> None:
        self._work: Coroutine[Any, Any, Any] = work if type(work) is CoroutineType else _awaiting(work)
        self.tool = tool
        self._deadline = deadline
        self._token = token
        self._cancellation = cancellation
        self._at_deadline = at_deadline

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._token is not None and self._token.is_cancelled():
            self._work.close()
            raise ToolError(f"Tool '{self.tool}' was cancelled.", "cancelled")  # it never began
        if self._deadline is not None and self._deadline.own_due <= monotonic():
            self._work.close()
            raise ToolError(f"Tool '{self.tool}' has not run: its deadline passed before it could begin.", "timeout")
        deadline, dog = self._deadline, _dog
        if deadline is not None:
            dog.watch(self, deadline)
        try:
            waiting = self._work.send(None)
        except StopIteration as ended:
            return ended.value
        else:
            return (yield from self._suspended(waiting))
        finally:
            if deadline is not None:
                dog.watched.pop(self, None)

    def _suspended(self, waiting: Any) -> Generator[Any, Any, Any]:
        """From the first suspension on there are timers, and a cancellation that may be somebody else's."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        others = task.cancelling()
        ours = seen = 0

        def cancel() -> None:
            nonlocal ours
            ours += 1
            task.cancel()

        timer = None if self._deadline is None else _Timer(self._deadline, loop, cancel)
        unlink: Callable[[], None] | None = None
        if self._token is not None:
            unlink = self._token.add_callback(lambda: loop.call_soon_threadsafe(cancel))
        late = alone = False
        grace: asyncio.TimerHandle | None = None
        try:
            while True:
                try:
                    sent = yield waiting
                except BaseException as thrown:
                    # What was waited for has failed, or somebody else cancels (a timeout inside the tool does): that
                    # is between them and the work.
                    if ours > seen and isinstance(thrown, asyncio.CancelledError):
                        seen = ours
                        if late:
                            alone = self._let_go(thrown, loop)
                            break
                        late = True
                        if self._cancellation is not None:
                            self._cancellation.cancel()
                        if timer is not None:
                            timer.cancel()
                        grace = loop.call_later(_GRACE_S, cancel)
                    waiting = self._work.throw(thrown)
                else:
                    waiting = self._work.send(sent)
        except StopIteration as ended:
            if not late:
                return ended.value
        except BaseException as raised:
            if not late:
                if isinstance(raised, asyncio.CancelledError) and self._cancellation is not None:
                    self._cancellation.cancel()
                raise
        finally:
            if timer is not None:
                timer.cancel()
            if grace is not None:
                grace.cancel()
            if unlink is not None:
                unlink()
            for _ in range(ours):
                task.uncancel()
        if task.cancelling() > others:
            raise asyncio.CancelledError
        raise self._error(ended=not alone)

    def _let_go(self, cancelled: asyncio.CancelledError, loop: asyncio.AbstractEventLoop) -> bool:
        """Cancel the work once more; whether it still goes on, which it then does alone."""
        try:
            waiting = self._work.throw(cancelled)
        except BaseException:
            return False
        _log.warning("Tool '%s' was cancelled and continues to run", self.tool)
        # What the call holds is held until the work has really ended.
        task = loop.create_task(_alone(self._work, waiting, share_permits()))
        _left_behind.add(task)
        task.add_done_callback(_forget)
        return True

    def _error(self, *, ended: bool) -> ToolError:
        name = self.tool
        still = "" if ended and self._at_deadline != "left_running" else " Its work may still be running."
        if self._token is not None and self._token.is_cancelled():
            return ToolError(f"Tool '{name}' was cancelled.{still}", "cancelled")
        return ToolError(f"Tool '{name}' did not answer in time.{still} Ask for less, or try again later.", "timeout")


class _Timer:
    """Calls *cancel* when the deadline has passed, also where a pause has moved it meanwhile."""

    def __init__(self, deadline: Deadline, loop: asyncio.AbstractEventLoop, cancel: Callable[[], None]) -> None:
        self._deadline = deadline
        self._loop = loop
        self._cancel = cancel
        self._handle: asyncio.TimerHandle | None = None
        deadline.on_resume = self._set
        self._set()

    def cancel(self) -> None:
        self._deadline.on_resume = None
        if self._handle is not None:
            self._handle.cancel()

    def _set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        left_s = self._deadline.left_s
        self._handle = None if left_s == inf else self._loop.call_later(left_s, self._ring)

    def _ring(self) -> None:
        if self._deadline.left_s > 0.001:
            self._set()
        else:
            self._cancel()


async def _awaiting(work: Awaitable[Any]) -> Any:
    return await work


async def _alone(work: Coroutine[Any, Any, Any], waiting: Any, permits: tuple[Permit, ...]) -> Any:
    try:
        return await Resumed(work, waiting)
    finally:
        release_permits(permits)


def _forget(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # seen: nobody waits for it any more


class _Watchdog:
    """Names the calls that block the loop of their thread past their deadline."""

    def __init__(self) -> None:
        # Plain dictionary operations only: each is atomic, and every call with a deadline makes two.
        self.watched: dict[Bounded, tuple[int, Deadline]] = {}
        """Calls, the threads of their loops, and their deadlines."""
        self._some = threading.Event()
        self._starting = threading.Lock()
        self._is_looking = self._is_started = False

    def watch(self, call: Bounded, deadline: Deadline) -> None:
        """Watch *call*, which begins on this thread's loop, until it is taken out of `watched`."""
        self.watched[call] = threading.get_ident(), deadline
        if not self._is_looking:
            self._begin()

    def _begin(self) -> None:
        self._is_looking = True
        self._some.set()
        with self._starting:
            if not self._is_started:
                threading.Thread(target=self._look, name="toolcrib-watchdog", daemon=True).start()
                self._is_started = True

    def _look(self) -> None:
        while True:
            self._some.wait()
            threading.Event().wait(_LOOK_S)
            if not self.watched:
                self._some.clear()
                self._is_looking = False
                # Whoever came between the look and the clearing is seen at the next look.
                if self.watched:
                    self._begin()
            for call, (thread, deadline) in list(self.watched.items()):
                late_s = -deadline.left_s
                if late_s > _BLOCKED_S and self.watched.pop(call, None) is not None:
                    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
                    line = traceback.format_stack(frame)[-1] if frame else "an unknown place"
                    _log.error(
                        "The event loop is blocked, and tool '%s' is %.1f s past its deadline. The loop is at: %s",
                        call.tool,
                        late_s,
                        line.strip().partition("\n")[0],
                    )


_dog = _Watchdog()


def _new_dog() -> None:
    global _dog
    _dog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_dog)  # threads do not survive a fork
