"""Executes the work of a tool: with its Context if it needs one, within its deadline, cancellable as far as it can be.

Nothing here knows a kind of tool: the work is an async callable, and `at_deadline` is what its kind promises.

Within a deadline, a task of its own would be simpler and three times as slow: most tools end without ever suspending.
So the coroutine is driven by hand. While it behaves it runs in the waiting task; when the deadline has passed it is
cancelled; when it goes on all the same, what is left of it moves to a task of its own, and the answer is given. A
watchdog names tools that block the event loop past their deadline: nothing on a blocked loop can.

Retries wrap the work alone: nothing is checked, approved or counted twice. (Middleware wraps the whole of a call.)
"""

import asyncio
import copy
import logging
import random
import socket
import sys
import threading
import traceback
from collections.abc import Awaitable, Coroutine, Generator, Iterator, Mapping
from functools import partial
from math import inf
from time import monotonic
from types import CoroutineType, coroutine
from typing import Any

from ..core import (
    Call,
    CancellationToken,
    Content,
    Context,
    Credential,
    Deny,
    Emitted,
    Input,
    Progress,
    Result,
    Text,
    Tool,
    ToolError,
    ToolSpec,
    content_of,
)
from ..machinery import (
    AtDeadline,
    Deadline,
    Permit,
    StillPending,
    current_client,
    current_deadline,
    from_any_thread,
    leaves,
    redacted,
    redacted_content,
    release_permits,
    run_here,
    share_permits,
)
from .events import EventStream
from .pending import Questions, denied, pending_of
from .runtime import Retry, Runtime, Trail

Credentials = Mapping[str, Credential]

_log = logging.getLogger("toolcrib")

_GRACE_S = 0.1
"""How long cancelled work may take to end before it is detached."""
_LOOK_INTERVAL_S = 0.25
"""How often the watchdog looks. A call that is two looks past its deadline blocks the loop."""

_detached_tasks: set[asyncio.Task[Any]] = set()
_PASSING = frozenset({"unavailable", "lost", "limited", "failed"})
_CONNECTION = (ConnectionError, TimeoutError, socket.gaierror)


def execute(
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    runtime: Runtime,
    events: EventStream | None,
    credentials: Credentials,
    trail: Trail,
) -> Awaitable[Any]:
    """Return the value of the work of *tool*. Raises what the work raises, and ToolError `timeout` or `cancelled`."""
    deadline = current_deadline.get()
    if not tool.needs_context:
        if deadline is None and call.cancellation is None:
            return tool.work(arguments, runtime)
        return Bounded(
            tool.work(arguments, runtime), tool.spec.name, deadline, call.cancellation, None, tool.at_deadline
        )
    cancellation = CancellationToken()
    port = CallPort(tool, call, runtime, events, trail)
    context = Context(call, runtime, port, deadline, cancellation, credentials, *run_here())
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
            context.cancellation.cancel()  # where there is no deadline, nothing else cancels it
        if pending_of(raised) is not None:
            await port.suspend()
        raise
    finally:
        await port.finish()


async def retry(
    tool: Tool,
    arguments: dict[str, Any],
    call: Call,
    runtime: Runtime,
    events: EventStream | None,
    credentials: Credentials,
    trail: Trail,
) -> Any:
    """Execute *call*, and again where that can do no harm and may help.

    The attempts that failed are noted in *trail*.

    Only for a tool that is idempotent or read-only; only after an error that may pass by itself: a ToolError whose
    `retry` is "later", or a connection that failed. Never after a deadline, and never once the tool has emitted a part
    of its answer.
    """
    plan = _plan(tool, runtime)
    times = plan.times if tool.retries is None else tool.retries
    if not times or not may_be_repeated(tool.spec):
        return await execute(tool, arguments, call, runtime, events, credentials, trail)
    as_checked = copy.deepcopy(arguments)  # a tool may change what it is given
    emitted_before = 0 if events is None else events.count
    deadline = current_deadline.get()
    while True:
        try:
            return await execute(tool, arguments, call, runtime, events, credentials, trail)
        except Exception as error:
            has_emitted = events is not None and events.count > emitted_before
            if len(trail.failures) >= times or has_emitted or not may_pass(error):
                raise
            pause_s = _pause_s(plan, len(trail.failures), error)
            if deadline is not None and deadline.left_s <= pause_s:
                raise
            name = error.code if isinstance(error, ToolError) else type(error).__name__
        _log.warning("Tool '%s' failed (%s) and is tried again in %.3f s", tool.spec.name, name, pause_s)
        trail.failures += ({"error": name, "after_s": round(pause_s, 3)},)
        await Bounded(asyncio.sleep(pause_s), tool.spec.name, None, call.cancellation)
        arguments = copy.deepcopy(as_checked)


def _plan(tool: Tool, runtime: Runtime) -> Retry:
    for plan in runtime.retries or ():
        if plan.names.fullmatch(tool.spec.name):
            return plan
    return Retry(times=0)


