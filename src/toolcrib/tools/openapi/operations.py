"""The operations of an OpenAPI document: what each sends where, and under which name it is a tool.

This file reads data, and sends nothing. An operation that cannot work is a problem of its own, and of no other.
"""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from ...core import LoadError, Requirement, ToolcribError
from ..permissions import Permissions
from . import swagger
from .documents import Documents, Unusable, listed, mapping, texts

Place = Literal["path", "query", "header", "cookie"]

STYLES: Mapping[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each place, the default first."""

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "query")
_ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]+")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
MAX_NAME = 64
_MAX_DESCRIPTION = 4000

# Of headers, those that say where a request goes, how long it is or whose it is: `Accept`, `Content-Type` and
# `Authorization` are no parameters by the specification, the others would let an argument rewrite the request.
_NOT_PARAMETERS = frozenset(
    {"accept", "content-type", "authorization", "host", "connection", "content-length", "expect", "keep-alive", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "cookie", "accept-encoding"}
    | {"proxy-authorization", "proxy-connection"}
)
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+*-]+|\*/\*")
_KINDS = ("json", "form", "parts", "text", "bytes")
"""How a body is written, what is best first."""
_FLAT = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "example", "examples", "default"}
    | {"deprecated", "xml", "externalDocs", "$comment"}
)
"""What the schema of a body may say whose members are arguments: any other keyword is about them together."""

MALFORMED = (Unusable, TypeError, AttributeError, LookupError, ValueError, RecursionError)
"""What reading a part raises that cannot be used, is of another type than it has to be, or too deep."""
TEMPLATE = re.compile(r"\{([^{}]*)\}")
NAMELESS = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator chooses: see `openapi_source`."""

    server: str | None
    variables: Mapping[str, str]
    auth: Mapping[str, Requirement | None]
    """By security scheme, what the operator has chosen for it; None for nothing."""
    methods: frozenset[str] | None
    external_refs: bool
    output_schemas: bool
    permissions: Permissions


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


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: as *media_type*, with how each property of a form is written."""

    media_type: str
    schema: Any
    file: str
    required: bool
    argument: str = "body"
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The encoding objects of a form's properties, by name."""
    bytes_in: frozenset[str] = frozenset()
    """The properties of a form that are bytes."""
    members: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Where its members are arguments of their own: whether each is required, by name. Then it has no *argument*."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, at *plain_path* of the server *server*, as one tool. *path* is how the document has it."""

    name: str
    method: str
    path: str
    server: str
    plain_path: str
    fixed_query: str = ""
    """What the path has of the query, whatever the arguments."""
    description: str = ""
    tags: frozenset[str] = frozenset()
    parameters: tuple[Parameter, ...] = ()
    schemas: Mapping[str, tuple[Any, str]] = field(default_factory=dict[str, tuple[Any, str]])
    """The schema of each argument, with its file."""
    body: Body | None = None
    responses: tuple[tuple[Any, str], ...] = ()
    """The schemas, with their files, of what success brings; none where the document does not promise JSON for all."""
    headers: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The names of the headers that an answer has by the document, by its status: `200`, `2xx` or `default`."""
    security: Sequence[Any] = ()
    is_named: bool = True
    """Whether the document names it."""

    def headers_of(self, status: int) -> frozenset[str]:
        keys = (str(status), f"{status // 100}xx", "default") if self.headers else ()
        return next((self.headers[key] for key in keys if key in self.headers), frozenset())

    @property
    def required(self) -> list[str]:
        """The arguments that have to be given."""
        names = [parameter.argument for parameter in self.parameters if parameter.required]
        if self.body is not None and self.body.members:
            return names + [name for name, is_required in self.body.members.items() if is_required]
        return [*names, self.body.argument] if self.body is not None and self.body.required else names

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"


def plain_type(media_type: str) -> str:
    """Return *media_type* without its parameters."""
    return media_type.partition(";")[0].strip().lower()


def kind_of(media_type: str) -> str:
    """Return which of `_KINDS` a body of *media_type* is."""
    plain = plain_type(media_type)
    if plain in ("application/json", "text/json") or plain.endswith("+json"):
        return "json"
    kinds = {"application/x-www-form-urlencoded": "form", "multipart/form-data": "parts"}
    return kinds.get(plain, "text" if plain.startswith("text/") else "bytes")


def read_operations(documents: Documents, options: Options) -> tuple[list[Operation], list[tuple[str, str]]]:
    """Return the operations of a document, and for each that cannot be a tool its method and path, and why."""
    readings: list[Operation] = []
    problems: list[tuple[str, str]] = []
    for path, item_or_ref in mapping(documents.root.get("paths")).items():
        if path.startswith("x-"):
            continue
        if not path.startswith("/"):
            problems.append((path[:100], "its path does not begin with '/'"))
            continue
        try:
            item, file = documents.whole(item_or_ref, documents.where)
        except Unusable as error:
            problems.append((path, str(error)))
            continue
        methods = {method.upper(): item[method] for method in METHODS if method in item}
        for method, operation in {**methods, **mapping(item.get("additionalOperations"))}.items():
            try:
                readings.append(_read(path, method, item, (operation, file), documents, options))
            except MALFORMED as error:
                problems.append((f"{method} {path}", reason_of(error)))
    return [of for of in named(readings) if options.methods is None or of.method in options.methods], problems


def reason_of(error: Exception) -> str:
    """Return why the operation that *error* was raised for is not a tool."""
    return str(error) if isinstance(error, ToolcribError) else f"it does not follow OpenAPI ({type(error).__name__})"


def _read(
    path: str, method: str, item: Mapping[str, Any], entry: tuple[Any, str], documents: Documents, options: Options
) -> Operation:
    """Return the operation that *entry* is, by *method* of the *item* of *path*. The entry has the file of both."""
    root, item_file = documents.root, entry[1]
    operation, file = documents.whole(*entry)
    if documents.is_swagger:
        operation = swagger.operation_of(operation, root, documents.where)
    # What follows a '#' tells operations apart, and is never sent.
    plain, _, query = path.partition("#")[0].partition("?")
    _require_sendable(method, path, plain.split("/"))
    operation_id = operation.get("operationId")
    name = operation_id if isinstance(operation_id, str) and NAMELESS.sub("_", operation_id).strip("_") else None
    parameters, schemas, payload = _parameters(((item, item_file), (operation, file)), documents)
    body = None
    if payload:
        body = _body(*swagger.request_body(payload, operation.get("consumes")), documents)
    elif "requestBody" in operation and not documents.is_swagger:
        body = _body(*documents.followed(operation["requestBody"], file), documents)
    if body is not None:
        body, body_schemas = _as_arguments(body, schemas, documents)
        schemas |= body_schemas
    fixed_query = _fixed(query, parameters)
    responses, headers = ((), {}) if method == "HEAD" else _responses(operation, file, documents)
    _require_in_path(parameters, TEMPLATE.findall(plain), TEMPLATE.findall(fixed_query))
    return Operation(
        name=name or f"{method.lower()}{path.replace('{', '').replace('}', '')}",
        method=method,
        path=path,
        plain_path=plain,
        fixed_query=fixed_query,
        server=server_of((operation, item, root), documents.where, options),
        description=_description(operation, item),
        tags=frozenset(texts(operation.get("tags"))),
        parameters=tuple(parameters),
        schemas=schemas,
        body=body,
        responses=responses,
        headers=headers,
        security=listed(operation.get("security", root.get("security"))),
        is_named=name is not None,
    )


def _require_sendable(method: str, path: str, segments: Sequence[str]) -> None:
    """Raise Unusable for a *method* that is not sent, and for a *path* that may lead to other places."""
    if not _TOKEN.fullmatch(method) or method.upper() in ("TRACE", "CONNECT"):
        raise Unusable(f"its method '{method[:20]}' is not one that is sent")
    if not path.isprintable() or "\\" in path or not {".", ".."}.isdisjoint(segments):
        raise Unusable("its path has '.' or '..' among its segments, a backslash, or characters that are not printable")


def _require_in_path(parameters: Sequence[Parameter], names: Sequence[str], names_in_query: Sequence[str]) -> None:
    """Raise Unusable unless the *names* of a path are its parameters, and its fixed query has none."""
    in_path = {parameter.name for parameter in parameters if parameter.place == "path"}
    if unknown := [name for name in names if name not in in_path] + [*names_in_query]:
        raise Unusable(f"its path has '{{{unknown[0][:60]}}}', which is not among its parameters")
    if unused := in_path - {*names}:
        raise Unusable(f"its path has no place for its parameter '{min(unused)[:60]}'")


def _fixed(query: str, parameters: Sequence[Parameter]) -> str:
    """Return what *query*, that of a path, has beside the *parameters*: these may be there, as `lat={lat}`."""
    own = {f"{parameter.name}={{{parameter.name}}}" for parameter in parameters if parameter.place == "query"}
    return "&".join(part for part in query.split("&") if part not in own)


def _description(operation: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    parts: list[str] = ["Deprecated."] if operation.get("deprecated") is True else []
    for key in ("summary", "description"):
        text = operation.get(key) or item.get(key)
        if isinstance(text, str) and text.strip() and text.strip() not in parts:
            parts.append(text.strip())
    text = "\n\n".join(parts)
    return text if len(text) <= _MAX_DESCRIPTION else f"{text[:_MAX_DESCRIPTION]}…"


# Parameters


def _parameters(
    holders: Iterable[tuple[Mapping[str, Any], str]], documents: Documents
) -> tuple[list[Parameter], dict[str, tuple[Any, str]], list[tuple[Mapping[str, Any], str]]]:
    """Return the parameters of *holders*, each with its argument, the schemas of these, and those that are the body."""
    declarations: dict[tuple[str, str], tuple[Mapping[str, Any], str]] = {}
    references = [(part, file) for holder, file in holders for part in listed(holder.get("parameters"))]
    for reference, file in references:
        data, where = documents.followed(reference, file)
        name, place = data.get("name"), data.get("in")
        if not isinstance(name, str) or not name or not isinstance(place, str):
            raise Unusable("a parameter of it has no name or no place")
        is_payload = documents.is_swagger and place in swagger.PAYLOAD
        if place not in STYLES and not is_payload:
            raise Unusable(f"a parameter of it is in '{place[:40]}', which is not a place for one")
        data = swagger.parameter(data) if documents.is_swagger and not is_payload else data
        declarations[name, place] = (data, where)
    payload = [declarations.pop(key) for key in [*declarations] if key[1] in swagger.PAYLOAD]
    parameters: list[Parameter] = []
    schemas: dict[str, tuple[Any, str]] = {}
    order = [*STYLES]
    for (name, place), (data, where) in sorted(declarations.items(), key=lambda entry: order.index(entry[0][1])):
        if place == "header" and (name.lower() in _NOT_PARAMETERS or not _TOKEN.fullmatch(name)):
            continue
        plain = _ARGUMENT.sub("_", name).strip("_")[:MAX_NAME] or place
        argument = plain if plain not in schemas else spare_name(f"{plain[:50]}_{place}", schemas)
        parameter, schema = _parameter(name, data, place, argument)
        schemas[argument] = _described(schema, data), where
        parameters.append(parameter)
    return parameters, schemas, payload


def _parameter(name: str, data: Mapping[str, Any], place: Any, argument: str) -> tuple[Parameter, Any]:
    """Return the parameter, which is *argument* of the tool, and its schema."""
    required = place == "path" or data.get("required") is True
    content = data.get("content")
    if isinstance(content, dict):
        if len(content) != 1:
            raise Unusable(f"its parameter '{name[:60]}' has {len(content)} kinds of content, not one")
        media_type, media = next(iter(content.items()))
        if not isinstance(media, dict):
            raise Unusable(f"the content of its parameter '{name[:60]}' is not an object")
        return Parameter(name, place, argument, "", False, required, False, media_type), media.get("schema", {})
    style = data.get("style", STYLES[place][0])
    if style not in STYLES[place]:
        raise Unusable(f"its parameter '{name[:60]}' has the style {str(style)[:40]!r}, which is not one of a {place}")
    explode = data.get("explode", style in ("form", "deepObject"))
    allow_reserved = data.get("allowReserved") is True
    return Parameter(name, place, argument, style, explode is True, required, allow_reserved), data.get("schema", {})


def _described(schema: Any, data: Mapping[str, Any]) -> Any:
    """Return *schema* with the description of the parameter, where it has none of its own."""
    text = data.get("description")
    if not isinstance(text, str) or not isinstance(schema, dict) or "description" in schema:
        return schema
    return {"allOf": [schema], "description": text} if "$ref" in schema else {**schema, "description": text}


def spare_name(name: str, taken: Collection[str]) -> str:
    """Return *name*, or the first of `NAME_2`, `NAME_3`, ... that is not *taken*."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(spare for spare in names if spare not in taken)


# Bodies and responses


def _rank(media_type: str) -> tuple[int, bool]:
    return _KINDS.index(kind_of(media_type)), plain_type(media_type) != "application/json"


def _body(data: Mapping[str, Any], where: str, documents: Documents) -> Body:
    content = mapping(data.get("content"))
    media_types = [name for name in content if _MEDIA_TYPE.fullmatch(plain_type(name))]
    if not media_types:
        raise Unusable("its body has no content")
    media_type = min(media_types, key=_rank)
    if not media_type.isascii() or not media_type.isprintable():
        raise Unusable("its body has a media type that cannot be sent")
    media = mapping(content[media_type])
    schema, required = media.get("schema", {}), data.get("required") is True
    kind = kind_of(media_type)
    if kind in ("form", "parts"):
        parts = {name: of for name, of in mapping(media.get("encoding")).items() if isinstance(of, dict)}
        shape, place = documents.followed(schema, where)
        if not isinstance(shape.get("properties", {}), dict):
            raise Unusable("the properties of its form are not an object")
        bytes_in = frozenset(_byte_fields(shape, place, parts, documents) if kind == "parts" else ())
        if bytes_in:
            schema, where = _with_base64(shape, bytes_in), place
        return Body(media_type, schema, where, required, parts=parts, bytes_in=bytes_in)
    if kind == "json":
        return Body(media_type, schema, where, required)
    if kind == "text":
        return Body(media_type, schema or {"type": "string"}, where, required)
    media_type = "application/octet-stream" if "*" in plain_type(media_type) else media_type
    schema = {"type": "string", "format": "binary", "description": f"The content, of type {media_type}."}
    return Body(media_type, schema, where, required, bytes_in=frozenset({""}))


def _as_arguments(
    body: Body, taken: Collection[str], documents: Documents
) -> tuple[Body, Mapping[str, tuple[Any, str]]]:
    """Return *body* with the names of the arguments that it is, beside those *taken*, and their schemas."""
    if members := _members(body, taken, documents):
        required = listed(documents.followed(body.schema, body.file)[0].get("required"))
        return replace(body, argument="", members={name: name in required for name in members}), members
    argument = spare_name("body", taken)
    return replace(body, argument=argument), {argument: (body.schema, body.file)}


def _members(body: Body, taken: Collection[str], documents: Documents) -> dict[str, tuple[Any, str]]:
    """Return the schemas of the members of *body*, with their file, if they can be arguments beside those *taken*.

    Nothing where they are not all that can be said of it, or where one has a name that is taken.
    """
    if not isinstance(body.schema, dict) or kind_of(body.media_type) not in ("json", "form", "parts"):
        return {}
    shape, file = documents.followed(body.schema, body.file)
    properties, required = shape.get("properties"), listed(shape.get("required"))
    says_more = any(key not in _FLAT and not key.startswith("x-") for key in shape)
    if says_more or shape.get("type") != "object" or shape.get("additionalProperties", False) is not False:
        return {}
    if not isinstance(properties, dict) or (required and not body.required) or not {*required} <= properties.keys():
        return {}
    if any(name in taken or len(name) > MAX_NAME or _ARGUMENT.search(name) for name in properties):
        return {}
    return {
        name: (schema, file)
        for name, schema in properties.items()
        if not isinstance(schema, dict) or "readOnly" not in documents.one_way(schema, file)
    }


def _byte_fields(
    shape: Mapping[str, Any], file: str, parts: Mapping[str, Mapping[str, Any]], documents: Documents
) -> Iterator[str]:
    for name, reference in mapping(shape.get("properties")).items():
        schema, where = documents.followed(mapping(reference), file)
        if schema.get("type") == "array":
            schema, where = documents.followed(schema.get("items", {}), where)
        content_type = parts.get(name, {}).get("contentType")
        is_binary = schema.get("format") == "binary" or "contentMediaType" in schema
        if "type" not in schema and isinstance(content_type, str):
            is_binary = is_binary or kind_of(content_type) not in ("json", "text")
        if is_binary and "contentEncoding" not in schema:
            yield name


def _with_base64(shape: Mapping[str, Any], names: frozenset[str]) -> Mapping[str, Any]:
    """Return the schema of a form with text in base64 where it has bytes."""
    properties = dict(shape["properties"])
    for name in names:
        field_schema = properties[name]
        notes = {key: field_schema[key] for key in ("title", "description") if key in field_schema}
        bytes_schema = {"type": "string", "format": "binary"}
        is_list = isinstance(field_schema, dict) and field_schema.get("type") == "array"
        properties[name] = {"type": "array", "items": bytes_schema, **notes} if is_list else {**bytes_schema, **notes}
    return {**shape, "properties": properties}


def _responses(
    operation: Mapping[str, Any], file: str, documents: Documents
) -> tuple[tuple[tuple[Any, str], ...], Mapping[str, frozenset[str]]]:
    """Return what each success brings, where all bring JSON with a schema, and the headers that each code lists."""
    responses: list[tuple[Mapping[str, Any], str]] = []
    headers: dict[str, frozenset[str]] = {}
    for code, reference in mapping(operation.get("responses")).items():
        if (code := str(code).lower())[:1] != "2" and code != "default":
            continue
        try:
            response, where = documents.followed(reference, file)
        except Unusable:
            responses.append(({}, file))
            continue
        if documents.is_swagger:
            response = swagger.response(response, operation.get("produces"))
        headers[code] = frozenset(str(name).lower() for name in mapping(response.get("headers"))) - _NOT_PARAMETERS
        if code != "default":
            responses.append((response, where))
    return _promised(responses), headers if any(headers.values()) else {}


def _promised(responses: Sequence[tuple[Mapping[str, Any], str]]) -> tuple[tuple[Any, str], ...]:
    """Return the schemas of *responses*, with their files, each once; none where one may bring something else."""
    schemas: list[tuple[Any, str]] = []
    for response, file in responses:
        for kind, media in (mapping(response.get("content")) or {"": None}).items():
            schema = mapping(media).get("schema") if kind_of(kind) == "json" else None
            if not isinstance(schema, dict) or not schema:
                return ()
            if all(schema != other for other, _ in schemas):
                schemas.append((schema, file))
    return tuple(schemas)


# Names


def named(readings: Sequence[Operation]) -> list[Operation]:
    """Return the operations, in their order, each under a name of its own, which does not depend on that order."""
    candidates = list(map(_candidates, readings))
    times = Counter(itertools.chain.from_iterable(map(set, candidates)))
    choices = [next((name for name in names if times[name] == 1), names[-1]) for names in candidates]

    def rank(index: int) -> tuple[bool, bool, str, str]:
        operation = readings[index]
        return not operation.is_named, _plain(choices[index]) != choices[index], operation.path, operation.method

    operations: dict[int, Operation] = {}
    taken_names: set[str] = set()
    for index in sorted(range(len(readings)), key=rank):
        operation, plain = readings[index], _plain(choices[index])
        length = 6
        mark = hashlib.sha256(operation.label.encode()).hexdigest()
        name = plain if len(plain) <= MAX_NAME else f"{plain[: MAX_NAME - 7]}_{mark[:6]}"
        # A registry takes `-` and `_` as one.
        while name.replace("-", "_") in taken_names:
            name, length = f"{plain[: MAX_NAME - 1 - length]}_{mark[:length]}", length + 2
        taken_names.add(name.replace("-", "_"))
        operations[index] = replace(operation, name=name)
    return [operations[index] for index in range(len(readings))]


def _candidates(operation: Operation) -> Sequence[str]:
    """Return names for *operation*, the best first: FastAPI's ids are the function, the path and a method."""
    head, _, method = operation.name.rpartition("_")
    path = re.sub(r"\W", "_", operation.path)
    if method not in METHODS or not head.endswith(path) or head == path:
        return (operation.name,)
    function = head.removesuffix(path)
    return function, f"{function}_{operation.method.lower()}", operation.name


def _plain(name: str) -> str:
    return NAMELESS.sub("_", name).strip("_") or "operation"


# Servers


def require_version(root: Any, where: str) -> str:
    """Return the version of the document *root*: '2.0', '3.0', '3.1' or '3.2'. Raises LoadError for any other."""
    if not isinstance(root, dict):
        raise LoadError(f"{where} is not an OpenAPI document: it is not an object.")
    if (swagger_version := str(root.get("swagger", "2.0"))) != "2.0":
        raise LoadError(f"{where} is of Swagger {swagger_version[:10]}. Swagger 2.0 and OpenAPI 3 are read.")
    if "swagger" in root:
        return "2.0"
    version = str(root.get("openapi", ""))
    if (match := re.fullmatch(r"(3\.[012])(\.\d+)?(-.*)?", version)) is None:
        problem = f"of OpenAPI '{version[:20]}'" if version else "not an OpenAPI document: it has no 'openapi'"
        raise LoadError(f"{where} is {problem}. Swagger 2.0, OpenAPI 3.0, 3.1 and 3.2 are read.")
    return match[1]


def server_of(holders: Sequence[Mapping[str, Any]], where: str, options: Options) -> str:
    """Return the address that paths are put after, without a slash at its end. Raises Unusable."""
    if options.server is not None:
        return _absolute(where, options.server)
    servers = next((servers for holder in holders if (servers := listed(holder.get("servers")))), ())
    first = next((server for server in servers if isinstance(mapping(server).get("url"), str)), None)
    return _absolute(where, "/" if first is None else _filled(first, options.variables))


@lru_cache(maxsize=256)
def _absolute(where: str, written: str) -> str:
    url = urljoin(where, written)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unusable(
            f"the document does not name the address of its server ('{written[:80]}'). Name it: "
            '`openapi = { server = "https://..." }` in its [[source]], or openapi_source(..., server=...)'
        )
    is_plain = False
    with suppress(ValueError):  # of a port that is none
        is_plain = parts.port != 0 and url.isprintable() and "\\" not in url and {*"@*"}.isdisjoint(parts.netloc)
    if not is_plain or parts.query or parts.fragment or {".", ".."} & {*parts.path.split("/")}:
        raise Unusable(f"'{written[:80]}' is not the address of a server")
    return url.rstrip("/")


def _filled(server: Mapping[str, Any], chosen: Mapping[str, str]) -> str:
    variables = mapping(server.get("variables"))

    def value(match: re.Match[str]) -> str:
        name = match[1]
        about = mapping(variables.get(name))
        text, choices = chosen.get(name, about.get("default")), listed(about.get("enum"))
        if text is None:
            raise Unusable(f"the variable '{name[:60]}' of its server has no default. Name its value in `variables`")
        if name in chosen and choices and text not in choices:
            raise Unusable(f"the variable '{name[:60]}' of its server is one of {', '.join(map(str, choices))[:200]}")
        return str(text)

    return TEMPLATE.sub(value, str(server["url"]))
