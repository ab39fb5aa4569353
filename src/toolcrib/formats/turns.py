"""What a conversation with a model is made of, in no provider's words. Values, all of which have a JSON form."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from ..core import (
    CODES,
    Audio,
    Call,
    Content,
    Data,
    File,
    Image,
    Pending,
    PendingKind,
    Repair,
    Result,
    Retry,
    Text,
    ToolError,
)

Stop = Literal["end", "calls", "length", "refused", "other"]
"""Why a model stopped: it was done, it waits for its calls, it ran out of tokens, it would not, anything else."""

Choice = Literal["auto", "any", "none"] | str
"""Which tools a model may or must use: as it likes, at least one, none, or the one of this name."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counts them. `cached` ones are part of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)


@dataclass(frozen=True, slots=True)
class User:
    """What a person said."""

    content: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said in one turn.

    `calls` are in the order in which they were asked for, under the tools' own names, arguments lifted to what the
    tools' own schemas describe. `native` is the provider's message as JSON data, to be sent back just as it came
    (reasoning, signatures); None where the format can say everything anew.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)
    native: Any = None


@dataclass(frozen=True, slots=True)
class Results:
    """How the calls of the reply before ended: one for each, in the order of the calls."""

    results: tuple[Result[Any], ...]


Turn = User | Reply | Results
"""A conversation is a sequence of these: after a Reply that has calls, their Results."""


@dataclass(frozen=True, slots=True)
class Written:
    """A piece of a reply that is still being written: words for whoever watches."""

    text: str


def to_data(turn: Turn) -> dict[str, Any]:
    """*turn* as JSON data. Of results it has what may be shown, not the program's `value`."""
    match turn:
        case User(content):
            return {"kind": "user", "content": [_content_data(part) for part in content]}
        case Reply(text, calls, stop, usage, native):
            return {
                "kind": "reply",
                "text": text,
                "calls": [{"tool": c.tool, "arguments": _arguments_data(c), "id": c.id} for c in calls],
                "stop": stop,
                "usage": {"input": usage.input, "output": usage.output, "cached": usage.cached},
                "native": native,
            }
        case Results(results):
            return {"kind": "results", "results": [_result_data(result) for result in results]}


def from_data(data: Mapping[str, Any]) -> Turn:
    """The turn that `to_data` wrote. Raises ValueError, with the place, for anything else."""
    read = _Reader(data, "turn")
    match kind := read.text("kind"):
        case "user":
            return User(tuple(map(_content, read.each("content"))))
        case "reply":
            usage = read.inner("usage")
            return Reply(
                read.text("text"),
                tuple(Call(c.text("tool"), c.arguments("arguments"), c.text("id")) for c in read.each("calls")),
                read.one_of("stop", _STOPS),
                Usage(usage.number("input", int), usage.number("output", int), usage.number("cached", int)),
                read.data.get("native"),
            )
        case "results":
            return Results(tuple(map(_result, read.each("results"))))
        case _:
            raise ValueError(f"turn.kind: '{kind[:40]}' is no kind of turn. The kinds are: user, reply, results.")


def text_of(content: Sequence[Content]) -> str:
    """*content* in words, a line a part."""
    return "\n".join(part.text for part in content)


# The form of turns as JSON data.

_STOPS: tuple[Stop, ...] = ("end", "calls", "length", "refused", "other")
_PENDINGS: tuple[PendingKind, ...] = ("authorization", "approval", "input", "task")
_RETRIES: tuple[Retry, ...] = ("changed", "later", "never")


def _arguments_data(call: Call) -> Any:
    match call.arguments:
        case bytes() as text:
            return text.decode(errors="replace")
        case None | str() as same:
            return same
        case mapping:
            return dict(mapping)


def _content_data(part: Content) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Data(value):
            return {"type": "data", "json": value}
        case Image(_, media_type):
            return {"type": "image", "base64": part.base64, "media_type": media_type}
        case Audio(_, media_type):
            return {"type": "audio", "base64": part.base64, "media_type": media_type}
        case File(_, media_type, name):
            return {"type": "file", "base64": part.base64, "media_type": media_type, "name": name}


def _result_data(result: Result[Any]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "call_id": result.call_id,
        "tool": result.tool,
        "content": [_content_data(part) for part in result.content],
        "error": result.error and result.error.to_dict(),
        "pending": result.pending and {**result.pending.to_dict(), "expires_s": result.pending.expires_s},
        "repairs": [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in result.repairs],
        "started_s": result.started_s,
        "finished_s": result.finished_s,
        "metadata": {name: value for name, value in result.metadata.items() if _is_json(value)},
    }
    return {name: value for name, value in said.items() if value is not None}


