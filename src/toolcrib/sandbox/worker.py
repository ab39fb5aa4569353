"""The worker's side: a new interpreter below a guard, which loads tools by reference and runs one call at a time.

The host has checked the arguments, keeps the deadline and redacts secrets. What is sent to it is JSON. Each message
carries the number of its call, so that what an earlier one left behind is not taken for this one's.
"""

import asyncio
import contextlib
import faulthandler
import io
import itertools
import logging
import os
import resource
import select
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from time import monotonic
from typing import Any, Protocol, TypeVar

from ..core import (
    Call,
    Caller,
    CancellationToken,
    Context,
    Credential,
    Progress,
    Redaction,
    ToolcribError,
    ToolError,
    content_of,
    content_to_dict,
)
from ..machinery import Deadline, Overrides, Steps, current_deadline, from_any_thread, run_here, to_tool_error
from ..schema import Elicitation, serialize_any
from .wire import READ_BYTES, Frames, TooLarge, pack

T = TypeVar("T")


def main(settings: Mapping[str, Any]) -> None:
    """Serve as a worker until the host hangs up."""
    sock = socket.socket(fileno=settings["channel"])
    sock.setblocking(False)
    os.set_inheritable(sock.fileno(), False)  # what a tool starts must not hold the channel open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable()
    if settings["memory_bytes"]:
        _limit_memory(settings["memory_bytes"])
    with contextlib.suppress(OSError):
        # Where the whole machine runs out of memory, a worker is to go before its host.
        Path("/proc/self/oom_score_adj").write_text("500")
    asyncio.run(resolve_name(settings["target"])(Channel(sock, settings)))
    # Threads of a tool that never return would keep the process from ending by itself.
    os._exit(0)


