"""The spec of a function's tool: its name, what its options declare, and the schema of what it returns."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core import DefinitionError, Hints, ToolSpec
from ..machinery import Encode
from .options import ToolOptions

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def require_name(name: Any) -> str:
    """Return *name*, if it can be the name of a tool. Raises DefinitionError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool: model providers take 1 to 64 letters, digits, '_' and '-'. "
            'Give one with @tool(name="...").'
        )
    return name


def is_portable(name: str) -> bool:
    """Return whether all model providers take *name* as it is."""
    return _NAME.fullmatch(name) is not None


def require_any_name(name: Any) -> str:
    """Return *name*, if it can be the name of a tool that others have named. Raises DefinitionError.

    `formats` gives model providers a name that they take.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable() or " " in name:
        raise DefinitionError(f"{name!r} cannot be the name of a tool: a name is 1 to 256 characters without spaces.")
    return name


def spec_of(
    name: str,
    options: ToolOptions,
    output_schema: Mapping[str, Any] | None,
    names: Sequence[frozenset[str]],
    described: Callable[[], tuple[str, Mapping[str, Any]]],
    *,
    is_later: bool,
) -> ToolSpec:
    """Return the spec of a tool with these *options*.

    *described* makes the docstring's description and the input schema: with *is_later*, when one is first looked at.
    """

    def later() -> tuple[str, Mapping[str, Any]]:
        description, input_schema = described()
        return description if (text := options.get("description")) is None else text, input_schema

    hints: dict[str, Any] = {hint: value for hint in Hints.__slots__ if (value := options.get(hint)) is not None}
    spec = ToolSpec.with_later(
        later,
        name=name,
        output_schema=output_schema,
        title=options.get("title"),
        hints=Hints(**hints) if hints else _NO_HINTS,
        auth=options.get("auth"),
        tags=frozenset(options.get("tags") or ()),
        version=options.get("version"),
        examples=tuple(options.get("examples") or ()),
        strict=options.get("strict"),
        timeout_s=options.get("timeout_s"),
        names=names,
        icons=tuple({"src": icon} if isinstance(icon, str) else dict(icon) for icon in options.get("icons") or ()),
    )
    if not is_later:
        spec.input_schema  # noqa: B018
    return spec


_NO_HINTS = Hints()


def output_of(
    returns: Any, name: str, names: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, Callable[[str], Encode]]:
    """Return the output schema, and what encodes a value, by the name that its errors mention."""
    from .. import schema

    if returns is not schema.EMPTY and returns not in (None, type(None)) and not schema.has_no_schema(returns):

        def describe(name: str) -> tuple[Mapping[str, Any], Encode]:
            return schema.return_serializer(returns, label=f"Tool '{name}'", tool=name, names=names)

        output_schema, encode = describe(name)
        if output_schema:
            return output_schema, lambda named: encode if named == name else describe(named)[1]
    return None, lambda name: functools.partial(schema.serialize_any, name)
