"""`toolcrib chat`: lines typed or piped become turns of one conversation with an agent.

The first Ctrl-C stops the turn that runs, and its calls; a second one before the next line exits.
"""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Any, TypeVar, cast

import typer

from ..agent import Agent, Model, ModelError, Outcome, RunEvent, model_from_name
from ..core import Answer, AnswerError, CancellationToken, SetupError
from ..formats import Turn, Usage, User
from ..machinery import from_any_thread
from ..record import Redactor
from .app import Session, command, group
from .arguments import SourceNames, ToolNames
from .interrupts import Interrupts
from .prompts import Prompter, has_person, read_line
from .show import signature
from .terminal import UsageError, counted, echo, log_to_stderr, no_such
from .transcript import ChatTranscript

T = TypeVar("T")

app = group()

_COMMANDS: Mapping[str, str] = {
    "/help": "show these lines",
    "/tools": "list the tools",
    "/quit": "exit; so does Ctrl-D",
}
_COMMAND = re.compile(r"/\w+(?=\s|$)")
_FAILED, _PENDING = 1, 3
"""Exit statuses: a turn that did not finish, and one that waits for an answer."""


@command(app, "chat", example="toolcrib chat tools.py --model openai:gpt-5-mini", takes="config store json")
def chat(
    session: Session,
    sources: SourceNames = None,
    tool: ToolNames = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="openai:NAME, responses:NAME, anthropic:NAME, gemini:NAME, bedrock:NAME, or scripted:FILE.",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send this, and exit after the answer.")
    ] = None,
    instructions: Annotated[str, typer.Option(metavar="TEXT", help="Instructions to the model for all turns.")] = "",
) -> int:
    """Chat with a model that uses the tools.

    At a terminal you are asked what calls wait for, and Ctrl-C stops a turn. Without a terminal each line of standard
    input is a turn. The model's words go to standard output, everything else to standard error; with --json there is
    one line of JSON for each event.
    """
    interrupts = session.interrupts
    output = session.output
    provider = _model(model)
    redactor = Redactor(session.settings.secrets)
    transcript = ChatTranscript(output, redactor, as_json=session.as_json, is_over=lambda: interrupts.came)
    # To the person; the model reads that the tool failed.
    log_to_stderr(tracebacks=True, prepare=transcript.pause, holds=transcript.holds)
    prompter = Prompter(transcript.held)
    tools = session.open(
        sources,
        only=tool or (),
        example="For example: toolcrib chat toolcrib.demo --model openai:gpt-5-mini",
        ask=prompter.ask_at_once,
    )
    tools.echo_problems()
    bench = tools.bench
    agent = Agent(provider, bench, instructions=instructions)

    async def work() -> int:
        async with tools.started():
            conversation = Chat(agent, transcript, prompter, interrupts)
            try:
                if prompt is not None:
                    return await conversation.turn(prompt)
                return await (conversation.with_person() if has_person() else conversation.with_lines())
            finally:
                if (close := getattr(provider, "close", None)) is not None:
                    await close()

    return session.run(work())


def _model(name: str | None) -> Model:
    if name is None:
        raise UsageError(
            "No model is named. Name one: --model openai:MODEL, responses:MODEL, anthropic:MODEL, gemini:MODEL, "
            "bedrock:MODEL, or scripted:FILE to try without a provider."
        )
    try:
        return model_from_name(name)
    except SetupError as error:
        raise UsageError(f"--model: {error}") from None


