"""The loop of a model and its tools: ask the model, make its calls, ask again. It orchestrates nothing else.

`run.py` decides what to ask next; this file asks the model and the workbench.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from inspect import isawaitable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from ..call import EventQueue, error_result, may_be_repeated, streamed
from ..core import Audio, Call, CancellationToken, Data, File, Image, Pending, Result, SetupError, Text, ToolError
from ..formats import Choice, Reply, Results, TextDelta, Turn, User
from ..formats.reading import require_tool
from ..schema.declared import require_values
from ..workbench import Crib, Save, StoredRun, UnknownTaskError, Workbench
from .model import Model, ModelError, Request, model_from_name, require_model, require_reply
from .outcome import Outcome
from .resume import Answers, PendingAnswer, answer_waiting, read_end, read_state, signer, still_needed, write_state
from .run import CallEvent, CallFinished, CallStarted, Run, RunEvent, RunOptions, checked_turns

T = TypeVar("T")

Prompt = str | Text | Data | Image | Audio | File | User | Sequence[Any]
"""What a run begins with: text, content, a list of both, or the turns of a conversation."""

MAX_PROMPT_CHARS = 500
"""How many characters of its prompt a stored run shows to people."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_Events = EventQueue[RunEvent] | None

Shorten = Callable[[Sequence[Turn]], Sequence[Turn] | Awaitable[Sequence[Turn]]]
"""Returns the turns to send in the place of all of them: Results stay behind the Reply that has their calls."""


