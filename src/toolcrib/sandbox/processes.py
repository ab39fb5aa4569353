"""Work in worker processes: the host's side of every conversation with a worker.

One pool for each event loop, because what waits for a worker waits on its own loop. A crib has `Processes` of its own
by default; several may be given the same, so that many callers do not mean many processes. What a tool is, and how it
gets to a worker, is its `Codec`'s business.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

from ..core import Context, Credential, Progress, Redaction, ToolError, content_from_dict
from ..machinery import Overrides, PerLoop, log_failure
from .printed import PrintedOutput
from .wire import TooLarge
from .workers import Limits, Worker, WorkerGone, Workers

_log = logging.getLogger("toolcrib")

_TARGET = "toolcrib.sandbox.worker:serve"
_MAX_TRIES = 3
"""How many new workers may end before a call that has not begun fails."""
_GRACE_S = 0.05
"""How long a cancelled tool may clean up; less than what `call.deadline` allows."""
_MAX_CALLERS = 16
"""With the secrets of how many callers a worker has to do before it is replaced."""


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


class Processes:
    """Worker processes, at most *size* of them serving on each event loop: the number of processors, and 2 at least.

    `close` ends them all. `forget` is for when files have changed: no worker keeps what it had imported.
    """

    def __init__(self, *, size: int | None = None, limits: Limits | None = None) -> None:
        self._pools = PerLoop(lambda: Workers(_TARGET, size=size, limits=limits), Workers.abandon)

    def pool(self) -> Workers:
        """Return the workers of the running event loop."""
        return self._pools.get()

    def forget(self) -> None:
        """End the idle workers, and those that serve when they have served. From any thread."""
        self._pools.call_each(Workers.forget)

    async def close(self) -> None:
        """End every worker with everything it started, and wait until they are gone. A later call starts new ones."""
        if (pool := self._pools.pop()) is not None:
            await pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class GuestProcesses(Processes):
    """Worker processes for WebAssembly, which share none with other tools.

    Each module has a limit of its own. Their address space has none: a memory of theirs reserves much, and uses little.
    """

    def __init__(self) -> None:
        super().__init__(limits=Limits(memory_bytes=None))


class ProcessWork:
    """The work of a tool that runs in a worker process, stopped at the deadline with everything it started.

    Waiting for a worker counts toward the deadline; starting one, and importing the tool in it, does not.
    """

    def __init__(self, codec: Codec, processes: Callable[[], Processes] = Processes) -> None:
        self.codec = codec
        self.processes = processes

    async def __call__(self, arguments: dict[str, Any], context: Context) -> Any:
        lease = WorkerLease(self.codec, context, context.host.resource(self.processes).pool())
        try:
            await lease.wait()
            if lease.needs_preparation():
                if context.deadline is None:
                    await lease.prepare()
                else:
                    with context.deadline.paused():
                        await lease.prepare()
            return await lease.run(arguments)
        finally:
            lease.release()


_numbers = itertools.count()


class WorkerLease:
    """One call's worker: first a turn, then a worker that knows the tool, then the conversation."""

    def __init__(self, codec: Codec, context: Context, pool: Workers) -> None:
        self._codec = codec
        self._context = context
        self._pool = pool
        self._name = context.call.tool
        self._key = f"{self._name} {codec.key}"
        self._call = next(_numbers)
        self._worker: Worker | None = None
        self._has_turn = self._is_sound = self._has_begun = self._is_fresh = False
        self._redactions: list[Redaction] = []
        self._printed = PrintedOutput(self._name, context.host.redaction, self._redacted)

    async def wait(self) -> None:
        await self._pool.enter()
        self._has_turn = True

    def needs_preparation(self) -> bool:
        """Take a worker; whether it has yet to import the tool."""
        return self._key not in self._take().known

    async def prepare(self) -> None:
        """Wait until a worker has imported the tool. Raises ToolError."""
        due = monotonic() + self._pool.limits.start_s
        left = _MAX_TRIES
        while True:
            worker = self._worker or self._take()
            if self._key in worker.known:
                return
            # Not by asyncio.timeout: its way out is a cancellation of the task, which means something else here.
            timer = asyncio.get_running_loop().call_later(due - monotonic(), worker.kill)
            try:
                await worker.send(
                    {
                        "do": "load",
                        "call": self._call,
                        "tool": self._key,
                        "name": self._name,
                        "loader": self._codec.loader,
                        "where": self._codec.where,
                    }
                )
                reply = await self._receive(worker)
            except WorkerGone as gone:
                if monotonic() > due:
                    raise self._unavailable(f"It was not loaded within {self._pool.limits.start_s:g} s.") from None
                left -= self._is_fresh
                if not left:
                    raise ToolError(
                        f"Tool '{self._name}' was lost: its worker process {gone} before it began.", "lost"
                    ) from None
            else:
                if reply["type"] == "ready":
                    worker.known.add(self._key)
                    return
                left -= 1
                # A worker that has served before may know a file as it was.
                if self._is_fresh or not left:
                    raise self._unavailable(reply["message"])
            finally:
                timer.cancel()
            self._give_back()

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Return the value of the work.

        Raises what the work raised, as a ToolError, and ToolError `lost` and `too_large`.

        Cancelled, it stops the work and everything that it started.
        """
        message = self._message(arguments)
        left = _MAX_TRIES
        while True:
            worker = self._worker
            assert worker is not None
            try:
                await worker.send(message)
                reply = await self._converse(worker)
            except GeneratorExit:
                raise  # nothing can be waited for now
            except TooLarge as error:
                raise ToolError(f"The arguments of '{self._name}' are {error}.", "too_large") from None
            except WorkerGone as gone:
                left -= self._is_fresh
                if self._has_begun or not left:
                    raise ToolError(
                        f"Tool '{self._name}' was lost: its worker process {gone}. What it had done by then is done.",
                        "lost",
                    ) from None
                # Nothing of this call has happened.
                self._give_back()
                await self.prepare()
            except BaseException:
                await self._wind_down(worker)
                raise
            else:
                return self._end(reply)

    def release(self) -> None:
        """Give the worker back. What is not known to have ended well is stopped."""
        self._give_back()
        if self._has_turn:
            self._pool.leave()

    # Inside

    def _take(self) -> Worker:
        try:
            self._worker = self._pool.take(self._key)
        except WorkerGone as gone:
            raise ToolError(
                f"Tool '{self._name}' was lost: its worker process {gone} before it began.", "lost"
            ) from None
        # One that has served before may have died idle: such a one is no try.
        self._is_fresh = not self._worker.known
        self._worker.sink = self._printed.write
        # A thread that an earlier call has left behind may print something in this one's time.
        redaction = self._context.host.redaction
        if redaction is not None:
            self._worker.used_by[id(redaction)] = redaction
        self._redactions = list(self._worker.used_by.values())
        return self._worker

    def _give_back(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.give_back(worker, sound=self._is_sound and len(worker.used_by) <= _MAX_CALLERS)
        self._printed.finish()

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
                    await port.emit([content_from_dict(part) for part in message["parts"]])
                    await self._answer(worker, message)
                case "ask":
                    try:
                        value = await port.ask(message["key"], message["schema"], message["message"])
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

    def _end(self, message: Mapping[str, Any]) -> Any:
        # With children left behind, or out of memory, the worker is not used again: nothing of a call outlives it.
        self._is_sound = bool(message["clean"])
        if (error := message.get("error")) is not None:
            raise ToolError(error["message"], error["code"], retry=error["retry"], details=error.get("details", {}))
        return self._codec.read_value(message["value"])

    async def _wind_down(self, worker: Worker) -> None:
        """Let the tool of a cancelled call clean up for a moment, and stop it after that, whatever it does."""
        asyncio.get_running_loop().call_later(_GRACE_S, worker.kill)
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

    def _unavailable(self, reason: str) -> ToolError:
        name = self._name
        _log.error("Tool '%s' cannot be loaded in a process of its own: %s", name, self._redacted(reason))
        detail = reason if self._context.host.show_errors else "The detail is in the log."
        return ToolError(f"Tool '{name}' cannot be loaded in a process of its own. {detail}", "unavailable")

    def _redacted(self, text: str) -> str:
        for redaction in self._redactions:
            text = redaction.redact(text)
        return text


def _credential_data(credential: Credential) -> dict[str, Any]:
    data = {field.name: getattr(credential, field.name) for field in fields(Credential)}
    expires_at = credential.expires_at and credential.expires_at.isoformat()
    lists = {"scopes": list(credential.scopes), "hosts": list(credential.hosts), "allow": list(credential.allow)}
    return {**data, **lists, "detail": dict(credential.detail), "expires_at": expires_at}


def _sendable(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the *values* that are JSON, and of the others their types."""
    values_sent: dict[str, Any] = {}
    types: dict[str, str] = {}
    for name, value in values.items():
        if _is_json(value):
            values_sent[name] = value
        else:
            types[name] = type(value).__name__
    return values_sent, types


def _is_json(value: Any) -> bool:
    if value is None or type(value) in (str, int, float, bool):
        return True
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) is dict and all(type(key) is str and _is_json(inner) for key, inner in value.items())
