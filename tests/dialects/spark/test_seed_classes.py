"""The signatures, defaults, marks and errors in Spark's document, beside its examples."""

from typing import Literal, get_args, get_type_hints

from toolcrib.dialects.spark.tools import types
from toolcrib.dialects.spark.tools.registry import ToolRegistry
from toolcrib.dialects.spark.tools.types import ToolResult

from .echo import Echo


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
