"""The processes in which tools with `isolation="process"` run: the host's side of every conversation with a worker.

One pool for each event loop, because what waits for a worker waits on its own loop. A Workbench has its own Processes
by default; many workbenches may be given the same one, so that many callers do not mean many processes.
"""

import asyncio
import codecs
import itertools
import logging
import sys
from collections.abc import Callable, Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Self

from ..call import Scene
from ..core import Context, Progress, Redaction, Tool, ToolError
from ..sandbox import Limits, OutputTooLarge, TooLarge, Worker, WorkerGone, Workers
from ..tools import Tool as FunctionTool
from ..tools import reference
from ..tools.crossing import Crossing, read_content

_log = logging.getLogger("toolcrib")

_TARGET = "toolcrib.workbench.worker:serve"
_TRIES = 3
"""How many workers may be found dead before a call that has not begun is given up."""
_GRACE_S = 0.05
"""How long a tool that is given up may clean up; less than what `call.bounded` allows."""
_CALLERS = 16
"""With the secrets of how many a worker has to do before it is replaced."""
_PRINTED_BYTES = 2**20
"""How much of what one call prints is passed on."""


class Processes:
    """Worker processes, at most *size* of them serving on each event loop: the number of processors, and 2 at least.

    `close` ends them all. `forget` is for when files have changed: no worker keeps what it had imported.
    """

    def __init__(self, *, size: int | None = None, limits: Limits | None = None) -> None:
        self._size = size
        self._limits = limits
        self._pools: dict[asyncio.AbstractEventLoop, Workers] = {}

    def seat(self, tool: Tool, scene: Scene, /) -> "Seat":
        """One call's place. See `call.isolated.Isolation`."""
        return Seat(tool, scene, self._pool())

    def forget(self) -> None:
        """End the idle workers, and those that serve when they have served. From any thread."""
        for loop, pool in list(self._pools.items()):
            if loop.is_closed():
                self._pools.pop(loop).abandon()
            else:
                loop.call_soon_threadsafe(pool.forget)

    async def close(self) -> None:
        """End every worker with all that came of it, and wait until they are gone. A later call starts new ones."""
        here = asyncio.get_running_loop()
        while self._pools:
            loop, pool = self._pools.popitem()
            if loop is here:
                await pool.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(pool.close(), loop))
            else:
                pool.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _pool(self) -> Workers:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for ended in [each for each in self._pools if each.is_closed()]:
                self._pools.pop(ended).abandon()
            pool = self._pools[loop] = Workers(_TARGET, size=self._size, limits=self._limits)
        return pool


_numbers = itertools.count(1)


