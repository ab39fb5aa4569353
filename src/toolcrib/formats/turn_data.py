"""Turns as JSON data, to be stored, and back. Readers raise ValueError, with the place, for anything else."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar, get_args

from ..core import (
    CODES,
    Call,
    Content,
    Pending,
    PendingKind,
    Repair,
    Result,
    RetryAdvice,
    ToolError,
    content_from_dict,
    content_to_dict,
)
from .reading import kind_of, object_list, optional, require
from .turns import Reply, Results, Stop, Turn, Usage, User

_Word = TypeVar("_Word", bound=str)


def turn_to_dict(turn: Turn) -> dict[str, Any]:
    """Return *turn* as JSON data. Of results it has what may be shown, not the program's `value`."""
    match turn:
        case User(content):
            return {"kind": "user", "content": [content_to_dict(part) for part in content]}
        case Reply(text, calls, stop, usage, native, reason, server):
            return {
                "kind": "reply",
                "text": text,
                "calls": [{"tool": c.tool, "arguments": _arguments(c), "id": c.id} for c in calls],
                "stop": stop,
                "usage": usage.to_dict(),
                "native": native,
                **({"reason": reason} if reason else {}),
                **({"server": server} if server else {}),
            }
        case Results(results):
            return {"kind": "results", "results": [_result_to_dict(result) for result in results]}


def turn_from_dict(data: Mapping[str, Any]) -> Turn:
    """Return the turn that `turn_to_dict` wrote. Raises ValueError, with the place, for anything else."""
    turn = _object(data, "turn")
    match kind := require(turn, "kind", str, "turn"):
        case "user":
            return User(_content(turn, "turn"))
        case "reply":
            usage = require(turn, "usage", dict, "turn")
            return Reply(
                require(turn, "text", str, "turn"),
                tuple(_call(call, where) for call, where in _items(turn, "calls", "turn")),
                _one_of(turn, "stop", get_args(Stop), "turn"),
                Usage(*(optional(usage, name, int, "turn.usage") or 0 for name in Usage.__slots__)),
                turn.get("native"),
                *(optional(turn, name, str, "turn") or "" for name in ("reason", "server")),
            )
        case "results":
            return Results(tuple(_result(result, where) for result, where in _items(turn, "results", "turn")))
        case _:
            raise ValueError(f"turn.kind: '{kind[:40]}' is not a kind of turn. The kinds are: user, reply, results.")


def pending_from_dict(data: Any, where: str = "pending") -> Pending:
    """Return the pending that `Pending.to_dict` wrote. Raises ValueError, with the place, for anything else."""
    pending = _object(data, where)
    return Pending(
        id=require(pending, "id", str, where),
        kind=_one_of(pending, "kind", get_args(PendingKind), where),
        message=require(pending, "message", str, where),
        digest=optional(pending, "digest", str, where) or "",
        tool=require(pending, "tool", str, where),
        principal=optional(pending, "principal", str, where) or "",
        thread=optional(pending, "thread", str, where) or "",
        expires_at=_moment(pending, "expires_at", where),
        arguments=optional(pending, "arguments", str, where) or "{}",
        key=optional(pending, "key", str, where) or "",
        url=optional(pending, "url", str, where),
        schema=optional(pending, "schema", dict, where),
        others_only=pending.get("others_only") is True,
    )


def _arguments(call: Call) -> Any:
    match call.arguments:
        case bytes() as text:
            return text.decode(errors="replace")
        case None | str() as same:
            return same
        case mapping:
            return dict(mapping)


def _result_to_dict(result: Result[Any]) -> dict[str, Any]:
    # The host's middleware may put anything into the metadata.
    metadata = {name: value for name, value in result.metadata.items() if _is_json(value)}
    return {**result.to_dict(), "metadata": metadata}


def _is_json(value: Any) -> bool:
    try:
        return isinstance(json.dumps(value, allow_nan=False), str)
    except (TypeError, ValueError):
        return False


# Members of an object, and their places


def _object(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} must be an object, not {kind_of(data)}.")
    return data


def _items(data: Mapping[str, Any], key: str, where: str) -> list[tuple[dict[str, Any], str]]:
    require(data, key, list, where)
    return [(item, f"{where}.{key}[{number}]") for number, item in enumerate(object_list(data, key, where))]


def _one_of(data: Mapping[str, Any], key: str, words: tuple[_Word, ...], where: str) -> _Word:
    value = require(data, key, str, where)
    for word in words:
        if word == value:
            return word
    raise ValueError(f"{where}.{key}: '{value[:40]}' is not one of: {', '.join(words)}.")


def _moment(data: Mapping[str, Any], key: str, where: str) -> datetime:
    text = require(data, key, str, where)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{where}.{key}: '{text[:40]}' is not a time in ISO 8601.") from None


def _content(data: Mapping[str, Any], where: str) -> tuple[Content, ...]:
    parts: list[Content] = []
    for item, place in _items(data, "content", where):
        try:
            parts.append(content_from_dict(item))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    return tuple(parts)


def _call(call: Mapping[str, Any], where: str) -> Call:
    arguments = call.get("arguments")
    if not isinstance(arguments, str | Mapping | None):
        raise ValueError(
            f"{where} is malformed: 'arguments' must be text or an object, and it is {kind_of(arguments)}."
        )
    return Call(require(call, "tool", str, where), arguments, require(call, "id", str, where))


def _result(result: Mapping[str, Any], where: str) -> Result[Any]:
    repairs = [
        Repair(*(require(repair, name, str, place) for name in ("path", "from", "to")))
        for repair, place in (_items(result, "repairs", where) if result.get("repairs") else ())
    ]
    error, pending = result.get("error"), result.get("pending")
    return Result(
        value=None,
        content=_content(result, where),
        error=None if error is None else _error(require(result, "error", dict, where), f"{where}.error"),
        repairs=tuple(repairs),
        started_at=_moment(result, "started_at", where),
        finished_at=_moment(result, "finished_at", where),
        call_id=require(result, "call_id", str, where),
        tool=require(result, "tool", str, where),
        pending=None if pending is None else pending_from_dict(pending, f"{where}.pending"),
        metadata=require(result, "metadata", dict, where),
    )


def _error(error: Mapping[str, Any], where: str) -> ToolError:
    code = require(error, "code", str, where)
    if code not in CODES:
        raise ValueError(f"{where}.code: '{code[:40]}' is not an error code. The codes are: {', '.join(CODES)}.")
    retry: RetryAdvice = _one_of(error, "retry", get_args(RetryAdvice), where)
    return ToolError(require(error, "message", str, where), code, retry=retry, details=error.get("details"))
