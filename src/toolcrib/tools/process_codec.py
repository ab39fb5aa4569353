"""How the calls of a tool with `isolation="process"` get to a worker and back: by reference and as JSON.

What cannot be sent is refused when the tool is defined.
"""

import base64
import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import (
    Audio,
    Data,
    DefinitionError,
    File,
    Image,
    Result,
    Text,
    ToolError,
    ToolSpec,
    content_from_dict,
    content_to_dict,
)
from ..machinery import Encode, Needs, Overrides, Work
from .definition import CONTENT

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ..schema import Signature

_CONTENT = (Text, Data, Image, Audio, File)
_HIDDEN = {'"writeOnly": true': "SecretStr", "'serialization_exclude': True": "exclude=True"}
"""How JSON Schema and pydantic's own schema show a field that no dump has."""


def require_importable(fn: Any, label: str) -> None:
    """Raise DefinitionError for a function that another process could not import."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if isinstance(fn, functools.partial):
        reason = "is a partial"
    elif inspect.ismethod(fn):
        reason = f"is bound to an object ({type(fn.__self__).__name__}), which stays in this process"
    elif not isinstance(module, str) or not isinstance(name, str):
        reason = "is an object, which stays in this process"
    elif "<lambda>" in name:
        reason = "is a lambda"
    elif "<locals>" in name:
        reason = f"is defined inside another function ({name.partition('.<locals>')[0]})"
    elif module == "__main__":
        reason = "is defined in the program's main file, in a notebook cell or at a prompt"
    elif sys.platform == "win32":
        raise DefinitionError(f'{label}: isolation="process" needs POSIX. Leave it out on Windows.')
    else:
        return
    raise DefinitionError(
        f'{label}: isolation="process" has a worker import the function, and this one {reason}. '
        "Put it at the top of a module, and import that."
    )


class ProcessCodec:
    """How the calls of one tool get to a worker and back: where it finds the function, arguments and value as JSON.

    `where` is JSON data, and `key` the same as text. Raises DefinitionError for what cannot be sent.
    """

    loader = "toolcrib.tools.loading:WorkerTools"
    """What a worker imports the tool with."""

    def __init__(
        self,
        fn: Callable[..., Any],
        spec: ToolSpec,
        *,
        work: Work,
        encode: Encode,
        signature: "Signature",
        returns: Any,
        arguments: "TypeAdapter[dict[str, Any]] | None",
        parameters: Mapping[str, Any] | None,
    ) -> None:
        label = f"Tool '{spec.name}'"
        require_importable(fn, label)
        _require_found(fn, label)
        _require_of_call(signature.needs, label)
        if arguments is not None:
            for mark, kind in _HIDDEN.items():
                if mark in json.dumps(spec.input_schema) or mark in repr(arguments.core_schema):
                    raise DefinitionError(
                        f"{label}: a field of its arguments is in no dump ({kind}), so it cannot be sent to a worker "
                        '(isolation="process"). Take another type: for a secret a str, whose value is registered with '
                        "Workbench(secrets=[...])."
                    )
        file = getattr(sys.modules[fn.__module__], "__file__", None)
        self._arguments = arguments
        self._returns_type = None if spec.output_schema is None else returns
        self._returns_names = signature.names
        self._returns: TypeAdapter[Any] | None = None
        self._providers = tuple(_providers(signature.needs))
        self.work, self.encode, self.is_typed = work, encode, spec.output_schema is not None
        self.where: dict[str, Any] = {
            "module": fn.__module__,
            "path": fn.__qualname__,
            "file": file,
            "parameters": None if parameters is None else dict(parameters),
            "schema": _digest(spec.input_schema),
            "version": version_of(file),
            # Of a module that `tools.load` imported from its file, under a name that only it can import.
            "sha256": getattr(sys.modules[fn.__module__], CONTENT, None),
        }
        self.key = json.dumps(self.where, sort_keys=True)

    def write_arguments(self, arguments: Mapping[str, Any]) -> str:
        """Return checked arguments as JSON text for `read_arguments`, by the function's own names."""
        if self._arguments is None:
            return json.dumps(arguments)
        return self._arguments.dump_json(dict(arguments), by_alias=False, round_trip=True, warnings=False).decode()

    def read_arguments(self, text: str) -> dict[str, Any]:
        """Raise ValueError for anything that is not from `write_arguments`."""
        if self._arguments is None:
            return json.loads(text)  # type: ignore[no-any-return]
        try:
            return self._arguments.validate_json(text, strict=True, by_alias=False, by_name=True)
        except ValueError:
            return self._arguments.validate_json(text, by_alias=False, by_name=True)

    def write_value(self, value: Any) -> dict[str, Any]:
        """Return what the function returned, as JSON data. Raises ToolError `invalid_result`."""
        return {"json": self.encode(value)} if self.is_typed else _written(value, self.encode)

    def read_value(self, data: Mapping[str, Any]) -> Any:
        """Return what `write_value` wrote: a value of the annotated type, wherever that can be made of it."""
        if self._returns_type is not None and "json" in data:
            if self._returns is None:
                from ..schema.from_python import adapter_of

                self._returns = adapter_of(self._returns_type, self._returns_names)
            try:
                return self._returns.validate_json(data["json"])
            except ValueError:
                pass  # a type that cannot be made of what it is written as
        return _read(data)

    def override_references(self, overrides: Overrides, tool: str) -> list[tuple[str, str]]:
        """Return the *overrides* of providers of the tool, both by reference. Raises ToolError `unavailable`."""
        pairs: list[tuple[str, str]] = []
        for provider in self._providers:
            replacement = overrides.get(provider)
            if replacement is None:
                continue
            pair = (reference(provider), reference(replacement))
            if pair[0] is None or pair[1] is None:
                raise ToolError(
                    f"Tool '{tool}' runs in a process of its own, to which the override of "
                    f"{getattr(provider, '__name__', provider)!r} cannot be sent: put both at the top of a module.",
                    "unavailable",
                )
            pairs.append((pair[0], pair[1]))
        return pairs


