"""MCP's definitions as Tools, and its results as values. What a server writes is not trusted: checked and bounded.

This file does no I/O.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as wire
import pydantic_core
from pydantic import BaseModel

from ...core import (
    Audio,
    Auth,
    Content,
    Context,
    Data,
    DefinitionError,
    File,
    Hints,
    Image,
    LoadError,
    Redaction,
    Text,
    ToolError,
    ToolSpec,
)
from ...machinery import redacted_json
from ...schema.view import validator
from ..function import Tool, from_work, stand_in

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator as Validator

_MAX_NAME = 256
_MAX_DESCRIPTION = 16 * 1024
_MAX_SCHEMA = 256 * 1024
MAX_TITLE = 200
READER = "toolcrib/reader"
"""The key in the `_meta` of the tool by which another Toolcrib has its large results read."""
HANDLE, WHOLE = "toolcrib/handle", "toolcrib/whole"
"""Keys of the `_meta` of a result that another Toolcrib has stored: as it was sent, and read whole."""
MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:; ?[\w.+-]{1,100}=[\w.+-]{1,100})*", re.ASCII)

M = TypeVar("M", bound=BaseModel)

RemoteCall = Callable[[str, dict[str, Any], Context], Any]


def tool_of(definition: wire.Tool, server: str, call: RemoteCall, auth: Auth = None) -> Tool[..., Any]:
    """Return the Tool that *definition* describes, whose work is *call*. Raises LoadError where it cannot be one."""
    _require_bounds(definition)
    name, output = definition.name, definition.output_schema
    value_schema = _of_wrapped_value(output)
    is_wrapped = value_schema is not None
    spec = ToolSpec(
        name=name,
        description=bounded(definition.description or ""),
        input_schema=definition.input_schema,
        output_schema=output if value_schema is None else value_schema,
        title=bounded(definition.title or "", MAX_TITLE) or None,
        hints=_hints(definition.annotations),
        auth=auth,
    )
    try:
        accepts = None if output is None else validator(output, formats=False)

        async def work(arguments: dict[str, Any], context: Context) -> Any:
            return value_of(name, await call(name, arguments, context), accepts, is_wrapped=is_wrapped)

        return from_work(spec, work, encode=_encode, fn=stand_in(name, server), home=__name__)
    except DefinitionError as error:
        raise LoadError(str(error).replace("parameters=", "its input schema")) from None
    except Exception as error:
        raise LoadError(f"Tool '{name}': its output schema is not a JSON Schema ({type(error).__name__}).") from None


def _require_bounds(definition: wire.Tool) -> None:
    """Raise LoadError for a name that is empty, too long or not printed, and for a schema that is too large."""
    name = definition.name
    if not name or len(name) > _MAX_NAME or not name.isprintable():
        raise LoadError(f"A name of a tool has 1 to {_MAX_NAME} characters that are printed; {name[:64]!r} has not.")
    for schema in (definition.input_schema, definition.output_schema):
        if schema is not None and len(json.dumps(schema)) > _MAX_SCHEMA:
            raise LoadError(f"Tool '{name}': its schema is too large.")


def without_secrets(item: M, redaction: Redaction | None) -> M:
    """Return *item*, which a server lists, with the known secrets redacted."""
    text = item.model_dump_json(by_alias=True, exclude_unset=True)
    shown_text = redacted_json(text, redaction)
    return item if shown_text is text else type(item).model_validate_json(shown_text, by_name=False)


def _of_wrapped_value(output: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the schema of the value that the server's library has put into an object of *output*; None if none.

    FastMCP marks such a schema; the official Python SDK only names it for the function.
    """
    output = output or {}
    if not (output.get("x-fastmcp-wrap-result") is True or str(output.get("title")).endswith("Output")):
        return None
    match output.get("properties"):
        case {"result": dict() as value, **others} if not others:
            return {key: output[key] for key in ("$schema", "$defs", "definitions") if key in output} | value
        case _:
            return None


def value_of(name: str, result: wire.CallToolResult, accepts: "Validator | None", *, is_wrapped: bool = False) -> Any:
    """Return what *result* says: the structured content, else its parts. Raises ToolError.

    Structured content comes alone where the rest is text, which repeats it; where it *is_wrapped*, what is in it.
    """
    parts = _parts_of(name, result)
    if accepts is None:
        structured, is_wrapped = result.structured_content, _says_wrapped(result)
        if structured is None:
            return parts[0] if len(parts) == 1 else parts or None
    elif (structured := _promised(name, result, accepts)) is None:
        return parts
    if is_wrapped and isinstance(structured, dict) and [*structured] == ["result"]:
        structured = structured["result"]
    attachments = [part for part in parts if not isinstance(part, Text)]
    return [Data(_encode(name)(structured)), *attachments] if attachments else structured


