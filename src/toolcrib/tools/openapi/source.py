"""An OpenAPI document as a source of tools: one for each of its operations."""

import asyncio
import functools
import hashlib
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import jsonschema_rs
import pydantic_core

from ...core import DefinitionError, Hints, LoadError, SetupError, Source, ToolError, ToolSpec
from ...machinery import Encode, PerLoop, in_thread
from ...sandbox import MAX_BYTES
from ...schema import json_schema_check
from ...schema.required import is_bounded
from ...schema.view import validator
from ..function import Tool, from_work, stand_in
from ..git import DOCUMENT
from ..modules import LoadProblem
from ..permissions import Permissions
from .documents import Documents, Read, Unusable, is_openapi, read_text
from .operations import MALFORMED, Operation, Options, read_operations, reason_of, require_version
from .schemas import Schemas
from .security import Applied, Security, read_mapping
from .send import call, http_client
from .swagger import root_of

if TYPE_CHECKING:
    import httpx2

LOOPBACK = ("localhost", "127.0.0.0/8", "::1/128")
_FRESH_S = 5.0
"""A document that was read this lately is not read again when its source starts."""
_ASK_TIMEOUT_S = 5.0
_REFERENCES_TIMEOUT_S = 120.0
"""How long it may take to read all the files that the references of a document lead to."""
_CALL_TIMEOUT_S = 60.0

_Fetch = Callable[[str], tuple[bytes, str]]
"""Gets what is at a URL, and the URL where it was found. Raises LoadError."""

_READS = Hints(read_only=True, destructive=False, idempotent=True, open_world=True)
_REPLACES = Hints(read_only=False, destructive=True, idempotent=True, open_world=True)
_OTHER = Hints(read_only=False, idempotent=False, open_world=True)
_HINTS: Mapping[str, Hints] = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "QUERY"), _READS),
    **dict.fromkeys(("PUT", "DELETE"), _REPLACES),
    "PATCH": Hints(read_only=False, destructive=True, idempotent=False, open_world=True),
}


def openapi_source(
    address: str | Path,
    *,
    server: str | None = None,
    variables: Mapping[str, str] | None = None,
    auth: Mapping[str, Any] | None = None,
    methods: Sequence[str] | None = None,
    external_refs: bool = False,
    output_schemas: bool = True,
    permissions: Permissions | None = None,
) -> "OpenAPISource":
    """Return the operations of the OpenAPI document at *address*, a file or a URL, as a source of tools.

    *server* is where requests go, in place of what the document says, and *variables* are those of its servers. *auth*
    is what each security scheme stands for: a `ToolAuth`, a `Secret`, 'PROVIDER', 'secret:NAME', or 'none'. *methods*
    leaves out the operations of others. With *external_refs*, references may lead to files in the document's folder, or
    to its origin. Without *output_schemas*, nothing is promised of results, and nothing of them is checked. Of
    *permissions*, `hosts` are the only ones that may be reached, and `private_hosts` those that may be though they
    are private.

    Raises LoadError for a document that cannot be read or has no operation that can be a tool, and SetupError for
    options that do not fit it.
    """
    options = Options(
        server=server,
        variables=dict(variables or {}),
        auth=read_mapping(auth or {}),
        methods=None if methods is None else frozenset(method.upper() for method in methods),
        external_refs=external_refs,
        output_schemas=output_schemas,
        permissions=permissions or Permissions(),
    )
    return OpenAPISource(str(address).removeprefix(DOCUMENT), options)