class Chat:
    """A conversation with *agent*."""

    def __init__(self, agent: Agent, transcript: ChatTranscript, prompter: Prompter, interrupts: Interrupts) -> None:
        self._agent = agent
        self._bench = agent.workbench
        self._transcript = transcript
        self._prompter = prompter
        self._interrupts = interrupts
        self._turns: Sequence[Turn] = ()
        self._total = Usage()
        self._presses = 0
        self._stop: Callable[[], object] | None = None
        self._model_failed = False

    async def with_person(self) -> int:
        """Talk to the person at the terminal until they exit. Returns the exit status."""
        history: list[str] = []
        stop_now = from_any_thread(self._stop_now)

        def pressed() -> bool:
            self._presses += 1
            if self._presses == 1:
                stop_now()
            return self._presses == 1

        count = len(self._bench.specs())
        echo(f"{self._agent.model.name}, {counted(count, 'tool')}. /help lists the commands.")
        with self._interrupts.first_sigint_to(pressed):
            while True:
                line, was_stopped = await self._unless_stopped(read_line("> ", history=history))
                if was_stopped:
                    echo("\nTo exit: Ctrl-C again, Ctrl-D or /quit.")
                    continue
                self._presses = 0
                if line is None:
                    return 0
                if line.strip():
                    history.append(line)
                if await self._status_of(line) is None:
                    return 0

    async def with_lines(self) -> int:
        """Run a turn for each line of standard input, until a model fails. Returns the exit status."""
        status = 0
        async for line in _lines():
            status_of_line = await self._status_of(line)
            status = status or status_of_line or 0
            if status_of_line is None or self._model_failed:
                break
        return status

    async def _status_of(self, line: str) -> int | None:
        """Return the exit status of the turn, or the command, of *line*; None where it ends the chat."""
        text = line.strip()
        if not text:
            return 0
        command = _COMMAND.match(text)
        return await self.turn(text) if command is None else self._command(command[0])

    def _command(self, name: str) -> int | None:
        match name:
            case "/quit":
                return None
            case "/help":
                width = max(map(len, _COMMANDS))
                echo("\n".join(f"{command:<{width}}  {text}" for command, text in _COMMANDS.items()))
                echo("Ctrl-C stops the model and its calls. Anything else is sent to the model.")
            case "/tools":
                echo("\n".join(map(signature, self._bench.specs())) or "There are none.")
            case _:
                echo(f"{no_such('There is no command', name, _COMMANDS)} /help lists them.")
        return 0

    # Turns

    async def turn(self, prompt: str) -> int:
        """Run one turn of the conversation. Returns the exit status."""
        token = CancellationToken()
        self._prompter.reset()
        self._stop = token.cancel
        self._model_failed = False
        try:
            outcome = await self._outcome(prompt, token)
        except ModelError as error:
            self._model_failed = True
            if error.so_far is not None:
                self._keep(error.so_far)
            self._transcript.fail(error, self._total)
            return _FAILED
        finally:
            self._stop = None
        self._keep(outcome)
        self._transcript.end(outcome, self._total)
        return 0 if outcome.status == "done" else _PENDING if outcome.status == "pending" else _FAILED

    async def _outcome(self, prompt: str, token: CancellationToken) -> Outcome:
        outcome = await self._shown(self._agent.stream(prompt, after=self._turns, cancellation=token))
        while (state := outcome.state) is not None:
            answers, was_stopped = await self._unless_stopped(self._answers(outcome))
            if was_stopped:
                echo("\nStopped.")
            if not answers:
                break
            try:
                by = self._bench.caller.principal
                outcome = await self._shown(self._agent.resume_stream(state, answers, by=by, cancellation=token))
            except AnswerError as error:
                echo(str(error))
                if error.reason != "expired":
                    break
                outcome = await self._shown(self._agent.resume_stream(state, cancellation=token))
        return outcome

    async def _shown(self, run: AsyncIterator[RunEvent | Outcome]) -> Outcome:
        """Show the events of *run*. Returns its outcome."""
        async with aclosing(cast(AsyncGenerator[RunEvent | Outcome], run)) as events:
            async for event in events:
                if isinstance(event, Outcome):
                    return event
                self._transcript.show(event)
        raise AssertionError("a run ends with an outcome")

    async def _answers(self, outcome: Outcome) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for pending in filter(self._prompter.can_ask, outcome.pendings):
            if (answer := await self._prompter.ask(pending)) is not None:
                answers[pending.id] = answer
        return answers

    def _keep(self, outcome: Outcome) -> None:
        self._total += outcome.usage
        # A prompt without an answer is dropped, so that it is not there twice when it is sent again.
        if not isinstance(outcome.turns[-1], User):
            self._turns = outcome.turns

    # Ctrl-C

    def _stop_now(self) -> None:
        if self._stop is not None:
            self._stop()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, bool]:
        """Return the value of *work*, and whether Ctrl-C has stopped it."""
        task = asyncio.ensure_future(work)
        before, self._stop = self._stop, task.cancel
        try:
            return await task, False
        except asyncio.CancelledError:
            task_here = asyncio.current_task()
            if task_here is not None and task_here.cancelling():
                raise
            return None, True
        finally:
            self._stop = before


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of standard input, whatever it is: a pipe, a file, a terminal."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    put_line = from_any_thread(lines.put_nowait)

    # A thread, since a file cannot be waited for on the event loop. Past `sys.stdin`, whose lock a read that nothing
    # can end would hold at the end of the process.
    def read() -> None:
        with suppress(OSError), open(0, "rb", closefd=False) as stdin:  # there may be none
            for line in iter(stdin.readline, b""):
                put_line(line)
        put_line(b"")

    threading.Thread(target=read, name="toolcrib-lines", daemon=True).start()
    while line := await lines.get():
        yield line.removesuffix(b"\n").decode(errors="replace")
