"""JSON Schema 2020-12 from Python types, and the validator behind it. All of it happens at definition."""

import inspect
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints

import pydantic_core
from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, TypeAdapter
from pydantic.fields import Field, FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic.warnings import TypedDictExtraConfigWarning
from typing_extensions import TypedDict, Unpack

from ..core import DefinitionError
from .plan import Plan, inner_plan
from .signature import EMPTY, Parameter
from .view import is_valid


class SchemaGenerator(GenerateJsonSchema):
    """Generates JSON Schema without titles that only repeat names, and without warnings of what it leaves out."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 (as in the base)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def is_subclass_schema(self, schema: Any) -> dict[str, Any]:
        # pydantic's schema of classes is `{}`, though no JSON is one.
        return self.handle_invalid_for_json_schema(schema, "a class")

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return self._of_class(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return self._of_class(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return self._of_class(super().typed_dict_schema(schema), schema)

    def encode_default(self, dft: Any) -> Any:
        value = super().encode_default(dft)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise pydantic_core.PydanticSerializationError(str(error)) from None
        return value

    def _of_class(self, described: dict[str, Any], schema: Any) -> dict[str, Any]:
        if required := described.get("required"):  # pydantic requires a name twice that two fields read
            described = {**described, "required": list(dict.fromkeys(required))}
        kind: Any = schema.get("cls")
        if not {"title", "model_title_generator"}.isdisjoint(config_of(kind)):
            return described
        name = getattr(kind, "__name__", None)  # a title that is just the name of the class goes
        return {key: value for key, value in described.items() if key != "title" or value != name}


def config_of(kind: Any) -> Mapping[str, Any]:
    """Return pydantic's settings of a class: of a model, or of any other that has some."""
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)  # elsewhere `model_config` is a field like others
    config = getattr(kind, "model_config" if is_model else "__pydantic_config__", None)
    return config if isinstance(config, Mapping) else {}


class Arguments:
    """The arguments of a function: their JSON Schema, and the validator that turns JSON text into them.

    `countable` where the validated arguments have just the names that stood in the text: not so where a pydantic
    `Field` fills in defaults, or reads one name into two. `aliases` are names that stand in the text in place of the
    parameters' own. `fields` are the types by name, `NotRequired` where an argument may be left out; `extra` is the
    type of all others, None where there are none. `adapter` is pydantic's, for callers that need the types, and `plan`
    how it reads them. `defaults` are those of the function, by the names in the text. *closed*: an unknown argument is
    refused; else it is left out.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        docs: Mapping[str, str],
        *,
        label: str,
        names: Mapping[str, Any] | None = None,
        closed: bool = True,
    ) -> None:
        self.fields, self.extra = _fields(parameters, docs, label, names)
        kind = _typed_dict(self.fields, self.extra, closed=closed)
        try:
            with warnings.catch_warnings():
                # `extra` reaches the TypedDicts inside as well, and one with a setting of its own is right.
                warnings.simplefilter("ignore", TypedDictExtraConfigWarning)
                self.adapter = adapter_of(kind, names)
            self.schema = clean_schema({"properties": {}, **self.adapter.json_schema(schema_generator=SchemaGenerator)})
        except Exception as error:
            raise _unsuitable(parameters, label, names, error) from error
        self.plan = Plan(self.adapter.core_schema, self.adapter.validator, closed=closed)
        plans: Mapping[str, Any] = inner_plan(self.adapter.core_schema)["fields"]
        names_in_text = {name: plan.get("validation_alias") for name, plan in plans.items()}
        has_filled = any(plan["schema"]["type"] == "default" for plan in plans.values())
        self.countable = not has_filled and not any(names_in_text.values())
        self.aliases = {name: alias for name, alias in names_in_text.items() if isinstance(alias, str)}
        self.defaults = {
            self.aliases.get(parameter.name, parameter.name): parameter.default
            for parameter in parameters
            if parameter.default is not EMPTY and not isinstance(parameter.default, FieldInfo)
        }
        self._show_defaults(parameters)

    def _show_defaults(self, parameters: Sequence[Parameter]) -> None:
        properties = self.schema.get("properties", {})
        for parameter in parameters:
            name, default = self.aliases.get(parameter.name, parameter.name), parameter.default
            member = properties.get(name)
            if member is None or default is EMPTY or isinstance(default, FieldInfo | SecretStr | SecretBytes):
                continue
            try:
                # A set has another order in every process, and a schema should not.
                ordered = sorted(default, key=repr) if isinstance(default, set | frozenset) else default
                plain = pydantic_core.to_jsonable_python(ordered, inf_nan_mode="strings")
            except (ValueError, TypeError, RecursionError):
                continue
            # A default that the schema does not admit (None for an int) would only invite the model to send it.
            if is_valid({"$defs": self.schema.get("$defs", {}), **member}, plain):
                properties[name] = {**member, "default": plain}


def _fields(
    parameters: Sequence[Parameter], docs: Mapping[str, str], label: str, names: Mapping[str, Any] | None
) -> tuple[dict[str, Any], Any]:
    fields: dict[str, Any] = {}
    extra: Any = None
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            fields[parameter.name] = _field(parameter, docs.get(parameter.name))
        elif (unpacked := _unpacked(parameter.annotation, docs, label, names)) is not None:
            fields = {**unpacked, **fields}
        else:
            extra = Any if parameter.annotation is EMPTY else parameter.annotation
    return fields, extra


def _typed_dict(fields: Mapping[str, Any], extra: Any, *, closed: bool) -> Any:
    """Return a class for one tool alone: the one way to hand pydantic any names at all (`schema`, `self`, `_x`)."""
    build: Any = TypedDict
    options = {} if extra is None else {"extra_items": extra}
    kind = build("Arguments", fields, **options)
    config = ConfigDict(allow_inf_nan=False)
    kind.__pydantic_config__ = config if options or not closed else {**config, "extra": "forbid"}
    return kind


def adapter_of(kind: Any, names: Mapping[str, Any] | None) -> TypeAdapter[Any]:
    """Return pydantic's adapter of *kind*; annotations written as text may use the local *names*."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    if not adapter.pydantic_complete and names:
        adapter.rebuild(raise_errors=False, _types_namespace=dict(names))
    return adapter


