"""The work of tools that run in worker processes: the host's side of every conversation with a worker.

What a tool is, and how its calls get to a worker and back, is its `Codec`'s business.
"""

import codecs
import contextlib
import itertools
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from time import monotonic
from typing import Any, Protocol

from ..core import Context, Credential, Progress, Redaction, ToolError, content_from_dict
from ..machinery import Overrides, log_failure
from .processes import Processes, Worker, WorkerGone
from .wire import TooLarge

_log = logging.getLogger("toolcrib")

_MAX_TRIES = 3
"""How many workers may end before a call that has not begun fails."""
_GRACE_S = 0.05
"""How long a cancelled tool may clean up; less than what `call.deadline` allows."""
_MAX_CALLERS = 16
"""With the secrets of how many callers a worker has to do before it is replaced."""
_MAX_PRINTED_BYTES = 2**20
"""How much of what one call prints is passed on."""


class Codec(Protocol):
    """How the calls of one tool get to a worker and back."""

    @property
    def loader(self) -> str:
        """`module:name` of what a worker makes once, without arguments, to load tools with: see `worker.Loader`."""
        ...

    @property
    def where(self) -> Mapping[str, Any]:
        """What the loader finds the tool by: JSON data, of which `key` is the text."""
        ...

    @property
    def key(self) -> str: ...
    def write_arguments(self, arguments: Mapping[str, Any], /) -> str: ...
    def read_value(self, data: Mapping[str, Any], /) -> Any: ...
    def override_references(self, overrides: Overrides, tool: str, /) -> list[tuple[str, str]]: ...


class ProcessWork:
    """The work of a tool that runs in a worker process, stopped at the deadline with everything it started.

    Waiting for a worker counts toward the deadline; starting one, and importing the tool in it, does not.
    """

    def __init__(self, codec: Codec, processes: Callable[[], Processes] = Processes) -> None:
        self.codec = codec
        self.processes = processes

    async def __call__(self, arguments: dict[str, Any], context: Context) -> Any:
        workers = context.host.resource(self.processes)
        conversation = _Conversation(self.codec, context, workers)
        turn = await workers.turns.acquire(principal=context.host.caller.principal)
        try:
            return await conversation.run(arguments)
        finally:
            workers.turns.release(turn)


_numbers = itertools.count()


class _NotLoaded(Exception):
    """The worker cannot load the tool, for the reason in the text."""


