"""How OpenAPI parameters are written into a path, a query, a header or a cookie: styles, `explode`, `allowReserved`.

Pure functions of JSON values. Whatever a value is, it stays where it is put: what would end a segment, a member of a
query, a header or a cookie is percent-encoded, or refused. Raises ToolError `invalid_arguments`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote

import pydantic_core

from ...core import ToolError

Place = Literal["path", "query", "header", "cookie"]

DEFAULT_STYLES: Mapping[str, str] = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
STYLES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}

# Of the reserved characters of RFC 3986, those that neither end a query nor separate or decode what is in it.
_RESERVED_QUERY = "!$'()*,/:;?@"
_RESERVED_PATH = "!$&'()*+,:;=@"
_TRIPLE = re.compile(r"(%[0-9A-Fa-f]{2})")
_HEADER = re.compile(r"[\x20-\x7e\t]*")
_BETWEEN = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its *name* on the wire, its *place*, and the *argument* of the tool that it is."""

    name: str
    place: Place
    argument: str
    style: str
    explode: bool
    required: bool = False
    allow_reserved: bool = False
    media_type: str | None = None
    """Where it is written as content of this type, and not by a style."""


def text_of(value: Any) -> str:
    """Return a JSON scalar as text, as JSON writes it; what is nested, as JSON."""
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()


def path_text(parameter: Parameter, value: Any) -> str:
    """Return what stands in the path for `{name}`."""
    encode = _encoder(_RESERVED_PATH if parameter.allow_reserved else "", triples=False)
    if parameter.media_type is not None:
        encoded = encode(text_of(value))
    else:
        pairs = _pairs(value)
        first, between = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}[parameter.style]
        name = encode(parameter.name)
        if parameter.style == "matrix" and not (parameter.explode and pairs is not None):
            if parameter.explode and isinstance(value, list):
                encoded = "".join(f";{name}={encode(text_of(item))}" for item in value)
            else:
                inner = ",".join(encode(text_of(item)) for item in _flat(value))
                encoded = f";{name}={inner}" if inner else f";{name}"
        else:
            between = between if parameter.explode else ","
            encoded = first + between.join(_joined(value, parameter.explode, encode))
    _require_inside(parameter, value, encoded)
    return encoded


def query_pairs(parameter: Parameter, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the members of the query, encoded: names, and values."""
    encode = _encoder(_RESERVED_QUERY if parameter.allow_reserved else "", triples=parameter.allow_reserved)
    name = quote(parameter.name, safe="")
    pairs = _pairs(value)
    if parameter.media_type is not None:
        yield name, encode(text_of(value))
    elif parameter.style == "deepObject":
        yield from ((quote(item, safe=""), encode(text)) for item, text in _deep(parameter.name, value))
    elif pairs is not None and parameter.explode and parameter.style == "form":
        yield from ((quote(key, safe=""), encode(text_of(item))) for key, item in pairs)
    elif isinstance(value, list) and parameter.explode:
        yield from ((name, encode(text_of(item))) for item in value)
    elif not isinstance(value, list | dict):
        yield name, encode(text_of(value))
    elif flat := _flat(value):
        yield name, _BETWEEN[parameter.style].join(encode(text_of(item)) for item in flat)


def header_text(parameter: Parameter, value: Any) -> str:
    """Return the value of a header. It is not percent-encoded."""
    if parameter.media_type is not None:
        encoded = text_of(value)
    else:
        encoded = ",".join(_joined(value, parameter.explode, lambda text: text))
    if not _HEADER.fullmatch(encoded) or encoded != encoded.strip():
        raise _invalid(parameter, "is sent in a header, which takes printable ASCII characters in one line")
    return encoded


def _encoder(safe: str, *, triples: bool) -> Callable[[str], str]:
    if not triples:
        return lambda text: quote(text, safe=safe)
    # As RFC 6570 expands reserved characters: what is percent-encoded already stays.
    return lambda text: "".join(
        part if _TRIPLE.fullmatch(part) else quote(part, safe=safe) for part in _TRIPLE.split(text)
    )


def _pairs(value: Any) -> list[tuple[str, Any]] | None:
    return list(value.items()) if isinstance(value, dict) else None


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    return value if isinstance(value, list) else [value]


def _joined(value: Any, explode: bool, encode: Callable[[str], str]) -> list[str]:
    """Return the items of a list, or the members of an object, each as it is written."""
    if isinstance(value, dict) and explode:
        return [f"{encode(key)}={encode(text_of(item))}" for key, item in value.items()]
    return [encode(text_of(item)) for item in _flat(value)]


def _deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the members of an object in brackets, at any depth; items of lists by their index."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in inner:
            yield from _deep(f"{name}[{key}]", each)
    else:
        yield name, text_of(value)


def _require_inside(parameter: Parameter, value: Any, written: str) -> None:
    """Refuse what leaves its segment of the path: nothing at all, and steps upwards however they are encoded."""
    if not written.strip("."):
        raise _invalid(parameter, "is a part of the path, so it is neither empty nor only dots")
    text = written
    for _ in range(4):
        # Some servers leave out what follows a ';' before they take a step.
        if any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\]", text)):
            raise _invalid(parameter, "is a part of the path, which has no '.' or '..' in it")
        text = unquote(text)
    if any(not _is_visible(item) for item in map(text_of, _flat(value))):
        raise _invalid(parameter, "is a part of the path, which takes no control characters")


def _is_visible(text: str) -> bool:
    return not any(ord(character) < 32 or ord(character) == 127 for character in text)


def _invalid(parameter: Parameter, why: str) -> ToolError:
    return ToolError(f"'{parameter.argument}' {why}.", "invalid_arguments")
