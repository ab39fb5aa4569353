"""Spark's ToolRegistry: names, references, specs."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.dialects.spark.tools import registry as registry_module
from toolcrib.dialects.spark.tools.decorator import tool
from toolcrib.dialects.spark.tools.registry import ToolRegistry

from .echo import Echo


@tool
def search(query: str) -> str:
    """Search."""
    return query


def plain(query: str) -> str:
    return query


Module = Callable[..., str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Writes a module that can be imported, and returns its path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, text: str) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text("from toolcrib.dialects.spark.tools import tool, BaseTool\n" + text)
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, name, raising=False)
        return str(path)

    return write


def test_dynamic_tools_are_listed_and_found() -> None:
    registry, echo = ToolRegistry(), Echo()
    echo.mark_dynamic()
    registry.register_tool(echo)
    assert registry.dynamic_tools == {"echo": echo}
    del registry.registry["echo"]
    assert registry.get_tool("echo") is echo
    assert [spec["name"] for spec in registry.get_all_tool_specs()] == ["echo"]


def test_a_taken_name_is_refused() -> None:
    registry = ToolRegistry()
    registry.process_tools([search, Echo()])
    with pytest.raises(ValueError, match="Tool name 'echo' already exists"):
        registry.register_tool(Echo())

    @tool(name="search")
    def other(query: str) -> str:
        return query

    with pytest.raises(ValueError, match="Tool name 'search' already exists"):
        registry.register_tool(other)
    assert registry.get_tool("search") is search
    with pytest.raises(KeyError, match="nothing"):
        registry.get_tool("nothing")


@pytest.mark.parametrize(("first", "second"), [("my-tool", "my_tool"), ("my_tool", "my-tool")])
def test_names_that_differ_in_dashes_only_are_refused(first: str, second: str) -> None:
    registry = ToolRegistry()
    registry.register_tool(Echo(first))
    with pytest.raises(ValueError, match=f"'{second}' already exists as '{first}'.*differs by a '-' or '_'"):
        registry.register_tool(Echo(second))


@pytest.mark.parametrize("wrong", [Echo, 3, "no_such_tool_anywhere", {"search": search}, "a/b.py"])
def test_what_is_not_a_tool_is_refused_and_nothing_is_registered(wrong: Any) -> None:
    registry = ToolRegistry()
    with pytest.raises(ValueError, match="not a tool specification"):
        registry.process_tools([search, wrong])
    assert registry.registry == {}


async def test_plain_functions_become_tools() -> None:
    async def later(word: str) -> str:
        """Say it later."""
        return f"{word}, later"

    registry = ToolRegistry()
    assert registry.process_tools([plain, later]) == ["plain", "later"]
    assert registry.get_tool("later").tool_spec == tool(later).tool_spec
    assert (await Workbench([registry]).call("later", {"word": "a"})).value == "a, later"
    with pytest.raises(ValueError, match="already exists"):
        registry.process_tools([tool(name="plain")(later)])


def test_what_cannot_be_a_tool_is_refused() -> None:
    registry = ToolRegistry()
    with pytest.raises(ValueError, match="Decorate the function"):
        registry.register_tool(plain)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be the name of a tool"):
        registry.register_tool(Echo("no name"))
    with pytest.raises(ValueError, match="has type 'odd'"):
        registry.register_tool(Echo(spec={"name": "echo", "description": "", "parameters": {"json": {"type": "odd"}}}))
    with pytest.raises(ValueError, match="no JSON Schema"):

        @tool
        def impossible(x: type(sys)) -> None: ...  # type: ignore[valid-type]

        registry.register_tool(impossible)


def test_names_references_files_folders_and_modules_are_accepted(module: Module, tmp_path: Path) -> None:
    one = module("one_of_spark", "@tool\ndef one() -> int:\n    return 1\n")
    module("two_of_spark", "@tool\ndef two() -> int:\n    return 2\n@tool\ndef three() -> int:\n    return 3\n")
    registry = ToolRegistry()
    assert registry.process_tools(["two_of_spark:two"]) == ["two"]
    assert registry.process_tools(["two"]) == ["two"]
    assert registry.process_tools([Path(one)]) == ["one"]
    assert list(registry.dynamic_tools) == ["one"]
    assert registry.get_tool_ref("two") == "two_of_spark:two"
    assert ToolRegistry().process_tools([importlib.import_module("two_of_spark")]) == ["two", "three"]
    assert ToolRegistry().process_tools(["two_of_spark"]) == ["two", "three"]
    assert ToolRegistry().process_tools([one]) == ["one"]
    assert ToolRegistry().process_tools([f"{one}:one"]) == ["one"]
    assert ToolRegistry().process_tools([str(tmp_path)]) == ["one", "two", "three"]


# References


def test_a_newer_version_of_the_same_function_replaces_the_old_one(module: Module) -> None:
    registry = ToolRegistry()
    for version in (1, 20):  # of another size: Python compiles a module once for each size and second
        module("reloaded", f"@tool\ndef f() -> int:\n    return {version}\n")
        registry.process_tools(["reloaded:f"])
        assert registry.get_tool("f")() == version


def test_a_tool_registered_by_reference_under_another_name_has_that_name_in_its_spec(module: Module) -> None:
    module("by_ref", "@tool\ndef f(a: int) -> int:\n    return a\n")
    registry = ToolRegistry()
    registry.register_tool_by_ref("by_ref:f", tool_name="calc")
    registry.register_tool_by_ref("by_ref:f")
    assert (registry.get_tool("calc").tool_name, registry.get_tool("f").tool_name) == ("calc", "f")
    assert [spec["name"] for spec in registry.get_all_tool_specs()] == ["calc", "f"]
    assert registry.tool_refs == {"calc": "by_ref:f", "f": "by_ref:f"}
    bench = Workbench([registry])
    assert (bench.call_sync("calc", {"a": 1}).value, bench.call_sync("f", {"a": 2}).value) == (1, 2)


def test_a_tool_of_any_class_can_be_renamed(module: Module) -> None:
    module(
        "classes",
        "from toolcrib.dialects.spark.tools.tools import PythonAgentTool\n"
        "spec = {'name': 'f', 'description': 'd', 'parameters': {'properties': {'a': {'type': 'integer'}}}}\n"
        "made = PythonAgentTool('f', spec, lambda a: a, long_running=True)\n",
    )
    registry = ToolRegistry()
    registry.register_tool_by_ref("classes:made", "g")
    alias = registry.get_tool("g")
    assert (alias.tool_spec["name"], alias.tool_type, alias.is_long_running, alias(3)) == ("g", "python", True, 3)
    assert (alias.is_dynamic, alias.supports_async, asyncio.run(alias.acall(5))) == (False, False, 5)
    assert Workbench([registry]).call_sync("g", {"a": 4}).value == 4


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("nonsense", "Invalid reference format"),
        ("no_such_module_here:f", "no_such_module_here"),
        ("json:no_such_name", "no_such_name"),
        ("json:dumps", "is not a BaseTool instance"),
        ("json:decoder", "not callable"),
    ],
)
def test_a_reference_that_is_not_to_a_tool_is_refused(ref: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ToolRegistry().register_tool_by_ref(ref)
    with pytest.raises(ValueError, match=message):
        ToolRegistry.from_spec_dict({"tools": [{"name": "f", "ref": ref}]})


def test_only_trusted_modules_are_imported(module: Module) -> None:
    module("strange", "raise SystemExit('was imported')\n")
    registry = ToolRegistry()
    with pytest.raises(ValueError, match=r"outside the trusted packages \(myapp\)"):
        registry.register_tool_by_ref("strange:f", trusted=["myapp"])
    with pytest.raises(ValueError, match="outside the trusted packages"):
        ToolRegistry.from_spec_dict({"tools": [{"name": "f", "ref": "strange:f"}]}, trusted=["myapp"])
    with pytest.raises(ValueError, match="SystemExit: was imported"):
        registry.register_tool_by_ref("strange:f")


def test_a_registry_is_written_and_read(module: Module) -> None:
    module("written", "@tool(long_running=True)\nasync def f(a: int) -> int:\n    return a\n")
    registry = ToolRegistry()
    registry.process_tools(["written:f"])
    written = registry.to_spec_dict()
    assert written == {
        "tools": [
            {
                "name": "f",
                "spec": registry.get_tool("f").tool_spec,
                "ref": "written:f",
                "metadata": {
                    "tool_type": "function",
                    "is_dynamic": False,
                    "supports_async": True,
                    "is_long_running": True,
                    "supports_hot_reload": True,
                },
            }
        ]
    }
    written["tools"][0]["spec"]["name"] = "changed"
    assert registry.get_tool("f").tool_spec["name"] == "f"
    again = ToolRegistry.from_spec_dict(registry.to_spec_dict())
    assert again.to_spec_dict() == registry.to_spec_dict()
    assert ToolRegistry.from_spec_dict({}).registry == {}


@pytest.mark.parametrize("wrong", [{"tools": "all"}, {"tools": [{"name": "f"}]}, {"tools": ["f"]}, ["f"], None])
def test_a_tool_without_a_reference_cannot_be_read(wrong: Any) -> None:
    with pytest.raises(ValueError, match="ref"):
        ToolRegistry.from_spec_dict(wrong)


# Specs


def test_an_invalid_spec_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry()
    registry.process_tools([search, Echo(spec={"name": "echo"})])
    with caplog.at_level(logging.WARNING, registry_module.__name__):
        assert list(registry.get_all_tools_config()) == ["search"]
    assert "Missing required fields in tool spec: description" in caplog.text
    assert registry_module.logger.name == registry_module.__name__


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"description": "d"}, "Missing required fields in tool spec: name"),
        ({"name": 1, "description": "d"}, "are text"),
        ({"name": "f", "description": "d", "parameters": []}, "parameters are a dictionary"),
        ({"name": "f", "description": "d", "parameters": {"json": []}}, "parameters are a dictionary"),
        ({"name": "f", "description": "d", "parameters": {"json": {"type": "array"}}}, "array"),
        ({"name": "f", "description": "d", "parameters": {"json": {"properties": []}}}, "not a JSON Schema"),
        ("f", "is a dictionary"),
    ],
)
def test_an_invalid_spec_is_refused(spec: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ToolRegistry().validate_tool_spec(spec)
