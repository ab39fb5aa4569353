"""MCP's data: definitions for `tools/list`, the call of a `tools/call` request, and its result. No transport.

This works for both eras of the protocol. Where they differ, it follows the older one: through 2025-11-25 the root of an
output schema, and of structured content, is an object. Any other value goes under the key `result`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json

from ..core import Audio, Call, Content, Data, File, Hints, Image, Result, Text, ToolError, ToolSpec
from ..schema import is_valid
from ..schema.lower import Loss
from ..schema.view import is_annotation
from . import reading
from .accepts import MCP
from .offer import Offer

_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
_STORED = {
    "type": "object",
    "properties": {"handle": {"type": "string"}, "uri": {"type": "string"}, "size": {"type": "integer"}},
}
"""The schema of what structured content has of a large result, under the key `toolcrib`."""
READER = "toolcrib/reader"
"""The key in the `_meta` of the tool that reads large results."""
_SETTLED = "settled_by"
"""In the metadata of a call that took effect, as a person has settled."""
_AT_ROOT = frozenset(("type", "properties", "additionalProperties", "$defs", "definitions"))
_BY_PATTERN = frozenset(("patternProperties", "unevaluatedProperties"))


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """Return MCP's definitions of *specs*: the `tools` of a `tools/list` result. MCP has no strict mode."""
    return [tool_definition(tool.spec, tool.name, tool.schema) for tool in Offer.of(specs, MCP, strict=False).tools]


