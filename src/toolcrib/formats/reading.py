"""Checked reading of what providers send: an SDK's objects become data, a malformed shape an error with its place."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from random import getrandbits
from typing import Any, TypeVar, cast

from ..core import Call, SetupError, ToolSpec
from ..schema import closest_match, did_you_mean
from .turns import Reply, Stop, Usage

T = TypeVar("T")

UsageNames = Mapping[str, Sequence[str]]
"""The counts that a provider has for each field of Usage, which is their sum. `a.b` is the count `b` in `a`."""

_MAX_DEPTH = 200
"""How deep an answer may be nested. Python's own JSON parser gives up at a depth that changes with the stack."""

MAX_REASON_CHARS = 1_000
"""How much of a provider's own words is passed on."""

_KINDS: Mapping[type, str] = {dict: "an object", list: "a list", str: "text", int: "an integer", bool: "true or false"}


class IncompleteReply(ValueError):
    """An answer that the provider did not finish. *code* is the provider's own, or "cut" where it gave none."""

    def __init__(self, message: str, code: str = "cut") -> None:
        super().__init__(message)
        self.code = code


def broken_off(provider: str, error: Any, *code_keys: str) -> IncompleteReply:
    """Return the error that stands in the place of an answer, or of the rest of it."""
    details = error if isinstance(error, Mapping) else {"message": error}
    code = str(next(filter(None, map(details.get, code_keys)), ""))
    prefix = f"{code}: " if code else ""
    reason = str(details.get("message"))[:MAX_REASON_CHARS]
    return IncompleteReply(f"{provider} broke off its answer: {prefix}{reason}", code)


class Pieces:
    """A text while it is streamed: a piece is added in constant time. `json_data` makes it text."""

    __slots__ = ("pieces",)

    def __init__(self, text: str) -> None:
        self.pieces = [text]

    def __str__(self) -> str:
        return "".join(self.pieces)


def append_text(data: dict[str, Any], key: str, piece: str) -> None:
    """Add *piece* to the text `data[key]`; anything else that is there is replaced."""
    text = data.get(key)
    if isinstance(text, Pieces):
        text.pieces += [piece] if piece else []
    else:
        data[key] = Pieces(text + piece if isinstance(text, str) else piece)


def as_mapping(answer: Any, where: str) -> dict[str, Any]:
    """Return *answer*, a mapping or an SDK's object, as a dictionary. Raises ValueError for anything else."""
    if isinstance(answer, Mapping):
        return dict(answer)
    if hasattr(answer, "model_dump"):
        # By the names on the wire, without the many fields that an SDK knows and the provider did not send.
        return cast(dict[str, Any], answer.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False))
    for method in ("to_dict", "to_json_dict"):
        if hasattr(answer, method):
            return as_mapping(getattr(answer, method)(), where)
    raise ValueError(f"{where} must be an object (a dictionary or an SDK's answer), not {kind_of(answer)}.")


def chunks_of(answer: Any) -> Iterable[Any] | None:
    """Return the chunks of a streamed *answer*, which boto3 has as its `stream`; None for a whole one."""
    if isinstance(answer, Mapping):
        return chunks_of(answer.get("stream"))
    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        return None
    # A pydantic model is iterable too, but it is one answer.
    return None if hasattr(answer, "model_dump") else answer