def _is_json(value: Any) -> bool:
    # The host's own wrappers may put anything there.
    try:
        return isinstance(json.dumps(value, allow_nan=False), str)
    except (TypeError, ValueError):
        return False


_Word = TypeVar("_Word", bound=str)
_Number = TypeVar("_Number", int, float)


class _Reader:
    """A JSON object at a place. What it is asked for and does not have, or not of that kind, is a ValueError there."""

    def __init__(self, data: Any, place: str) -> None:
        self.data: Mapping[str, Any] = self._of_kind(data, Mapping, place)
        self.place = place

    def text(self, name: str, default: str | None = None) -> str:
        value = self.data.get(name, default)
        return str(self._of_kind(value, str, f"{self.place}.{name}"))

    def maybe(self, name: str) -> str | None:
        return None if self.data.get(name) is None else self.text(name)

    def number(self, name: str, kind: type[_Number]) -> _Number:
        value = self.data.get(name, 0)
        kinds = (int, float) if kind is float else (int,)
        return kind(self._of_kind(value, kinds, f"{self.place}.{name}"))

    def one_of(self, name: str, words: tuple[_Word, ...]) -> _Word:
        value = self.text(name)
        for word in words:
            if word == value:
                return word
        raise ValueError(f"{self.place}.{name}: '{value[:40]}' is not one of: {', '.join(words)}.")

    def arguments(self, name: str) -> str | Mapping[str, Any] | None:
        value = self.data.get(name)
        return value if value is None else self._of_kind(value, (str, Mapping), f"{self.place}.{name}")

    def decoded(self, name: str) -> bytes:
        try:
            return b64decode(self.text(name), validate=True)
        except ValueError as error:
            if str(error).startswith(self.place):
                raise
            raise ValueError(f"{self.place}.{name}: this is no base64.") from None

    def inner(self, name: str) -> "_Reader":
        return _Reader(self.data.get(name), f"{self.place}.{name}")

    def each(self, name: str) -> "list[_Reader]":
        place = f"{self.place}.{name}"
        return [_Reader(one, f"{place}[{n}]") for n, one in enumerate(self._of_kind(self.data.get(name), list, place))]

    @staticmethod
    def _of_kind(value: Any, kinds: Any, place: str) -> Any:
        if isinstance(value, kinds) and not isinstance(value, bool):
            return value
        wanted = " or ".join(_KINDS[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        found = "nothing" if value is None else f"a value of kind {type(value).__name__}"
        raise ValueError(f"{place}: {wanted} belongs here, and {found} is here.")


_KINDS = {str: "text", Mapping: "an object", list: "a list", int: "a whole number", float: "a number"}


def _content(read: _Reader) -> Content:
    match kind := read.text("type"):
        case "text":
            return Text(read.text("text"))
        case "data":
            return Data(read.text("json"))
        case "image":
            return Image(read.decoded("base64"), read.text("media_type"))
        case "audio":
            return Audio(read.decoded("base64"), read.text("media_type"))
        case "file":
            return File(read.decoded("base64"), read.text("media_type"), read.maybe("name"))
        case _:
            known = "text, data, image, audio, file"
            raise ValueError(f"{read.place}.type: '{kind[:40]}' is no kind of content. The kinds are: {known}.")


def _result(read: _Reader) -> Result[Any]:
    error, pending = read.data.get("error"), read.data.get("pending")
    return Result(
        None,
        tuple(map(_content, read.each("content"))),
        None if error is None else _error(read.inner("error")),
        tuple(Repair(r.text("path"), r.text("from"), r.text("to")) for r in read.each("repairs")),
        read.number("started_s", float),
        read.number("finished_s", float),
        read.text("call_id"),
        read.text("tool"),
        None if pending is None else _pending(read.inner("pending")),
        dict(read.inner("metadata").data),
    )


def _error(read: _Reader) -> ToolError:
    message, code = read.text("message"), read.text("code")
    retry: Retry = read.one_of("retry", _RETRIES)
    if code not in CODES:
        raise ValueError(f"{read.place}.code: '{code[:40]}' is no error code. The codes are: {', '.join(CODES)}.")
    return ToolError(message, code, retry=retry, details=read.inner("details").data if "details" in read.data else None)


def _pending(read: _Reader) -> Pending:
    return Pending(
        read.text("id"),
        read.one_of("kind", _PENDINGS),
        read.text("message"),
        read.text("digest", ""),
        read.text("tool"),
        read.text("principal", ""),
        read.text("thread", ""),
        read.number("expires_s", float),
        read.text("arguments", "{}"),
        read.text("key", ""),
        read.maybe("url"),
        None if read.data.get("schema") is None else read.inner("schema").data,
        read.data.get("others_only") is True,
    )