class _Conversation:
    """One call, and what its worker and the host say of it to each other."""

    def __init__(self, codec: Codec, context: Context, workers: Processes) -> None:
        self._codec = codec
        self._context = context
        self._workers = workers
        self._closings = workers.closings
        self._name = context.call.tool
        self._key = f"{self._name} {codec.key}"
        self._owner = context.host.caller.principal
        self._call = next(_numbers)
        self._has_begun = self._is_sound = False
        self._redactions: list[Redaction] = []

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Return the value of the work.

        Raises what the work raised, as a ToolError, and ToolError `lost`, `unavailable` and `too_large`.

        Cancelled, it stops the work and everything that it started.
        """
        for tries_left in reversed(range(_MAX_TRIES)):
            try:
                # One that has served may have died idle, or know a file as it was. So after it, a new one.
                is_retry = tries_left < _MAX_TRIES - 1
                worker = self._workers.take(self._key, owner=self._owner, new=is_retry, closings=self._closings)
            except WorkerGone as gone:
                raise self._lost(gone) from None
            is_new = not worker.known
            output = self._listen(worker)
            try:
                await self._load(worker)
                return await self._run(worker, arguments)
            except WorkerGone as gone:
                if self._has_begun or not tries_left:
                    raise self._lost(gone) from None
            except _NotLoaded as error:
                if is_new or not tries_left:
                    raise self._unavailable(str(error)) from None
            finally:
                # What is not known to have ended well is stopped.
                self._workers.give_back(worker, sound=self._is_sound and len(worker.used_by) <= _MAX_CALLERS)
                output.finish()
        raise AssertionError

    def _listen(self, worker: Worker) -> "PrintedOutput":
        redaction = self._context.host.redaction
        if redaction is not None:
            worker.used_by[id(redaction)] = redaction
        # A thread that an earlier call has left behind may print something in this one's time.
        self._redactions = list(worker.used_by.values())
        output = PrintedOutput(self._name, redaction, self._redacted)
        worker.listen(output.write)
        return output

    async def _load(self, worker: Worker) -> None:
        """Wait until *worker* has imported the tool, which does not count toward the deadline."""
        if self._key in worker.known:
            return
        start_s, deadline = self._workers.limits.start_s, self._context.deadline
        load = {"do": "load", "call": self._call, "tool": self._key, "name": self._name}
        load |= {"loader": self._codec.loader, "where": self._codec.where}
        # Not by asyncio.timeout: its way out is a cancellation of the task, which means something else here.
        due, timer = monotonic() + start_s, worker.kill_after(start_s)
        try:
            with contextlib.nullcontext() if deadline is None else deadline.paused():
                await worker.send(load)
                reply = await self._receive(worker)
        except WorkerGone:
            if monotonic() < due:
                raise
            raise self._unavailable(f"It was not loaded within {start_s:g} s.") from None
        finally:
            timer.cancel()
        if reply["type"] != "ready":
            raise _NotLoaded(reply["message"])
        worker.known.add(self._key)

    async def _run(self, worker: Worker, arguments: dict[str, Any]) -> Any:
        message = self._message(arguments)
        try:
            await worker.send(message)
            reply = await self._converse(worker)
        except (WorkerGone, GeneratorExit):  # nothing can be waited for now
            raise
        except TooLarge as error:
            raise ToolError(f"The arguments of '{self._name}' are {error}.", "too_large") from None
        except BaseException:
            await self._wind_down(worker)
            raise
        # With children left behind, or out of memory, the worker is not used again: nothing of a call outlives it.
        self._is_sound = bool(reply["clean"])
        if (failure := reply.get("error")) is not None:
            raise ToolError(
                failure["message"], failure["code"], retry=failure["retry"], details=failure.get("details", {})
            )
        return self._codec.read_value(reply["value"])

    def _message(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        context, host = self._context, self._context.host
        variables, types = _sendable(host.variables)
        caller, deadline = host.caller, context.deadline
        due = None if deadline is None or deadline.left_s == float("inf") else deadline.due
        try:
            text = self._codec.write_arguments(arguments)
        except Exception as error:
            log_failure(f"The arguments of '{self._name}' cannot be sent to a worker", error, host.redaction)
            raise ToolError(
                f"The arguments of '{self._name}' cannot be sent to the process it runs in ({type(error).__name__})."
            ) from None
        return {
            "do": "run",
            "call": self._call,
            "tool": self._key,
            "name": self._name,
            "arguments": text,
            "call_id": context.call.id,
            "data": None if context.call.data is None else _sendable(context.call.data),
            "caller": [caller.principal, caller.profile, caller.thread, [*caller.groups], [*caller.claims]],
            "credentials": [_credential_data(credential) for credential in context.credentials.values()],
            "variables": variables,
            "withheld": types,
            "due": due,
            "has_steps": context.steps is not None,
            "show_errors": host.show_errors,
            "level": min(logger.getEffectiveLevel() for logger in (context.log, logging.getLogger())),
            "overrides": self._codec.override_references(host.overrides, self._name),
        }

    async def _converse(self, worker: Worker) -> dict[str, Any]:
        """Return the last message of the worker about this call: how it has ended."""
        port = self._context.port
        while True:
            message = await self._receive(worker)
            match message["type"]:
                case "begun":
                    self._has_begun = True
                case "progress":
                    port.progress(Progress(message["done"], message["total"], message["message"]))
                case "emit":
                    await port.emit([content_from_dict(part) for part in message["about"]])
                    await self._answer(worker, message)
                case "ask" | "spend" | "begin" | "store" | "sleep" as kind:
                    try:
                        work = getattr(port if kind in ("ask", "spend") else self._context.steps, kind)
                        value = await work(*message["about"])
                    except ToolError as error:
                        await self._answer(worker, message, refused=error.to_dict())
                    else:
                        await self._answer(worker, message, value=value)
                case "ended":
                    return message
                case _:
                    raise WorkerGone("sent an unexpected message")

    async def _receive(self, worker: Worker) -> dict[str, Any]:
        """Return the next message of this call. Log records are for everybody."""
        while True:
            message = await worker.receive()
            if message["type"] == "log":
                self._write_log(message)
            elif message["call"] == self._call:
                return message

    async def _answer(self, worker: Worker, message: Mapping[str, Any], **more: Any) -> None:
        await worker.send({"do": "answer", "call": self._call, "number": message["number"], **more})

    async def _wind_down(self, worker: Worker) -> None:
        """Let the tool of a cancelled call clean up for a moment, and stop it after that, whatever it does."""
        worker.kill_after(_GRACE_S)
        with contextlib.suppress(WorkerGone):
            await worker.send({"do": "cancel", "call": self._call})
            while (await self._receive(worker))["type"] != "ended":
                pass

    def _write_log(self, message: Mapping[str, Any]) -> None:
        logger = logging.getLogger(message["name"])
        level, text = message["level"], self._redacted(message["text"])
        if logger.isEnabledFor(level):
            place = (message["path"], message["line"])
            logger.handle(logger.makeRecord(logger.name, level, *place, text, (), None, message["function"]))

    def _lost(self, gone: WorkerGone) -> ToolError:
        when = ". What it had done by then is done." if self._has_begun else " before it began."
        return ToolError(f"Tool '{self._name}' was lost: its worker process {gone}{when}", "lost")

    def _unavailable(self, reason: str) -> ToolError:
        name = self._name
        _log.error("Tool '%s' cannot be loaded in a process of its own: %s", name, self._redacted(reason))
        detail = reason if self._context.host.show_errors else "The detail is in the log."
        return ToolError(f"Tool '{name}' cannot be loaded in a process of its own. {detail}", "unavailable")

    def _redacted(self, text: str) -> str:
        for redaction in self._redactions:
            text = redaction.redact(text)
        return text


class PrintedOutput:
    """What a tool prints → its log, line by line, secrets redacted; to standard error where the log does not take it.

    Never to standard output: that may be a protocol of the host's.
    """

    def __init__(self, tool: str, redaction: Redaction | None, redacted: Callable[[str], str]) -> None:
        self._redacted = redacted
        self._tool = tool
        self._redaction = redaction
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._left_bytes = _MAX_PRINTED_BYTES
        self._tail = self._line = ""  # what may be the beginning of a secret, and of a line

    def write(self, data: bytes) -> None:
        if self._left_bytes <= 0:
            return
        self._left_bytes -= len(data)
        ready = text = self._tail + self._decode(data)
        if self._redaction is not None:
            self._tail, ready = self._redaction.split(text)
        *lines, self._line = (self._line + ready).split("\n")
        for line in lines:
            self._write_line(line)
        if self._left_bytes <= 0:
            self.finish()
            self._write_line("[the rest of what was printed is left out]")

    def finish(self) -> None:
        rest, self._tail, self._line = self._line + self._tail, "", ""
        if rest:
            self._write_line(rest)

    def _write_line(self, line: str) -> None:
        line, log = self._redacted(line), logging.getLogger(f"toolcrib.tool.{self._tool}")
        if log.isEnabledFor(logging.INFO):
            log.info("%s", line)
        elif sys.stderr is not None:
            sys.stderr.write(f"{self._tool}: {line}\n")


def _credential_data(credential: Credential) -> dict[str, Any]:
    data = {field.name: getattr(credential, field.name) for field in fields(Credential) if field.name != "refused"}
    expires_at = credential.expires_at and credential.expires_at.isoformat()
    lists = {"scopes": list(credential.scopes), "hosts": list(credential.hosts), "allow": list(credential.allow)}
    return {**data, **lists, "detail": dict(credential.detail), "expires_at": expires_at}


def _sendable(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the *values* that are JSON, and of the others their types."""
    values_sent = {name: value for name, value in values.items() if _is_json(value)}
    return values_sent, {name: type(value).__name__ for name, value in values.items() if name not in values_sent}


def _is_json(value: Any) -> bool:
    if value is None or type(value) in (str, int, float, bool):
        return True
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) is dict and all(type(key) is str and _is_json(inner) for key, inner in value.items())
