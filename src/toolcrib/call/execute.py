"""Executes the work of a tool: with its Context if it needs one, within its deadline, cancellable as far as it can be.

Nothing here knows a kind of tool: the work is an async callable, and `at_deadline` is what its kind promises.

One bound is around all steps of a call. A task of its own would be simpler and three times as slow: most calls end
without ever suspending. So their coroutine is driven by hand, in a context of its own. While it behaves it runs in the
waiting task (one that a token may cancel has its own); when the deadline has passed it is cancelled; when it goes on
all the same, what is left of it moves to another task, and the answer is given. A watchdog names tools that block the
event loop past their deadline: nothing on a blocked loop can.

Retries wrap the work alone: nothing is checked, approved or counted twice. (Middleware wraps the whole of a call.)
"""

import asyncio
import contextvars
import copy
import inspect
import logging
import random
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from types import coroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

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
    ToolcribError,
    ToolError,
    ToolSpec,
    content_of,
)
from ..machinery import (
    COUNTED_UNITS,
    Deadline,
    Steps,
    StillPending,
    StoredPending,
    call_later,
    current_client,
    current_deadline,
    from_any_thread,
    leaves,
    redacted,
    redacted_content,
    require_spent,
    run_here,
)
from .events import EventStream
from .pending import Questions, denied, pending_of
from .runtime import Retry, Runtime, Trail

if TYPE_CHECKING:
    from ..schema import Elicitation

Credentials = Mapping[str, Credential]
T = TypeVar("T")

_log = logging.getLogger("toolcrib")

_GRACE_S = 0.1
"""How long cancelled work may take to end before it is detached."""
_LOOK_INTERVAL_S = 0.25
"""How often the watchdog looks. A call that is two looks past its deadline blocks the loop."""

ENDED = object()
"""What `next` returns for work that has ended."""

_detached_tasks: set[asyncio.Future[Any]] = set()
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
    outer: Trail,
) -> Awaitable[Any]:
    """Return the value of the work of *tool*. Raises what the work raises."""
    if not tool.needs_context:
        return tool.work(arguments, runtime)
    cancellation = outer.cancellation = CancellationToken()
    steps = None if outer.task is None else outer.task.steps
    port = CallPort(tool, call, runtime, events, trail, steps, outer.account)
    deadline = current_deadline.get()
    context = Context(call, runtime, port, deadline, cancellation, credentials, run_here(), steps)
    return _with_context(tool, arguments, context)


