"""The signatures, defaults, marks and errors in Spark's document, beside its examples."""

import dataclasses
import inspect
from typing import Any, Literal, get_args, get_type_hints

from toolcrib.dialects.spark.tools import registry, types
from toolcrib.dialects.spark.tools.decorator import DecoratedFunctionTool, ToolContext, tool
from toolcrib.dialects.spark.tools.registry import ToolRegistry
from toolcrib.dialects.spark.tools.types import ToolResult, ToolUse, update_tool_runtime_metadata

from .echo import Echo


def parameters_of(fn: Any) -> list[tuple[str, Any]]:
    return [(each.name, each.default) for each in inspect.signature(fn).parameters.values() if each.name != "self"]


EMPTY = inspect.Parameter.empty


def test_functions_and_methods_have_the_documented_parameters_in_order() -> None:
    assert parameters_of(tool) == [
        ("func", None),
        ("description", None),
        ("parameters", None),
        ("name", None),
        ("context", False),
        ("long_running", False),
        ("async_execution", None),
    ]
    assert parameters_of(DecoratedFunctionTool.prepare_tool_kwargs) == [("tool_use", EMPTY), ("invocation_state", None)]
    assert parameters_of(ToolRegistry) == []
    assert parameters_of(ToolRegistry.register_tool_by_ref)[:2] == [("ref", EMPTY), ("tool_name", None)]
    assert parameters_of(update_tool_runtime_metadata) == [
        ("tool_spec", EMPTY),
        ("supports_async", None),
        ("long_running", None),
    ]
    kinds = {each.name: each.kind for each in inspect.signature(update_tool_runtime_metadata).parameters.values()}
    assert kinds["supports_async"] is kinds["long_running"] is inspect.Parameter.KEYWORD_ONLY


async def test_a_custom_tool_has_the_documented_defaults_until_it_is_marked() -> None:
    made = Echo()

    def marks() -> tuple[bool, ...]:
        return made.supports_hot_reload, made.is_dynamic, made.supports_async, made.is_long_running

    assert (made.tool_name, made.tool_type, made("a"), await made.acall("b")) == ("echo", "echo", "a", "b")
    assert marks() == (False, False, False, False)
    shown = made.get_display_properties()
    assert shown["Name"] == "echo"
    assert {(type(key), type(value)) for key, value in shown.items()} == {(str, str)}
    assert made.mark_dynamic() is None
    assert marks() == (False, True, False, False)
    assert made.mark_supports_async() is None
    assert marks() == (False, True, True, False)
    assert made.mark_long_running() is None
    assert marks() == (False, True, True, True)
    assert made.get_display_properties() == {**shown, "Async": "yes", "Long Running": "yes"}


def test_a_context_is_a_dataclass_of_the_tool_use_and_the_state() -> None:
    assert [each.name for each in dataclasses.fields(ToolContext)] == ["tool_use", "invocation_state"]
    use: ToolUse = {"toolUseId": "1", "name": "f", "input": {}}
    made = ToolContext(use, {"agent": "a"})
    assert (made.tool_use["toolUseId"], made.invocation_state.get("agent")) == ("1", "a")
    assert made == ToolContext(tool_use=use, invocation_state={"agent": "a"})


def test_choices_and_statuses_are_the_documented_ones() -> None:
    assert [get_args(each)[0] for each in get_args(types.ToolChoice)] == [
        Literal["auto"],
        Literal["any"],
        Literal["tool"],
    ]
    assert (types.ToolChoiceAuto.__annotations__, types.ToolChoiceAny.__annotations__) == ({}, {})
    assert get_args(get_type_hints(ToolResult)["status"]) == ("success", "error", "in_progress")


def test_a_new_registry_is_empty() -> None:
    made = ToolRegistry()
    assert (made.registry, made.dynamic_tools, made.tool_refs) == ({}, {}, {})
    assert (made.get_all_tool_specs(), made.get_all_tools_config(), made.to_spec_dict()) == ([], {}, {"tools": []})
    assert made.get_tool_ref("echo") is None
    assert registry.logger.name.endswith("spark.tools.registry")
