"""A kind of tool that the package does not know: a filter of the shell, in a process that is killed at the deadline."""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from toolcrib import Call, Context, Registry, ToolError, ToolSpec, Workbench, core
from toolcrib.machinery import AtDeadline, Checked
from toolcrib.workbench import Limit, prefixed


class ShellFilter:
    """Sends the text through a command, and returns what it prints."""

    at_deadline: AtDeadline = "killed"

    def __init__(self, name: str, command: str) -> None:
        self.spec = ToolSpec(
            name=name,
            description=f"Send text through {command}.",
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        )
        self.command = command
        self.pids: list[int] = []

    def check(self, arguments: str | bytes | Mapping[str, Any] | None, _repair: bool, /) -> Checked:
        read = json.loads(arguments) if isinstance(arguments, str | bytes) else dict(arguments or {})
        if set(read) != {"text"} or not isinstance(read["text"], str):
            raise ToolError(f"Tool '{self.spec.name}' takes a text.", "invalid_arguments", retry="changed")
        return read, ()

    def encode(self, value: Any, /) -> str:
        return json.dumps(value)

    async def work(self, arguments: dict[str, Any], context: Context) -> str:
        process = await asyncio.create_subprocess_shell(
            f"exec {self.command}", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self.pids.append(process.pid)
        try:
            out, _ = await process.communicate(arguments["text"].encode())
        except asyncio.CancelledError:
            process.kill()
            await process.communicate()
            raise
        if process.returncode:
            raise ToolError(f"{self.command} exited with {process.returncode}.")
        return out.decode()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_runs_and_its_errors_are_results() -> None:
    upper, broken = ShellFilter("upper", "tr a-z A-Z"), ShellFilter("broken", "false")
    async with Workbench([upper, broken], secrets=["HUNTER22"]) as bench:
        assert [spec.name for spec in bench.specs()] == ["upper", "broken"]
        assert (await bench.call("upper", '{"text": "abc"}')).text == "ABC"
        assert (await bench.call("upper", {"text": "hunter22"})).text == "[secret]"
        assert [(await bench.call(name, arguments)).error.code for name, arguments in (  # type: ignore[union-attr]
            ("upper", {"txt": "abc"}), ("broken", {"text": ""}), ("upper", "[]"),
        )] == ["invalid_arguments", "failed", "invalid_arguments"]  # fmt: skip


async def test_it_is_killed_at_the_deadline_and_when_the_caller_gives_up() -> None:
    slow = ShellFilter("slow", "sleep 60")
    async with Workbench([slow]) as bench:
        result = await bench.call(Call("slow", {"text": ""}, timeout_s=0.2))
        assert result.error is not None
        assert result.error.code == "timeout"
        assert "may still be running" not in result.text
        task = asyncio.create_task(bench.call("slow", {"text": ""}))
        while len(slow.pids) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
    assert not any(map(is_alive, slow.pids))


async def test_it_is_registered_viewed_and_limited_like_any_other() -> None:
    upper = ShellFilter("upper", "tr a-z A-Z")
    async with Workbench([prefixed([upper], "sh_")], limits=[Limit(concurrency=1)]) as bench:
        names = [spec.name for spec in bench.specs()]
        assert len(names) == 1
        results = await bench.call_many([(names[0], {"text": text}) for text in "abc"])
        assert [result.text for result in results] == ["A", "B", "C"]
    registry = Registry()
    registry.add(upper)  # type: ignore[arg-type]
    async with Workbench(registry) as bench:
        assert (await bench.call("upper", {"text": "x"})).text == "X"
        assert (await bench.check("upper", {"text": "x"})).value == {"text": "x"}


class Inheriting(core.Tool):
    """A tool kind that inherits what it does not change."""

    def __init__(self) -> None:
        self.spec = ToolSpec("five", "Five.", {"type": "object"})

    def check(self, arguments: Any, repair: bool, /) -> Any:
        return {}, ()

    async def work(self, arguments: dict[str, Any], context: Any, /) -> int:
        return 5

    def encode(self, value: Any, /) -> str:
        return str(value)


async def test_a_tool_kind_may_inherit_what_it_does_not_change() -> None:
    result = await Workbench([Inheriting()]).call("five")
    assert (result.value, result.text) == (5, "5")
