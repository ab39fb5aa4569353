"""Spark's ToolCallExecutor: every tool use has a ToolResult."""

import asyncio
from typing import Any

import pytest

from toolcrib.dialects.spark.tools.decorator import tool
from toolcrib.dialects.spark.tools.executor import ToolCallExecutor, ToolExecutionConfig
from toolcrib.dialects.spark.tools.registry import ToolRegistry
from toolcrib.dialects.spark.tools.types import BaseTool, ToolSpec

CONFIG = ToolExecutionConfig(capture_timestamps=False)


def use(name: str, arguments: Any = None, id: str = "u1") -> Any:
    return {"toolUseId": id, "name": name, "input": {} if arguments is None else arguments}


def executor(*tools: Any, config: ToolExecutionConfig | None = CONFIG) -> ToolCallExecutor:
    registry = ToolRegistry()
    registry.process_tools(list(tools))
    return ToolCallExecutor(registry, config)


async def run(fn: Any, arguments: Any = None, **more: Any) -> Any:
    made = fn if isinstance(fn, BaseTool) else tool(fn)
    return await executor(made).execute_tool_use(use(made.tool_name, arguments), **more)


def text_of(result: Any) -> tuple[str, str]:
    (part,) = result["content"]
    return result["status"], part["text"]


def add(a: int, b: int = 2) -> int:
    return a + b


@pytest.mark.parametrize("status", ["success", "error", "in_progress"])
async def test_a_tool_result_is_passed_on(status: str) -> None:
    own = {
        "toolUseId": "own",
        "status": status,
        "content": [{"json": {"a": 1}}],
        "progress": 0.5,
        "metadata": {"found": 2, "duration_ms": 7},
    }

    def f() -> Any:
        return own

    made = executor(tool(f), config=None)
    result: Any = await made.execute_tool_use(use("f"))
    assert ("completed_at" in result) == (status != "in_progress")
    assert "started_at" in result
    for at in ("started_at", "completed_at"):
        result.pop(at, None)
    assert result == {**own, "toolUseId": "u1", "metadata": {"found": 2, "duration_ms": 7, "tool_name": "f"}}
    assert own["metadata"] == {"found": 2, "duration_ms": 7}


@pytest.mark.parametrize("content", [[{"text": "made"}], [{"json": {"n": 1}}, {"text": "made"}]])
async def test_a_tool_result_of_blocks_needs_no_id(content: list[Any]) -> None:
    def f() -> Any:
        return {"status": "success", "content": content}

    result = await run(f)
    assert (result["toolUseId"], result["status"], result["content"]) == ("u1", "success", content)


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"b": 1}, "'a' is missing"),
        ({"a": "many"}, "'a'"),
        ('{"a": 1', "not valid JSON"),
        ([1], "the arguments: expected object, got array"),
        (3, "the arguments: expected object, got integer"),
    ],
)
async def test_wrong_input_is_an_error_result(arguments: Any, message: str) -> None:
    result = await run(add, arguments)
    status, text = text_of(result)
    assert (status, result["metadata"]["reason"], result["metadata"]["code"]) == (
        *("error", "exception"),
        "invalid_arguments",
    )
    assert text.startswith("Tool 'add' failed: Validation failed for input parameters: ")
    assert message in text
    assert text.count("Tool 'add'") == 1


@pytest.mark.parametrize("name", ["no name", "", "x" * 65, 5])
async def test_a_bad_name_is_an_error_result(name: Any) -> None:
    result = await executor(tool(add)).execute_tool_use({"toolUseId": "u", "name": name, "input": {}})
    assert result["status"] == "error"
    assert "invalid tool name" in result["content"][0]["text"]


# Time


async def test_a_late_tool_is_stopped_and_reported() -> None:
    ended = asyncio.Event()

    async def f() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    result = await run(f, timeout=0.02)
    assert text_of(result) == ("error", "Tool 'f' timed out after 0.02s")
    assert result["metadata"]["reason"] == "timeout"
    assert ended.is_set()


async def test_the_timeout_of_a_tool_use_overrides_the_default() -> None:
    passed = asyncio.Event()

    async def f() -> str:
        await passed.wait()
        return "done"

    made = executor(tool(f), config=ToolExecutionConfig(default_timeout=0.001))
    waiting = asyncio.create_task(made.execute_tool_use(use("f"), timeout=30))
    late = await made.execute_tool_use(use("f"))
    passed.set()
    assert (late["status"], text_of(await waiting)) == ("error", ("success", "done"))


# What a tool receives


class Join(BaseTool):
    @property
    def tool_name(self) -> str:
        return "join"

    @property
    def tool_spec(self) -> ToolSpec:
        text = {"type": "string"}
        return {"name": "join", "description": "Join", "parameters": {"json": {"properties": {"a": text, "b": text}}}}

    @property
    def tool_type(self) -> str:
        return "custom"

    def __call__(self, a: str = "-", b: str = "-") -> str:
        return f"{a} {b}"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"a": "x"}, "x -"), (["x", "y"], "x y"), (("x",), "x -"), ("x", "x -"), ({}, "- -")],
)
async def test_a_tool_that_is_not_decorated_takes_lists_and_single_values_by_position(
    arguments: Any, text: str
) -> None:
    assert text_of(await run(Join(), arguments)) == ("success", text)


async def test_too_many_values_or_wrong_ones_are_error_results() -> None:
    status, text = text_of(await run(Join(), ["x", "y", "z"]))
    assert (status, "takes 2 arguments by position, not 3: a, b" in text) == ("error", True)
    assert (await run(Join(), [{"x": 1}]))["metadata"]["code"] == "invalid_arguments"
    none = await executor(Join()).execute_tool_use({"toolUseId": "u", "name": "join", "input": None})
    assert text_of(none) == ("success", "- -")
