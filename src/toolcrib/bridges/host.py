"""What every bridge has in common: whose workbench a run uses, and calls that never raise."""

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any

from ..call import error_result
from ..core import (
    AnswerError,
    Approve,
    Call,
    Caller,
    CancellationToken,
    Content,
    Data,
    Deny,
    Event,
    Progress,
    Result,
    SetupError,
    Text,
    ToolError,
    content_to_dict,
)
from ..formats import Accepts, Offer, Offered, join_surrogates
from ..machinery import Shares, log_failure
from ..workbench import Crib, Workbench

_log = logging.getLogger("toolcrib")

MAX_KEPT = 1000
"""How many callers' workbenches of a crib stay at hand, and how many results of calls that a graph repeats."""

CallerOf = Callable[[Any], Caller | Awaitable[Caller]]
"""The caller of a run, by the context of the run that the framework gives to tools; plain or async."""

Arguments = str | Mapping[str, Any] | None

Report = Callable[[dict[str, Any]], Any]
"""Takes what a running call reports, as JSON data; plain or async."""

ANY = Accepts(name="Agent frameworks", source="They lower schemas for the model that they call; names are sent as is.")


class AnsweredCalls:
    """The last results of calls that were answered, by task of a graph and id of the call. For several threads.

    Of the principal who has the most, the oldest goes first.
    """

    def __init__(self) -> None:
        self._results: Shares[tuple[str, str], Result[Any]] = Shares()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> Result[Any] | None:
        with self._lock:
            return self._results.get(key)

    def put(self, key: tuple[str, str], result: Result[Any], principal: str) -> None:
        with self._lock:
            self._results.put(key, result, principal)
            if len(self._results) > MAX_KEPT:
                self._results.drop()