async def _with_context(tool: Tool, arguments: dict[str, Any], context: Context) -> Any:
    port: CallPort = context.port  # type: ignore[assignment]
    try:
        value = await tool.work(arguments, context)
        if isinstance(value, Result) and value.pending is not None:
            value.unwrap()
        return value
    except BaseException as raised:
        if isinstance(raised, asyncio.CancelledError):
            context.cancellation.cancel()  # where it is the caller who gives up, nothing else cancels it
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
    outer: Trail,
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
        return await execute(tool, arguments, call, runtime, events, credentials, trail, outer)
    as_checked = copy.deepcopy(arguments)  # a tool may change what it is given
    emitted_before = 0 if events is None else events.count
    deadline = current_deadline.get()
    while True:
        try:
            return await execute(tool, arguments, call, runtime, events, credentials, trail, outer)
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
        await asyncio.sleep(pause_s)
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

    def __init__(
        self,
        tool: Tool,
        call: Call,
        runtime: Runtime,
        events: EventStream | None,
        trail: Trail,
        steps: Steps | None = None,
        account: Any = None,
    ) -> None:
        self._account = account
        self._tool = tool
        self._steps = steps
        self._call = call
        self._runtime = runtime
        self._events, self._trail = events, trail
        self.client = current_client.get()  # a tool may ask from a task that others share
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
            await asyncio.sleep(0)  # a generator that awaits nothing else ends at its deadline
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

    async def spend(self, unit: str, amount: float, /) -> None:
        """Count what the work has used. Raises ToolError `limited`, and ToolcribError for a unit of another tool."""
        require_spent(unit, amount)  # a worker process has asked, perhaps, which may send anything
        own = {*(self._tool.cost or ())} - COUNTED_UNITS
        if own and unit not in own:
            from ..schema import closest_match, did_you_mean

            hint = did_you_mean(closest_match(unit, own))
            raise ToolcribError(
                f"Tool '{self._tool.spec.name}' spends '{unit}', and declares {', '.join(sorted(own))}.{hint}"
            )
        if self._account is not None:
            await self._account.spend(unit, amount)

    async def finish(self) -> None:
        """Close clients, and send what was held back because it might have been the beginning of a secret."""
        while self._clients:
            await self._clients.pop().aclose()
        if self._events is not None and (rest := self._rest()):
            await self._events.put(Emitted(tuple(rest)))

    async def ask(self, key: str, schema: Any, message: str, /, *, url: str | None = None) -> Any:
        """Return the answer, as a *schema*: a type, or a JSON Schema, for JSON values. The person is to open *url*.

        Raises Suspended where there is none yet, and ToolError `denied` where a person has refused to answer.
        """
        from ..schema import Elicitation

        question = Elicitation(schema)
        answers: list[StoredPending] = []
        ask = partial(self._ask, key, question, message, url, answers)
        if self._steps is None:
            return question.read(await ask())
        value = await self._steps.run(f"ask {key}", ask)
        if answers:  # which are used up only now that they are stored as a step: a process may die in between
            await self._questions().take("input", key)
        return question.read(value)

    async def _ask(
        self, key: str, question: "Elicitation", message: str, url: str | None, answers: list[StoredPending]
    ) -> Any:
        is_kept = self._steps is not None
        entry = await self._questions().ask("input", key, message, question, is_kept=is_kept, url=url)
        answers.append(entry)
        if isinstance(entry.answer, Input):
            return entry.answer.value
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
            questions = self._trail.questions = self._runtime.questions(self._tool, self._call, self.client)
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

    *tool* is its name. *token* is the caller's. How the work is cut short is noted in *trail* before it is cancelled;
    work leaves its value there, too. It runs in *context*, so that what it sets there stays there.
    """

    __slots__ = (
        "__weakref__",
        *("_cancels", "_context", "_deadline", "_step", "_task", "_timer", "_token", "_trail", "_work"),
        "tool",
    )

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        tool: str,
        deadline: Deadline | None,
        token: CancellationToken | None,
        trail: Trail,
        context: contextvars.Context | None = None,
    ) -> None:
        self._work = work
        self.tool = tool
        self._deadline = deadline
        self._token = token
        self._trail = trail
        self._step = _call if context is None else context.run
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._token is not None and self._token.is_cancelled():
            self._work.close()
            raise self._error()
        deadline = self._deadline
        if deadline is not None:
            dog.watch(deadline, self._work, self.tool)
        try:
            waiting = self._step(next, self._work.__await__(), ENDED)
            if waiting is ENDED:
                return self._trail.value
            return (yield from self.resumed(waiting))  # pyright: ignore[reportGeneralTypeIssues] - a generator
        finally:
            if deadline is not None:
                dog.watched.pop(deadline, None)

    def close(self) -> None:
        """Drop work that was never begun: its task was cancelled before its first step."""
        if inspect.getcoroutinestate(self._work) == inspect.CORO_CREATED:
            self._work.close()

    def forget_end(self) -> None:
        """Let the cancellation of the caller be the end, also where the deadline or the work itself came first."""
        self._trail.error, self._trail.cancels_itself = None, False

    @coroutine
    def resumed(self, waiting: Any) -> Generator[Any, Any, Any]:
        """Go on with the work, which waits for *waiting*. From its first suspension there is an alarm."""
        work, trail, task = self._work, self._trail, asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] | None = task
        self._timer: asyncio.TimerHandle | None = None
        self._cancels = 0  # made here, and not yet thrown
        unlink = self._set_alarm()
        if getattr(task, "_must_cancel", False) and task.cancelling():
            self._take_back(task)
        cancels_of_others = cancels = task.cancelling()
        try:
            while True:
                is_last = False
                try:
                    value = yield waiting
                except BaseException as thrown:
                    # What was waited for has failed, or another cancels (a timeout inside the tool does): that is
                    # between them and the work.
                    is_last = self._cancels > 0 and isinstance(thrown, asyncio.CancelledError) and self._cut_short(task)
                    cancels = task.cancelling()
                    waiting = self._step(work.throw, thrown)
                else:
                    cancels = task.cancelling()
                    waiting = self._step(work.send, value)
                if task.cancelling() > cancels:
                    self._take_back(task)  # it is thrown next
                if is_last:
                    self._detach(waiting)
        except StopIteration as ended:
            if task.cancelling() <= cancels:
                return ended.value
            self._take_back(task)
            with suppress(asyncio.CancelledError):
                yield
            raise cancelled(self.tool) from None
        except BaseException as raised:
            is_of_others = (
                isinstance(raised, KeyboardInterrupt | GeneratorExit) or task.cancelling() > cancels_of_others
            )
            if trail.error is None or is_of_others:
                raise
            raise trail.error from None
        finally:
            self._task = None
            self._stop_timer()
            if unlink is not None:
                unlink()

    def _set_alarm(self) -> Callable[[], object] | None:
        if self._deadline is not None:
            self._set(self._deadline.left_s)
        if self._token is None:
            return None
        # A token may keep what it calls longer than the call lasts: AutoGen's own cannot remove it.
        cancel = weakref.WeakMethod(self._cancel)
        unlink: Callable[[], object] | None = self._token.add_callback(
            from_any_thread(lambda: (own := cancel()) and own())
        )
        return unlink

    def _set(self, left_s: float) -> None:
        self._timer = call_later(_LOOK_INTERVAL_S if left_s == inf else left_s, self._ring)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        # A pause may have moved the deadline.
        left_s = 0.0 if self._deadline is None else self._deadline.left_s
        if left_s > 0.001:
            self._set(left_s)
        else:
            self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancels += 1
            self._task.cancel()

    def _take_back(self, task: "asyncio.Task[Any]") -> None:
        """Take back the cancellation of *task* by the work itself: it is not the caller's."""
        task.uncancel()
        self._trail.cancels_itself = True

    def _cut_short(self, task: "asyncio.Task[Any]") -> bool:
        """Take back the cancellations that were made here, of which the work sees one. Return whether it is the last.

        The first one begins the grace.
        """
        for _ in range(self._cancels):
            task.uncancel()
        self._cancels, trail = 0, self._trail
        if trail.error is not None:
            return True
        trail.error = self._error()
        if trail.cancellation is not None:
            trail.cancellation.cancel()
        self._stop_timer()
        self._timer = call_later(_GRACE_S, self._cancel)
        return False

    def _detach(self, waiting: Any) -> NoReturn:
        """Leave the work to a task of its own, since it goes on although it was cancelled twice."""
        _log.warning("Tool '%s' was cancelled and continues to run", self.tool)
        rest = Bounded(self._work, self.tool, None, None, self._trail, self._context)
        keep(asyncio.ensure_future(awaiting(rest.resumed(waiting))))
        self._trail.error = self._error(is_detached=True)
        raise self._trail.error

    def _error(self, *, is_detached: bool = False) -> ToolError:
        begun = self._trail.begun
        is_left = begun is not None and (is_detached or begun.at_deadline == "left_running")
        still = " Its work may still be running." if is_left else ""
        if self._token is not None and self._token.is_cancelled():
            return cancelled(self.tool, still)
        if begun is None:
            return _not_begun(self.tool)
        way_out = "Ask for less, or try again later."
        if not may_be_repeated(begun.spec):
            way_out = "Whether it took effect is unknown: find out before you ask for less."
        return ToolError(f"Tool '{self.tool}' did not answer in time.{still} {way_out}", "timeout")