def _parts_of(name: str, result: wire.CallToolResult) -> list[Content]:
    """Return the content of *result*. Raises ToolError with it if the call failed."""
    parts = [content_of_block(name, block) for block in result.content]
    if result.is_error:
        text = "\n".join(part.text for part in parts) or f"Tool '{name}' failed, and did not say why."
        raise ToolError(text, "failed")
    return parts


def _promised(name: str, result: wire.CallToolResult, accepts: "Validator") -> Any:
    """Return the structured content of *result*; None where it is stored elsewhere, and was not read whole."""
    meta: Mapping[str, Any] = result.meta or {}
    if HANDLE in meta:
        return None
    if WHOLE in meta:
        return _reading(result.content, accepts)
    if result.structured_content is None:
        raise ToolError(f"The result of tool '{name}' lacks the structured content that it promises.", "invalid_result")
    if not accepts.is_valid(result.structured_content):
        raise ToolError(f"The result of tool '{name}' does not match its output schema.", "invalid_result")
    return result.structured_content


def _reading(content: Sequence[wire.ContentBlock], accepts: "Validator") -> Any:
    """Return what the text of a whole stored result promised; None where it is not that."""
    text: Any = content[0].text if content and isinstance(content[0], wire.TextContent) else ""
    readings: list[Any] = [{"result": text}]  # so Toolcrib promises what is no object
    with suppress(ValueError):
        value = pydantic_core.from_json(text, allow_inf_nan=False)
        readings = [value, {"result": value}, *readings]
    return next(filter(accepts.is_valid, readings), None)


def _says_wrapped(result: wire.CallToolResult) -> bool:
    marker: Any = (result.meta or {}).get("fastmcp")
    return isinstance(marker, dict) and marker.get("wrap_result") is True


def _encode(name: str) -> Callable[[Any], str]:
    return lambda value: pydantic_core.to_json(value, inf_nan_mode="null").decode()  # as of our own tools


def content_of_block(name: str, block: wire.ContentBlock) -> Content:
    """Return *block* as content; *name* is the tool that it comes from. Raises ToolError."""
    try:
        match block:
            case wire.TextContent():
                return Text(block.text)
            case wire.ImageContent():
                return Image(base64.b64decode(block.data, validate=True), _media_type(block.mime_type))
            case wire.AudioContent():
                return Audio(base64.b64decode(block.data, validate=True), _media_type(block.mime_type))
            case wire.ResourceLink():
                description = f" ({bounded(block.description, 500)})" if block.description else ""
                return Text(f"{bounded(block.name, 200)}{description}: {bounded(block.uri, 2000)}")
            case wire.EmbeddedResource():
                return _resource(block.resource)
    except ValueError:
        pass
    raise ToolError(f"The result of tool '{name}' has content that is not valid.", "invalid_result")


def _resource(resource: wire.TextResourceContents | wire.BlobResourceContents) -> Content:
    if isinstance(resource, wire.TextResourceContents):
        return Text(resource.text)
    data = base64.b64decode(resource.blob, validate=True)
    name = bounded(resource.uri.rstrip("/").rpartition("/")[2], 200)
    return File(data, _media_type(resource.mime_type or "application/octet-stream"), name or None)


def _media_type(text: str) -> str:
    if not MEDIA_TYPE.fullmatch(text):
        raise ValueError
    return text


def bounded(text: str, limit: int = _MAX_DESCRIPTION) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _hints(annotations: wire.ToolAnnotations | None) -> Hints:
    annotations = annotations or wire.ToolAnnotations()
    return Hints(
        read_only=annotations.read_only_hint,
        destructive=annotations.destructive_hint,
        idempotent=annotations.idempotent_hint,
        open_world=annotations.open_world_hint,
    )


def meta_of(item: Any) -> Mapping[str, Any]:
    """Return what a definition says beside what core has: annotations and icons, unless they are very large."""
    meta = item.model_dump(mode="json", by_alias=True, exclude_none=True, include={"annotations", "icons"})
    return meta if len(json.dumps(meta)) <= 4 * _MAX_DESCRIPTION else {}
