"""Turns as JSON data, to be stored, and back. Readers raise ValueError, with the place, for anything else."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, Literal, NotRequired, TypeVar, cast

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..core import (
    Call,
    Content,
    Pending,
    Repair,
    Result,
    RetryAdvice,
    ToolError,
    content_from_dict,
    content_to_dict,
)
from .turns import Reply, Results, Stop, Turn, Usage, User

T = TypeVar("T")

# Turns as they are written


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