def _call(step: Callable[..., Any], *values: Any) -> Any:
    return step(*values)


async def in_own_task(bound: Bounded) -> Any:
    """Return the value of *bound*, in a task of its own: what cancels that one does not cancel the waiting task.

    Where the waiting task is cancelled, this raises, whatever the work makes of it.
    """
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    try:
        value, left = await asyncio.create_task(_outcome(bound))
        if left is not None:
            raise left
        return value
    except asyncio.CancelledError:
        if task.cancelling() > cancels:
            bound.forget_end()
            raise  # as it came: anyio knows by its text whose it is
        raise cancelled(bound.tool) from None
    finally:
        bound.close()
        if task.cancelling() > cancels and not isinstance(sys.exc_info()[1], asyncio.CancelledError):
            bound.forget_end()
            await asyncio.sleep(0)  # where anyio cancels once more, under its own text
            raise asyncio.CancelledError


async def _outcome(bound: Bounded) -> tuple[Any, SystemExit | None]:
    """Return the value of *bound*, or the SystemExit that ended it, with which a task would end its loop."""
    try:
        return await bound, None
    except SystemExit as left:
        return None, left


async def within(limit_s: float, work: Awaitable[T], tool: str) -> T:
    """Return the value of *work*, which is of *tool*. Raises ToolError `timeout` after *limit_s* seconds."""
    trail = Trail()
    steps = leave_value(trail, lambda: work)
    return await Bounded(steps, tool, Deadline(limit_s), None, trail)  # type: ignore[no-any-return]