def messages_in(request: Any) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Return the messages of *request*, a list of them or parameters that have them; and the parameters.

    Raises ValueError for anything else, with the place.
    """
    parameters: Mapping[str, Any] = request if isinstance(request, Mapping) else {"messages": request}
    messages = parameters.get("messages")
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise ValueError("A conversation must be a list of messages, or an object with one as 'messages'.")
    return [as_mapping(message, f"messages[{number}]") for number, message in enumerate(messages)], parameters


def json_data(value: Any, where: str) -> Any:
    """Return a copy of *value* as JSON data.

    Bytes become base64, and numbers that JSON does not have become text ("NaN"). Surrogate pairs that were streamed in
    halves are joined. Raises ValueError for values that are not JSON, and for values that are nested too deep.
    """
    return _json_data(value, where, _MAX_DEPTH)


def _json_data(value: Any, where: str, depth: int) -> Any:
    if depth < 0:
        raise ValueError(f"{where} is nested deeper than {_MAX_DEPTH} levels.")
    match value:
        case None | bool() | int():
            return value
        case str():
            return join_surrogates(value)
        case float():
            return value if isfinite(value) else json.dumps(value)
        case list() | tuple():
            return [_json_data(inner, where, depth - 1) for inner in value]
        case dict() | Mapping():
            return {join_surrogates(str(key)): _json_data(inner, where, depth - 1) for key, inner in value.items()}
        case Pieces():
            return join_surrogates(str(value))
        case bytes() | bytearray():
            return b64encode(value).decode()
        case _:
            raise ValueError(f"{where} is malformed: a value in it is {kind_of(value)}, which is not JSON.")


def join_surrogates(text: str) -> str:
    """Return *text* with surrogate pairs joined, and a replacement character for a lone half:

    UTF-8 cannot encode halves.
    """
    if text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def require(data: Mapping[str, Any], key: str, kind: type[T], where: str) -> T:
    """Return `data[key]`, which must be of this kind.

    Raises ValueError, with the place, where it is not or is missing.
    """
    value = data.get(key)
    # For Python, True is an integer.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        actual = kind_of(value) if key in data else "missing"
        raise ValueError(f"{where} is malformed: '{key}' must be {_KINDS[kind]}, and it is {actual}.")
    return value


def optional(data: Mapping[str, Any], key: str, kind: type[T], where: str) -> T | None:
    """Return what `require` does, but None where the provider left it out or sent null."""
    return None if data.get(key) is None else require(data, key, kind, where)


def object_list(data: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Return `data[key]`, which must be a list of objects; an empty list where it is left out."""
    items = optional(data, key, list, where) or []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise ValueError(f"{where} is malformed: '{key}[{number}]' must be an object, and it is {kind_of(item)}.")
    return items


def read_usage(counts: Any, names: UsageNames) -> Usage:
    """Return the tokens in *counts*. One that is missing or malformed is 0: no answer is lost for a count."""
    return Usage(**{field: sum(_token_count(counts, path) for path in paths) for field, paths in names.items()})


def _token_count(counts: Any, path: str) -> int:
    for name in path.split("."):
        counts = counts.get(name) if isinstance(counts, Mapping) else None
    return counts if type(counts) is int and counts > 0 else 0


def stop_reason(value: Any, reasons: Mapping[str, Stop]) -> Stop:
    """Return why the model stopped, from the provider's own word for it."""
    return reasons.get(value, "other") if isinstance(value, str) else "other"


def finished_reply(text: str, calls: Sequence[Call], stop: Stop, usage: Usage, native: Any, *, reason: str) -> Reply:
    """Return the reply of an answer that was read. *reason* is the provider's own word for *stop*.

    A malformed answer has no calls: those of them that could be read may not be what the model wrote.
    """
    if stop == "malformed":
        calls, native = (), None
    reason = join_surrogates(reason)[:MAX_REASON_CHARS] if stop in ("malformed", "other") else ""
    return Reply(text, tuple(calls), stop, usage, native, reason)


def unique_id(call_id: str | None, used: set[str]) -> str:
    """Return *call_id*, or a new id where it is missing or in *used*. The id is added to *used*.

    A new one has nine letters or digits, which every server accepts, Mistral's included.
    """
    while not call_id or call_id in used:
        call_id = f"{getrandbits(36):09x}"
    used.add(call_id)
    return call_id


def kind_of(value: Any) -> str:
    """Return what kind of value this is, in JSON's terms where it has one. The value itself is not quoted."""
    if value is None:
        return "null"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def require_tool(choice: str, specs: Iterable[ToolSpec]) -> str:
    """Return *choice*, which must be the name of a tool. Raises SetupError, with the nearest name, where it is not."""
    names = [spec.name for spec in specs]
    if choice in names:
        return choice
    hint = did_you_mean(closest_match(choice, names)) or f" The tools are: {', '.join(sorted(names)) or 'none'}."
    raise SetupError(f"The tool choice '{choice}' is not 'auto', 'any' or 'none', and no tool has this name.{hint}")