def _limit_memory(max_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class Channel:
    """The worker's end of the pipe to its host. `settings` are those of the host."""

    def __init__(self, sock: socket.socket, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._sock = sock
        self._limit_bytes: int = settings["output_bytes"]
        self._sending = threading.Lock()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages of the host, until it hangs up."""
        loop = asyncio.get_running_loop()
        frames = Frames()
        while True:
            while (message := frames.take()) is not None:
                yield message
            data = await loop.sock_recv(self._sock, READ_BYTES)
            if not data:
                return
            frames.feed(data)

    def send(self, message: Mapping[str, Any]) -> None:
        """Say something to the host, from any thread. Blocks while the host is slow to read. Raises wire.TooLarge."""
        frame = memoryview(pack(message, limit_bytes=self._limit_bytes))
        with self._sending:
            while frame:
                try:
                    frame = frame[self._sock.send(frame) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._sock, select.POLLOUT)
                    poll.poll()


class Loader(Protocol):
    """Loads tools in a worker. Made once for each worker."""

    def load(self, where: Mapping[str, Any], name: str, /) -> Callable[[str, Context], Awaitable[dict[str, Any]]]:
        """Return what runs the tool at *where*: arguments as JSON text and the Context → its value as JSON data."""
        ...


async def serve(channel: Channel) -> None:
    """Do what the host sends, until it hangs up."""
    worker = _Worker(channel)
    logging.getLogger().addHandler(_ToHost(worker))
    async for message in channel.messages():
        worker.receive(message)


class _Worker:
    call: int

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._loaders: dict[str, Loader] = {}
        self._tools: dict[str, Callable[[str, Context], Awaitable[dict[str, Any]]]] = {}
        self._running: asyncio.Task[None] | None = None
        self._port: _Port | None = None

    def send(self, kind: str, **more: Any) -> None:
        self.channel.send({"call": self.call, "type": kind, **more})

    def receive(self, message: Mapping[str, Any]) -> None:
        match message["do"]:
            case "load":
                self.call = message["call"]
                self._load(message)
            case "run":
                self.call = message["call"]
                self._running = asyncio.create_task(self._run(message))
            case "answer" if self._port is not None:
                self._port.receive_answer(message)
            case "cancel" if self._running is not None and message["call"] == self.call:
                self._running.cancel()
            case _:
                pass

    def _load(self, message: Mapping[str, Any]) -> None:
        try:
            loader = self._loaders.get(message["loader"])
            if loader is None:
                loader = self._loaders[message["loader"]] = resolve_name(message["loader"])()
            self._tools[message["tool"]] = loader.load(message["where"], message["name"])
        except (Exception, SystemExit) as error:
            is_expected = isinstance(error, ToolcribError)
            logging.getLogger("toolcrib").error(
                "Tool '%s' cannot be loaded in a worker: %s",
                message["name"],
                error,
                exc_info=None if is_expected else error,
            )
            self.send("refused", message=f"{type(error).__name__}: {error}")
        else:
            self.send("ready")

    async def _run(self, message: Mapping[str, Any]) -> None:
        tool, port = self._tools[message["tool"]], _Port(self, message["name"])
        self._port = port
        if (root := logging.getLogger()).level != message["level"]:
            root.setLevel(message["level"])
        cancellation = CancellationToken()
        self.send("begun")
        try:
            outcome: dict[str, Any] = {"value": await self._value(tool, message, port, cancellation)}
        except BaseException as raised:
            cancellation.cancel()
            outcome = {"error": self._error(raised, message)}
        port.flush()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        clean = not children_left() and not outcome.get("error", {}).pop("worn", False)
        try:
            self.send("ended", **outcome, clean=clean)
        except (TooLarge, MemoryError) as error:
            self.send("ended", error=self._error(error, message), clean=False)

    async def _value(
        self,
        tool: Callable[[str, Context], Awaitable[dict[str, Any]]],
        message: Mapping[str, Any],
        port: "_Port",
        cancellation: CancellationToken,
    ) -> dict[str, Any]:
        name, due = message["name"], message["due"]
        # The clock of `time.monotonic` is one for all processes of a machine.
        deadline = None if due is None else Deadline(due - monotonic())
        credentials = [_credential(data) for data in message["credentials"]]
        overrides = {resolve_name(provider): resolve_name(by) for provider, by in message["overrides"]}
        data = None if message["data"] is None else Variables(*message["data"], kind="entry")
        context = Context(
            Call(name, message["arguments"], message["call_id"], data=data),
            _Host(message, overrides),
            port,
            deadline,
            cancellation,
            {credential.provider: credential for credential in credentials},
            run_here(),
            _Steps(port) if message["has_steps"] else None,
        )
        current_deadline.set(deadline)
        try:
            return await tool(message["arguments"], context)
        finally:
            while port.clients:
                await port.clients.pop().aclose()

    def _error(self, raised: BaseException, message: Mapping[str, Any]) -> dict[str, Any]:
        name = message["name"]
        if isinstance(raised, TooLarge):
            sizes = f"{raised.size_bytes} bytes; at most {raised.limit_bytes} can be sent"
            return ToolError(f"Tool '{name}' returned {sizes}. Ask for less.", "too_large").to_dict()
        if isinstance(raised, MemoryError):
            limit = self.channel.settings["memory_bytes"]
            most = f" ({limit / 2**20:.0f} MiB)" if limit else ""
            text = f"Tool '{name}' needed more memory than it may have{most}. Ask for less."
            return {**ToolError(text, "trapped").to_dict(), "worn": True}
        try:
            return to_tool_error(raised, name, show=message["show_errors"], redaction=None).to_dict()
        except BaseException as cancelled:  # by the host, or by the tool itself
            return ToolError(f"Tool '{name}' failed: {type(cancelled).__name__}.").to_dict()


class _Host:
    """What a tool may use of its host here."""

    def __init__(self, message: Mapping[str, Any], overrides: Overrides) -> None:
        self.caller = _caller(*message["caller"])
        self.variables = Variables(message["variables"], message["withheld"])
        self.overrides = overrides
        self.redaction: Redaction | None = None
        self.show_errors: bool = message["show_errors"]
        self._resources: dict[Any, Any] = {}

    def session(self) -> Any:
        return None

    def resource(self, factory: Callable[[], T], /) -> T:
        return self._resources.setdefault(factory, factory())  # type: ignore[no-any-return]


def _caller(principal: str, profile: str, thread: str, groups: list[str], claims: list[tuple[str, str]]) -> Caller:
    return Caller(principal, profile, thread, frozenset(groups), frozenset((name, value) for name, value in claims))


def _credential(data: dict[str, Any]) -> Credential:
    expires_at = data.pop("expires_at")
    return Credential(**data, expires_at=None if expires_at is None else datetime.fromisoformat(expires_at))


class _Port:
    """Carries what a tool reports to the host, and the answers back."""

    def __init__(self, worker: _Worker, tool: str) -> None:
        self._worker = worker
        self._tool = tool
        self._progress: Progress | None = None
        self._flush_later = from_any_thread(self.flush)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self.clients: list[Any] = []

    def progress(self, progress: Progress, /) -> None:
        is_waiting, self._progress = self._progress is not None, progress
        if not is_waiting:
            self._flush_later()

    def flush(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            self._worker.send("progress", done=progress.done, total=progress.total, message=progress.message)

    async def emit(self, content: Any, /) -> None:
        parts = content_of(content, partial(serialize_any, self._tool))
        try:
            # Answered when the reader has room: until then the tool waits.
            await self.request("emit", *(content_to_dict(part, exact=True) for part in parts))
        except TooLarge as error:
            raise ToolError(f"Tool '{self._tool}' emitted {error}.", "too_large") from None

    async def ask(self, key: str, schema: Any, message: str, /) -> Any:
        question = Elicitation(schema)
        return question.read(await self.request("ask", key, question.schema, message))

    def http(self, credential: Credential, /) -> Any:
        from ..net import authorized

        self.clients.append(authorized(credential))
        return self.clients[-1]

    async def spend(self, unit: str, amount: float, /) -> None:
        await self.request("spend", unit, amount)

    def receive_answer(self, message: Mapping[str, Any]) -> None:
        waiting = self._waiting.pop(message["number"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def request(self, kind: str, *about: Any) -> Any:
        """Return the host's answer to a message of *kind* *about* something."""
        self.flush()
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.Future()
        self._worker.send(kind, number=number, about=about)
        answer: Mapping[str, Any] = await waiting
        if (refusal := answer.get("refused")) is not None:
            raise ToolError(
                refusal["message"], refusal["code"], retry=refusal["retry"], details=refusal.get("details", {})
            )
        return answer.get("value")


class _Steps(Steps):
    """Steps that the host stores."""

    def __init__(self, port: _Port) -> None:
        self._port = port

    async def begin(self, key: str, /) -> tuple[int, list[Any]]:
        position, values = await self._port.request("begin", key)
        return position, values

    async def store(self, position: int, text: str, /) -> None:
        await self._port.request("store", position, text)

    async def sleep(self, seconds: float, /) -> None:
        await self._port.request("sleep", seconds)


class Variables(dict[str, Any]):
    """The host's variables, those that are JSON. Asking for another one raises the reason why it is not here.

    *kind* is what they are called: the entries of a call's data are sent in the same way.
    """

    def __init__(self, sent: Mapping[str, Any], withheld: Mapping[str, str], *, kind: str = "variable") -> None:
        super().__init__(sent)
        self._withheld = withheld
        self._kind = kind

    def __missing__(self, name: str) -> Any:
        if name in self._withheld:
            raise ToolcribError(
                f"The {self._kind} '{name}' is a {self._withheld[name]}, which stays in the host's process. Of such "
                'values, a tool with isolation="process" has those that are JSON values.'
            )
        raise KeyError(name)


def children_left() -> bool:
    """Return whether anything that was started here still runs, adopted orphans too. Buries what has ended."""
    if not hasattr(os, "waitid"):
        return False
    while True:
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                return True
        except ChildProcessError:
            return False


class _ToHost(logging.Handler):
    """Hands log records to the host, which has the handlers and redacts secrets."""

    def __init__(self, worker: _Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._worker.send(
                "log",
                name=record.name,
                level=record.levelno,
                text=self.format(record),
                path=record.pathname,
                line=record.lineno,
                function=record.funcName,
            )
        except Exception:
            self.handleError(record)
