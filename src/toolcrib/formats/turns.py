"""The turns of a conversation with a model, independent of any provider, and their JSON form, to be stored. Values."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypeVar, cast

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..core import Call, Content, Pending, Repair, Result, RetryAdvice, ToolError, content_from_dict, content_to_dict

T = TypeVar("T")

Stop = Literal["end", "calls", "length", "refused", "paused", "malformed", "other"]
"""Why a model stopped.

It was done; it waits for its calls; it ran out of tokens; it refused; it continues when its message is sent back; it
wrote what the provider could not read; anything else.
"""

Choice = Literal["auto", "any", "none"] | str
"""Which tools a model may or must use: any or none of them, at least one, none, or the one of this name."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counts them.

    Part of `input` are those read from a cache (`cached`) and those written to one (`cache_writes`); part of `output`
    is the model's `reasoning`.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class User:
    """A message of a person."""

    content: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the model.

    `calls` are in the model's order, under the tools' own names, with arguments as the tools' own schemas describe
    them. `native` is the provider's message as JSON data, to be sent back as it came (with reasoning and signatures);
    None where there is none. `reason` is the provider's own word for a stop that is
    `malformed` or `other`. `server` identifies the server that gave `native`, where a client knows it.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)
    native: Any = None
    reason: str = ""
    server: str = field(default="", compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether it has no text and no calls, and `native` nothing beside reasoning. Providers refuse it as a message.

        What a provider's own tools did, images and audio are not nothing.
        """
        match self.native:
            case {"content": [*blocks]} | {"parts": [*blocks]} | [*blocks]:
                has_more = not all(map(_is_text_or_reasoning, blocks))
            case _:
                has_more = isinstance(self.native, Mapping) and "audio" in self.native
        return not (self.text.strip() or self.calls or has_more)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the calls of the reply before: one for each, in the order of the calls."""

    results: tuple[Result[Any], ...]


def _is_text_or_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    if "type" in block:
        return block["type"] in ("text", "thinking", "redacted_thinking", "reasoning", "message", "refusal")
    return block.keys() <= {"text", "thought", "thoughtSignature", "reasoningContent", "role", "content"}


Turn = User | Reply | Results
"""A conversation is a sequence of these: after a Reply that has calls, their Results."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text of a reply that is still being generated."""

    text: str


class Conversation(NamedTuple):
    """What `read_conversation` found in a provider's messages: the system's instructions, and the turns."""

    instructions: str
    turns: tuple[Turn, ...]


def text_of(content: Sequence[Content]) -> str:
    """Return *content* as text, a line for each part."""
    return "\n".join(part.text for part in content)


# Turns as JSON data


class _Error(TypedDict):
    message: str
    code: str
    retry: RetryAdvice
    details: NotRequired[dict[str, Any]]


_Repair = TypedDict("_Repair", {"path": str, "from": str, "to": str})


class _Call(TypedDict):
    tool: str
    arguments: NotRequired[str | dict[str, Any] | None]
    id: str


def _as(make: Callable[..., Any]) -> AfterValidator:
    """Make a value of the members that were read."""
    return AfterValidator(lambda data: make(**{name: value for name, value in data.items() if name != "kind"}))


_AnyContent = tuple[Annotated[Content, PlainValidator(content_from_dict)], ...]


class _Result(TypedDict):
    call_id: str
    tool: str
    content: _AnyContent
    started_at: datetime
    finished_at: datetime
    error: NotRequired[Annotated[_Error, _as(ToolError)]]
    pending: NotRequired[Pending]
    repairs: NotRequired[tuple[Annotated[_Repair, AfterValidator(lambda data: Repair(*data.values()))], ...]]
    metadata: NotRequired[dict[str, Any]]


class _User(TypedDict):
    kind: Literal["user"]
    content: _AnyContent


class _Reply(TypedDict):
    kind: Literal["reply"]
    text: str
    calls: tuple[Annotated[_Call, _as(Call)], ...]
    stop: Stop
    usage: Usage
    native: NotRequired[Any]
    reason: NotRequired[str]
    server: NotRequired[str]


class _Results(TypedDict):
    kind: Literal["results"]
    results: tuple[Annotated[_Result, _as(partial(Result, None))], ...]


_Turn = Annotated[
    Annotated[_User, _as(User)] | Annotated[_Reply, _as(Reply)] | Annotated[_Results, _as(Results)],
    Field(discriminator="kind"),
]


@cache  # as it takes milliseconds to make
def _turn_reader() -> TypeAdapter[Turn]:
    return cast(TypeAdapter[Turn], TypeAdapter(_Turn))


def turn_from_dict(data: Mapping[str, Any]) -> Turn:
    """Return the turn that `turn_to_dict` wrote. Raises ValueError, with the place, for anything else."""
    return checked(_turn_reader(), data, "turn")


def checked(reader: TypeAdapter[T], data: Any, where: str) -> T:
    """Return what *reader* makes of *data*, JSON data. Raises ValueError, with the place, where it refuses them."""
    try:
        return reader.validate_python(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem["loc"])
        raise ValueError(f"{where}{place}: {problem['msg'].removeprefix('Value error, ').rstrip('.')}.") from None


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
