"""The loop that a model and its tools need: ask the model, make its calls, ask again. Nothing is orchestrated here.

What is said next is decided in `run.py`; this file asks the model and the workbench for it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from time import time
from types import TracebackType
from typing import Any, Self, TypeVar

from ..core import Answer, Audio, Call, CancellationToken, Data, File, Image, Result, SetupError, Text, ToolError
from ..formats import Choice, Reply, Results, Turn, User, Written
from ..workbench import Crib, Workbench
from .events import CallBegun, CallEnded, CallEvent, Events, RunEvent
from .model import Model, ModelError, Request, require_model, require_reply
from .of import model_of
from .outcome import Outcome
from .resume import Resumed
from .run import FIXED, Run, Terms, opened
from .state import key_of, read, written

T = TypeVar("T")

Prompt = str | Text | Data | Image | Audio | File | User | Sequence[Any]
"""What a run begins with: words, content, several of both, or turns of a conversation."""


class Agent:
    """A model that uses tools until it is done.

    *tools* is a Workbench, or what a Workbench takes; then it has one of its own, which `async with` stops. *model* is
    a Model or its name: "openai:gpt-5-mini". One agent may have any number of runs at a time.

    - *instructions*: what the model is told before all turns.
    - *tool_choice*: `"auto"`, `"any"` (it must call something), the name of the tool it must call, or `"none"`. What
      a model must call holds for the first turn of a run; with `"none"` it sees the tools, and calls are denied.
    - *parallel*: whether the calls of one turn run side by side. Without it they run one after the other.
    - *max_steps*: how often the model is asked in one run.
    - *max_errors*: how many turns one after the other may have calls and not one that succeeds.
    - *state_key*: a secret that signs the states of pending runs. Then `resume` refuses one that was changed, and what
      a call has been answered so far is kept in it.

    A run gives an Outcome, however it ends. It raises ModelError where the model gave no reply: `error.so_far` is the
    Outcome up to there, with all turns; AnswerError for answers that do not count; SetupError for what does not fit.
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
        state_key: str | bytes | None = None,
    ) -> None:
        given: Any = tools
        if isinstance(given, Crib):
            raise SetupError("An agent works for one caller: Agent(model, crib.workbench(caller)).")
        for name, bound in {"max_steps": max_steps, "max_errors": max_errors}.items():
            if type(bound) is not int or bound < 1:
                raise SetupError(f"{name} is a number of at least 1.")
        if not isinstance(tool_choice, str):
            raise SetupError('tool_choice is "auto", "any", "none" or the name of a tool.')
        self.model: Model = model_of(model) if isinstance(model, str) else require_model(model)
        self.workbench = tools if isinstance(tools, Workbench) else Workbench(tools)
        self._state_key = key_of(state_key)
        self._owns_workbench = self.workbench is not tools
        self._terms = Terms(
            instructions=instructions,
            choice=tool_choice,
            parallel=parallel,
            max_steps=max_steps,
            max_errors=max_errors,
        )

    # Runs

    async def run(
        self, prompt: Prompt, /, *, after: Sequence[Turn] = (), cancellation: CancellationToken | None = None
    ) -> Outcome:
        """Run until the model is done, calls wait for an answer, or a bound is reached.

        *prompt* is text, content, or turns; *after* the conversation before it, as `Outcome.turns` has it. Cancelling
        the task cancels the calls; with *cancellation* the run then ends with an Outcome, `cancelled`.
        """
        return await self._go_on(Run(_begin(prompt, after), self._terms), None, cancellation)

    def run_sync(
        self, prompt: Prompt, /, *, after: Sequence[Turn] = (), cancellation: CancellationToken | None = None
    ) -> Outcome:
        """`run`, for sync code: plain, in a thread, in a notebook, and inside a running loop, which it blocks."""
        return self.workbench.run_sync(self.run(prompt, after=after, cancellation=cancellation))

    async def stream(
        self, prompt: Prompt, /, *, after: Sequence[Turn] = (), cancellation: CancellationToken | None = None
    ) -> AsyncIterator[RunEvent | Outcome]:
        """`run`, and what happens meanwhile: pieces of replies, and calls that begin, speak and end. Last the Outcome.

        A reader that is slow holds back the run. A reader that leaves (`break`, then the iterator's `aclose`) cancels
        it.
        """
        run = Run(_begin(prompt, after), self._terms)
        events = Events()
        task = asyncio.create_task(self._go_on(run, events, cancellation))
        task.add_done_callback(events.end)
        try:
            async for event in events:
                yield event
            yield await task
        finally:
            if not task.done():
                events.end()
                task.cancel()
                await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # so that nobody is told of an error that nobody waited for

    async def resume(
        self,
        state: Mapping[str, Any],
        answers: Mapping[str, Answer | Mapping[str, Any]] | None = None,
        *,
        by: str = "",
        cancellation: CancellationToken | None = None,
    ) -> Outcome:
        """Go on from the state of a pending run, also in another process, with an agent that has the same tools.

        *answers* are by the ids of `Outcome.pendings`: Approve(), Deny("why"), Input(...), or as JSON
        `{"kind": "approve"}`, `{"kind": "deny", "reason": ...}`, `{"kind": "input", "value": ...}`; *by* says who
        answers. Calls that had ended are not made again; those that waited are, and those without an answer wait on.
        Where a call has become another one (its tool is defined anew, the caller is another), it asks anew.

        The host keeps *state*: it has the conversation and, where it is signed, the answers so far. Raises AnswerError
        where an answer does not count, and SetupError for what is no such state.
        """
        run, last, old = read(state, self._terms, self._state_key)
        calls, results = run.reply.calls, {result.call_id: result for result in last.results}
        waiting = [(call, pending) for call in calls if (pending := results[call.id].pending) is not None]

        async def make(these: Sequence[Call]) -> Sequence[Result[Any]]:
            return await self._results(these, None, cancellation)

        await self.workbench.start()
        resumed = Resumed(self.workbench, waiting, make)
        await resumed.run(old, answers or {}, by)
        results |= resumed.results
        run.took([results[call.id] for call in calls])
        return await self._go_on(run, None, cancellation, resumed)

    def resume_sync(
        self, state: Mapping[str, Any], answers: Mapping[str, Answer | Mapping[str, Any]] | None = None, *, by: str = ""
    ) -> Outcome:
        """`resume`, for sync code."""
        return self.workbench.run_sync(self.resume(state, answers, by=by))

    # Life

    async def start(self) -> None:
        """Make the tools ready. The first run does it too."""
        await self.workbench.start()

    async def stop(self) -> None:
        """Stop the workbench that this agent has made. One that was given to it goes on."""
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

    # Inside

    async def _go_on(
        self, run: Run, events: Events | None, token: CancellationToken | None, resumed: Resumed | None = None
    ) -> Outcome:
        bench = self.workbench
        await bench.start()
        strike = bench.struck
        if resumed is None:
            _require_choice(self._terms.choice, bench)
        over = None if resumed is None else run.over(strike)
        answers = [] if resumed is None else resumed.answers
        while over is None:
            if token is not None and token.is_cancelled():
                return run.outcome("cancelled", strike, "The run was cancelled.")
            try:
                reply = await self._reply(run.request(bench.specs()), events, token)
            except ModelError as error:
                error.so_far = run.outcome("failed", strike, str(error))
                raise
            if reply is None:
                continue
            answers = []
            if calls := run.take(reply):
                run.took(await self._results(calls, events, token))
                if token is not None and token.is_cancelled():
                    continue
            over = run.over(strike)
        return replace(over, state=written(run, answers, self._state_key)) if over.status == "pending" else over

    async def _reply(self, request: Request, events: Events | None, token: CancellationToken | None) -> Reply | None:
        """What the model says; None where the run was cancelled meanwhile."""
        if token is None:
            return await self._whole(request, events)
        task = asyncio.ensure_future(self._whole(request, events))
        token.link_future(task)
        try:
            return await task
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if token.is_cancelled() and not (here is not None and here.cancelling()):
                return None
            raise

    async def _whole(self, request: Request, events: Events | None) -> Reply:
        if events is not None:
            return await self._streamed(request, events)
        return require_reply(await self.model.reply(request), self.model.name)

    async def _streamed(self, request: Request, events: Events) -> Reply:
        reply: Reply | None = None
        async with _closing(self.model.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Written):
                    await events.put(piece)
                else:
                    reply = require_reply(piece, self.model.name)
        if reply is None:
            raise ModelError(f"{self.model.name} wrote words, and no reply at their end. Ask again.", "failed")
        return reply

    async def _results(
        self, calls: Sequence[Call], events: Events | None, token: CancellationToken | None
    ) -> Sequence[Result[Any]]:
        """How *calls* end, one result for each, in their order."""
        bench = self.workbench
        if self._terms.choice == "none":
            return [_forbidden(call) for call in calls]
        if token is not None:
            made = [Call(call.tool, call.arguments, call.id, call.timeout_s, token) for call in calls]
        else:
            made = list(calls)
        if events is not None:
            return await self._told(made, events)
        if len(made) == 1:
            return [await bench.call(made[0])]
        return await bench.call_many(made, parallel=self._terms.parallel)

    async def _told(self, calls: Sequence[Call], events: Events) -> Sequence[Result[Any]]:
        if not self._terms.parallel:
            return [await self._one_told(call, events) for call in calls]
        tasks = [asyncio.create_task(self._one_told(call, events)) for call in calls]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _one_told(self, call: Call, events: Events) -> Result[Any]:
        await events.put(CallBegun(call))
        result: Result[Any] | None = None
        async with _closing(self.workbench.stream(call)) as said:
            async for event in said:
                if isinstance(event, Result):
                    result = event
                else:
                    await events.put(CallEvent(call, event))
        assert result is not None  # the last of a stream is the result
        await events.put(CallEnded(call, result))
        return result