class OpenAPISource(Source):
    """The tools of one document. It is read when this is made, and again at each later start."""

    def __init__(self, address: str, options: Options) -> None:
        self.address = address
        self.problems: Sequence[LoadProblem] = ()
        """The operations that cannot be tools, each with the reason."""
        self.files: set[Path] = set()
        """The files that were read: that of the document, and those that its references lead to."""
        self._options = options
        self._tools: list[Tool[..., Any]] = []
        self._clients: PerLoop[Any] | None = None
        self._digest = b""
        self.reload()

    def __str__(self) -> str:
        return f"{DOCUMENT}{self.address}"

    @property
    def state_key(self) -> str:
        return str(self)

    def tools(self) -> Sequence[Tool[..., Any]]:
        return self._tools

    async def start(self) -> None:
        if monotonic() - self._read_at > _FRESH_S and await in_thread(self.reload):
            self.changed()

    async def stop(self) -> None:
        self._read_at = 0.0
        if self._clients is not None and (client := self._clients.pop()) is not None:
            await client.aclose()

    def reload(self) -> bool:
        """Read the document. Return whether it is another one than before. Raises LoadError and SetupError."""
        data, where = self._read(self.address)
        self._read_at = monotonic()
        if (digest := hashlib.sha256(data).digest()) == self._digest and not self._options.external_refs:
            return False
        root = read_text(data, self.address)
        version = require_version(root, self.address)
        with ExitStack() as stack:
            documents = Documents(root, where, self._reader(where, stack))
            if documents.is_swagger:
                documents.root = root_of(root, where)
            self._load(version, documents)
        self._digest = digest
        return True

    def _load(self, version: str, documents: Documents) -> None:
        options, where = self._options, documents.where
        operations, unusable = read_operations(documents, options)
        security = Security(documents, options.auth)
        schemas = Schemas(documents, is_old=version in ("2.0", "3.0"))
        allow = self._allowed(where)
        refusals = {server: self._refused(server, allow) for server in {operation.server for operation in operations}}
        hosts = sorted(_netloc(server) for server, why in refusals.items() if why is None)
        clients = PerLoop(functools.partial(http_client, hosts, allow))

        def tool_of(operation: Operation) -> Tool[..., Any]:
            if (why := refusals[operation.server]) is not None:
                raise Unusable(why)
            applied = security.applied(operation.security, operation.server)
            return _tool(operation, applied, schemas, clients, promises=options.output_schemas)

        tools: list[Tool[..., Any]] = []
        for operation in operations:
            try:
                tools.append(tool_of(operation))
            except (DefinitionError, *MALFORMED) as error:
                why = reason_of(error).removeprefix(f"Tool '{operation.name}': ")
                unusable.append((operation.label, why.replace("parameters=", "its arguments' schema")))
        problems = [LoadProblem(self.address, f"{label} is left out: {why.rstrip('.')}.") for label, why in unusable]
        if not tools:
            raise LoadError("\n".join(map(str, problems[:20])) or f"{self.address} has no operations.")
        self._tools, self.problems, self._clients = tools, problems, clients

    def _refused(self, server: str, allow: Sequence[str]) -> str | None:
        """Return why *server* may not be reached; None where it may."""
        from ...net import Guard

        try:
            Guard(hosts=[_netloc(server)], allow=allow).check(server)
            Guard(hosts=self._options.permissions.hosts or None, allow=allow).check(server)
        except SetupError as error:
            return str(error)
        except ToolError as error:
            host = urlsplit(server).hostname
            where = f'its [[source]] says so: `allow = {{ private_hosts = ["{host}"] }}`'
            return f"{str(error).rstrip('.')}. If it may be, {where}"
        return None

    def _reader(self, where: str, stack: ExitStack) -> Read:
        """Return what reads the files that references of the document at *where* lead to, all within one bound."""
        until, left = monotonic() + _REFERENCES_TIMEOUT_S, MAX_BYTES
        fetch: _Fetch | None = None

        def read(address: str) -> Any:
            nonlocal left, fetch
            if not self._options.external_refs:
                raise LoadError("it leads to another file, and `external_refs` is not set")
            if monotonic() > until:
                raise LoadError(f"reading the files that references lead to takes over {_REFERENCES_TIMEOUT_S:g} s")
            if address.startswith("file:"):
                folder, file = _path_of(where).parent.resolve(), _path_of(address).resolve()
                if not where.startswith("file:") or not file.is_relative_to(folder):
                    raise LoadError("it leads out of the folder of the document")
                data, _ = self._read(str(_path_of(address)))
            elif urlsplit(address)[:2] != urlsplit(where)[:2]:
                raise LoadError("it leads to another server than that of the document")
            else:
                fetch = fetch or stack.enter_context(_fetcher(self._allowed(where)))
                data, _ = fetch(address)
            if (left := left - len(data)) < 0:
                raise LoadError(f"the files that references lead to have over {MAX_BYTES // 1024**2} MiB together")
            return read_text(data, address[:100])

        return read

    def _allowed(self, address: str) -> tuple[str, ...]:
        return (*self._options.permissions.private_hosts, *_loopback(address))

    def _read(self, address: str) -> tuple[bytes, str]:
        """Return what is at *address*, a path or a URL, and where it was found, as a URL. Raises LoadError."""
        if "://" in address:
            with _fetcher(self._allowed(address)) as fetch:
                return fetch(address)
        path = Path(address).expanduser()
        self.files.add(path.resolve())
        try:
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1), path.resolve().as_uri()
        except OSError as error:
            raise LoadError(f"{path} cannot be read: {error.strerror}.") from None


def has_document(url: str) -> bool:
    """Return whether an OpenAPI document is at *url*, as far as that is known within a few seconds."""
    try:
        with _fetcher(_loopback(url), _ASK_TIMEOUT_S) as fetch:
            data, _ = fetch(url)
    except (LoadError, TimeoutError):
        return False
    return is_openapi(data)


@contextmanager
def _fetcher(allow: Sequence[str], timeout_s: float | None = None) -> Generator[_Fetch]:
    """Yield what gets one file after the other over the connections of one client."""
    from anyio.from_thread import start_blocking_portal

    from ...net import client

    headers = {"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"}
    http = client(allow=allow, max_bytes=MAX_BYTES, follow_redirects=True, headers=headers)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(http):
        yield lambda url: portal.call(_get, http, url, timeout_s)


