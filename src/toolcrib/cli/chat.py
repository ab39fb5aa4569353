"""An agent at the terminal: lines typed or piped become turns of one conversation.

Ctrl-C stops the turn that runs, and its calls. Whoever presses it again before the next line leaves.
"""

import asyncio
import os
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..agent import Agent, CallEnded, Model, ModelError, Outcome, RunEvent, model_of
from ..core import Answer, AnswerError, CancellationToken, SetupError, ToolSpec
from ..formats import Reply, Results, Turn, Usage, User, Written
from ..record import Redactor
from ..schema.words import did_you_mean, nearest, spoken
from ..workbench import Workbench
from .ask import Asks, has_person, read_line
from .interrupts import Interrupts
from .live import Live
from .show import signature
from .sources import open_sources, tell_problems
from .speech import AsJson, InWords, Speech
from .streams import Output, log_to_stderr, tell
from .usage import UsageError

if TYPE_CHECKING:
    from ..workbench.settings import Settings

T = TypeVar("T")

COMMANDS: Mapping[str, str] = {
    "/help": "show these lines",
    "/tools": "list the tools",
    "/quit": "leave; Ctrl-D does it too",
}
_COMMAND = re.compile(r"/\w+")
_FAILED, _WAITS = 1, 3
"""Exit statuses: a turn that did not come to its end, and one that waits for somebody."""


def chosen_model(name: str | None) -> Model:
    """The model of `--model`. Raises UsageError where there is none of this name, or it cannot be used here."""
    if name is None:
        raise UsageError(
            "No model is given. Name one: --model openai:MODEL, responses:MODEL, anthropic:MODEL, gemini:MODEL, "
            "bedrock:MODEL, or scripted:FILE to try without a provider."
        )
    try:
        return model_of(name)
    except SetupError as error:
        raise UsageError(f"--model: {error}") from None