class Seat:
    """One call's place: first a turn, then a worker that knows the tool, then the conversation."""

    def __init__(self, tool: Tool, scene: Scene, pool: Workers) -> None:
        assert isinstance(tool, FunctionTool)
        assert tool.crossing is not None
        self._tool: FunctionTool[..., Any] = tool
        self._crossing: Crossing = tool.crossing
        self._key = f"{tool.spec.name} {tool.crossing.key}"
        self._scene = scene
        self._pool = pool
        self._call = next(_numbers)
        self._worker: Worker | None = None
        self._has_turn = self._sound = self._begun = False
        self._redactions: list[Redaction] = []
        self._printed = _Printed(tool.spec.name, scene.redaction, self._struck)

    async def wait(self) -> None:
        await self._pool.enter()
        self._has_turn = True

    async def prepare(self) -> None:
        if not self._knows(self._take()):
            await self._prepare()

    async def _prepare(self) -> None:
        due_s = monotonic() + self._pool.limits.start_s
        for left in reversed(range(_TRIES)):
            worker = self._worker or self._take()
            if self._knows(worker):
                return
            fresh = not worker.known
            # Not by asyncio.timeout: its way out is a cancellation of the task, which means another thing here.
            timer = asyncio.get_running_loop().call_later(due_s - monotonic(), worker.kill)
            try:
                await worker.send(
                    {
                        "do": "load",
                        "call": self._call,
                        "tool": self._key,
                        "name": self._tool.spec.name,
                        "where": self._crossing.where,
                    }
                )
                said = await self._said(worker)
            except WorkerGone as gone:
                if monotonic() > due_s:
                    raise self._unavailable(f"It was not loaded within {self._pool.limits.start_s:g} s.") from None
                if not left:
                    raise ToolError(
                        f"Tool '{self._tool.spec.name}' was lost: its worker process {gone} before it began.", "lost"
                    ) from None
            else:
                if said["say"] == "ready":
                    worker.known.add(self._key)
                    self._sound = True
                    return
                # A worker that has served before may know a file as it was.
                if fresh or not left:
                    raise self._unavailable(said["message"])
            finally:
                timer.cancel()
            self._give_back()

    async def run(self, arguments: dict[str, Any], context: Context, /) -> Any:
        self._sound = False
        message = self._message(arguments, context)
        for left in reversed(range(_TRIES)):
            worker = self._worker
            assert worker is not None
            try:
                await worker.send(message)
                said = await self._converse(worker, context)
            except GeneratorExit:
                raise  # nothing can be waited for now
            except TooLarge as error:
                raise ToolError(f"The arguments of '{self._tool.spec.name}' are {error}.", "too_large") from None
            except OutputTooLarge as error:
                raise ToolError(f"Tool '{self._tool.spec.name}' {error}. Ask for less.", "too_large") from None
            except WorkerGone as gone:
                if self._begun or not left:
                    raise ToolError(
                        f"Tool '{self._tool.spec.name}' was lost: its worker process {gone}. What it had done by then "
                        "is done.",
                        "lost",
                    ) from None
                # The worker died idle, and nothing of this call has happened.
                self._give_back()
                await self._prepare()
            except BaseException:
                await self._wind_down(worker)
                raise
            else:
                return self._end(worker, said)
        raise AssertionError("the last try has returned or raised")

    def leave(self) -> None:
        self._give_back()
        if self._has_turn:
            self._has_turn = False
            self._pool.leave()

    # Inside

    def _take(self) -> Worker:
        self._sound = False
        self._worker = self._pool.take(self._key)
        self._worker.sink = self._printed.hear
        # A thread that an earlier call has left behind may say something in this one's time.
        if self._scene.redaction is not None:
            self._worker.used_by[id(self._scene.redaction)] = self._scene.redaction
        self._redactions = list(self._worker.used_by.values())
        return self._worker

    def _knows(self, worker: Worker) -> bool:
        self._sound = self._key in worker.known
        return self._sound

    def _give_back(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.give_back(worker, sound=self._sound and len(worker.used_by) <= _CALLERS)
        self._printed.finish()

    def _message(self, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
        name, scene = self._tool.spec.name, self._scene
        sent, kept_back = ({}, {}) if self._tool.needs is None else _sendable(context.variables)
        caller = context.caller
        loggers = (context.log, logging.getLogger())
        try:
            text = self._crossing.write_arguments(arguments)
        except Exception as error:
            _log.exception("The arguments of '%s' cannot be sent to a worker", name)
            raise ToolError(
                f"The arguments of '{name}' cannot be sent to the process it runs in ({type(error).__name__})."
            ) from None
        return {
            "do": "run",
            "call": self._call,
            "tool": self._key,
            "name": name,
            "arguments": text,
            "call_id": context.call.id,
            "caller": [caller.principal, caller.profile, caller.thread],
            "variables": sent,
            "kept_back": kept_back,
            "deadline_s": context.deadline_s,
            "show_errors": scene.show_errors,
            "level": min(logger.getEffectiveLevel() for logger in loggers),
            "overrides": self._overrides(),
        }

    def _overrides(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for provider in self._crossing.depends:
            replaced = self._scene.overrides.get(provider)
            if replaced is None:
                continue
            of, by = reference(provider), reference(replaced)
            if of is None or by is None:
                raise ToolError(
                    f"Tool '{self._tool.spec.name}' runs in a process of its own, to which the override of "
                    f"{getattr(provider, '__name__', provider)!r} cannot be sent: put both at the top of a module.",
                    "unavailable",
                )
            found.append((of, by))
        return found

    async def _converse(self, worker: Worker, context: Context) -> dict[str, Any]:
        """What the worker said last of this call: how it has ended."""
        while True:
            said = await self._said(worker)
            match said["say"]:
                case "begun":
                    self._begun = True
                case "progress":
                    context.port.progress(Progress(said["done"], said["total"], said["message"]))
                case "emit":
                    await context.port.emit(list(read_content(said["parts"])))
                    await self._answer(worker, said)
                case "ask":
                    try:
                        value = await context.port.ask(said["key"], said["schema"], said["message"])
                    except ToolError as error:
                        await self._answer(worker, said, refused=error.to_dict())
                    else:
                        await self._answer(worker, said, value=value)
                case "ended":
                    return said
                case _:
                    raise WorkerGone("said what nobody expected")

    async def _said(self, worker: Worker) -> dict[str, Any]:
        """The next message of this call's. Log records are for everybody."""
        while True:
            message = await worker.receive()
            if message["say"] == "log":
                self._write_log(message)
            elif message["call"] == self._call:
                return message

    async def _answer(self, worker: Worker, said: Mapping[str, Any], **more: Any) -> None:
        await worker.send({"do": "answer", "call": self._call, "number": said["number"], **more})

    def _end(self, worker: Worker, said: Mapping[str, Any]) -> Any:
        # With children left behind, or out of memory, the worker is not used again: nothing of a call outlives it.
        self._sound = bool(said["clean"])
        worker.drain()
        if (error := said.get("error")) is not None:
            raise ToolError(error["message"], error["code"], retry=error["retry"], details=error.get("details", {}))
        return self._crossing.read_value(said["value"])

    async def _wind_down(self, worker: Worker) -> None:
        """The call is given up: let the tool clean up for a moment. Whatever it does, it is stopped after that."""
        self._sound = False
        timer = asyncio.get_running_loop().call_later(_GRACE_S, worker.kill)
        try:
            await worker.send({"do": "cancel", "call": self._call})
            while (await self._said(worker))["say"] != "ended":
                pass
        except WorkerGone:
            pass
        finally:
            timer.cancel()

    def _write_log(self, message: Mapping[str, Any]) -> None:
        logger = logging.getLogger(message["name"])
        level, text = message["level"], self._struck(message["text"])
        if logger.isEnabledFor(level):
            place = (message["path"], message["line"])
            logger.handle(logger.makeRecord(logger.name, level, *place, text, (), None, message["function"]))

    def _unavailable(self, why: str) -> ToolError:
        name = self._tool.spec.name
        _log.error("Tool '%s' cannot be loaded in a process of its own: %s", name, self._struck(why))
        detail = why if self._scene.show_errors else "The detail is in the log."
        return ToolError(f"Tool '{name}' cannot be loaded in a process of its own. {detail}", "unavailable")

    def _struck(self, text: str) -> str:
        for redaction in self._redactions:
            text = redaction.strike(text)
        return text


class _Printed:
    """What a tool prints → its log, line by line, secrets struck out; to standard error where the log does not take it.

    Never to standard output: that may be a protocol of the host's.
    """

    def __init__(self, tool: str, redaction: Redaction | None, struck: Callable[[str], str]) -> None:
        self._struck = struck
        self._log = logging.getLogger(f"toolcrib.tool.{tool}")
        self._tool = tool
        self._redaction = redaction
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._left_bytes = _PRINTED_BYTES
        self._held = self._line = ""  # what may be the beginning of a secret, and of a line

    def hear(self, data: bytes) -> None:
        if self._left_bytes <= 0:
            return
        self._left_bytes -= len(data)
        ready = text = self._held + self._decode(data)
        if self._redaction is not None:
            self._held, ready = self._redaction.split(text)
        *lines, self._line = (self._line + ready).split("\n")
        for line in lines:
            self._write(line)
        if self._left_bytes <= 0:
            self.finish()
            self._write("[more was printed than is passed on]")

    def finish(self) -> None:
        rest, self._held, self._line = self._line + self._held, "", ""
        if rest:
            self._write(rest)

    def _write(self, line: str) -> None:
        line = self._struck(line)
        if self._log.isEnabledFor(logging.INFO):
            self._log.info("%s", line)
        elif sys.stderr is not None:
            sys.stderr.write(f"{self._tool}: {line}\n")


def _sendable(variables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The variables that are JSON values, and of the others their types."""
    sent: dict[str, Any] = {}
    kept_back: dict[str, str] = {}
    for name, value in variables.items():
        if _is_json(value):
            sent[name] = value
        else:
            kept_back[name] = type(value).__name__
    return sent, kept_back


def _is_json(value: Any) -> bool:
    if value is None or type(value) in (str, int, float, bool):
        return True
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) is dict and all(type(key) is str and _is_json(inner) for key, inner in value.items())