class Agent:
    """A model that uses tools until it is done.

    *tools* is a Workbench, or what a Workbench takes; then the agent has its own, which `async with` stops. *model* is
    a Model or its name: "openai:gpt-5-mini". One agent may have any number of runs at a time.

    - *instructions*: the system prompt of every request.
    - *tool_choice*: `"auto"`, `"any"` (it must call something), the name of the tool it must call, or `"none"`. What
      a model must call applies to the first turn of a run; with `"none"` it sees the tools, and calls are denied.
    - *parallel*: whether the calls of one turn run concurrently, or one after the other.
    - *max_steps*: how often the model is asked in one run.
    - *max_errors*: after how many turns in a row without a successful call a run fails.
    - *max_calls*, *max_calls_per_turn*: how many calls run. Those beyond end as `limited` errors; beyond *max_calls*
      the run is stopped.
    - *max_tokens*: a run that has used as many, input and output, is stopped instead of asking the model again.
    - *name*: a run that waits is stored, in the database of the workbench, and goes on by itself as soon as what it
      waits for is there: in this process, or in another one with an agent of this name and the same tools. See `wait`.
    - *shorten*: a function, sync or async, of the turns before each request: what it returns is sent in their place.
      The outcome has all turns.

    The state of a pending run is signed where the store of the workbench has keys, or TOOLCRIB_KEY is set. Then
    `resume` refuses one that was changed, and answers count in other processes too.

    A run returns an Outcome, however it ends. It raises ModelError where the model gave no reply, and what a model of
    the host's own or *shorten* raises: the attribute `so_far` of such an error is the Outcome until then, with all
    turns; AnswerError for answers that do not count; SetupError for invalid arguments.
    """

    def __init__(
        self,
        model: Model | str,
        tools: Workbench | Iterable[Any] = (),
        *,
        instructions: str = "",
        tool_choice: Choice = "auto",
        parallel: bool = True,
        max_steps: int = 25,
        max_errors: int = 3,
        max_calls: int = 1000,
        max_calls_per_turn: int = 100,
        max_tokens: int | None = None,
        shorten: Shorten | None = None,
        name: str | None = None,
    ) -> None:
        source: Any = tools
        if isinstance(source, Crib):
            raise SetupError("An agent works for one caller: Agent(model, crib.workbench(caller)).")
        self.model: Model = model_from_name(model) if isinstance(model, str) else require_model(model)
        self.workbench = tools if isinstance(tools, Workbench) else Workbench(tools)
        self._sign = signer(self.workbench.crib.store)
        self._owns_workbench = self.workbench is not tools
        self._options = RunOptions(
            instructions=instructions,
            tool_choice=tool_choice,
            parallel=parallel,
            max_steps=max_steps,
            max_errors=max_errors,
            max_calls=max_calls,
            max_calls_per_turn=max_calls_per_turn,
            max_tokens=max_tokens,
        )
        require_values(RunOptions, asdict(self._options), of="Agent")
        self._shorten = shorten
        if name is not None:
            _require_name(name)
            _require_database(self.workbench, f"An agent with a name stores its runs, as '{name}' does, which")
        self.name = name

    # Runs

    async def run(
        self, prompt: Prompt, /, *, after: Sequence[Turn] = (), cancellation: CancellationToken | None = None
    ) -> Outcome:
        """Run until the model is done, calls wait for an answer, or a limit is reached.

        *prompt* is text, content, or turns; *after* the conversation before it, as `Outcome.turns` has it. Cancelling
        the task cancels the calls; with *cancellation* the run then ends with an Outcome, `cancelled`.
        """
        return await self._begin(prompt, after, None, cancellation)

    def run_sync(
        self, prompt: Prompt, /, *, after: Sequence[Turn] = (), cancellation: CancellationToken | None = None
    ) -> Outcome:
        """Do the same as `run`, for sync code.

        Plain, in a thread, in a notebook, and inside a running loop, which it blocks.
        """
        return self.workbench.run_sync(self.run(prompt, after=after, cancellation=cancellation))

    def stream(
        self, prompt: Prompt, /, *, after: Sequence[Turn] = (), cancellation: CancellationToken | None = None
    ) -> AsyncIterator[RunEvent | Outcome]:
        """Do the same as `run`, with its events: pieces of replies, and calls that start, report and end.

        The last is the Outcome.

        A slow reader holds back the run. A reader that leaves (`break`, then the iterator's `aclose`) cancels it.
        """
        events = EventQueue[RunEvent]()
        return streamed(events, lambda: self._begin(prompt, after, events, cancellation))

    async def resume(
        self,
        state: Mapping[str, Any],
        answers: Answers | None = None,
        *,
        by: str = "",
        cancellation: CancellationToken | None = None,
    ) -> Outcome:
        """Resume a pending run from its state, also in another process, with an agent that has the same tools.

        *answers* are by the ids of `Outcome.pendings`: Approve(), Deny("why"), Input(...), or as JSON
        `{"kind": "approve"}`, `{"kind": "deny", "reason": ...}`, `{"kind": "input", "value": ...}`; *by* is who
        answers. Calls that had ended are not made again; those that waited are, and those without an answer still wait.
        A call that differs from what the state shows (another definition of its tool, another caller) asks again, and
        so does every call where neither a key nor a shared store proves what was answered.

        The host keeps *state*: it has the conversation and, where it is signed, the answers so far. Raises AnswerError
        where an answer does not count, and SetupError where *state* is not valid.
        """
        return await self._resumed(state, answers, by, None, cancellation)

    def resume_sync(self, state: Mapping[str, Any], answers: Answers | None = None, *, by: str = "") -> Outcome:
        """Do the same as `resume`, for sync code."""
        return self.workbench.run_sync(self.resume(state, answers, by=by))

    def resume_stream(
        self,
        state: Mapping[str, Any],
        answers: Answers | None = None,
        *,
        by: str = "",
        cancellation: CancellationToken | None = None,
    ) -> AsyncIterator[RunEvent | Outcome]:
        """Do the same as `resume`, with the events of `stream`. Each call that waited starts and ends once."""
        events = EventQueue[RunEvent]()
        return streamed(events, lambda: self._resumed(state, answers, by, events, cancellation))

    async def wait(self, task: str, *, timeout_s: float | None = None) -> Outcome:
        """Return how a stored run has ended, once it has: *task* is that of the outcome that was pending.

        Raises TimeoutError after *timeout_s*, and UnknownTaskError where the caller of the workbench has no such run.
        """
        await self.start()
        tasks, principal = self.workbench.crib.tasks, self.workbench.caller.principal
        state = await tasks.state_of(task, principal=principal)
        result = await tasks.wait(task, principal=principal, timeout_s=timeout_s)
        state = await tasks.state_of(task, principal=principal)
        return read_end(state, self._options, result.error, self.workbench.redacted)

    # Lifecycle

    async def start(self) -> None:
        """Start the workbench, and go on with the stored runs of this name. The first run does it too."""
        await self.workbench.start()
        if self.name is not None:
            tasks = self.workbench.crib.tasks
            tasks.go_on_with(self.name, self._go_on)
            await tasks.start()

    async def stop(self) -> None:
        """Stop the workbench that this agent has made. One that was passed in goes on."""
        if self._owns_workbench:
            await self.workbench.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"<Agent of {self.model.name} with {self.workbench!r}>"

    # Runs that are stored

    async def _stored(self, outcome: Outcome, run: Run) -> Outcome:
        """Return *outcome*, stored in place of its state where it waits and the agent has a name."""
        if self.name is None or outcome.state is None:
            return outcome
        bench, prompt = self.workbench, run.turns[run.began - 1]
        texts = [part.text for part in prompt.content if isinstance(part, Text)] if isinstance(prompt, User) else []
        excerpt = bench.redacted(" ".join(texts))[:MAX_PROMPT_CHARS]
        stored = StoredRun(self.name, bench.caller, outcome.state, excerpt, outcome.pendings)
        return replace(outcome, state=None, task=await bench.crib.tasks.submit(stored))

    async def _go_on(self, stored: StoredRun, save: Save, token: CancellationToken) -> StoredRun:
        """Go on with a run that waited, of this agent in this process or an earlier one."""
        agent, bench = self, self.workbench
        if stored.caller != bench.caller:
            agent = copy(self)
            agent.workbench = bench.crib.workbench(stored.caller)
        try:
            return await agent._go_on_here(stored, save, token)
        finally:
            if agent is not self:
                await agent.workbench.stop()

    async def _go_on_here(self, stored: StoredRun, save: Save, token: CancellationToken) -> StoredRun:
        if "status" in stored.state:  # its process died as it ended
            outcome = read_end(stored.state, self._options, None, self.workbench.redacted)
            return replace(stored, result=_result_of(outcome))
        outcome, run = await self._resume(stored.state, {}, "", None, token, save)
        if outcome.state is not None:
            return replace(stored, state=outcome.state, pendings=outcome.pendings)
        end = {**write_state(run, (), None), "status": outcome.status, "why": outcome.why}
        return replace(stored, state=end, result=_result_of(outcome))

    async def _task_result(self, call: Call, pending: Pending) -> Result[Any] | None:
        """Return how the task ended that *call* became; None where it has not."""
        try:
            task = await self.workbench.crib.tasks.get(pending.id, principal=self.workbench.caller.principal)
        except UnknownTaskError:
            return _refused(call, _EXPIRED)
        return task.result

    # The loop

    async def _begin(
        self, prompt: Prompt, after: Sequence[Turn], events: _Events, token: CancellationToken | None
    ) -> Outcome:
        run, bench = Run(_turns(prompt, after), self._options), self.workbench
        await self.start()
        await self._remember(run.turns)
        _require_choice(self._options.tool_choice, bench)
        if (once := next((tool.spec.name for tool in bench.registry if tool.spec.once), None)) is not None:
            _require_database(bench, f"Tool '{once}' has once=True, which")
        return await self._stored(await self._run(run, events, token), run)

    async def _resumed(
        self,
        state: Mapping[str, Any],
        answers: Answers | None,
        by: str,
        events: _Events,
        token: CancellationToken | None,
    ) -> Outcome:
        return await self._stored(*await self._resume(state, answers or {}, by, events, token))

    async def _resume(
        self,
        state: Mapping[str, Any],
        answers: Answers,
        by: str,
        events: _Events,
        token: CancellationToken | None,
        save: Save | None = None,
    ) -> tuple[Outcome, Run]:
        run, last, old = read_state(state, self._options, self._sign)
        results = {result.call_id: result for result in last.results}
        waiting = {id: result.pending for id, result in results.items() if result.pending is not None}  # noqa: A001
        bench, is_signed = self.workbench, self._sign is not None
        await bench.start()
        await self._remember([*run.turns, last])
        usable = await answer_waiting(bench, waiting.values(), old, answers, by, is_signed=is_signed)
        results |= await self._new_results(run, waiting, events, token)
        run.add_results([results[call.id] for call in run.reply.calls])
        if (over := await run.over(bench.redacted)) is not None:
            new = [results[id] for id in waiting]  # noqa: A001
            return self._with_state(over, run, still_needed(usable, waiting.values(), new)), run
        if save is not None and waiting:
            await save(write_state(run, (), self._sign))
        await self.start()
        return await self._run(run, events, token, save), run

    async def _new_results(
        self, run: Run, waiting: Mapping[str, Pending], events: _Events, token: CancellationToken | None
    ) -> dict[str, Result[Any]]:
        """Return what calls that were *waiting* have now: the end of a task, or the result of the call made again."""
        results: dict[str, Result[Any]] = {}
        repeated: list[Call] = []
        for call in run.reply.calls:
            pending = waiting.get(call.id)
            if pending is None:
                continue
            if pending.kind != "task" or self.workbench.crib.database is None:
                repeated.append(call)
            elif (result := await self._task_result(call, pending)) is not None:
                await self.workbench.remember(result.labels)
                results[call.id] = result
        for call, new in zip(repeated, await self._results(run, repeated, events, token), strict=True):
            results[call.id] = new
        return results

    async def _run(
        self, run: Run, events: _Events, token: CancellationToken | None, save: Save | None = None
    ) -> Outcome:
        redact = self.workbench.redacted
        over: Outcome | None = None
        while over is None:
            if _is_cancelled(token):
                return run.outcome("cancelled", redact, "The run was cancelled.")
            try:
                over = await self._turn(run, events, token)
                if save is not None and over is None and isinstance(run.turns[-1], Results):
                    await save(write_state(run, (), self._sign))
            except BaseException as error:
                if isinstance(run.turns[-1], Reply) and run.reply.calls:  # the workbench was stopped, for example
                    run.add_results([_refused(call, _LOST) for call in run.reply.calls])
                # Through its attributes, which also a frozen error has.
                vars(error)["so_far"] = run.outcome("failed", redact, self.workbench.crib.describe(error))
                raise
        return self._with_state(over, run, ())

    async def _remember(self, turns: Sequence[Turn]) -> None:
        """Have the thread remember what *turns* show, which another process may have had."""
        results = (result for turn in turns if isinstance(turn, Results) for result in turn.results)
        await self.workbench.remember({label for result in results for label in result.labels})

    async def _turn(self, run: Run, events: _Events, token: CancellationToken | None) -> Outcome | None:
        """Ask the model once and make its calls. Return the outcome, if the run is over."""
        reply = await self._reply(await self._shortened(run.request(self.workbench.specs())), events, token)
        if reply is None:
            return None
        if calls := run.add_reply(reply):
            room = run.room(calls)
            results = await self._results(run, calls[:room], events, token) if room else ()
            why = _NOT_ANSWERED if reply.stop == "refused" else _too_many(run.options)
            run.add_results([*results, *(_refused(call, why) for call in calls[room:])])
            if _is_cancelled(token):
                return None
        return await run.over(self.workbench.redacted)

    async def _shortened(self, request: Request) -> Request:
        if self._shorten is None:
            return request
        turns = self._shorten(request.turns)
        return replace(request, turns=tuple(checked_turns(await turns if isawaitable(turns) else turns)))

    def _with_state(self, outcome: Outcome, run: Run, answers: Sequence[PendingAnswer]) -> Outcome:
        if outcome.status != "pending":
            return outcome
        return replace(outcome, state=write_state(run, answers, self._sign))

    async def _reply(self, request: Request, events: _Events, token: CancellationToken | None) -> Reply | None:
        """Return the model's reply; None where the run was cancelled meanwhile."""
        if token is None:
            return await self._whole_reply(request, events)
        task = asyncio.ensure_future(self._whole_reply(request, events))
        token.link_future(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if token.is_cancelled() and not (current is not None and current.cancelling()):
                return None
            raise

    async def _whole_reply(self, request: Request, events: _Events) -> Reply:
        if events is None:
            return require_reply(await self.model.reply(request), self.model.name)
        reply: Reply | None = None
        async with _closing(self.model.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    await events.put(piece)
                else:
                    reply = require_reply(piece, self.model.name)
        if reply is None:
            raise ModelError(f"The stream of {self.model.name} ended without a reply. Try again.", "failed")
        return reply

    async def _results(
        self, run: Run, calls: Sequence[Call], events: _Events, token: CancellationToken | None
    ) -> Sequence[Result[Any]]:
        """Return the results of *calls*, of the last reply of *run*: one for each, in their order."""
        bench = self.workbench
        if self._options.tool_choice == "none":
            return [_refused(call, _NO_TOOLS) for call in calls]
        calls = [self._with_key(run, call) for call in calls]
        if token is not None:
            calls = [replace(call, cancellation=token) for call in calls]
        if events is not None:
            return await self._observed_results(calls, events)
        # By its token each call has a task of its own: a tool that cancels the task it runs in does not end the run.
        calls = [replace(call, cancellation=call.cancellation or CancellationToken()) for call in calls]
        if len(calls) == 1:
            return [await bench.call(calls[0])]
        return await bench.call_many(calls, parallel=self._options.parallel)

    def _with_key(self, run: Run, call: Call) -> Call:
        """Return *call*, with a key where it must not run twice: also in a run that may begin a turn once more."""
        tool = self.workbench.registry.find(call.tool)
        if tool is None:
            return call
        is_once = tool.spec.once if self.name is None else tool.is_task or not may_be_repeated(tool.spec)
        return replace(call, idempotency_key=run.key(call)) if is_once else call

    async def _observed_results(self, calls: Sequence[Call], events: EventQueue[RunEvent]) -> Sequence[Result[Any]]:
        if not self._options.parallel:
            return [await self._observed_result(call, events) for call in calls]
        tasks = [asyncio.create_task(self._observed_result(call, events)) for call in calls]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _observed_result(self, call: Call, events: EventQueue[RunEvent]) -> Result[Any]:
        await events.put(CallStarted(call))
        result: Result[Any] | None = None
        async with _closing(self.workbench.stream(call)) as call_events:
            async for event in call_events:
                if isinstance(event, Result):
                    result = event
                else:
                    await events.put(CallEvent(call, event))
        assert result is not None  # the last of a stream is the result
        await events.put(CallFinished(call, result))
        return result


@asynccontextmanager
async def _closing(iterator: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Yield *iterator*, and close it when its reader leaves."""
    try:
        yield iterator
    finally:
        if (close := getattr(iterator, "aclose", None)) is not None:
            await close()


def _is_cancelled(token: CancellationToken | None) -> bool:
    return token is not None and token.is_cancelled()


def _turns(prompt: Any, after: Sequence[Turn]) -> Sequence[Turn]:
    """Return the turns that a run begins with."""
    parts = prompt if isinstance(prompt, list | tuple) else [] if prompt == "" else [prompt]
    if all(isinstance(part, User | Reply | Results) for part in parts):
        turns: Sequence[Turn] = parts
    elif all(isinstance(part, str | Text | Data | Image | Audio | File) for part in parts):
        turns = (User(tuple(Text(part) if isinstance(part, str) else part for part in parts)),)
    else:
        raise SetupError(
            "A run begins with text, content (Text, Image, ...), a list of both, or the turns of a conversation, "
            f"not with a {type(prompt).__name__}."
        )
    return checked_turns((*after, *turns) if turns else ())


def _require_choice(choice: Choice, bench: Workbench) -> None:
    if choice == "any" and not bench.specs():
        raise SetupError('tool_choice="any" makes the model call a tool, and this agent has none. Give it tools.')
    if choice not in ("auto", "any", "none"):
        require_tool(choice, bench.specs())


def _require_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SetupError(f"{name!r} is not a name for an agent. Use 1 to 64 letters, digits, '_' and '-'.")


def _require_database(bench: Workbench, subject: str) -> None:
    if bench.crib.database is None:
        raise SetupError(f"{subject} needs a database: Workbench([...], store=...).")


_Why = tuple[str, Literal["denied", "limited", "lost"]]

_NO_TOOLS: _Why = "No tool may be called in this conversation. Answer without tools.", "denied"
_LOST: _Why = "The run failed before this call had a result. It is not known whether it was carried out.", "lost"
_EXPIRED: _Why = "The result of this task has expired. It is not known here how it ended.", "lost"
_NOT_ANSWERED: _Why = "The call was not made: it is of a reply in which the model refused to answer.", "denied"


def _too_many(options: RunOptions) -> _Why:
    per_turn, every = options.max_calls_per_turn, options.max_calls
    why = f"The call was not made: at most {per_turn} calls run in one turn, and {every} in all. Make fewer."
    return why, "limited"


def _result_of(outcome: Outcome) -> Result[str]:
    """Return the result of the task that a run was."""
    codes: dict[str, Literal["limited", "cancelled"]] = {"stopped": "limited", "cancelled": "cancelled"}
    error = None if outcome.status == "done" else ToolError(outcome.why, codes.get(outcome.status, "failed"))
    now = datetime.now(UTC)
    return Result(outcome.text, (Text(outcome.text if error is None else error.message),), error, (), now, now)


def _refused(call: Call, why: _Why) -> Result[Any]:
    return error_result(call, ToolError(*why), datetime.now(UTC))