@asynccontextmanager
async def _closing(pieces: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """*pieces*, closed by whoever stops reading them, and not at some later time."""
    try:
        yield pieces
    finally:
        if (close := getattr(pieces, "aclose", None)) is not None:
            await close()


def _begin(prompt: Any, after: Sequence[Turn]) -> Sequence[Turn]:
    """The turns that a run begins with."""
    match prompt:
        case str():
            said: Sequence[Turn] = (User((Text(prompt),)),) if prompt else ()
        case User():
            said = (prompt,)
        case Text() | Data() | Image() | Audio() | File():
            said = (User((prompt,)),)
        case [*parts] if all(isinstance(part, User | Reply | Results) for part in parts):
            said = parts
        case [*parts] if all(isinstance(part, str | Text | Data | Image | Audio | File) for part in parts):
            said = (User(tuple(Text(part) if isinstance(part, str) else part for part in parts)),)
        case _:
            raise SetupError(
                "A run begins with text, content (Text, Image, ...), a list of both, or the turns of a conversation, "
                f"not with a {type(prompt).__name__}."
            )
    return opened((*after, *said) if said else ())


def _require_choice(choice: Choice, bench: Workbench) -> None:
    if choice == "auto" or choice == "none":
        return
    names = [spec.name for spec in bench.specs()]
    if choice == "any" and not names:
        raise SetupError('tool_choice="any" makes the model call a tool, and this agent has none. Give it tools.')
    if choice in FIXED or choice in names:
        return
    from ..schema import nearest, spoken

    meant = nearest(choice, (*FIXED, *names))
    hint = f" Did you mean '{meant}'?" if meant else ""
    raise SetupError(
        f'tool_choice is "auto", "any", "none" or the name of a tool; there is no tool \'{spoken(choice)}\'.{hint}'
    )


def _forbidden(call: Call) -> Result[Any]:
    error = ToolError("No tool may be called in this conversation. Answer without tools.", "denied")
    now = time()
    return Result(None, (Text(error.message),), error, (), now, now, call.id, call.tool)