def may_be_repeated(spec: ToolSpec) -> bool:
    """Return whether the tool is declared such that a second call with the same arguments changes nothing more."""
    return spec.hints.idempotent is True or spec.hints.read_only is True


def may_pass(error: BaseException) -> bool:
    """Return whether the same work may end better in a while."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(may_pass, leaves(error)))
    if isinstance(error, ToolError):
        return error.code in _PASSING and error.retry == "later" and not isinstance(error, StillPending)
    # HTTP clients have their own errors, raised from or while handling the one of the connection.
    return any(isinstance(cause, _CONNECTION) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _pause_s(plan: Retry, number: int, error: Exception) -> float:
    # "Full jitter": calls that failed together do not come back together.
    pause_s = random.uniform(0, min(plan.most_s, plan.first_s * 2.0**number))  # noqa: S311 - nothing is guarded by it
    asked_s = error.details.get("retry_after_s") if isinstance(error, ToolError) else None
    return max(pause_s, float(asked_s)) if isinstance(asked_s, int | float) else pause_s


class CallPort:
    """The `Port` of one call: what its tool reports goes to *events*, secrets redacted, if there are any."""

    def __init__(self, tool: Tool, call: Call, runtime: Runtime, events: EventStream | None, trail: Trail) -> None:
        self._tool = tool
        self._call = call
        self._runtime = runtime
        self._events, self._trail = events, trail
        self._client = current_client.get()  # a tool may ask from a task that others share
        self._report = None if events is None else from_any_thread(events.progress)
        self._tail = ""  # of emitted text: what may be the beginning of a secret
        self._clients: list[Any] = []

    def progress(self, progress: Progress, /) -> None:
        redaction = self._runtime.redaction
        if self._report is None:
            return
        if redaction is not None and progress.message:
            progress = Progress(progress.done, progress.total, redaction.redact(progress.message))
        self._report(progress)

    async def emit(self, content: Any, /) -> None:
        if self._events is None:
            return
        from ..schema import serialize_any

        redaction = self._runtime.redaction
        parts: list[Content] = []
        is_ready = isinstance(content, Emitted)
        items = content.content if is_ready else content_of(content, partial(serialize_any, self._tool.spec.name))
        for part in items:
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
        entry = await self._questions().ask("input", key, message, question)
        if isinstance(entry.answer, Input):
            return question.read(entry.answer.value)
        answer = entry.answer if isinstance(entry.answer, Deny) else Deny()
        raise denied(self._tool.spec.name, answer, entry.by)

    async def approve(self, message: str, /) -> None:
        """Return once a person has approved this call, as where the policy has asked for that. Raises as `ask` does."""
        entry = await self._questions().ask("approval", "", message)
        if isinstance(entry.answer, Deny):
            raise denied(self._tool.spec.name, entry.answer, entry.by)

    def _questions(self) -> Questions:
        questions = self._trail.questions
        if questions is None:
            questions = self._trail.questions = self._runtime.questions(self._tool, self._call, self._client)
        return questions

    async def suspend(self) -> None:
        """Store the answers of the call, which ends waiting, for when it is made again."""
        if self._trail.questions is not None:
            await self._trail.questions.give_back()

    def _rest(self) -> list[Content]:
        tail, self._tail = self._tail, ""
        return [Text(redacted(tail, self._runtime.redaction))] if tail else []


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
        """Go on with the work. From its first suspension there is an alarm, and a cancellation may be of another."""
        alarm = _Alarm(self._deadline, self._token)
        is_detached = False
        try:
            while True:
                try:
                    value_sent = yield waiting
                except BaseException as thrown:
                    # What was waited for has failed, or another cancels (a timeout inside the tool does): that is
                    # between them and the work.
                    if alarm.has_thrown(thrown):
                        if alarm.is_grace:
                            is_detached = self._detach(thrown)
                            break
                        if self._cancellation is not None:
                            self._cancellation.cancel()
                        alarm.begin_grace()
                    waiting = self._work.throw(thrown)
                else:
                    waiting = self._work.send(value_sent)
        except StopIteration as ended:
            if not alarm.is_grace:
                return ended.value
        except BaseException:
            if not alarm.is_grace:
                raise
        finally:
            is_cancelled_too = alarm.end()
        if is_cancelled_too:
            raise asyncio.CancelledError
        raise self._error(is_detached)

    def _detach(self, cancelled: BaseException) -> bool:
        """Cancel the work once more. Return whether it goes on, in a task of its own."""
        try:
            waiting = self._work.throw(cancelled)
        except BaseException:
            return False
        _log.warning("Tool '%s' was cancelled and continues to run", self.tool)
        # What the call holds is held until the work has really ended.
        task = asyncio.ensure_future(_run_detached(self._work, waiting, share_permits()))
        _detached_tasks.add(task)
        task.add_done_callback(_forget)
        return True

    def _error(self, is_detached: bool) -> ToolError:
        name = self.tool
        still = " Its work may still be running." if is_detached or self._at_deadline == "left_running" else ""
        if self._token is not None and self._token.is_cancelled():
            return ToolError(f"Tool '{name}' was cancelled.{still}", "cancelled")
        return ToolError(f"Tool '{name}' did not answer in time.{still} Ask for less, or try again later.", "timeout")


@coroutine
def resumed(work: Coroutine[Any, Any, Any], waiting: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that was stepped by hand, and waits for *waiting*. Return its value."""
    try:
        while True:
            try:
                value_sent = yield waiting
            except BaseException as thrown:
                waiting = work.throw(thrown)
            else:
                waiting = work.send(value_sent)
    except StopIteration as ended:
        return ended.value