def _field(parameter: Parameter, doc: str | None) -> Any:
    annotation, default = Any if parameter.annotation is EMPTY else parameter.annotation, parameter.default
    extras = getattr(annotation, "__metadata__", ())
    infos = [extra for extra in extras if isinstance(extra, FieldInfo)]
    description = next((extra for extra in extras if isinstance(extra, str)), doc)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        annotation = list[annotation]  # type: ignore[valid-type]
        return NotRequired[Annotated[annotation, Field(description=description)] if description else annotation]
    if isinstance(default, FieldInfo):
        annotation = Annotated[annotation, default]
        infos.append(default)
        default = EMPTY
    if description and not any(info.description for info in infos):
        annotation = Annotated[annotation, Field(description=description)]
    filled_in = any(not info.is_required() for info in infos)
    if filled_in and default is not EMPTY:
        annotation = Annotated[annotation, Field(default=default)]  # as in Python, what is assigned is the default
    return annotation if default is EMPTY and not filled_in else NotRequired[annotation]


def _unpacked(
    annotation: Any, docs: Mapping[str, str], label: str, names: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return the fields of `**kwargs: Unpack[SomeTypedDict]`."""
    if get_origin(annotation) is not Unpack and str(get_origin(annotation)) != "typing.Unpack":
        return None
    kind = get_args(annotation)[0]
    try:
        hints = get_type_hints(kind, localns=dict(names or {}), include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{label}: the name '{error.name}' in {type_name(kind)} is not defined. "
            f"Define it at the top of the module of {type_name(kind)}."
        ) from None
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        field = _field(Parameter(name, inspect.Parameter.KEYWORD_ONLY, stripped(hint), EMPTY), docs.get(name))
        # `__required_keys__` cannot see marks in annotations that are text.
        marks = _marks(hint)
        optional = "NotRequired" in marks or ("Required" not in marks and name not in kind.__required_keys__)
        fields[name] = NotRequired[stripped(field)] if optional else field
    return fields


def _marks(annotation: Any) -> set[str]:
    """Return the marks around a type of whether a key must be there."""
    mark = getattr(get_origin(annotation), "_name", None)
    return {mark} | _marks(get_args(annotation)[0]) if mark in _MARKS else set()


def stripped(annotation: Any) -> Any:
    """Return *annotation* without the marks of whether a key must be there."""
    while getattr(get_origin(annotation), "_name", None) in _MARKS:
        annotation = get_args(annotation)[0]
    return annotation


_MARKS = ("NotRequired", "Required", "ReadOnly")


def _unsuitable(
    parameters: Sequence[Parameter], label: str, names: Mapping[str, Any] | None, error: Exception
) -> DefinitionError:
    for parameter in parameters:
        if parameter.annotation is EMPTY:
            continue
        try:
            adapter_of(parameter.annotation, names).json_schema(schema_generator=SchemaGenerator)
        except Exception as culprit:
            kind = type_name(parameter.annotation)
            remedy = other_remedy(culprit) or (
                f"A model cannot send one: let the host provide it, {parameter.name}: Annotated[{kind}, "
                "Depends(provider)], or take a type that JSON can carry."
            )
            return DefinitionError(
                f"{label}: parameter '{parameter.name}' has the type {kind}, which has no JSON Schema "
                f"({first_line(culprit).partition(' Set `')[0].rstrip('.')}). {remedy}"
            )
    return DefinitionError(f"{label}: its parameters have no JSON Schema: {first_line(error)}")


def other_remedy(error: Exception) -> str | None:
    """Return the way out for a type that has no JSON Schema only as it is written."""
    code = getattr(error, "code", None)
    if isinstance(error, NameError) or code in ("class-not-fully-defined", "undefined-annotation"):
        return "Define every name in it before the tool is made, at the top of its module."
    if code == "typed-dict-version":
        return "Write: from typing_extensions import TypedDict."
    return None


def clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* without the titles of enumerations, and with an object's usual order of keywords."""
    for definition in schema.get("$defs", {}).values():
        if "enum" in definition or "const" in definition:
            definition.pop("title", None)
    if schema.get("type") == "object":
        order = ("type", "description", "properties", "required", "additionalProperties", "$defs")
        return {key: schema[key] for key in (*order, *(k for k in schema if k not in order)) if key in schema}
    return schema


def type_name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
