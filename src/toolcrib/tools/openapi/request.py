"""One request of an operation, of checked arguments: its target, its headers and its body. This file sends nothing.

Parameters are written into a path, a query, a header or a cookie by OpenAPI's styles, `explode` and `allowReserved`.
Arguments decide over values, and over nothing else: not over the host, the path around a parameter, the names of
headers or the bounds of a part. What would end a segment, a member of a query, a header or a cookie is percent-encoded,
or refused: ToolError `invalid_arguments`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import pydantic_core

from ...core import ToolError
from .operations import STYLES, TEMPLATE, Body, Operation, Parameter, kind_of

MAX_BYTES = 32 * 1024**2
"""How much the body of a request may have."""
_PATH = "/!$&'()*+,;=:@%~"
"""What stays of a path in a document, which is encoded already where it has to be."""
_ACCEPT = "application/json, text/*;q=0.9, */*;q=0.8"
# Of the reserved characters of RFC 3986, those that neither end a query nor separate or decode what is in it.
_RESERVED_QUERY = "!$'()*,/:;?@"
_RESERVED_PATH = "!$&'()*+,:;=@"
_TRIPLE = re.compile(r"(%[0-9A-Fa-f]{2})")
_HEADER = re.compile(r"[\x20-\x7e\t]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DELIMITED = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
"""What stands between the items of a list, in the styles where that is no comma."""


@dataclass(slots=True)
class Prepared:
    """A request to *origin*, but for its credentials."""

    method: str
    origin: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The members of the query, encoded. A name with no value in it is written alone."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    content: bytes | None = None
    fixed_query: str = ""
    """What the operation's path has of the query."""

    def target(self) -> str:
        members = (f"{name}={text}" for name, text in self.query)
        query = "&".join(filter(None, (self.fixed_query, *members)))
        return f"{self.path}?{query}" if query else self.path


def prepare(operation: Operation, arguments: Mapping[str, Any]) -> Prepared:
    """Return the request of *operation* with *arguments*."""
    server = urlsplit(operation.server)
    request = Prepared(operation.method, f"{server.scheme}://{server.netloc}", "")
    request.headers["accept"] = _ACCEPT
    try:
        request.fixed_query = quote(operation.fixed_query, safe=f"{_PATH}?")
        in_path: dict[str, str] = {}
        for parameter in operation.parameters:
            if (value := arguments.get(parameter.argument)) is None and not parameter.required:
                continue
            match parameter.place:
                case "path":
                    in_path[parameter.name] = path_text(parameter, value)
                case "header":
                    request.headers[parameter.name] = header_text(parameter, value)
                case "cookie":
                    request.cookies += _own(operation, parameter, query_pairs(parameter, value))
                case "query":
                    request.query += _own(operation, parameter, query_pairs(parameter, value))
        request.path = quote(server.path, safe=_PATH) + _path(operation.plain_path, in_path)
        if operation.body is not None:
            _put_body(request, operation.body, arguments)
    except UnicodeEncodeError:
        raise ToolError("An argument has half of a surrogate pair in it.", "invalid_arguments") from None
    return request


def _path(template: str, values: Mapping[str, str]) -> str:
    """Return *template* with *values*, each put in once: one that looks like a placeholder stays a value."""
    parts = TEMPLATE.split(template)  # in turn what is fixed, and the name of a parameter
    return "".join(values[part] if index % 2 else quote(part, safe=_PATH) for index, part in enumerate(parts))