def losses(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
    """Return what `tools` could not express, by tool; only tools that lost something."""
    return Offer.of(specs, MCP, strict=False).losses


def calls(request: Any, specs: Iterable[ToolSpec] = ()) -> list[Call]:
    """Return the one call in *request*: a `tools/call` request or its params, as a dictionary or the SDK's object.

    Its id is the request's where that has one. Raises ValueError, with the place, where *request* is malformed.
    """
    where = "The tools/call request"
    whole = reading.as_mapping(request, where)
    method = whole.get("method", "tools/call")
    if method != "tools/call":
        raise ValueError(f"{where} is malformed: its 'method' is '{str(method)[:40]}'.")
    params = reading.require(whole, "params", dict, where) if "params" in whole or "method" in whole else whole
    name = reading.require(params, "name", str, f"{where} (params)")
    arguments = reading.optional(params, "arguments", dict, f"{where} (params)")
    call_id = Call(name).id if whole.get("id") is None else str(whole["id"])
    return [Offer.of(specs, MCP, strict=False).call(call_id, name, arguments or {})]


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[dict[str, Any]]:
    """Return a `tools/call` result for each of *results*, in their order, structured where its spec promises that."""
    schemas = {spec.name: spec.output_schema for spec in specs}
    return [call_result(result, schemas.get(result.tool)) for result in results]


def tool_definition(
    spec: ToolSpec,
    name: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    *,
    stores_results: bool = True,
) -> dict[str, Any]:
    """Return one tool of a `tools/list` result, with its own name and schema unless others are passed.

    Where large results are stored, its output schema also admits what `call_result` has of one.
    """
    output_schema = None if spec.output_schema is None else object_schema(spec.output_schema)
    members = {
        "name": name or spec.name,
        "title": spec.title,
        "description": spec.description or None,
        "inputSchema": dict(spec.input_schema if input_schema is None else input_schema),
        "outputSchema": _or_stored(output_schema) if output_schema and stores_results else output_schema,
        "annotations": annotations(spec.hints) or None,
        "icons": [dict(icon) for icon in spec.icons] or None,
    }
    return {key: value for key, value in members.items() if value is not None}


def hints(annotations: Mapping[str, Any]) -> Hints:
    """Return what MCP's *annotations* say of the effects of a tool."""
    values = {hint: annotations.get(name) for name, hint in _HINTS.items()}
    return Hints(**{hint: value for hint, value in values.items() if isinstance(value, bool)})


def annotations(hints: Hints) -> dict[str, bool]:
    """Return the hints that are set, by MCP's names."""
    return {name: value for name, hint in _HINTS.items() if (value := getattr(hints, hint)) is not None}


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema whose root is an object: *schema*, or one with it under the key `result`."""
    if schema.get("type") == "object":
        return dict(schema)
    inner = dict(schema)
    # References point into "$defs" of the root, so these stay there.
    definitions = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **definitions}


def _or_stored(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema*, of an object, so that it also admits one with `toolcrib` alone.

    Properties and definitions stay where `$ref`s lead, and readers look for them. What the object must be beside is one
    of two alternatives.
    """
    properties = schema.get("properties", {})
    own = properties.get("toolcrib")
    if _admits_stored(own):
        return dict(schema)  # of another Toolcrib
    # Patterns would be for `toolcrib`, too. A schema without them is wider, so no less true.
    left_out = _BY_PATTERN | {"additionalProperties"} if schema.keys() & _BY_PATTERN else frozenset()
    root_words = _AT_ROOT | left_out
    demands = {key: value for key, value in schema.items() if key not in root_words and not is_annotation(key)}
    other_keys = demands.keys() | left_out
    root = {key: value for key, value in schema.items() if key not in other_keys}
    root["properties"] = {**properties, "toolcrib": _STORED if own is None else {"anyOf": [own, _STORED]}}
    return root | {"anyOf": [demands, {"required": ["toolcrib"]}]} if demands else root


def _admits_stored(schema: Any) -> bool:
    return schema == _STORED or (isinstance(schema, Mapping) and _STORED in schema.get("anyOf", ()))


def call_result(result: Result[Any], output_schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return *result* as a `tools/call` result, with structured content where *output_schema* promises it.

    Of a result that is too large to be shown, that is `{"toolcrib": {"handle": ..., "uri": ..., "size": ...}}`, with
    its size in characters; a link leads to all of it. For programs, `_meta` has `toolcrib/repairs`, a list of
    `{"path", "from", "to"}`, `toolcrib/error`, `{"code", "retry"}`, `toolcrib/pending`, `{"id", "kind"}`,
    `toolcrib/handle` of a large result, `toolcrib/headers` of a response, `toolcrib/labels` that say where it comes
    from, and `toolcrib/repeated` where it is that of an earlier call with the same key.
    """
    blocks, error = content(result.content, result.call_id), result.error
    structured: dict[str, Any] | None = None
    stored: dict[str, Any] = {}
    if "handle" in result.metadata:
        stored["handle"] = handle = result.metadata["handle"]
        stored["uri"] = uri = f"toolcrib://results/{quote(handle, safe='')}"
        blocks.append(
            {"type": "resource_link", "uri": uri, "name": f"{result.tool} result", "title": "The whole result"}
        )
    # For MCP a pending call has not succeeded, and structured content that was promised may be missing from an error
    # only.
    if error is None and result.pending is None and output_schema is not None:
        if "size_chars" in result.metadata:
            structured = {"toolcrib": {**stored, "size": result.metadata["size_chars"]}}
        else:
            structured = _structured(output_schema, result)
        if structured is None:
            # So for MCP this call has failed. What may be shown of its result still is.
            error = _not_structured(result)
            blocks.insert(0, {"type": "text", "text": error.message})
    meta = _meta(result, error)
    return {
        "content": blocks,
        **({} if structured is None else {"structuredContent": structured}),
        "isError": error is not None or result.pending is not None,
        **({"_meta": meta} if meta else {}),
    }


def content(parts: Iterable[Content], call_id: str) -> list[dict[str, Any]]:
    """Return *parts* as MCP's content. Files are embedded resources, with the id of the call in their URI."""
    return [_block(part, number, call_id) for number, part in enumerate(parts)]


def encodable(text: str) -> str:
    """Return *text* with lone surrogates replaced, as in a file name that is not UTF-8: they cannot be encoded."""
    return text.encode(errors="replace").decode()


def error_data(error: ToolError) -> dict[str, str]:
    """Return the value of `toolcrib/error` for *error*."""
    return {"code": error.code, "retry": error.retry}


def _structured(schema: Mapping[str, Any], result: Result[Any]) -> dict[str, Any] | None:
    """Return the structured content, made of what may be shown; None where that does not match *schema*."""
    part = _value_part(result)
    if part is None:
        return None
    try:
        value: Any = from_json(part.json, allow_inf_nan=False) if isinstance(part, Data) else encodable(part.text)
    except ValueError:
        return None
    if not is_valid(schema, value):
        return None
    return value if schema.get("type") == "object" else {"result": value}


def _value_part(result: Result[Any]) -> Data | Text | None:
    """Return the one part of the content that has the value: data, or else text that is no note. None without one."""
    if _SETTLED in result.metadata:
        return None
    data = [part for part in result.content if isinstance(part, Data)]
    if data:
        return data[0] if len(data) == 1 else None
    texts = [part for part in result.content if isinstance(part, Text)]
    notes = ("headers" in result.metadata) + ("edited" in result.metadata.get("decision", ()))
    return texts[0] if len(texts) - notes == 1 else None


def _not_structured(result: Result[Any]) -> ToolError:
    if _SETTLED in result.metadata:
        message = f"Tool '{result.tool}' has run; do not call it again. What it returned is not known."
        return ToolError(message, "lost", retry="never")
    return ToolError(
        f"The result of tool '{result.tool}' does not match its output schema as it may be shown, perhaps because "
        "secrets were redacted. What may be shown of it follows.",
        "invalid_result",
    )


def _block(part: Content, number: int, call_id: str) -> dict[str, Any]:
    match part:
        case Text() | Data():
            return {"type": "text", "text": encodable(part.text)}
        case Image():
            return {"type": "image", "data": part.base64, "mimeType": encodable(part.media_type)}
        case Audio():
            return {"type": "audio", "data": part.base64, "mimeType": encodable(part.media_type)}
        case File():
            uri = f"toolcrib:{call_id}/{number}/{quote(encodable(part.name or 'file'), safe='')}"
            resource = {"uri": uri, "mimeType": encodable(part.media_type), "blob": part.base64}
            return {"type": "resource", "resource": resource}


def _meta(result: Result[Any], error: ToolError | None) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if result.repairs:
        meta["toolcrib/repairs"] = [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in result.repairs]
    if error is not None:
        meta["toolcrib/error"] = error_data(error)
    if result.pending is not None:
        meta["toolcrib/pending"] = {"id": result.pending.id, "kind": result.pending.kind}
    for name in ("handle", "headers", "labels", "repeated"):
        if name in result.metadata:
            meta[f"toolcrib/{name}"] = result.metadata[name]
    return meta
