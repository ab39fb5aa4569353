"""Clients that are connected while the tools change: over both transports, in both eras."""

import asyncio
import gc
import os
import subprocess
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import mcp_types as wire
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from toolcrib import Crib, Tool, tool
from toolcrib.serve import local_caller, server
from toolcrib.serve.access.callers import Callers
from toolcrib.serve.mcp.changes import following
from toolcrib.serve.protocol.sessions import HttpSession

from ..waiting import until
from .serving import add, served

CHANGING = str(Path(__file__).with_name("changing.py"))
NEW = "2026-07-28"

TOOLS = '''from toolcrib import tool

print("imported")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''

MORE = '''

@tool
def double(a: int) -> int:
    """Double a number."""
    return 2 * a
'''

WAITING = '''from pathlib import Path
from time import sleep

from toolcrib import tool


@tool
def wait(folder: str) -> str:
    """Say that it has begun, and wait until it may end."""
    (Path(folder) / "begun").touch()
    while not (Path(folder) / "may end").exists():
        sleep(0.01)
    return answer()


def answer() -> str:
    return "as it began"
'''


@tool
async def double(a: int) -> int:
    """Double a number."""
    return 2 * a


class Notices:
    """A connected client, and the notices of changes that it gets."""

    def __init__(self, client: Client, heard: "asyncio.Queue[str]") -> None:
        self.client = client
        self.heard = heard

    async def names(self) -> list[str]:
        return [listed.name for listed in (await self.client.list_tools()).tools]

    async def text(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        result = await self.client.call_tool(name, arguments or {})
        return result.content[0].text

    async def until_notified(self, change: Callable[[], None]) -> None:
        """Make a change until the client is notified: over HTTP, its stream for notices opens later."""
        async with asyncio.timeout(60):
            while True:
                change()
                try:
                    await asyncio.wait_for(self.heard.get(), 2)
                    return
                except TimeoutError:
                    continue


Connect = Callable[[Any], Any]


@asynccontextmanager
async def connected(transport: Any, version: str) -> AsyncIterator[Notices]:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            await heard.put("changed")

    if version != NEW:
        async with Client(transport, mode="legacy", message_handler=hear) as client:
            can = client.server_capabilities
            assert [each.list_changed for each in (can.tools, can.resources, can.prompts)] == [True] * 3
            yield Notices(client, heard)
        return
    async with Client(transport, mode=NEW) as client, client.listen(tools_list_changed=True) as events:

        async def listen() -> None:
            async for _ in events:
                await heard.put("changed")

        listening = asyncio.create_task(listen())
        yield Notices(client, heard)
        listening.cancel()
        await asyncio.wait([listening])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "tools.py"
    made.write_text(TOOLS)
    return made


@pytest.fixture(
    params=[
        "http 2026-07-28",
        "stdio 2025-11-25",
        *(pytest.param(other, marks=pytest.mark.full) for other in ("http 2025-11-25", "stdio 2026-07-28")),
    ]
)
def way(request: pytest.FixtureRequest) -> str:
    """A transport and an era."""
    return request.param


@asynccontextmanager
async def client_of(file: Path, way: str, python: str) -> AsyncIterator[Notices]:
    """A client of a process that serves *file*. What the server logs is in `log` beside the file."""
    how, _, version = way.partition(" ")
    command = [CHANGING, how, str(file)]
    with file.with_name("log").open("w") as log:
        if how == "stdio":
            started = stdio_client(
                StdioServerParameters(command=python, args=command, env=dict(os.environ)), errlog=log
            )
            async with connected(started, version) as made:
                yield made
            return
        with subprocess.Popen([python, *command], stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                assert process.stdout.readline() == "imported\n"
                async with connected(process.stdout.readline().strip(), version) as made:
                    yield made
            finally:
                process.terminate()


def save(file: Path, text: str) -> None:
    """Save as editors do: a file that is only half written is never seen, however busy the machine."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


async def logged(file: Path, text: str) -> None:
    await until(lambda: text in file.with_name("log").read_text())


async def test_a_client_is_notified_of_what_is_saved_and_lists_and_calls_it(
    file: Path, way: str, forked_python: str
) -> None:
    async with client_of(file, way, forked_python) as notices:
        assert await notices.names() == ["add"]
        texts = iter([TOOLS + MORE, TOOLS] * 20)
        saved: list[str] = []

        def save_next() -> None:
            saved.append(next(texts))
            save(file, saved[-1])

        await notices.until_notified(save_next)
        while saved[-1] != TOOLS + MORE:
            await notices.until_notified(save_next)
        async with asyncio.timeout(60):
            while await notices.names() != ["add", "double"]:
                await notices.heard.get()
        assert await notices.text("double", {"a": 21}) == "42"
        # A syntax error keeps the tools, and names file and line.
        save(file, "\n\ndef (:\n")
        await logged(file, f"Not loaded, so its tools stay as they were: {file}:3: SyntaxError: invalid syntax\n")
        assert await notices.names() == ["add", "double"]
        assert await notices.text("double", {"a": 4}) == "8"
        # Repaired, with one tool that promises something else, one that is gone, and one that is new.
        save(file, TOOLS.replace("Add two", "Sum two") + MORE.replace("double", "twice"))
        async with asyncio.timeout(60):
            while await notices.names() != ["add", "twice"]:
                await notices.heard.get()
        descriptions = [listed.description for listed in (await notices.client.list_tools()).tools]
        assert descriptions == ["Sum two numbers.", "Double a number."]


async def test_a_call_ends_with_the_code_that_it_began_with(file: Path, way: str, forked_python: str) -> None:
    async with client_of(file, way, forked_python) as notices:
        save(file, WAITING)
        async with asyncio.timeout(60):
            while await notices.names() != ["wait"]:
                await asyncio.sleep(0.02)
            call = asyncio.create_task(notices.text("wait", {"folder": str(file.parent)}))
            await until(file.with_name("begun").exists)
            save(file, WAITING.replace("as it began", "as it is now") + MORE)
            while await notices.names() != ["wait", "double"]:
                await asyncio.sleep(0.02)
            file.with_name("may end").touch()
            assert await call == "as it began"
            assert await notices.text("wait", {"folder": str(file.parent)}) == "as it is now"


# In this process


@pytest.mark.parametrize("version", ["2025-11-25", NEW])
async def test_only_what_changes_the_list_is_notified(version: str) -> None:
    crib = Crib([add])
    async with connected(server(crib), version) as notices:
        await notices.names()
        crib.registry.replace(Tool(add))  # the same promise
        crib.registry.exchange(["add"], [add, double])
        crib.registry.exchange(["double"], [])
        crib.registry.add(double)
        async with asyncio.timeout(60):
            await notices.heard.get()
            assert await notices.names() == ["add", "double"]
            crib.registry.remove("add")
            await notices.heard.get()
            assert await notices.names() == ["double"]
        assert notices.heard.empty()


@pytest.mark.parametrize("version", ["2025-11-25", NEW])
async def test_the_tool_that_reads_large_results_is_notified_with_the_first_of_them(version: str) -> None:
    @tool
    async def much() -> str:
        return "line\n" * 1000

    async with connected(server(Crib([much], max_result_chars=1000)), version) as notices:
        assert await notices.names() == ["much"]
        for _ in range(2):
            await notices.client.call_tool("much", {})
        await asyncio.wait_for(notices.heard.get(), 60)
        assert await notices.names() == ["much", "read_result"]
        assert notices.heard.empty()


@pytest.mark.parametrize("version", ["2025-11-25", NEW])
async def test_what_a_search_has_found_is_notified(version: str) -> None:
    async with connected(server(Crib([add], search=True)), version) as notices:
        assert await notices.names() == ["find_tools"]
        await notices.client.call_tool("find_tools", {"query": "numbers"})
        await asyncio.wait_for(notices.heard.get(), 60)
        assert await notices.names() == ["find_tools", "add"]
        await notices.client.call_tool("find_tools", {"query": "numbers"})
        assert await notices.names() == ["find_tools", "add"]
        assert notices.heard.empty()


async def test_a_change_in_another_thread_is_notified() -> None:
    crib = Crib([add])
    async with connected(server(crib), NEW) as notices:
        await asyncio.to_thread(crib.registry.add, double)
        await asyncio.wait_for(notices.heard.get(), 60)
        assert await notices.names() == ["add", "double"]


async def test_several_clients_are_notified_and_those_that_have_left_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions: weakref.WeakSet[Any] = weakref.WeakSet()
    begin = HttpSession.__init__

    def noted(self: HttpSession, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        sessions.add(self)

    monkeypatch.setattr(HttpSession, "__init__", noted)
    crib = Crib([add])
    async with served(crib) as url:
        async with connected(url, "2025-11-25") as old, connected(url, NEW) as new, connected(url, NEW) as other:
            tools = iter([double, None] * 20)

            def change() -> None:
                crib.registry.exchange(["double"] if "double" in crib.registry else [], filter(None, [next(tools)]))

            await old.until_notified(change)
            for notices in (new, other):
                await asyncio.wait_for(notices.heard.get(), 60)
        async with asyncio.timeout(60):
            assert sessions
            while sessions:
                await asyncio.sleep(0.05)
                gc.collect()


async def test_nothing_is_left_of_a_server_that_has_ended() -> None:
    crib = Crib([add])
    async with following(Callers(crib, local_caller)) as changes:
        kept = weakref.ref(changes)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    del changes
    gc.collect()
    assert kept() is None


def test_a_change_after_the_loop_of_a_server_has_gone_is_a_change_like_any_other() -> None:
    crib = Crib([add])
    loop = asyncio.new_event_loop()
    abandoned = following(Callers(crib, local_caller))
    loop.run_until_complete(abandoned.__aenter__())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    crib.registry.add(double)
    crib.resources.add("n://a", "a")
    assert [spec.name for spec in crib.registry.specs()] == ["add", "double"]


async def test_a_client_that_cannot_be_notified_is_logged_and_the_others_are(caplog: pytest.LogCaptureFixture) -> None:
    class Gone:
        followed, closing = frozenset[str](), dict[str, Any]()

        async def send_notification(self, _: object) -> None:
            raise OSError("the line is dead")

    class Connected(Gone):
        def __init__(self) -> None:
            self.notified = asyncio.Event()

        async def send_notification(self, _: object) -> None:
            self.notified.set()

    caplog.set_level("DEBUG", "toolcrib")
    crib, connected = Crib([add]), Connected()
    callers = Callers(crib, local_caller)
    bench = await callers.workbench(None)
    async with following(callers) as changes:
        changes.add(cast(Any, Gone()), bench)
        changes.add(cast(Any, connected), bench)
        crib.registry.add(double)
        await asyncio.wait_for(connected.notified.wait(), 60)
    logged = [(record.getMessage(), record.exc_info and str(record.exc_info[1])) for record in caplog.records]
    assert ("A client could not be notified of a change", "the line is dead") in logged