def require_choice(choice: str, specs: Sequence[ToolSpec]) -> None:
    """Raises UsageError for a `--tool-choice` that is none."""
    known = ["auto", "any", "none", *(spec.name for spec in specs)]
    if choice not in known:
        raise UsageError(
            f"--tool-choice is auto, any, none or the name of a tool, and there is no tool '{spoken(choice)}'."
            f"{did_you_mean(nearest(choice, known))}"
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says of a chat."""

    model: str | None
    prompt: str | None
    instructions: str
    tool_choice: str
    max_steps: int
    as_json: bool = field(kw_only=True)


def chat_with(
    wanted: Wanted, sources: Sequence[str], settings: "Settings", interrupts: Interrupts, calls: Mapping[str, Any]
) -> int:
    """The whole of `toolcrib chat`; *calls* is what it says of calls. Gives the exit status."""
    show_errors = calls["show_errors"]
    log_to_stderr(tracebacks=settings.values.show_errors if show_errors is None else show_errors)
    output = Output(alone=True)
    model = chosen_model(wanted.model)
    redactor = Redactor(settings.secrets)
    live = Live(output, as_json=wanted.as_json, is_over=lambda: interrupts.came)
    speech = AsJson(output, redactor) if wanted.as_json else InWords(output, live, redactor)
    asks = Asks(speech.pause)
    example = "toolcrib chat toolcrib.demo --model openai:gpt-5-mini"
    opened = open_sources(sources, settings, example=example, ask=asks.at_once, **calls)
    tell_problems(opened)
    bench = opened.bench
    require_choice(wanted.tool_choice, bench.specs())
    agent = Agent(
        model,
        bench,
        instructions=wanted.instructions,
        tool_choice=wanted.tool_choice,
        max_steps=wanted.max_steps,
    )

    async def work() -> int:
        async with bench:
            chat = Chat(agent, speech, asks, interrupts)
            try:
                if wanted.prompt is not None:
                    return await chat.once(wanted.prompt)
                return await (chat.with_person() if has_person() else chat.with_lines())
            finally:
                await chat.close()

    return interrupts.run(work())


class Chat:
    """One conversation with *agent*."""

    def __init__(self, agent: Agent, speech: Speech, asks: Asks, interrupts: Interrupts) -> None:
        self._agent = agent
        self._bench: Workbench = agent.workbench
        self._speech = speech
        self._asks = asks
        self._interrupts = interrupts
        self._turns: Sequence[Turn] = ()
        self._total = Usage()
        self._presses = 0
        self._stop: Callable[[], object] | None = None
        self._may_go_on = True

    async def close(self) -> None:
        """Close what the model holds open, if it can be closed."""
        close = getattr(self._agent.model, "close", None)
        if close is not None:
            await close()

    async def with_person(self) -> int:
        """Talk to the person at the terminal until they leave. Gives the exit status."""
        loop = asyncio.get_running_loop()

        def pressed() -> bool:
            self._presses += 1
            if self._presses == 1:
                loop.call_soon_threadsafe(self._stop_now)
            return self._presses == 1

        count = len(self._bench.specs())
        tell(f"{self._agent.model.name}, {count} tool{'s' * (count != 1)}. /help says what you can do here.")
        with self._interrupts.asking_first(pressed):
            while True:
                line, was_stopped = await self._unless_stopped(read_line("> "))
                if was_stopped:
                    tell("\nTo leave: Ctrl-C again, Ctrl-D or /quit.")
                    continue
                self._presses = 0
                if line is None:
                    tell("")
                    return 0
                if await self._said(line) is None:
                    return 0

    async def with_lines(self) -> int:
        """One turn for each line of standard input, until a model fails. Gives the exit status."""
        status = 0
        async for line in _lines():
            ended = await self._said(line)
            if ended is None:
                break
            status = status or ended
            if not self._may_go_on:
                break
        return status

    async def once(self, prompt: str) -> int:
        """One turn. Gives the exit status."""
        return await self._turn(prompt)

    async def _said(self, line: str) -> int | None:
        """The exit status of the turn of *line*; None where it ends the chat."""
        said = line.strip()
        if not said:
            return 0
        return self._command(said) if _COMMAND.fullmatch(said) else await self._turn(said)

    def _command(self, name: str) -> int | None:
        match name:
            case "/quit":
                return None
            case "/help":
                width = max(map(len, COMMANDS))
                tell("\n".join(f"{command:<{width}}  {what}" for command, what in COMMANDS.items()))
                tell("Ctrl-C stops the model and its calls. Anything else is said to the model.")
            case "/tools":
                tell("\n".join(map(signature, self._bench.specs())) or "There are none.")
            case _:
                meant = did_you_mean(nearest(name, COMMANDS))
                tell(f"There is no command '{spoken(name)}'.{meant} /help lists them.")
        return 0

    # Turns

    async def _turn(self, said: str) -> int:
        token = CancellationToken()
        self._asks.begin()
        self._stop = token.cancel
        self._may_go_on = True
        try:
            outcome = await self._outcome(said, token)
        except ModelError as error:
            self._may_go_on = False
            if error.so_far is not None:
                self._keep(error.so_far)
            self._speech.failed(error, self._total)
            return _FAILED
        finally:
            self._stop = None
        self._keep(outcome)
        self._speech.ended(outcome, self._total)
        return 0 if outcome.status == "done" else _WAITS if outcome.status == "pending" else _FAILED

    async def _outcome(self, said: str, token: CancellationToken) -> Outcome:
        outcome: Outcome | None = None
        stream = self._agent.stream(said, after=self._turns, cancellation=token)
        async with aclosing(cast(AsyncGenerator[RunEvent | Outcome], stream)) as events:
            async for event in events:
                if isinstance(event, Outcome):
                    outcome = event
                else:
                    self._speech.show(event)
        assert outcome is not None  # a stream ends with one
        while (state := outcome.state) is not None:
            answers, was_stopped = await self._unless_stopped(self._answers(outcome))
            if was_stopped:
                tell("\nStopped.")
            if not answers:
                break
            known = len(outcome.turns) - 1
            try:
                by = self._bench.caller.principal
                outcome = await self._agent.resume(state, answers, by=by, cancellation=token)
            except AnswerError as error:
                tell(str(error))
                if error.reason != "expired":
                    break
                outcome = await self._agent.resume(state, cancellation=token)
            self._show_turns(outcome.turns[known - 1 :])
        return outcome

    async def _answers(self, outcome: Outcome) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for pending in outcome.pendings:
            if self._asks.can_ask(pending):
                answer = await self._asks.ask(pending)
                if answer is not None:
                    answers[pending.id] = answer
        return answers

    def _show_turns(self, turns: Sequence[Turn]) -> None:
        """What a run has done that nobody could watch. The first of *turns* has the calls that it went on with."""
        calls = {call.id: call for turn in turns if isinstance(turn, Reply) for call in turn.calls}
        for turn in turns[1:]:
            match turn:
                case Reply(text):
                    self._speech.show(Written(text))
                case Results(results):
                    for result in results:
                        self._speech.show(CallEnded(calls[result.call_id], result))
                case User():
                    pass

    def _keep(self, outcome: Outcome) -> None:
        self._total += outcome.usage
        # What has no answer is forgotten: whoever says it again has not said it twice.
        if not isinstance(outcome.turns[-1], User):
            self._turns = outcome.turns

    # Ctrl-C

    def _stop_now(self) -> None:
        if self._stop is not None:
            self._stop()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, bool]:
        """What *work* gives, and whether Ctrl-C has stopped it."""
        task = asyncio.ensure_future(work)
        before, self._stop = self._stop, task.cancel
        try:
            return await task, False
        except asyncio.CancelledError:
            here = asyncio.current_task()
            if here is not None and here.cancelling():
                raise
            return None, True
        finally:
            self._stop = before


async def _lines() -> AsyncIterator[str]:
    """The lines of standard input, whatever it is: a pipe, a file, a terminal."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    # A thread, since a file cannot be waited for on the event loop. Past `sys.stdin`, whose lock a read that nothing
    # can end would hold at the end of the process.
    def read() -> None:
        rest = b""
        with suppress(OSError, RuntimeError):  # there is no standard input, or the loop has ended
            while piece := os.read(0, 65536):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    loop.call_soon_threadsafe(lines.put_nowait, line)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lines.put_nowait, rest)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, name="toolcrib-lines", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line.decode(errors="replace")
