"""The examples of Spark's own document run, with the import root changed. They are in tests/seeds/spark."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.dialects.spark.tools import ToolCallExecutor, ToolRegistry

EXAMPLES = Path(__file__).parents[2] / "seeds" / "spark"

Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=f"spark_{name}")


def use(name: str, **arguments: Any) -> Any:
    return {"toolUseId": "call_1", "name": name, "input": arguments}


class Agent:
    def get_history(self) -> list[str]:
        return ["hello", "hi"]


async def test_the_decorators_patterns_run_as_written(run: Run) -> None:
    names = run("decorator_patterns")
    registry = ToolRegistry()
    tools = ["search_web", "my_search", "contextual_tool", "my_tool", "async_search", "calculate", "smart_tool"]
    assert registry.process_tools([names[name] for name in tools]) == [
        *("search_web", "custom_search", "contextual_tool", "my_tool", "async_search", "calculate", "smart_tool")
    ]
    executor = ToolCallExecutor(registry)

    async def text(name: str, **arguments: Any) -> tuple[str, str]:
        result = await executor.execute_tool_use(use(name, **arguments), {"agent": Agent()})
        return result["status"], result["content"][0]["text"]

    assert await text("search_web", query="a") == ("success", "results")
    assert await text("custom_search", query="a", max_results=3) == ("success", "3 of a")
    assert await text("contextual_tool", query="a") == ("success", "Processed a with tool ID call_1")
    assert await text("my_tool", query="a") == ("success", "a for call_1")
    assert await text("async_search", query="a") == ("success", "found a")
    assert await text("calculate", operation="divide", a=1, b=3) == ("success", "0.33")
    assert await text("calculate", operation="divide", a=1, b=0) == (
        "error",
        "Tool 'calculate' failed: Cannot divide by zero",
    )
    assert await text("smart_tool", query="a") == ("success", "Processed a (ID: call_1)")


def test_the_documented_functions_spec_has_its_descriptions_types_and_defaults(run: Run) -> None:
    calculate = run("decorator_patterns")["calculate"]
    assert calculate.tool_spec == {
        "name": "calculate",
        "description": calculate.__doc__.replace("\n    ", "\n").strip(),
        "parameters": {
            "json": {
                "type": "object",
                "properties": {
                    "operation": {
                        "type": "string",
                        "description": "The operation to perform (add, subtract, multiply, divide)",
                    },
                    "a": {"type": "number", "description": "First operand"},
                    "b": {"type": "number", "description": "Second operand"},
                    "precision": {
                        "type": "integer",
                        "description": "Number of decimal places for result (default: 2)",
                        "default": 2,
                    },
                },
                "required": ["operation", "a", "b"],
            }
        },
        "response_schema": {"type": "number"},
    }
    assert "Args:" in calculate.tool_spec["description"]


async def test_the_custom_tool_runs_by_name_in_a_workbench_and_in_the_executor(run: Run) -> None:
    custom = run("custom_tool")["CustomTool"]()
    assert custom("x") == "Processed: x"
    assert await custom.acall("x") == "Processed: x"
    assert (custom.supports_hot_reload, custom.is_dynamic, custom.supports_async, custom.is_long_running) == (
        *(False, False),
        *(False, False),
    )
    async with Workbench([custom]) as bench:
        assert (await bench.call("custom_tool", '{"input": "x"}')).text == "Processed: x"
    registry = ToolRegistry()
    registry.register_tool(custom)
    result = await ToolCallExecutor(registry).execute_tool_use(use("custom_tool", input="x"))
    assert result["content"] == [{"text": "Processed: x"}]


def test_the_registrys_examples_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("registry")
    assert capsys.readouterr().out == "Registered tools: ['search_tool', 'calculator_tool']\n"
    registry, spec = names["registry"], names["spec"]
    assert list(registry.registry) == ["my_tool", "search_database", "calc"]
    assert registry.tool_refs["search_database"] == "myapp.tools:search_database"
    assert [(entry["name"], entry["spec"]["name"], entry["ref"]) for entry in spec["tools"][1:]] == [
        ("search_database", "search_database", "myapp.tools:search_database"),
        ("calc", "calc", "myapp.tools:calculate"),
    ]
    again = ToolRegistry.from_spec_dict({"tools": json.loads(json.dumps(spec))["tools"][1:]})
    assert again.to_spec_dict() == {"tools": spec["tools"][1:]}


def test_the_types_values_are_what_the_document_shows(run: Run) -> None:
    names = run("values")
    assert names["tool_spec"]["x_spark"] == {"supports_async": True, "long_running": True}
    registry = ToolRegistry()
    before = json.dumps(names["search_spec"])
    registry.validate_tool_spec(names["search_spec"])
    assert json.dumps(names["search_spec"]) == before
