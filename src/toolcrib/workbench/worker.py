"""What runs in a worker process: imports tools by reference, and runs one call at a time for its host.

The host has checked the arguments, keeps the deadline and strikes secrets out. What is said here goes to it as JSON.
Each message carries the number of its call, so that what an earlier one left behind is not taken for this one's.
"""

import asyncio
import contextlib
import importlib
import itertools
import logging
import sys
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

from ..call import Provided
from ..call.execute import run_here
from ..call.fail import told
from ..call.normalize import content_of
from ..core import Call, Caller, CancellationToken, Context, LoadError, Needs, Progress, ToolcribError, ToolError
from ..sandbox import TooLarge
from ..sandbox.child import Channel, children_left
from ..schema import Question, write_any
from ..tools import Tool, load
from ..tools.crossing import found_at, write_content, write_value

AnyTool = Tool[..., Any]


async def serve(channel: Channel) -> None:
    """Do what the host says, until it hangs up."""
    worker = _Worker(channel)
    logging.getLogger().addHandler(_ToHost(worker))
    async for message in channel.messages():
        worker.hear(message)


class _Worker:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.call = 0
        self._tools: dict[str, AnyTool] = {}
        self._modules: dict[str, ModuleType] = {}
        self._versions: dict[str, Any] = {}
        self._running: asyncio.Task[None] | None = None
        self._port: _Port | None = None

    def say(self, said: str, **more: Any) -> None:
        self.channel.send({"call": self.call, "say": said, **more})

    def hear(self, message: Mapping[str, Any]) -> None:
        match message["do"]:
            case "load":
                self.call = message["call"]
                self._load(message)
            case "run":
                self.call = message["call"]
                self._running = asyncio.get_running_loop().create_task(self._run(message))
            case "answer" if self._port is not None:
                self._port.answered(message)
            case "cancel" if self._running is not None and message["call"] == self.call:
                self._running.cancel()
            case _:
                pass

    def _load(self, message: Mapping[str, Any]) -> None:
        where, name = message["where"], message["name"]
        module = where["module"]
        if self._versions.setdefault(module, where["version"]) != where["version"]:
            self.say("refused", message=f"A worker has imported {module} as it was before.")
            return
        try:
            tool = self._tool(where, name)
            assert tool.crossing is not None
            if tool.crossing.where["schema"] != where["schema"]:
                raise LoadError(f"Its file has changed since the host loaded it ({where['file']}). Load it again.")
        except (Exception, SystemExit) as error:
            expected = isinstance(error, ToolcribError)
            logging.getLogger("toolcrib").error(
                "Tool '%s' cannot be loaded in a worker: %s", name, error, exc_info=None if expected else error
            )
            self.say("refused", message=f"{type(error).__name__}: {error}")
        else:
            self._tools[message["tool"]] = tool
            self.say("ready")

    def _tool(self, where: Mapping[str, Any], name: str) -> AnyTool:
        found = found_at(self._module(where), where["path"])
        fn = found.fn if isinstance(found, Tool) else found
        return Tool(fn, name=name, isolation="process", parameters=where["parameters"], examples=())

    def _module(self, where: Mapping[str, Any]) -> ModuleType:
        name, file = where["module"], where["file"]
        if not where["by_file"]:
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                missing = error.name or ""
                if file is None or not (name == missing or name.startswith(f"{missing}.")):
                    raise
                # The host had it in another way, as test runners do.
        if file not in self._modules:
            tool = load(f"{file}:{where['path']}").tools[0]
            self._modules[file] = sys.modules[tool.fn.__module__]
        return self._modules[file]

    async def _run(self, message: Mapping[str, Any]) -> None:
        tool, port = self._tools[message["tool"]], _Port(self, message["name"])
        self._port = port
        logging.getLogger().setLevel(message["level"])
        given_up = CancellationToken()
        self.say("begun")
        try:
            ended = {"value": await self._value(tool, message, port, given_up)}
        except BaseException as raised:
            given_up.cancel()
            ended = {"error": self._error(raised, message)}
        port.flush()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        clean = not children_left() and not ended.get("error", {}).pop("worn", False)
        try:
            self.say("ended", **ended, clean=clean)
        except (TooLarge, MemoryError) as error:
            self.say("ended", error=self._error(error, message), clean=False)
        self._port = None

    async def _value(
        self, tool: AnyTool, message: Mapping[str, Any], port: "_Port", given_up: CancellationToken
    ) -> dict[str, Any]:
        assert tool.crossing is not None
        arguments = tool.crossing.read_arguments(message["arguments"])
        needs = tool.needs or Needs()
        context = Context(
            Call(message["name"], message["arguments"], message["call_id"]),
            Caller(*message["caller"]),
            Variables(message["variables"], message["kept_back"]),
            message["deadline_s"],
            given_up,
            logging.getLogger(f"toolcrib.tool.{message['name']}"),
            port,
            asyncio.get_running_loop(),
        )
        overrides = {self._provider(of): self._provider(by) for of, by in message["overrides"]}
        provided = Provided("call", overrides=overrides)
        here: Any = _Here(tool)
        try:
            given = {**arguments, **await provided.arguments(needs, context)}
            value = await run_here(here, given, port, message["deadline_s"])
        except asyncio.CancelledError:
            given_up.cancel()
            raise
        finally:
            await provided.close()
        return write_value(value, tool.encode, promised=tool.spec.output_schema is not None)

    def _provider(self, reference: str) -> Any:
        module, _, path = reference.partition(":")
        return found_at(importlib.import_module(module), path)

    def _error(self, raised: BaseException, message: Mapping[str, Any]) -> dict[str, Any]:
        name = message["name"]
        match raised:
            case TooLarge():
                text = f"Tool '{name}' gave {raised.size_bytes} bytes; {raised.limit_bytes} can be sent. Ask for less."
                return ToolError(text, "too_large").to_dict()
            case MemoryError():
                limit = self.channel.settings["memory_bytes"]
                most = f" ({limit / 2**20:.0f} MiB)" if limit else ""
                text = f"Tool '{name}' needed more memory than it may have{most}. Ask for less."
                return {**ToolError(text, "trapped").to_dict(), "worn": True}
            case _:
                pass
        try:
            return told(raised, name, show=message["show_errors"], redaction=None).to_dict()
        except BaseException as unanswered:  # the host has given the call up, or the tool says so
            return ToolError(f"Tool '{name}' failed: {type(unanswered).__name__}.").to_dict()


