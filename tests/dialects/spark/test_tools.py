"""Spark's types, tools with a hand-written spec, names in tool uses, and importing by reference."""

import asyncio
import builtins
import copy
import os.path
from pathlib import Path
from typing import Any

import pytest

from toolcrib.dialects.spark.tools import types
from toolcrib.dialects.spark.tools.tools import (
    PythonAgentTool,
    normalize_schema,
)
from toolcrib.dialects.spark.tools.types import BaseTool, update_tool_runtime_metadata
from toolcrib.dialects.spark.utils import import_utils


def spec(**properties: Any) -> Any:
    return {"name": "f", "description": "d", "parameters": {"json": {"type": "object", "properties": properties}}}


def test_the_types_have_the_fields_of_the_document() -> None:
    optional = {
        each.__name__: (sorted(each.__required_keys__), sorted(each.__optional_keys__))
        for each in (types.ToolSpec, types.ToolUse, types.ToolResult, types.ToolRuntimeMetadata)
    }
    assert optional == {
        "ToolSpec": (["description", "name", "parameters"], ["response_schema", "x_spark"]),
        "ToolUse": (["input", "toolUseId"], ["name"]),
        "ToolResult": (["content", "status", "toolUseId"], ["completed_at", "metadata", "progress", "started_at"]),
        "ToolRuntimeMetadata": ([], ["long_running", "supports_async"]),
    }


def test_runtime_metadata_is_written_into_the_spec() -> None:
    original = spec()
    update_tool_runtime_metadata(original)
    assert "x_spark" not in original
    update_tool_runtime_metadata(original, supports_async=False)
    update_tool_runtime_metadata(original, long_running=True)
    assert original["x_spark"] == {"supports_async": False, "long_running": True}


def test_a_base_tool_has_four_abstract_members() -> None:
    with pytest.raises(TypeError, match="abstract"):
        BaseTool()  # type: ignore[abstract]
    assert BaseTool.__abstractmethods__ == {"tool_name", "tool_spec", "tool_type", "__call__"}


async def test_a_tool_with_a_hand_written_spec_is_called_and_awaited() -> None:
    async def work(n: int) -> int:
        return n + 1

    made, plain = PythonAgentTool("f", spec(), work), PythonAgentTool("g", spec(), lambda n: n)  # type: ignore[arg-type]
    assert made.supports_async
    assert (await made.acall(1), await plain.acall(1), plain(1)) == (2, 1, 1)
    with pytest.raises(RuntimeError, match="acall"):
        made(1)
    assert await asyncio.to_thread(made, 1) == 2


def test_schemas_are_normalized_in_a_copy() -> None:
    original = {
        "properties": {
            "a": {},
            "b": {"type": "object", "properties": {"c": 1}},
            "d": {"oneOf": []},
            "e": {"format": "date"},
        },
        "$defs": {},
    }
    before = copy.deepcopy(original)
    assert normalize_schema(original) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "Property a"},
            "b": {
                "type": "object",
                "properties": {"c": {"type": "string", "description": "Property c"}},
                "required": [],
            },
            "d": {"oneOf": [], "description": "Property d"},
            "e": {"format": "date", "type": "string", "description": "Property e"},
        },
        "required": [],
        "$defs": {},
    }
    assert original == before


# References


def test_references_are_imported() -> None:
    assert import_utils.import_from_ref("os.path:join") is os.path.join
    assert import_utils.import_from_ref("pathlib:Path.home")() == Path.home()
    assert import_utils.import_class_from_ref("pathlib:Path") is Path
    assert import_utils.safe_import_from_ref("os.path:join") is os.path.join
    assert import_utils.safe_import_from_ref("os.path:nothing", "other") == "other"
    assert import_utils.safe_import_from_ref("os.path:nothing") is None
    assert import_utils.validate_reference("os.path:join") == (True, None)


@pytest.mark.parametrize("ref", ["os.path", "no_such_module:f", "os.path:nothing", "os:sep", "", 3, ":f", "os:"])
def test_invalid_references_raise_pythons_own_import_error(ref: Any) -> None:
    with pytest.raises(ImportError):
        import_utils.import_from_ref(ref)
    with pytest.raises(ImportError):
        import_utils.import_class_from_ref(ref)
    valid, message = import_utils.validate_reference(ref)
    assert not valid
    assert message
    assert import_utils.ImportError is builtins.ImportError


def test_untrusted_modules_are_not_imported() -> None:
    for leads in (import_utils.import_from_ref, import_utils.import_class_from_ref):
        with pytest.raises(ImportError, match="outside the trusted packages"):
            leads("pathlib:Path", trusted=["json"])
    assert import_utils.safe_import_from_ref("pathlib:Path", 1, trusted=[]) == 1
    assert import_utils.validate_reference("pathlib:Path", trusted=["json"])[0] is False


def test_what_cannot_be_imported_again_has_no_reference() -> None:
    class Local: ...

    for wrong in (lambda: None, Local, "text".upper):
        with pytest.raises(ValueError, match="Cannot create reference"):
            import_utils.get_ref_for_callable(wrong)
    with pytest.raises(ValueError, match="Cannot create reference"):
        import_utils.get_ref_for_class(Local)
    with pytest.raises(ValueError, match="is not a class"):
        import_utils.get_ref_for_class(len)  # type: ignore[arg-type]
