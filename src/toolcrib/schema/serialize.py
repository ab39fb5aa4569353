"""Python values as JSON: what a tool returned, never other than its output schema, and the arguments of a call.

pydantic's own dumps skip excluded fields, mask secrets, run serializers and give sets in any order. That is right for
results; arguments are written with every field (`written`).
"""

import dataclasses
import functools
import json
import logging
import types
from collections.abc import Callable, Iterator, Mapping, Set
from math import isfinite
from pathlib import PurePath
from typing import Any, Never, NoReturn, Union, get_args, get_origin

import pydantic_core
from pydantic import AliasChoices, BaseModel, EncodedBytes, EncodedStr, RootModel, SecretBytes, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.types import Json, Secret

from ..core import Audio, Data, DefinitionError, File, Image, Result, Text, ToolError
from .errors import problems
from .from_python import SchemaGenerator, adapter_of, clean_schema, config_of, first_line, other_remedy, type_name
from .plan import reads_by_name
from .view import SchemaView, kind

_log = logging.getLogger("toolcrib")
_CONTENT = (Text, Data, Image, Audio, File, Result)
_LISTS = (list, tuple)
_SHAPELESS = (Any, object, NoReturn, Never, bytes, bytearray)


def has_no_schema(returns: Any) -> bool:
    """Return whether a return annotation has no output schema: Any, bytes, or what is or may hold content."""
    origin, inner = get_origin(returns), get_args(returns)
    if origin in (Union, types.UnionType):
        return any(map(has_no_schema, inner))
    if returns in _LISTS or (origin in _LISTS and (Any in inner or object in inner)):
        return True
    return any(returns is kind for kind in _SHAPELESS) or _holds_content(returns)


def _holds_content(returns: Any) -> bool:
    is_content = any(returns is kind or get_origin(returns) is kind for kind in _CONTENT)
    return is_content or any(map(_holds_content, get_args(returns)))


def serialize_any(tool: str, value: Any) -> str:
    """Write *value* as JSON text; NaN and infinities, which JSON does not have, become null.

    Raises ToolError `invalid_result` for what has no JSON form.
    """
    try:
        return pydantic_core.to_json(value, inf_nan_mode="null").decode()
    except (ValueError, TypeError, RecursionError) as error:
        _log.error("Tool '%s' returned a %s, which has no JSON form: %s", tool, type(value).__name__, error)
        raise ToolError(
            f"Tool '{tool}' returned something that has no JSON form ({type(value).__name__}).", "invalid_result"
        ) from error


def read_back(tool: str, text: str) -> Any:
    """Return the JSON value that was written as *text*. Raises ToolError `invalid_result` for other text."""
    try:
        return pydantic_core.from_json(text)
    except ValueError as error:
        raise ToolError(f"Tool '{tool}' returned what cannot be read as JSON: {error}.", "invalid_result") from None


def return_serializer(
    returns: Any, *, label: str, tool: str, names: Mapping[str, Any] | None = None
) -> tuple[Mapping[str, Any], Callable[[Any], str]]:
    """Return the output schema of a return annotation, and the function that writes a value of it as JSON text.

    Names in both are the aliases that a model's author gave for them. The writer raises ToolError `invalid_result` for
    a value that does not match the schema. Raises DefinitionError for a type that has no JSON form.
    """
    try:
        adapter, output_schema = _of_scalar(returns) if returns in _SCALARS else _described(returns, names)
    except Exception as error:
        remedy = other_remedy(error) or (
            "Return a type that pydantic can describe, a toolcrib Image, Audio or File, or annotate the return as Any."
        )
        raise DefinitionError(
            f"{label} returns {type_name(returns)}, which has no JSON form ({first_line(error)}). {remedy}"
        ) from error
    to_json = adapter.serializer.to_json
    is_instance = _instance_test(returns)
    scalar = returns if returns in (str, int, bool) else None
    is_rows = _rows_test(returns)
    view = functools.cache(lambda: SchemaView(output_schema))

    def write(value: Any) -> str:
        if type(value) is scalar:
            return to_json(value).decode()
        try:
            if is_rows is not None and is_rows(value):
                # Here False is as good as "none", and ten times as quick.
                return to_json(value, by_alias=True, warnings=False).decode()
            text = to_json(value, by_alias=True, warnings="error").decode()
            # pydantic writes None for any type, and NaN as null.
            if is_instance(value) and "null" not in text:
                return text
        except (ValueError, TypeError, AttributeError, RecursionError):
            # Another type than the one annotated; its JSON may still match the schema (a dict for a model).
            text = serialize_any(tool, value)
        data = read_back(tool, text)
        if view().is_valid(data):
            return text
        mistakes = problems(view(), data)
        sentence = mistakes[0].sentence.replace("the arguments: ", "", 1) if mistakes else f"got {kind(data)}."
        _log.error("Tool '%s' returned a value that does not match its output schema: %s", tool, sentence)
        got = f", got {mistakes[0].received}" if mistakes and not mistakes[0].choices else ""
        reason = f" (expected {mistakes[0].expected}{got})" if mistakes else ""
        raise ToolError(
            f"Tool '{tool}' returned a value that does not match its output schema{reason}.", "invalid_result"
        )

    return output_schema, write


