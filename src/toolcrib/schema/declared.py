"""Values checked against their declaration: a dataclass or TypedDict whose annotations carry types, limits and docs.

One declaration serves code and files: the same model checks `Limit(concurrency=4)` and a `[[limit]]` of a file.
Messages name the key and what was expected, and never quote a value.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from itertools import chain
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from annotated_doc import Doc
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ..core import SetupError
from .describe import closest_match, did_you_mean, display_name
from .errors import problems
from .from_python import SchemaGenerator, clean_schema
from .view import SchemaView, steps

Keys = tuple[str | int, ...]
"""The path to a value: keys of tables, and indexes of lists from 0."""

D = TypeVar("D")


class Strict(BaseModel):
    """A table with nothing but the declared keys, and with values of exactly the declared types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


def doc_of(annotation: Any) -> str:
    """Return the documentation in an annotation, as in `Annotated[int, Doc("How many.")]`."""
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((extra.documentation for extra in extras if isinstance(extra, Doc)), "")


def fields_of(declaration: type, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields of *declaration* as `create_model` takes them. *defaults* are those of a TypedDict."""
    hints = get_type_hints(declaration, include_extras=True)
    options: dict[str, dict[str, Any]] = {name: {"default": (defaults or {}).get(name)} for name in hints}
    if dataclasses.is_dataclass(declaration):
        kinds = ("default", "default_factory")
        options = {
            field.name: {kind: value for kind in kinds if (value := getattr(field, kind)) is not dataclasses.MISSING}
            for field in dataclasses.fields(declaration)
            if field.init
        }
    return {name: (hints[name], Field(**default, description=doc_of(hints[name]))) for name, default in options.items()}


@functools.cache
def model_from_name(declaration: Any) -> type[Strict]:
    """Return the pydantic model of what *declaration* declares."""
    doc = (declaration.__doc__ or "").partition("\n\n")[0]
    return create_model(declaration.__name__, __base__=Strict, __doc__=doc, **fields_of(declaration))


@functools.cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of *model* as a table. TOML has no null: what can be left out has no type for that."""
    return _without_null(clean_schema(model.model_json_schema(schema_generator=SchemaGenerator)))  # type: ignore[no-any-return]


@dataclasses.dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with one value: the *keys* that lead to it, what was *expected*, and a *message* with both."""

    keys: Keys
    expected: str
    message: str


def mistakes_in(model: type[BaseModel], data: Any, error: ValidationError, *, header: str = "") -> list[Mistake]:
    """Return what is wrong with *data*, which *model* refused with *error*. *header* stands before names of tables."""
    plain = _plain(data)
    mistakes: list[Mistake] = []
    for problem in problems(SchemaView(schema_of(model)), plain, error):
        keys = _keys(problem.path, plain)
        message = _unknown_key(model, keys, header) if problem.received == "name" else problem.sentence
        mistakes.append(Mistake(keys, problem.expected, message))
    return mistakes


def _unknown_key(model: type[BaseModel], keys: Keys, header: str) -> str:
    *above, name = keys
    takes = list(chain.from_iterable(view.members for view in _forms_at(model, above)))
    tables = header + ".".join(str(key) for key in above if isinstance(key, str))
    inside = f" in [[{tables}]]" if above and isinstance(above[-1], int) else f" in [{tables}]" if above else ""
    hint = did_you_mean(closest_match(str(name), takes))
    return f"There is no key '{display_name(str(name))}'{inside}.{hint} It takes: {', '.join(takes)}."


def _forms_at(model: type[BaseModel], keys: Iterable[str | int]) -> Sequence[SchemaView]:
    """Return what the value at *keys* may be in the schema of *model*."""
    views: Sequence[SchemaView] = [SchemaView(schema_of(model))]
    for key in keys:
        places = [[view.item(key)] if isinstance(key, int) else view.member(key) for view in views]
        views = [form for place in chain.from_iterable(places) for form in place.alternatives]
    return views


def _keys(pointer: str, data: Any) -> Keys:
    """Return a JSON pointer (RFC 6901) into *data* as keys."""
    keys: list[str | int] = []
    for step in steps(pointer):
        key: Any = int(step) if isinstance(data, list) else step
        try:
            data = data[key]
        except (LookupError, TypeError):  # it leads to what is missing
            data = None
        keys.append(key)
    return tuple(keys)


def require_values(declaration: type, values: Mapping[str, Any], *, of: str) -> None:
    """Raise SetupError, naming *of* and the key, where *values* are not as *declaration* declares them."""
    model = model_from_name(declaration)
    try:
        model.model_validate(dict(values))
    except ValidationError as error:
        mistakes = mistakes_in(model, values, error)
        raise SetupError(" ".join(f"{of}: {mistake.message}" for mistake in mistakes)) from None


def require_fields(value: Any) -> None:
    """Raise SetupError, naming the field, where a field of *value*, a dataclass, is not as its class declares it."""
    kind = type(value)
    fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(kind) if field.init)
    require_values(kind, {f.name: inner for f, inner in fields if inner is not f.default}, of=kind.__name__)


def from_rows(declaration: type[D], rows: Any, *, of: str) -> list[D]:
    """Return a *declaration* for each of *rows*, tables as TOML has them.

    Raises SetupError, naming the table by *of* and its number from 1, and the key.
    """
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise SetupError(f"Expected a list of tables, [[{of}]], not {type(rows).__name__}.")
    values: list[D] = []
    for number, row in enumerate(rows, 1):
        place = f"{of.capitalize()} {number}"
        if not isinstance(row, Mapping):
            names = ", ".join(f.name for f in dataclasses.fields(declaration) if f.init)  # type: ignore[arg-type]
            raise SetupError(f"{place} is not a table of {names}.")
        require_values(declaration, row, of=place)
        try:
            values.append(declaration(**row))
        except SetupError as error:
            raise SetupError(f"{place}: {error}") from None
    return values


def _plain(value: Any) -> Any:
    """Return *value* as JSON has it. Times become text, and so do infinity and NaN."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value) if isinstance(value, date | time | float) else str(type(value))


def _without_null(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_null(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: _without_null(value) for key, value in schema.items() if (key, value) != ("default", None)}
    branches = schema.get("anyOf", [])
    if {"type": "null"} not in branches:
        return schema
    del schema["anyOf"]
    rest = [branch for branch in branches if branch != {"type": "null"}]
    return {**rest[0], **schema} if len(rest) == 1 else {"anyOf": rest, **schema}
