"""MCP's tool shape: definitions for `tools/list`, the call of a `tools/call`, and its result. The wire is not here.

It serves both eras of the protocol. Where they differ, the older is kept to: through 2025-11-25 the root of an output
schema, and of structured content, is an object. Any other value goes under the key `result`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json

from ..core import Audio, Call, Content, Data, File, Hints, Image, Result, Text, ToolError, ToolSpec
from ..schema import admits
from ..schema.lower import Loss
from . import answers
from .accepts import MCP
from .offer import Offer, offer

_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """MCP's definitions of *specs*: the `tools` of a `tools/list` result. MCP has no strict mode."""
    return [definition(tool.spec, tool.name, tool.schema) for tool in _offered(specs).tools]


def losses(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
    """What `tools` could not say, by tool; only tools of which something could not be said."""
    return _offered(specs).losses


def calls(request: Any, specs: Iterable[ToolSpec] = ()) -> list[Call]:
    """The one call that *request* asks for, a `tools/call` request or its params, a dictionary or the SDK's object.

    Its id is the request's where that says one. Raises ValueError, with the place, for a broken shape.
    """
    where = "The tools/call request"
    whole = answers.data(request, where)
    method = whole.get("method", "tools/call")
    if method != "tools/call":
        raise ValueError(f"{where} is broken: its 'method' is '{str(method)[:40]}'.")
    params = answers.at(whole, "params", dict, where) if "params" in whole or "method" in whole else whole
    name = answers.at(params, "name", str, f"{where} (params)")
    arguments = answers.or_none(params, "arguments", dict, f"{where} (params)")
    offered = _offered(specs)
    asked_id = whole.get("id")
    if asked_id is None:
        call = Call(offered.tool_of(name))
        return [offered.call(call.id, name, arguments or {})]
    return [offered.call(str(asked_id), name, arguments or {})]


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[dict[str, Any]]:
    """A `tools/call` result for each of *results*, in their order, structured where its spec promises that."""
    promised = {spec.name: spec.output_schema for spec in specs}
    return [result_of(result, promised.get(result.tool)) for result in results]


def definition(
    spec: ToolSpec, name: str | None = None, input_schema: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One tool of a `tools/list` result, under its own name and with its own schema unless these are given."""
    said = {
        "name": name or spec.name,
        "title": spec.title,
        "description": spec.description or None,
        "inputSchema": dict(spec.input_schema if input_schema is None else input_schema),
        "outputSchema": None if spec.output_schema is None else rooted(spec.output_schema),
        "annotations": annotations(spec.hints) or None,
    }
    return {key: value for key, value in said.items() if value is not None}


def annotations(hints: Hints) -> dict[str, bool]:
    """The hints that were given, by MCP's names."""
    return {name: given for name, hint in _HINTS.items() if (given := getattr(hints, hint)) is not None}


def rooted(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output schema whose root is an object: *schema*, or one with it under the key `result`."""
    if _is_rooted(schema):
        return dict(schema)
    inner = dict(schema)
    # References point into "$defs" of the root, so these stay there.
    shared = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **shared}


def result_of(
    result: Result[Any],
    output_schema: Mapping[str, Any] | None = None,
    *,
    whole: tuple[Content, ...] | None = None,
) -> dict[str, Any]:
    """*result* as MCP has it: its content for the model, and structured where *output_schema* promises that.

    *whole* is all of the content of a large result, of which the structured content is made. What became of the call
    beside its content is in `_meta`, for programs: `toolcrib/repairs`, a list of `{"path", "from", "to"}`,
    `toolcrib/error`, `{"code", "retry"}`, `toolcrib/pending`, `{"id", "kind"}`, and `toolcrib/handle` of a large
    result.
    """
    shown, error = content(result.content, result.call_id), result.error
    structured: dict[str, Any] | None = None
    # For MCP a pending call has not succeeded, and a tool that promises structured content may only leave it out of an
    # error.
    failed = error is not None or result.pending is not None
    if not failed and output_schema is not None:
        try:
            structured = _structured(output_schema, result.content if whole is None else whole)
        except ValueError:
            # A tool that promises structured content has to give it, so this one has failed, as far as MCP goes. What
            # it did is done, though, and what may be shown of its result is shown.
            failed, error = True, _unpresentable(result.tool)
            shown.insert(0, {"type": "text", "text": error.message})
    meta = _meta(result, error)
    return {
        "content": shown,
        **({} if structured is None else {"structuredContent": structured}),
        "isError": failed,
        **({"_meta": meta} if meta else {}),
    }


def content(parts: Iterable[Content], call_id: str) -> list[dict[str, Any]]:
    """*parts* as MCP's content. Files are embedded resources, whose address has the id of the call."""
    return [_block(part, number, call_id) for number, part in enumerate(parts)]


def sendable(text: str) -> str:
    """*text* without halves of surrogate pairs, as in the name of a file that is not UTF-8: they cannot be sent."""
    return text.encode(errors="replace").decode()


def code(error: ToolError) -> dict[str, str]:
    """What `toolcrib/error` says of *error*."""
    return {"code": error.code, "retry": error.retry}


def _offered(specs: Iterable[ToolSpec]) -> Offer:
    return offer(tuple(specs), MCP, strict=False)


def _is_rooted(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _structured(schema: Mapping[str, Any], content: tuple[Content, ...]) -> dict[str, Any]:
    """The structured content, made of what may be shown. Raises ValueError where that is not what *schema* says."""
    value: Any
    match content:
        case (Data() as data,):
            value = from_json(data.json, allow_inf_nan=False)
        case (Text(text),):
            value = sendable(text)
        case _:
            raise ValueError
    if not admits(schema, value):
        raise ValueError
    return value if _is_rooted(schema) else {"result": value}


def _unpresentable(tool: str) -> ToolError:
    return ToolError(
        f"What tool '{tool}' returned cannot be given in the form that it promises, perhaps because "
        "secrets were struck out of it. What may be shown of it follows.",
        "invalid_result",
    )


def _block(part: Content, number: int, call_id: str) -> dict[str, Any]:
    match part:
        case Text() | Data():
            return {"type": "text", "text": sendable(part.text)}
        case Image():
            return {"type": "image", "data": part.base64, "mimeType": sendable(part.media_type)}
        case Audio():
            return {"type": "audio", "data": part.base64, "mimeType": sendable(part.media_type)}
        case File():
            uri = f"toolcrib:{call_id}/{number}/{quote(sendable(part.name or 'file'), safe='')}"
            resource = {"uri": uri, "mimeType": sendable(part.media_type), "blob": part.base64}
            return {"type": "resource", "resource": resource}


def _meta(result: Result[Any], error: ToolError | None) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if result.repairs:
        meta["toolcrib/repairs"] = [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in result.repairs]
    if error is not None:
        meta["toolcrib/error"] = code(error)
    if result.pending is not None:
        meta["toolcrib/pending"] = {"id": result.pending.id, "kind": result.pending.kind}
    if "handle" in result.metadata:
        meta["toolcrib/handle"] = result.metadata["handle"]
    return meta