class _Here:
    """A tool as it is run in the worker: as the function it is."""

    def __init__(self, tool: AnyTool) -> None:
        assert tool.crossing is not None
        self._tool = tool
        self.runs = tool.crossing.runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


class _Port:
    """Carries what a tool says to the host, and the answers back."""

    def __init__(self, worker: _Worker, tool: str) -> None:
        self._worker = worker
        self._tool = tool
        self._loop = asyncio.get_running_loop()
        self._progress: Progress | None = None
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}

    def progress(self, progress: Progress, /) -> None:
        waits, self._progress = self._progress is not None, progress
        if not waits:
            self._loop.call_soon_threadsafe(self.flush)

    def flush(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            self._worker.say("progress", done=progress.done, total=progress.total, message=progress.message)

    async def emit(self, content: Any, /) -> None:
        self.flush()
        parts = content_of(content, partial(write_any, self._tool))
        try:
            # Answered when the reader has room: until then the tool waits.
            await self._answer("emit", parts=write_content(parts))
        except TooLarge as error:
            raise ToolError(f"Tool '{self._tool}' emitted {error}.", "too_large") from None

    async def ask(self, key: str, schema: Any, message: str, /) -> Any:
        question = Question(schema)
        self.flush()
        return question.read((await self._answer("ask", key=key, schema=question.schema, message=message))["value"])

    def answered(self, message: Mapping[str, Any]) -> None:
        waiting = self._waiting.pop(message["number"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def _answer(self, said: str, **more: Any) -> Mapping[str, Any]:
        number = next(self._numbers)
        waiting = self._waiting[number] = self._loop.create_future()
        self._worker.say(said, number=number, **more)
        message: Mapping[str, Any] = await waiting
        if (refused := message.get("refused")) is not None:
            raise ToolError(
                refused["message"], refused["code"], retry=refused["retry"], details=refused.get("details", {})
            )
        return message


class Variables(dict[str, Any]):
    """The host's variables, those that are JSON. Asking for another one says why it is not here."""

    def __init__(self, sent: Mapping[str, Any], kept_back: Mapping[str, str]) -> None:
        super().__init__(sent)
        self._kept_back = kept_back

    def __missing__(self, name: str) -> Any:
        if name in self._kept_back:
            raise ToolcribError(
                f"The variable '{name}' is a {self._kept_back[name]}, which stays in the host's process. Of the "
                'variables, a tool with isolation="process" has those that are JSON values.'
            )
        raise KeyError(name)


class _ToHost(logging.Handler):
    """Hands log records to the host, which has the handlers and strikes secrets out."""

    def __init__(self, worker: _Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._worker.say(
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
