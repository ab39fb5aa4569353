"""A Toolcrib tool for a Spark tool: its schema, how it is called, and how its return value becomes a result.

Spark's content is blocks: `{"text"}`, `{"json"}`, `{"image"}`, `{"document"}`, `{"toolUse"}` or `{"toolResult"}`, as in
Bedrock.
"""

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ....core import Call, Content, Context, File, Hints, Image, Result, Text, ToolError, ToolSpec
from ....formats import read_block
from ....machinery import Work
from ....schema import SchemaView, serialize_any
from ....tools import Tool, from_schema


def schema_in(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON Schema in a spec's *parameters*, which may be bare or under the key "json"."""
    schema = parameters.get("json")
    return schema if isinstance(schema, Mapping) else parameters


def normalize_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of *schema* that is complete: each property has a type and a description.

    A property that declares its type in another way ("$ref", "anyOf", "enum", ...) gets no "type".
    """
    normalized: dict[str, Any] = {"type": "object", "properties": {}, "required": [], **copy.deepcopy(dict(schema))}
    if isinstance(normalized["properties"], dict):
        normalized["properties"] = {name: _property(name, of) for name, of in normalized["properties"].items()}
    return normalized


def without_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema* with anything for the properties that have a "$ref", which may lead out of it."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return dict(schema)
    return {**schema, "properties": {name: {} if "$ref" in of else of for name, of in properties.items()}}


def _property(name: str, schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {"type": "string", "description": f"Property {name}"}
    if "$ref" in schema:
        return schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        return normalize_schema(schema)
    kind = {} if SchemaView(schema).is_typed else {"type": "string"}
    return {**schema, **kind, "description": schema.get("description", f"Property {name}")}


_KINDS = frozenset({"text", "image", "document", "json", "toolUse", "toolResult", "reasoningContent", "guardContent"})
_HIDDEN = frozenset({"reasoningContent", "guardContent"})


def is_block(value: Any) -> bool:
    """Return whether *value* is a block, and not a dictionary that only shares a key with one."""
    if not isinstance(value, dict) or _KINDS.isdisjoint(value):
        return False
    return len(value) == 1 or value.get("type") == "text"  # the second form is OpenAI's


def as_blocks(value: Any) -> list[dict[str, Any]]:
    """Return *value* as blocks: text, a block, or a list of both. Anything else becomes JSON text."""
    if value is None or value == "":
        return []
    parts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(part, str) or is_block(part) for part in parts):
        parts = [as_json(value)]
    return [{"text": part} if isinstance(part, str) else dict(part) for part in parts]


def text_of(value: Any) -> str:
    """Return the text in *value*, one line for each text block."""
    return "\n".join(block["text"] for block in as_blocks(value) if isinstance(block.get("text"), str))


def readable_blocks(value: Any) -> list[dict[str, Any]]:
    """Return *value* as blocks that `toolcrib.formats.bedrock` reads: no reasoning, and unknown ones as JSON text."""
    return [_readable(block) for block in as_blocks(value) if _HIDDEN.isdisjoint(block)]


def content_of(values: Iterable[Any]) -> tuple[Content, ...]:
    """Return Toolcrib's content for *values*, each of which `as_blocks` accepts."""
    blocks = (block for value in values for block in as_blocks(value) if _HIDDEN.isdisjoint(block))
    return tuple(_content(block) or Text(as_json(block)) for block in blocks)


def blocks_from(content: Iterable[Content]) -> list[dict[str, Any]]:
    """Return blocks for Toolcrib's *content*. Structured values become JSON text."""
    blocks: list[dict[str, Any]] = []
    for part in content:
        match part:
            case Image(data, media_type):
                blocks.append({"image": {"format": media_type.rpartition("/")[2], "source": {"bytes": data}}})
            case File(data, media_type, name):
                kind = media_type.rpartition("/")[2]
                blocks.append({"document": {"name": name or "file", "format": kind, "source": {"bytes": data}}})
            case _:
                blocks.append({"text": part.text})
    return blocks


def as_json(value: Any) -> str:
    """Return *value* as JSON text."""
    return serialize_any("message", value)


def _readable(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"toolUse": {}}:
            return block
        case {"toolResult": {**result}}:
            return {"toolResult": {**result, "content": readable_blocks(result.get("content"))}}
        case _:
            return block if _content(block) else {"text": as_json(block)}


def _content(block: dict[str, Any]) -> Content | None:
    """Return Toolcrib's content for *block*; None if it is not content."""
    try:
        return read_block(block, "The block")
    except ValueError:
        return None


_STATUSES = ("success", "error", "in_progress")
_RESULT_KEYS = {"content", "status", "metadata", "started_at", "completed_at", "progress"}


def tool_use_of(context: Context) -> tuple[Any, dict[str, Any]]:
    """Return the ToolUse and the invocation state of a call, which an executor puts into `Call.data`."""
    call = context.call
    if call.data and "tool_use" in call.data:
        return call.data["tool_use"], call.data["invocation_state"]
    return {"toolUseId": call.id, "name": call.tool, "input": arguments_of(call)}, dict(context.variables)


def arguments_of(call: Call) -> Any:
    """Return the arguments of *call* as JSON values, or their text if it is not valid JSON."""
    value = call.arguments
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        try:
            return json.loads(value) if value.strip() else {}
        except ValueError:
            return value
    return {} if value is None else dict(value)


def is_tool_result(value: Any) -> bool:
    """Return whether *value* is a ToolResult, and not a dictionary that only shares keys with one.

    A tool without a context does not know its id. A result without one must have blocks as content.
    """
    if not isinstance(value, dict) or value.get("status") not in _STATUSES:
        return False
    content = value.get("content")
    if isinstance(value.get("toolUseId"), str):
        return isinstance(content, list)
    return value.keys() <= _RESULT_KEYS and isinstance(content, list) and bool(content) and all(map(is_block, content))


def build_tool(
    tool: Any,
    schema: Mapping[str, Any],
    fn: Callable[..., Any],
    prepare: Callable[[dict[str, Any], Context], dict[str, Any]],
    *,
    is_async: bool,
    home: str,
    **options: Any,
) -> Tool[..., Any]:
    """Return the Toolcrib tool for the Spark tool *tool*.

    It calls *fn* with what *prepare* makes of the checked arguments. *home* is the module that it belongs to.
    """
    hints = Hints(long_running=tool.is_long_running or None)
    spec = ToolSpec(tool.tool_name, tool.tool_spec.get("description", ""), schema, hints=hints)
    core_tool = from_schema(spec, fn, runs="async" if is_async else "sync", home=home, **options)
    core_tool = core_tool.wrapped(partial(_spark_work, prepare))
    core_tool.needs_context = True
    core_tool.fn = tool  # so that a program can call it by the tool itself: `bench.call(search, "x")`
    return core_tool


def _spark_work(prepare: Callable[[dict[str, Any], Context], dict[str, Any]], work: Work) -> Work:
    async def prepared(arguments: dict[str, Any], context: Context) -> Any:
        return _normalized(await work(prepare(arguments, context), context), context)

    return prepared


def _normalized(value: Any, context: Context) -> Any:
    """Return *value* for a workbench: the content of a ToolResult. Raises ToolError if its status is "error".

    The executor gets the ToolResult as it is.
    """
    if not is_tool_result(value) or "tool_use" in (context.call.data or ()):
        return value
    content = content_of(value["content"])
    if value["status"] == "error":
        raise ToolError("\n".join(part.text for part in content) or "The tool failed.")
    return Result(value, content or (Text(""),))