def scalar_schema(returns: Any) -> Mapping[str, Any] | None:
    """Return the output schema of what most tools return; None for all other types."""
    return _of_scalar(returns)[1] if returns in _SCALARS else None


def _described(returns: Any, names: Mapping[str, Any] | None) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    adapter = adapter_of(returns, names)
    return adapter, clean_schema(adapter.json_schema(schema_generator=SchemaGenerator, mode="serialization"))


@functools.cache
def _of_scalar(returns: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Return what most tools share: they return text."""
    return _described(returns, None)


def _instance_test(kind: Any) -> Callable[[Any], bool]:
    """Return a test of whether a value is surely written as *kind* promises, so that its JSON need not be looked at.

    pydantic complains of most values of another type while it writes them. It does not of an object in the place of a
    model, whose other attributes it leaves out, nor of literals and limits.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: True
    if kind in _SCALARS or _is_model(kind):
        return lambda value: isinstance(value, kind)
    if origin in (Union, types.UnionType):
        branches = [_instance_test(branch) for branch in inner]
        return lambda value: any(branch(value) for branch in branches)
    if origin in (list, dict) and all(map(_is_plain, inner)):
        return lambda value: isinstance(value, origin)
    return lambda value: False


def _rows_test(kind: Any) -> Callable[[Any], bool] | None:
    """Return a quick test of whether a value is a row, or a list of rows; None for a *kind* that is neither.

    An instance of a model is what its fields say, and in a `dict[str, Any]` there may be anything.
    """
    is_list = get_origin(kind) is list
    row = get_args(kind)[0] if is_list else kind
    if not _is_model(row) and not (get_origin(row) is dict and get_args(row)[1] is Any):
        return None
    row = get_origin(row) or row
    if is_list:
        return lambda value: type(value) is list and list(map(type, value)).count(row) == len(value)
    return lambda value: type(value) is row


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_plain(kind: Any) -> bool:
    return kind is Any or kind in _SCALARS or (get_origin(kind) in (list, dict) and all(map(_is_plain, get_args(kind))))


_SCALARS = (str, int, float, bool)


# Arguments, every field of them

_PLAIN = frozenset({str, int, float, bool, type(None)})


class NotWritten(ValueError):
    """A value that no JSON document has the whole of. Its message gives the reason, and quotes no value."""


def is_plain(value: Any) -> bool:
    """Return whether *value* consists of JSON values only. Raises RecursionError."""
    kind = type(value)
    if kind is dict:
        return _PLAIN.issuperset(map(type, value.values())) or all(map(is_plain, value.values()))
    if kind is list:
        return _PLAIN.issuperset(map(type, value)) or all(map(is_plain, value))
    return kind in _PLAIN


def type_in_brackets(value: Any) -> str:
    """Return what stands for a value without a JSON form."""
    return f"<{type(value).__name__}>"


def written(
    value: Any, *, mask: str | None = None, strict: bool = True, other: Callable[[Any], Any] = type_in_brackets
) -> Any:
    """Return *value* as JSON values, by the names under which a model reads them; secrets as *mask*, if it is given.

    *other* converts what has no JSON form, and an iterator, which a look would use up. *strict*: it will be read again.
    Then scalars stay as they are, for pydantic to write; raises NotWritten for what cannot be.
    """

    def write(value: Any) -> Any:
        if type(value) in _PLAIN:
            return value if strict or not isinstance(value, float) or isfinite(value) else str(value)
        if isinstance(value, SecretStr | SecretBytes | Secret):
            inner = value.get_secret_value()
            return write(inner) if mask is None else mask if inner else ""
        if isinstance(value, RootModel):
            return write(value.root)
        if isinstance(value, BaseModel):
            return _model(value, write, strict)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _dataclass(value, write, strict)
        if isinstance(value, Mapping):
            pairs = [(name_in_json(key) if strict else _some_name(key), write(inner)) for key, inner in value.items()]
            members = dict(pairs)
            if strict and len(members) < len(value):
                raise NotWritten("two keys of a mapping are one name in JSON")
            return members if len(members) == len(value) else list(map(list, pairs))
        if isinstance(value, list | tuple):
            return [write(inner) for inner in value]
        if isinstance(value, Set):
            return sorted(map(write, value), key=lambda inner: json.dumps(inner, sort_keys=True, default=repr))
        if isinstance(value, PurePath):  # pydantic dumps only those of this system
            return str(value)
        if strict:
            return value
        try:
            if not isinstance(value, Iterator):
                return pydantic_core.to_jsonable_python(value, inf_nan_mode="strings")
        except (ValueError, RecursionError):
            pass
        return other(value)

    return write(value)


def _model(model: BaseModel, write: Any, strict: bool) -> dict[str, Any]:
    kind = type(model)
    members = {
        _sent_as(kind, name, info, strict): _encoded(model.__dict__[name], info, write)
        for name, info in kind.model_fields.items()
        if name in model.__dict__
    }
    return members | {name: write(inner) for name, inner in (model.__pydantic_extra__ or {}).items()}


def _sent_as(kind: type, name: str, info: FieldInfo, strict: bool) -> str:
    """Return the name by which *kind* reads a field; its own name, where it reads it from inside another one."""
    alias = info.validation_alias
    config = config_of(kind)
    if alias is None or config.get("validate_by_alias") is False:
        return name
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    if isinstance(alias, str):
        return alias
    if reads_by_name(config) or not strict:
        return name
    raise NotWritten(f"the field '{name}' of {kind.__name__} is read from inside another one")


def _encoded(value: Any, info: FieldInfo, write: Any) -> Any:
    """Return the value of a field whose type says how it is written."""
    for extra in info.metadata:
        if isinstance(extra, EncodedBytes | EncodedStr) and isinstance(value, bytes | str):
            text = extra.encode(value) if isinstance(extra, EncodedBytes) else extra.encode_str(value)  # type: ignore[arg-type]
            return write(text)
        if extra is Json or type(extra).__name__ == "Json":
            return json.dumps(write(value))
    return write(value)


def _dataclass(value: Any, write: Any, strict: bool) -> dict[str, Any]:
    kind = type(value)
    kinds = {name: getattr(field, "_field_type", None) for name, field in kind.__dataclass_fields__.items()}
    init_only = [name for name, of in kinds.items() if of is getattr(dataclasses, "_FIELD_INITVAR", ())]
    if init_only and strict:
        raise NotWritten(f"{kind.__name__} does not keep '{init_only[0]}', which only its constructor gets")
    infos: Mapping[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    members = {}
    for field in dataclasses.fields(value):
        if hasattr(value, field.name) and (field.init or not strict):
            info = infos.get(field.name, _PLAIN_FIELD)
            name = _sent_as(kind, field.name, info, strict)
            members[name] = _encoded(getattr(value, field.name), info, write)
    return members


_PLAIN_FIELD = FieldInfo()


def _some_name(key: Any) -> str:
    """Return the name of a key of a mapping for a look at it: also where JSON has none."""
    try:
        return name_in_json(key)
    except ValueError:
        return type_in_brackets(key)


def name_in_json(key: Any) -> str:
    """Return the name that a key of a mapping has in JSON."""
    if type(key) is str:
        return key
    (name,) = pydantic_core.to_jsonable_python({key: None})
    return str(name)