async def _get(http: "httpx2.AsyncClient", url: str, timeout_s: float | None) -> tuple[bytes, str]:
    import httpx2

    try:
        async with asyncio.timeout(timeout_s):
            response = await http.get(url)
    except ToolError as error:
        raise LoadError(f"{url} cannot be fetched: {error}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise LoadError(f"{url} cannot be fetched: {type(error).__name__}.") from None
    if response.status_code != 200:
        raise LoadError(f"{url} cannot be fetched: the server answers with HTTP {response.status_code}.")
    return response.content, str(response.url)


def _loopback(where: str) -> tuple[str, ...]:
    """Return the private hosts that a document at *where* may name: those of this computer, if it is here."""
    host = urlsplit(where).hostname
    with suppress(ValueError):  # of a name
        if where.startswith("file:") or host == "localhost" or ip_address(host or "").is_loopback:
            return LOOPBACK
    return ()


def _path_of(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _netloc(server: str) -> str:
    parts = urlsplit(server)
    return parts.netloc if parts.port or parts.scheme == "https" else f"{parts.netloc}:80"


# Tools


def _tool(
    operation: Operation, applied: Sequence[Applied], schemas: Schemas, clients: PerLoop[Any], *, promises: bool
) -> Tool[..., Any]:
    arguments_schema = schemas.closed(operation.schemas, "sent")
    input_schema = {
        "type": "object",
        "properties": arguments_schema.schemas,
        "required": operation.required,
        "additionalProperties": False,
        **({"$defs": arguments_schema.definitions} if arguments_schema.definitions else {}),
    }
    is_checked = arguments_schema.is_valid and (not arguments_schema.definitions or schemas.is_bounded(input_schema))
    output_schema = _promise(operation, schemas) if promises else None
    spec = ToolSpec(
        name=operation.name,
        description=operation.description or operation.label,
        input_schema=input_schema,
        output_schema=output_schema,
        hints=_HINTS.get(operation.method, _OTHER),
        auth=tuple(dict.fromkeys(scheme.required for scheme in applied)) or None,
        tags=operation.tags,
        timeout_s=_CALL_TIMEOUT_S,
    )
    tool = from_work(
        spec,
        functools.partial(call, operation, applied, clients),
        check=functools.partial(json_schema_check, schema=input_schema) if is_checked else None,
        encode=None if output_schema is None else functools.partial(_promised_json, output_schema),
        fn=stand_in(operation.name, _identity(operation, applied)),
        home=__name__,
    )
    request = f"{operation.method} {operation.server}{operation.path}"
    tool.requires = {"hosts": [_netloc(operation.server)], "request": request}
    if applied:
        tool.requires["credentials"] = [f"{scheme.kind} in {scheme.where} {scheme.name}" for scheme in applied]
    return tool


def _identity(operation: Operation, applied: Sequence[Applied]) -> str:
    """Return a digest of what *operation* sends where: an approval is bound to it."""
    body = operation.body
    body_shape = body and (body.media_type, sorted(body.bytes_in), body.parts, [*body.members])
    data = (operation.method, operation.server, operation.path, operation.parameters, body_shape, applied)
    return hashlib.sha256(repr(data).encode()).hexdigest()


def _promise(operation: Operation, schemas: Schemas) -> Mapping[str, Any] | None:
    """Return the schema of what success brings; None where nothing can be promised of it."""
    try:
        results = schemas.closed({str(i): schema for i, schema in enumerate(operation.responses)}, "received")
        parts, definitions = list(results.schemas.values()), results.definitions
        if not parts or not all(isinstance(part, dict) for part in parts):
            return None
        whole = parts[0] if len(parts) == 1 else {"anyOf": parts}
        if whole.keys() == {"$ref"}:  # the root of what a tool promises is best an object itself
            whole = definitions[str(whole["$ref"]).rpartition("/")[2]]
        whole = {**whole, "$defs": definitions} if definitions else whole
        if not results.is_valid:
            jsonschema_rs.meta.validate(whole)
    except (Unusable, jsonschema_rs.ValidationError, ValueError):
        return None
    return whole


def _promised_json(output_schema: Mapping[str, Any], tool: str) -> Encode:
    """Return what writes a result that is as *output_schema* has it. Its validator is made with the first result."""
    from ...schema import serialize_any

    @functools.cache
    def check() -> Any:
        # A stranger's schema may look at one value more often than there are seconds.
        try:
            return validator(output_schema, formats=False) if is_bounded(output_schema) else None
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError):
            return None

    def write(value: Any) -> str:
        text = serialize_any(tool, value)
        why = "what its OpenAPI document promises of the answer cannot be checked"
        if (checker := check()) is not None:
            data = pydantic_core.from_json(text)
            if checker.is_valid(data):
                return text
            why = "the server's answer is not what its OpenAPI document promises"
            for error in itertools.islice(checker.iter_errors(data), 1):
                place = "/".join(("", *map(str, error.instance_path)))
                why += f": {error.message[:200]} (at '{place[:100]}')"
        raise ToolError(
            f"'{tool}' was carried out, but {why}. The operator can set `output_schemas = false` for this source.",
            "invalid_result",
        )

    return write
