"""Python types → JSON Schema 2020-12 and the validator behind it. All of it happens at definition."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, get_args, get_origin

import pydantic_core
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import Field, FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict, Unpack

from ..core import DefinitionError
from .bare import admits
from .signature import EMPTY, Parameter

UNSUITABLE = (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError, TypeError)


class Quiet(GenerateJsonSchema):
    """JSON Schema without the titles that only repeat names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Arguments:
    """The arguments of a function: their JSON Schema, and the adapter that turns JSON text into them.

    `countable` where the arguments the adapter gives have just the names that stood in the text: not so where a
    pydantic `Field` fills in defaults, or reads one name into two.
    """

    def __init__(self, parameters: Sequence[Parameter], docs: Mapping[str, str], *, label: str) -> None:
        self.countable = True
        fields: dict[str, Any] = {}
        extra: Any = None
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                unpacked = _unpacked(parameter.annotation)
                if unpacked is None:
                    extra = Any if parameter.annotation is EMPTY else parameter.annotation
                else:
                    fields |= unpacked
            else:
                fields[parameter.name] = self._field(parameter, docs.get(parameter.name), label)
        # Built anew for every tool: the one way to hand pydantic any names at all (`schema`, `self`, `_x`).
        build: Any = TypedDict
        kind = build("Arguments", fields) if extra is None else build("Arguments", fields, extra_items=extra)
        kind.__pydantic_config__ = ConfigDict(allow_inf_nan=False, **({"extra": "forbid"} if extra is None else {}))
        try:
            self.adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(kind)
            self.schema = clean(self.adapter.json_schema(schema_generator=Quiet))
        except UNSUITABLE as error:
            raise _unsuitable(parameters, label, error) from error
        self.annotations = {name: _stripped(annotation) for name, annotation in fields.items()}
        self._show_defaults(parameters)

    def _field(self, parameter: Parameter, doc: str | None, label: str) -> Any:
        annotation = Any if parameter.annotation is EMPTY else parameter.annotation
        extras = [extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, FieldInfo | str)]
        default = parameter.default
        if isinstance(default, FieldInfo):
            annotation, default = Annotated[annotation, default], EMPTY
            extras.append(parameter.default)
        infos = [extra for extra in extras if isinstance(extra, FieldInfo)]
        if not any(info.description for info in infos):
            said = next((extra for extra in extras if isinstance(extra, str)), doc)
            if said:
                annotation = Annotated[annotation, Field(description=said)]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return NotRequired[list[annotation]]  # type: ignore[valid-type]
        if any(info.validation_alias is not None and not isinstance(info.validation_alias, str) for info in infos):
            self.countable = False
        if any(not info.is_required() for info in infos):
            self.countable = False
            return NotRequired[annotation]
        return annotation if default is EMPTY else NotRequired[annotation]

    def _show_defaults(self, parameters: Sequence[Parameter]) -> None:
        properties = self.schema.get("properties", {})
        for parameter in parameters:
            shown = properties.get(parameter.name)
            if shown is None or parameter.default is EMPTY or isinstance(parameter.default, FieldInfo):
                continue
            try:
                default = pydantic_core.to_jsonable_python(parameter.default, inf_nan_mode="strings")
            except (ValueError, RecursionError):
                continue
            # A default that the schema does not admit (None for an int) would only invite the model to send it.
            if admits({"$defs": self.schema.get("$defs", {}), **shown}, default):
                properties[parameter.name] = {**shown, "default": default}


def _unsuitable(parameters: Sequence[Parameter], label: str, error: Exception) -> DefinitionError:
    for parameter in parameters:
        if parameter.annotation is EMPTY:
            continue
        try:
            TypeAdapter(parameter.annotation).json_schema()
        except UNSUITABLE as culprit:
            return DefinitionError(
                f"{label}: parameter '{parameter.name}' is a {type_name(parameter.annotation)}, which has no JSON "
                f"Schema ({first_line(culprit)}). A model cannot send one: let the host provide it, "
                f"{parameter.name}: Annotated[{type_name(parameter.annotation)}, Depends(provider)], or take a type "
                "that JSON can carry."
            )
    return DefinitionError(f"{label}: its parameters have no JSON Schema: {first_line(error)}")


def _unpacked(annotation: Any) -> dict[str, Any] | None:
    """The fields of `**kwargs: Unpack[SomeTypedDict]`."""
    if get_origin(annotation) is not Unpack and str(get_origin(annotation)) != "typing.Unpack":
        return None
    kind = get_args(annotation)[0]
    required: frozenset[str] = kind.__required_keys__
    from typing import get_type_hints

    hints = get_type_hints(kind, include_extras=True)
    return {name: hint if name in required else NotRequired[_stripped(hint)] for name, hint in hints.items()}


def _stripped(annotation: Any) -> Any:
    """Without the marks that say only whether a key must be there."""
    while getattr(get_origin(annotation), "_name", None) in ("NotRequired", "Required"):
        annotation = get_args(annotation)[0]
    return annotation


def clean(schema: dict[str, Any]) -> dict[str, Any]:
    """Without titles that repeat the name of a class; with an object's usual order of keywords."""
    schema.pop("title", None)
    definitions = schema.get("$defs", {})
    for name, definition in definitions.items():
        if definition.get("title") == name.rpartition("__")[2]:
            del definition["title"]
    if schema.get("type") == "object":
        order = ("type", "description", "properties", "required", "additionalProperties", "$defs")
        schema.setdefault("properties", {})
        return {key: schema[key] for key in (*order, *(k for k in schema if k not in order)) if key in schema}
    return schema


def type_name(annotation: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
