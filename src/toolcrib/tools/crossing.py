"""How the calls of a tool with `isolation="process"` cross to a worker and back: by reference and as JSON.

What cannot cross is refused when the tool is defined.
"""

import base64
import functools
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import (
    Audio,
    Content,
    Data,
    DefinitionError,
    Encode,
    File,
    Image,
    Needs,
    Result,
    Runs,
    Text,
    ToolSpec,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ..schema import Signature

_CONTENT = (Text, Data, Image, Audio, File)
_FROM_FILE = re.compile(r"toolcrib_\w+_([0-9a-f]{12})")


def require_importable(fn: Any, label: str) -> None:
    """Raises DefinitionError for a function that another process could not import."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if isinstance(fn, functools.partial):
        what = "is a partial"
    elif inspect.ismethod(fn):
        what = f"is bound to an object ({type(fn.__self__).__name__}), which stays in this process"
    elif not isinstance(module, str) or not isinstance(name, str):
        what = "is an object, which stays in this process"
    elif "<lambda>" in name:
        what = "is a lambda"
    elif "<locals>" in name:
        what = f"is defined inside another function ({name.partition('.<locals>')[0]})"
    elif module == "__main__":
        what = "is defined in the program's main file, in a notebook cell or at a prompt"
    elif sys.platform == "win32":
        raise DefinitionError(f'{label}: isolation="process" needs POSIX. Leave it out on Windows.')
    else:
        return
    raise DefinitionError(
        f'{label}: isolation="process" has a worker import the function, and this one {what}. '
        "Put it at the top of a module, and import that."
    )


class Crossing:
    """How the calls of one tool cross: where a worker finds its function, and its arguments and value as JSON.

    `runs` is how the work runs once it is there. `where` is JSON data, and `key` the same as text. `depends` are the
    providers. Raises DefinitionError for what cannot cross.
    """

    __slots__ = ("_arguments", "_returns", "_returns_kind", "_returns_names", "depends", "key", "runs", "where")

    def __init__(
        self,
        fn: Callable[..., Any],
        spec: ToolSpec,
        *,
        runs: Runs,
        signature: "Signature",
        returns: Any,
        arguments: "TypeAdapter[dict[str, Any]] | None",
        bare: Mapping[str, Any] | None,
    ) -> None:
        label = f"Tool '{spec.name}'"
        require_importable(fn, label)
        _require_found(fn, label)
        _require_of_call(signature.needs, label)
        if arguments is not None and (secret := _secret_in(spec.input_schema)) is not None:
            raise DefinitionError(
                f"{label}: '{secret}' is a secret that no dump shows, so it cannot be sent to a worker "
                f'(isolation="process"). Take a str, and register its value with Workbench(secrets=[...]).'
            )
        if arguments is not None and (field := _excluded_in(arguments.core_schema)) is not None:
            raise DefinitionError(
                f"{label}: the field '{field}' is in no dump (exclude=True), so it cannot be sent to a worker "
                '(isolation="process"). Take a type that has the field without it.'
            )
        module = sys.modules[fn.__module__]
        self._arguments = arguments
        self._returns_kind = None if spec.output_schema is None else returns
        self._returns_names = signature.names
        self._returns: TypeAdapter[Any] | None = None
        self.runs = runs
        self.depends = tuple(_providers(signature.needs))
        self.where: dict[str, Any] = {
            "module": fn.__module__,
            "path": fn.__qualname__,
            "file": getattr(module, "__file__", None),
            "by_file": _is_from_file(module.__name__, getattr(module, "__file__", None)),
            "parameters": None if bare is None else dict(bare),
            "schema": _digest(spec.input_schema),
            "version": version_of(getattr(module, "__file__", None)),
        }
        self.key = json.dumps(self.where, sort_keys=True)

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        """Checked arguments as JSON text, from which `read_arguments` makes the same. Names are the function's own."""
        if self._arguments is None:
            return json.dumps(arguments)
        return self._arguments.dump_json(dict(arguments), by_alias=False, round_trip=True, warnings=False).decode()

    def read_arguments(self, text: str) -> dict[str, Any]:
        """Raises ValueError for what is not from `write_arguments`."""
        if self._arguments is None:
            return json.loads(text)  # type: ignore[no-any-return]
        try:
            return self._arguments.validate_json(text, strict=True, by_alias=False, by_name=True)
        except ValueError:
            return self._arguments.validate_json(text, by_alias=False, by_name=True)

    def read_value(self, said: Mapping[str, Any]) -> Any:
        """What `write_value` wrote; a value of the type that the function promises wherever that can be made of it."""
        if self._returns_kind is not None and "json" in said:
            if self._returns is None:
                from ..schema.derive import adapter_of

                self._returns = adapter_of(self._returns_kind, self._returns_names)
            try:
                return self._returns.validate_json(said["json"])
            except ValueError:
                pass  # a type that cannot be made of what it is written as
        return _value(said)


def write_value(value: Any, encode: Encode, *, promised: bool) -> dict[str, Any]:
    """What a tool returned, as JSON data. *promised*: it has an output schema. Raises ToolError `invalid_result`."""
    if promised:
        return {"json": encode(value)}
    if isinstance(value, str):
        return {"text": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Result):
        value.unwrap()
        return {"result": write_content(value.content)}
    if isinstance(value, _CONTENT):
        return {"content": write_content([value])}
    if type(value) in (list, tuple) and any(isinstance(part, _CONTENT) for part in value):
        return {"list": [write_value(part, encode, promised=False) for part in value]}
    return {"json": encode(value)}


def _value(said: Mapping[str, Any]) -> Any:
    match said:
        case {"text": text}:
            return text
        case {"bytes": encoded}:
            return base64.b64decode(encoded)
        case {"result": parts}:
            return Result(None, read_content(parts))
        case {"content": parts}:
            return read_content(parts)[0]
        case {"list": parts}:
            return [_value(part) for part in parts]
        case _:
            return json.loads(said["json"])


def write_content(parts: Sequence[Content]) -> list[dict[str, Any]]:
    """Content as JSON data."""
    return [_part(part) for part in parts]


def _part(part: Content) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Data(text):
            return {"type": "data", "json": text}
        case File():
            return {"type": "file", "data": part.base64, "media_type": part.media_type, "name": part.name}
        case Image() | Audio():
            kind = "image" if isinstance(part, Image) else "audio"
            return {"type": kind, "data": part.base64, "media_type": part.media_type}


def read_content(parts: Sequence[Mapping[str, Any]]) -> tuple[Content, ...]:
    """What `write_content` wrote."""
    return tuple(map(_content, parts))


def _content(part: Mapping[str, Any]) -> Content:
    match part["type"]:
        case "text":
            return Text(part["text"])
        case "data":
            return Data(part["json"])
        case "image":
            return Image(base64.b64decode(part["data"]), part["media_type"])
        case "audio":
            return Audio(base64.b64decode(part["data"]), part["media_type"])
        case _:
            return File(base64.b64decode(part["data"]), part["media_type"], part["name"])


def version_of(file: str | None) -> list[int] | None:
    """What tells a file from what it was before; None where there is no file."""
    if file is None:
        return None
    try:
        seen = Path(file).stat()
    except OSError:
        return None
    return [seen.st_mtime_ns, seen.st_size]


def found_at(module: Any, path: str) -> Any:
    """What is called *path* (`f`, `C.f`) in *module*. Raises AttributeError."""
    value = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _require_found(fn: Any, label: str) -> None:
    module = sys.modules.get(fn.__module__)
    where = f"{fn.__module__}:{fn.__qualname__}"
    try:
        found = found_at(module, fn.__qualname__)
    except AttributeError:
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return  # the module is being imported, and has not come to the name
        found = None
    if found is not fn and getattr(found, "fn", None) is not fn:
        raise DefinitionError(
            f'{label}: isolation="process" has a worker import the function as {where}, and that is '
            f"{'not there' if found is None else 'something else'}. Give the function a name of its own at the top of "
            "its module."
        )


def _require_of_call(needs: Needs, label: str) -> None:
    for need in needs.depends:
        if need.how.scope != "call":
            raise DefinitionError(
                f"{label}: what Depends provides for '{need.name}' lives as long as a {need.how.scope}, in this "
                'process, and isolation="process" runs in another. Write Depends(..., scope="call"): then the worker '
                "makes it, for each call."
            )
        _require_of_call(need.needs, label)


def _providers(needs: Needs) -> list[Callable[..., Any]]:
    return [each for need in needs.depends for each in (need.how.provider, *_providers(need.needs))]


def _secret_in(schema: Any, name: str = "arguments") -> str | None:
    """The name of a property whose type hides its value: pydantic describes SecretStr and SecretBytes like this."""
    if isinstance(schema, Mapping):
        if schema.get("format") == "password" and schema.get("writeOnly") is True:
            return name
        for key, inner in schema.items():
            if isinstance(inner, Mapping) and key in ("properties", "$defs"):
                hits = (_secret_in(member, each) for each, member in inner.items())
                found = next((hit for hit in hits if hit is not None), None)
            else:
                found = _secret_in(inner, name)
            if found is not None:
                return found
    elif isinstance(schema, list):
        return next((hit for inner in schema if (hit := _secret_in(inner, name)) is not None), None)
    return None


def _excluded_in(schema: Any, name: str = "") -> str | None:
    """The name of a field that pydantic leaves out of what it writes, in a core schema."""
    if isinstance(schema, Mapping):
        if schema.get("serialization_exclude") is True:
            return name
        inner = ((key, value) for key, value in schema.items() if key != "metadata")
        return next((hit for key, value in inner if (hit := _excluded_in(value, str(key))) is not None), None)
    if isinstance(schema, list | tuple):
        return next((hit for value in schema if (hit := _excluded_in(value, name)) is not None), None)
    return None


def _is_from_file(module: str, file: str | None) -> bool:
    """Whether `tools.load` imported *module* from its file, under a name that nobody else can import."""
    named = _FROM_FILE.fullmatch(module)
    return bool(named and file and hashlib.sha256(file.encode()).hexdigest().startswith(named[1]))


def _digest(schema: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(_without_defaults(schema), sort_keys=True).encode()).hexdigest()


def _without_defaults(schema: Any) -> Any:
    """A default may differ from process to process (a time, a path) and is not a part of what can be sent."""
    if isinstance(schema, Mapping):
        return {name: _without_defaults(inner) for name, inner in schema.items() if name != "default"}
    return [_without_defaults(inner) for inner in schema] if isinstance(schema, list | tuple) else schema