class _Alarm:
    """Cancels the running task up to twice: at the deadline or by the token, and after the grace that follows.

    A pause may move the deadline meanwhile, so it is looked at again when its moment has come.
    """

    def __init__(self, deadline: Deadline | None, token: CancellationToken | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.is_grace = False
        self._task = task
        self._call_later = task.get_loop().call_later
        self._deadline = deadline
        self._others_before = task.cancelling()
        self._cancels = self._cancels_seen = 0
        self._unlink = None if token is None else token.add_callback(from_any_thread(self._cancel))
        self._timer: asyncio.TimerHandle | None = None
        if deadline is not None:
            self._set(deadline.left_s)

    def has_thrown(self, thrown: BaseException) -> bool:
        """Return whether *thrown* is a cancellation of this alarm, and not of another."""
        if self._cancels == self._cancels_seen or not isinstance(thrown, asyncio.CancelledError):
            return False
        self._cancels_seen = self._cancels
        return True

    def begin_grace(self) -> None:
        self.is_grace = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_later(_GRACE_S, self._cancel)

    def end(self) -> bool:
        """Give the cancellations back. Return whether others have cancelled the task too."""
        if self._timer is not None:
            self._timer.cancel()
        if self._unlink is not None:
            self._unlink()
        for _ in range(self._cancels):
            self._task.uncancel()
        return self._task.cancelling() > self._others_before

    def _cancel(self) -> None:
        self._cancels += 1
        self._task.cancel()

    def _set(self, left_s: float) -> None:
        self._timer = self._call_later(_LOOK_INTERVAL_S if left_s == inf else left_s, self._ring)

    def _ring(self) -> None:
        left_s = 0.0 if self._deadline is None else self._deadline.left_s
        if left_s > 0.001:
            self._set(left_s)
        else:
            self._cancel()


async def _awaiting(work: Awaitable[Any]) -> Any:
    return await work


async def _run_detached(work: Coroutine[Any, Any, Any], waiting: Any, permits: tuple[Permit, ...]) -> Any:
    try:
        return await resumed(work, waiting)
    finally:
        release_permits(permits)


def _forget(task: asyncio.Task[Any]) -> None:
    _detached_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved: no call waits for it any more


class _Watchdog:
    """Names the calls that block the loop of their thread past their deadline."""

    def __init__(self) -> None:
        # Plain dictionary operations only: each is atomic, and every call with a deadline makes two.
        self.watched: dict[Bounded, tuple[int, Deadline]] = {}
        """Calls, the threads of their loops, and their deadlines."""
        self._is_looking = False

    def watch(self, call: Bounded, deadline: Deadline) -> None:
        """Watch *call*, which begins on this thread's loop, until it is taken out of `watched`."""
        self.watched[call] = threading.get_ident(), deadline
        if not self._is_looking:
            self._begin()

    def _begin(self) -> None:
        # Two threads that begin at the same moment do no harm: each late call is taken out, and named, by one.
        self._is_looking = True
        try:
            threading.Thread(target=self._look, name="toolcrib-watchdog", daemon=True).start()
        except RuntimeError:  # the system starts no thread now; the next call tries again
            self._is_looking = False

    def _look(self) -> None:
        """Look at the calls as long as there are any; the next one begins another thread."""
        while self.watched:
            threading.Event().wait(_LOOK_INTERVAL_S)
            for call, (thread, deadline) in list(self.watched.items()):
                late_s = -deadline.left_s
                if late_s > 2 * _LOOK_INTERVAL_S and self.watched.pop(call, None) is not None:
                    _log.error(
                        "The event loop is blocked, and tool '%s' is %.1f s past its deadline. The loop is at: %s",
                        call.tool,
                        late_s,
                        _line_of(thread),
                    )
        self._is_looking = False
        if self.watched:  # a call came after the last look, when another thread seemed not to be needed
            self._begin()


def _line_of(thread: int) -> str:
    """Return the place in the source where *thread* is."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    return traceback.format_stack(frame)[-1].strip().partition("\n")[0] if frame else "an unknown place"


_dog = _Watchdog()