def reference(fn: Any) -> str | None:
    """Return `module:qualified.name` by which *fn* can be imported again; None where it cannot."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name or inspect.ismethod(fn):
        return None
    return f"{module}:{name}"


def referent(ref: str) -> Any:
    """Return what *ref*, as `reference` returns it, names in a module that is imported already; None without one."""
    module, _, path = ref.partition(":")
    return functools.reduce(lambda value, name: getattr(value, name, None), path.split("."), sys.modules.get(module))


def _written(value: Any, encode: Encode) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text": str(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Result):
        value.unwrap()
        return {"result": [content_to_dict(part, exact=True) for part in value.content]}
    if isinstance(value, _CONTENT):
        return {"content": content_to_dict(value, exact=True)}
    if type(value) in (list, tuple) and any(isinstance(part, _CONTENT) for part in value):
        return {"list": [_written(part, encode) for part in value]}
    return {"json": encode(value)}


def _read(data: Mapping[str, Any]) -> Any:
    match data:
        case {"text": text}:
            return text
        case {"bytes": encoded}:
            return base64.b64decode(encoded)
        case {"result": parts}:
            return Result(None, tuple(map(content_from_dict, parts)))
        case {"content": part}:
            return content_from_dict(part)
        case {"list": parts}:
            return [_read(part) for part in parts]
        case _:
            return json.loads(data["json"])


def version_of(file: str | None) -> list[int] | None:
    """Return what changes whenever a file does; None where there is no file."""
    if file is None:
        return None
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return [status.st_mtime_ns, status.st_size]


def _require_found(fn: Any, label: str) -> None:
    module = sys.modules.get(fn.__module__)
    where = f"{fn.__module__}:{fn.__qualname__}"
    try:
        target = attrgetter(fn.__qualname__)(module)
    except AttributeError:
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return  # the module is being imported, and has not come to the name
        target = None
    if target is not fn and getattr(target, "fn", None) is not fn:
        raise DefinitionError(
            f'{label}: isolation="process" has a worker import the function as {where}, and that is '
            f"{'not there' if target is None else 'something else'}. Give the function a name of its own at the top of "
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
    return [provider for need in needs.depends for provider in (need.how.provider, *_providers(need.needs))]


def _digest(schema: Mapping[str, Any]) -> str:
    import hashlib

    return hashlib.sha256(json.dumps(_without_defaults(schema), sort_keys=True).encode()).hexdigest()


def _without_defaults(schema: Any) -> Any:
    """Return *schema* without defaults: one may differ from process to process (a time, a path), and is not sent."""
    if isinstance(schema, Mapping):
        return {name: _without_defaults(inner) for name, inner in schema.items() if name != "default"}
    return [_without_defaults(inner) for inner in schema] if isinstance(schema, list | tuple) else schema