class Host:
    """*tools*, a Workbench or a Crib, for the runs of a framework.

    Of a crib, *caller* says whose workbench a run uses, by the framework's own context of the run; the model never
    chooses. Raises SetupError for a crib without *caller*, and for a workbench, which has its caller, with one.
    """

    def __init__(self, tools: Workbench | Crib, caller: CallerOf | None = None) -> None:
        if not isinstance(tools, Workbench | Crib):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SetupError(f"A bridge takes a Workbench or a Crib, not {type(tools).__name__}.")
        if isinstance(tools, Crib) != (caller is not None):
            raise SetupError(
                "A workbench has its caller, and a crib needs one for each run: caller=lambda context: Caller(...)."
            )
        self.tools = tools
        self._caller = caller
        self._benches: Shares[Caller, Workbench] = Shares()

    @property
    def _crib(self) -> Crib:
        return self.tools.crib if isinstance(self.tools, Workbench) else self.tools

    @property
    def has_policy(self) -> bool:
        return self._crib.options["policy"] is not None

    async def bench(self, context: Any = None) -> Workbench:
        """Return the workbench of the run with *context*. Raises what `caller` raises, and SetupError."""
        if isinstance(self.tools, Workbench):
            return self.tools
        assert self._caller is not None
        caller: object = self._caller(context)
        if isawaitable(caller):
            caller = await caller
        if not isinstance(caller, Caller):
            raise SetupError(f"caller returned {type(caller).__name__}, not a Caller. Raise where no caller is known.")
        bench = self._benches.get(caller)
        if bench is None:
            bench = self.tools.workbench(caller)
            self._benches.put(caller, bench, caller.principal)
            if len(self._benches) > MAX_KEPT:
                self._benches.drop()  # what it has open is the crib's to close
        return bench

    def listed(self, accepts: Accepts = ANY, *, follows: bool = False) -> Offer:
        """Return what any run may use, for a list that is made before: of a crib, the tools of all callers.

        The tool that reads large results is among them, since a framework refuses calls of what it did not list. The
        one that finds tools is only where *follows*, whether the list has at each step what `shows` then says.
        """
        bench = self.tools if isinstance(self.tools, Workbench) else self.tools.workbench()
        specs = bench.specs(every=True)
        if bench is not self.tools:
            specs = (*self.tools.registry.specs(), *filter(None, (bench.finder(), bench.reader())))
        finder = None if follows else bench.finder()
        return _logged(Offer.of([spec for spec in specs if spec is not finder], accepts))

    async def shown(self, context: Any = None, accepts: Accepts = ANY) -> Sequence[Offered]:
        """Return the tools of the run with *context* as they are now.

        There are none where no caller is known, which is logged: what raises here would end the run.
        """
        try:
            bench = await self.bench(context)
            tools = {tool.spec.name: tool for tool in _logged(Offer.of(bench.specs(every=True), accepts)).tools}
            return [tools[spec.name] for spec in bench.specs()]
        except Exception as error:
            log_failure("A run has no tools", error, self._crib.redaction)
            return ()

    async def shows(self, context: Any, tool: str) -> bool:
        """Check whether the run with *context* is shown *tool* now. Where no caller is known, it is: a call then fails,
        where one of a tool that is not shown would end the run.
        """
        try:
            bench = await self.bench(context)
            return any(spec.name == tool for spec in bench.specs())
        except Exception:
            return True

    async def enter(self) -> None:
        """Start the tools, unless they run. Raises what their start raises."""
        await (self.tools.enter() if isinstance(self.tools, Workbench) else self.tools.start())

    async def leave(self) -> None:
        """Stop the workbench that a run has started, once all have left. A crib is its owner's to stop."""
        if isinstance(self.tools, Workbench):
            await self.tools.leave()

    async def needs_approval(self, context: Any, name: str, arguments: Arguments, *, accepts: Accepts = ANY) -> bool:
        """Check whether a person would have to approve a call. Never raises: the call itself reports what is wrong."""
        try:
            bench = await self.bench(context)
            call = Offer.of(bench.specs(every=True), accepts).call("", name, arguments)
            return await bench.needs_approval(call) == "approval"
        except Exception:
            return False

    async def call(
        self,
        context: Any,
        name: str,
        arguments: Arguments,
        call_id: str | None = None,
        *,
        accepts: Accepts = ANY,
        timeout_s: float | None = None,
        cancellation: CancellationToken | None = None,
        answer: Approve | Deny | None = None,
        report: Report | None = None,
    ) -> Result[Any]:
        """Call the tool that *accepts* has under *name*, and return the result, also of a call that failed.

        *report* gets the progress of the tool, and what it emits. *answer* is a person's answer in the framework, in
        the name of the caller. Where they may not answer, the call goes on waiting. Only the cancellation of the task
        raises.
        """
        call, started_at = Call(name, None, call_id or Call(name).id), datetime.now(UTC)
        try:
            bench = await self.bench(context)
            call = Offer.of(bench.specs(every=True), accepts).call(call.id, name, arguments)
            call.timeout_s = None if timeout_s is None else max(timeout_s, 0.001)
            call.cancellation = cancellation
            result = await self._made(bench, call, report)
            pending = result.pending
            if answer is not None and pending is not None and pending.kind == "approval":
                try:
                    await bench.answer(pending.id, answer)
                except AnswerError as error:
                    return replace(result, content=(*result.content, Text(str(error))))
                result = await self._made(bench, call, report)
        except Exception as error:
            log_failure(f"The call of '{call.tool}' could not be made", error, self._crib.redaction)
            message = f"Tool '{call.tool}' is not available now: {type(error).__name__}. The detail is in the log."
            return error_result(call, ToolError(message, "unavailable"), started_at)
        content = tuple(map(_in_utf8, result.content))
        return result if content == result.content else replace(result, content=content)

    async def _made(self, bench: Workbench, call: Call, report: Report | None) -> Result[Any]:
        """Make *call*. What *report* raises is logged, and it is not asked again."""
        if report is None:
            return await bench.call(call)
        result: Result[Any] | None = None
        stream: Any = bench.stream(call)
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Result):
                    result = event
                elif report is not None:
                    try:
                        reported = report(_event_data(call, event))
                        await reported if isawaitable(reported) else None
                    except Exception as error:
                        log_failure("What a tool reports could not be passed on", error, self._crib.redaction)
                        report = None
        assert result is not None  # the last of a stream is the result
        return result

    async def deny(self, context: Any, call_id: str, reason: str) -> None:
        """Record that a person has denied the call *call_id* in the framework. Never raises.

        Where they may not answer, or another process has asked, it goes on waiting.
        """
        try:
            bench = await self.bench(context)
            with suppress(AnswerError):
                pending = await bench.answer(call_id=call_id, answer=Deny(reason))
                # The answer is used up: the same call, made again, needs another.
                await self._crib.pending.store.take(pending.digest, pending.kind, pending.key, now=bench.now())
        except Exception as error:
            log_failure("A denial could not be stored", error, self._crib.redaction)


def _logged(offer: Offer) -> Offer:
    for tool, losses in offer.losses.items():
        for loss in losses:
            _log.info("The schema of '%s' at '%s': %s", tool, loss.path, loss.meaning)
    return offer


def _event_data(call: Call, event: Event) -> dict[str, Any]:
    data: dict[str, Any] = {"tool": call.tool, "tool_call_id": call.id}
    if isinstance(event, Progress):
        return data | {"type": "progress", "done": event.done, "total": event.total, "message": event.message}
    return data | {"type": "emitted", "content": [content_to_dict(_in_utf8(part)) for part in event.content]}


def by_name(names: Iterable[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by name. One too many has a name that no tool takes, so that the check refuses it."""
    too_many = (f"argument {number}" for number in range(1, len(args) + 1))
    return {**dict(zip((*names, *too_many), args, strict=False)), **kwargs}


def _in_utf8(part: Content) -> Content:
    """Return *part* as a framework can send it: halves of characters are replaced."""
    return type(part)(join_surrogates(part.text)) if isinstance(part, Text | Data) else part


def metadata(result: Result[Any]) -> Mapping[str, Any]:
    """Return what of *result* is for programs, as JSON data, where a framework has room beside the model's text."""
    view = result.shown()
    data: dict[str, Any] = {"status": result.status, "call_id": result.call_id, **result.metadata}
    if view.code is not None:
        data["code"] = view.code
    if result.error is not None:
        data["retry"] = result.error.retry
    if result.pending is not None:
        data["pending"] = result.pending.to_dict()
    if result.repairs:
        data["repairs"] = [{"path": item.path, "from": item.from_kind, "to": item.to_kind} for item in result.repairs]
    return data