def _own(operation: Operation, parameter: Parameter, pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield *pairs*, whose names may be those of members of an object: not of another parameter, or in the path."""
    siblings = (sibling for sibling in operation.parameters if sibling is not parameter)
    reserved = {sibling.name for sibling in siblings if sibling.place == parameter.place}
    if parameter.place == "query":
        reserved |= {name for name, _ in parse_qsl(operation.fixed_query, keep_blank_values=True)}
    for name, text in pairs:
        if unquote(name) != parameter.name and unquote(name) in reserved:
            raise _invalid(parameter, f"has the member '{unquote(name)}', which is a parameter of its own")
        yield name, text


# Bodies


def _put_body(request: Prepared, body: Body, arguments: Mapping[str, Any]) -> None:
    """Put *body* into *request*, if the *arguments* have it, or it has to be there."""
    if body.members:
        value: Any = {name: arguments[name] for name in body.members if name in arguments}
        is_there = bool(value) or body.required
    else:
        value, is_there = arguments.get(body.argument), body.argument in arguments
    if is_there:
        request.content, request.headers["content-type"] = _content(body, value)
        if len(request.content) > MAX_BYTES:
            raise ToolError(f"The body would have more than {MAX_BYTES} bytes.", "invalid_arguments")


def _content(body: Body, value: Any) -> tuple[bytes, str]:
    """Return *value* as *body* is written, and the media type of that."""
    media_type = body.media_type
    match kind_of(media_type):
        case "form":
            return _form(body, value).encode(), media_type
        case "parts":
            boundary = token_hex(16)
            return _multipart(body, value, boundary), f"multipart/form-data; boundary={boundary}"
        case "json":
            return pydantic_core.to_json(value), media_type
        case "text":
            content_type = media_type if "charset" in media_type.lower() else f"{media_type}; charset=utf-8"
            return text_of(value).encode(), content_type
        case _:
            return _bytes(body.argument, value), media_type


def _form(body: Body, value: Any) -> str:
    members: list[str] = []
    for name, field_value in _fields(body, value):
        encoding = body.parts.get(name, {})
        style = encoding.get("style", "form")
        style = style if style in STYLES["query"] else "form"
        if _is_one_text(encoding, field_value):
            members.append(f"{quote_plus(name)}={quote_plus(text_of(field_value))}")
            continue
        explode = encoding.get("explode", style in ("form", "deepObject")) is True
        parameter = Parameter(name, "query", body.argument, style, explode)
        # A form writes a space as `+`, and `%2B` is a plus: both sides agree on `%20`, too.
        members += [f"{key}={text}" for key, text in query_pairs(parameter, field_value)]
    return "&".join(members)


def _is_one_text(encoding: Mapping[str, Any], value: Any) -> bool:
    """Return whether a field is its value as JSON: an object, and what has a content type, unless it has a style."""
    if isinstance(value, dict):
        return "style" not in encoding
    has_style = not {"style", "explode", "allowReserved"}.isdisjoint(encoding)
    has_objects = isinstance(value, list) and any(isinstance(item, dict) for item in value)
    return not has_style and (has_objects or isinstance(encoding.get("contentType"), str))


def _multipart(body: Body, value: Any, boundary: str) -> bytes:
    parts: list[bytes] = []
    for name, field_value in _fields(body, value):
        encoding, is_bytes = body.parts.get(name, {}), name in body.bytes_in
        part_name = _quoted(name)
        filename = f'; filename="{part_name}"' if is_bytes else ""
        for part in field_value if isinstance(field_value, list) else [field_value]:
            content_type = _part_type(encoding, part, is_bytes=is_bytes)
            content = _bytes(f"{body.argument}.{name}".lstrip("."), part) if is_bytes else text_of(part).encode()
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{part_name}"{filename}\r\n'
            kind = "" if content_type is None else f"Content-Type: {content_type}\r\n"
            parts.append(f"{head}{kind}\r\n".encode() + content + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode()


def _part_type(encoding: Mapping[str, Any], value: Any, *, is_bytes: bool) -> str | None:
    content_type = encoding.get("contentType")
    if isinstance(content_type, str):
        first = content_type.partition(",")[0].strip()
        if "*" not in first and first.isascii() and first.isprintable():
            return first
    if is_bytes:
        return "application/octet-stream"
    return "application/json" if isinstance(value, dict) else None


def _fields(body: Body, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ToolError(f"'{body.argument}' is an object, whose members are the fields of a form.", "invalid_arguments")
    yield from ((name, member) for name, member in value.items() if member is not None)


def _quoted(name: str) -> str:
    """Return the name of a part, as browsers write it."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _bytes(argument: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"'{argument}' is not valid base64.", "invalid_arguments") from None


# Styles of parameters


def text_of(value: Any) -> str:
    """Return a JSON scalar as text, as JSON writes it; what is nested, as JSON."""
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()


def path_text(parameter: Parameter, value: Any) -> str:
    """Return what stands in the path for `{name}`."""
    encode = _encoder(_RESERVED_PATH if parameter.allow_reserved else "", triples=False)
    first, between = {"label": (".", "."), "matrix": (";", ";")}.get(parameter.style, ("", ","))
    text = first + between.join(_texts(parameter, _members(parameter, value, encode, encode), value))
    _require_inside(parameter, value, text)
    return text


def query_pairs(parameter: Parameter, value: Any) -> Iterable[tuple[str, str]]:
    """Return the members of the query, encoded: names, and values."""
    encode = _encoder(_RESERVED_QUERY if parameter.allow_reserved else "", triples=parameter.allow_reserved)
    return _members(parameter, value, encode, partial(quote, safe=""))


def header_text(parameter: Parameter, value: Any) -> str:
    """Return the value of a header. It is not percent-encoded."""
    line = ",".join(_texts(parameter, _members(parameter, value, str, str), value))
    if not _HEADER.fullmatch(line) or line != line.strip():
        raise _invalid(parameter, "is sent in a header, which takes printable ASCII characters in one line")
    return line


def _members(
    parameter: Parameter, value: Any, encode: Callable[[str], str], encode_name: Callable[[str], str]
) -> list[tuple[str, str]]:
    """Return the members that the style of *parameter* makes of *value*: a name and a text each.

    color = {"R": 100, "G": 200}, exploded: [("R", "100"), ("G", "200")]; else: [("color", "R,100,G,200")].
    """
    name = encode_name(parameter.name)
    if parameter.media_type is not None or not isinstance(value, list | dict):
        return [(name, encode(text_of(value)))]
    if parameter.style == "deepObject":
        return [(encode_name(key), encode(text)) for key, text in _deep(parameter.name, value)]
    if parameter.explode and isinstance(value, list):
        return [(name, encode(text_of(item))) for item in value]
    if parameter.explode and isinstance(value, dict) and parameter.style not in _DELIMITED:
        return [(encode_name(key), encode(text_of(item))) for key, item in value.items()]
    items = [encode(text_of(item)) for item in _flat(value)]
    return [(name, _DELIMITED.get(parameter.style, ",").join(items))] if items else []


def _texts(parameter: Parameter, members: Iterable[tuple[str, str]], value: Any) -> list[str]:
    """Return *members* as they stand in a path or a header, of which most have no name there."""
    if parameter.style == "matrix":
        return [f"{name}={text}" if text else name for name, text in members]
    has_names = parameter.explode and isinstance(value, dict)
    return [f"{name}={text}" if has_names else text for name, text in members]


def _encoder(safe: str, *, triples: bool) -> Callable[[str], str]:
    if not triples:
        return lambda text: quote(text, safe=safe)
    # As RFC 6570 expands reserved characters: what is percent-encoded already stays.
    return lambda text: "".join(
        part if _TRIPLE.fullmatch(part) else quote(part, safe=safe) for part in _TRIPLE.split(text)
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    return value if isinstance(value, list) else [value]


def _deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the members of an object in brackets, at any depth; items of lists by their index."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, member in inner:
            yield from _deep(f"{name}[{key}]", member)
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
    if any(map(_CONTROL.search, map(text_of, _flat(value)))):
        raise _invalid(parameter, "is a part of the path, which takes no control characters")


def _invalid(parameter: Parameter, why: str) -> ToolError:
    return ToolError(f"'{parameter.argument}' {why}.", "invalid_arguments")
