"""Parameters that take the handle of a large result in place of a value: which they are, and their schemas."""

import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter as _Parameter
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ..core import DefinitionError, Handle
from ..machinery import HANDLE_PREFIX
from .signature import Parameter
from .view import with_branch

REFERENCE: Mapping[str, Any] = {
    "type": "object",
    "description": "A large result, by its handle. Its whole value is inserted here without passing through you.",
    "properties": {
        "handle": {"type": "string", "pattern": f"^{HANDLE_PREFIX}", "description": "The handle of the result."},
        "pointer": {
            "type": "string",
            "description": "A JSON pointer (RFC 6901) to a part of it, as in /rows; without it, the whole.",
        },
    },
    "required": ["handle"],
    "additionalProperties": False,
}
"""The one form in which a handle is sent."""

_AROUND = ("title", "description", "default", "examples", "deprecated")
"""Keywords about a parameter, not about its type."""


def handle_parameters(
    parameters: Sequence[Parameter], schema: Mapping[str, Any], *, label: str
) -> Mapping[str, Mapping[str, Any]] | None:
    """Return the arguments that are marked with `Handle`, and the schemas of their values; None where there are none.

    *schema* is the JSON Schema of the arguments. Raises DefinitionError for a mark where it cannot work.
    """
    schemas: dict[str, Mapping[str, Any]] = {}
    for parameter in parameters:
        if not _is_marked(parameter.annotation):
            if _is_marked_inside(parameter.annotation):
                raise DefinitionError(
                    f"{label}: Handle of '{parameter.name}' is inside another type, where handles are not supported. "
                    f"Write it around the whole: {parameter.name}: Annotated[..., Handle]."
                )
            continue
        if parameter.kind in (_Parameter.VAR_POSITIONAL, _Parameter.VAR_KEYWORD):
            raise DefinitionError(
                f"{label}: '{parameter.name}' takes any number of values, and a handle stands for one. "
                f"Make it a list: {parameter.name}: Annotated[list[...], Handle]."
            )
        name = _sent_as(parameter)
        if name in schema.get("properties", {}):
            schemas[name] = schema["properties"][name]
    return schemas or None


def with_handles(schema: Mapping[str, Any], handles: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Any]:
    """Return *schema*, for the model, with the reference admitted beside the value of each of *handles*."""
    if handles is None:
        return schema
    properties = {name: with_branch(of, dict(REFERENCE), around=_AROUND) for name, of in handles.items()}
    return {**schema, "properties": {**schema["properties"], **properties}}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a JSON object in a text: its value is written in `text[start:end]`."""

    name: str
    value: Any
    start: int
    end: int


def object_members(text: str) -> Iterator[Member]:
    """Return the members of the JSON object in *text*, in order. Raises ValueError where it is not one."""
    decoder = json.JSONDecoder()
    at = _past_space(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("not a JSON object")
    at = _past_space(text, at + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        name, at = decoder.raw_decode(text, at)
        at = _past_space(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError("not a JSON object")
        start = _past_space(text, at + 1)
        value, end = decoder.raw_decode(text, start)
        yield Member(name, value, start, end)
        at = _past_space(text, end)
        if text[at : at + 1] != ",":
            return
        at = _past_space(text, at + 1)


_SPACE = re.compile(r"[ \t\n\r]*")


def _past_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _is_marked(annotation: Any) -> bool:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_marked(inner[0]) or any(extra is Handle or isinstance(extra, Handle) for extra in inner[1:])
    # `Annotated[list[Row], Handle] | None`: the mark of one branch is the mark of the whole.
    return origin in (Union, types.UnionType) and any(map(_is_marked, inner))


def _is_marked_inside(annotation: Any) -> bool:
    return any(_is_marked(inner) or _is_marked_inside(inner) for inner in get_args(annotation))


def _sent_as(parameter: Parameter) -> str:
    """Return the name of a parameter in the text, where pydantic's `Field` gives it another."""
    infos = [extra for extra in getattr(parameter.annotation, "__metadata__", ()) if isinstance(extra, FieldInfo)]
    if isinstance(parameter.default, FieldInfo):
        infos.append(parameter.default)
    return next((info.validation_alias for info in infos if isinstance(info.validation_alias, str)), parameter.name)