async def leave_value(trail: Trail, begin: Callable[[], Awaitable[T]]) -> T:
    """Return the value of the work that *begin* starts, and leave it in *trail*, where `Bounded` looks for it."""
    value = trail.value = await begin()
    return value


async def awaiting(work: Awaitable[Any]) -> Any:
    """Return the value of *work*, as a coroutine."""
    return await work


def cancelled(tool: str, still: str = "") -> ToolError:
    return ToolError(f"Tool '{tool}' was cancelled.{still}", "cancelled")


def _not_begun(tool: str) -> ToolError:
    return ToolError(f"Tool '{tool}' has not run: its deadline passed before it could begin.", "timeout")


def keep(task: "asyncio.Future[Any]") -> None:
    """Keep *task* until it is done. No call waits for it."""
    _detached_tasks.add(task)
    task.add_done_callback(_forget)


def _forget(task: "asyncio.Future[Any]") -> None:
    _detached_tasks.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it


class _Watchdog:
    """Names the calls that block the loop of their thread past their deadline."""

    def __init__(self) -> None:
        # Plain dictionary operations only: each is atomic, and every call with a deadline makes two.
        self.watched: dict[Deadline, tuple[int, str]] = {}
        """The deadlines of calls, the threads of their loops, and their tools."""
        self._is_looking = False

    def watch(self, deadline: Deadline, work: Coroutine[Any, Any, Any], tool: str) -> None:
        """Watch *work*, which begins on this thread's loop, until its *deadline* is taken out of `watched`.

        Raises ToolError where that has passed.
        """
        if deadline.own_due <= monotonic():
            work.close()
            raise _not_begun(tool)
        self.watched[deadline] = threading.get_ident(), tool
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
            for deadline, (thread, tool) in list(self.watched.items()):
                late_s = -deadline.left_s
                if late_s > 2 * _LOOK_INTERVAL_S and self.watched.pop(deadline, None) is not None:
                    _log.error(
                        "The event loop is blocked, and tool '%s' is %.1f s past its deadline. The loop is at: %s",
                        tool,
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


dog = _Watchdog()
