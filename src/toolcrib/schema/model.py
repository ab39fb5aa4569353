"""A pydantic model as the whole of the arguments: it decides what it takes, as its `model_validate` does.

So text is taken for a number where the model takes it. What the model refuses is repaired and explained as any other
arguments are. Only names are judged here as well: one that the model does not have is refused, not passed over.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pydantic_core
from pydantic import AliasChoices, AliasPath, BaseModel, RootModel, ValidationError

from ..core import Check, Checked
from .check import Given, SecondRoad, text_of, unreadable
from .text import BadText, read


def model_check(
    tool: str,
    model: type[BaseModel],
    *,
    schema: Mapping[str, Any],
    arguments: Callable[[BaseModel], dict[str, Any]],
) -> Check:
    """The check of arguments that are one *model*; *arguments* makes of it what the work takes, by name.

    *schema* is the JSON Schema that was shown. A mapping may hold values that JSON does not have, where the model
    takes them.
    """
    read_arguments = ModelReader(model)
    second_road = SecondRoad(tool, schema, _Accepts(read_arguments, arguments))

    def check(given: Given, repair: bool, /) -> Checked:
        try:
            if type(given) is dict or isinstance(given, Mapping):
                return arguments(read_arguments(given)), ()
            text = text_of(tool, given)
            return arguments(read_arguments.of_text(text, read(text))), ()
        except ValidationError as error:
            return second_road(text_of(tool, given), repair, error)
        except BadText as error:
            if not (text := text_of(tool, given)).strip():
                return second_road(text, repair, None)
            raise unreadable(tool, error) from None

    return check


class ModelReader:
    """Reads mappings, and JSON text, as one *model*; names that it does not have are refused.

    Raises pydantic's ValidationError.
    """

    __slots__ = ("_names", "model")

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self._names = _names_of(model)

    def __call__(self, given: Mapping[str, Any]) -> BaseModel:
        if self._names is None or not isinstance(given, Mapping) or self._names.issuperset(given):
            return self.model.model_validate(given)
        return self.model.model_validate(given, extra="forbid")

    def of_text(self, text: str, value: Any) -> BaseModel:
        """The model in *text*, whose JSON value is *value*."""
        if self._names is None or not isinstance(value, dict) or self._names.issuperset(value):
            return self.model.model_validate_json(text)
        return self.model.model_validate_json(text, extra="forbid")


def _names_of(model: type[BaseModel]) -> frozenset[str] | None:
    """The names that *model* reads. None where it takes any."""
    config = model.model_config
    if issubclass(model, RootModel) or config.get("extra") == "allow":
        return None
    by_alias = config.get("validate_by_alias") is not False
    by_name = bool(config.get("validate_by_name") or config.get("populate_by_name"))
    found: set[str] = set()
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        if alias is None or by_name or not by_alias:
            found.add(name)
        if alias is not None and by_alias:
            found |= _first_names(alias)
    return frozenset(found)


def _first_names(alias: str | AliasPath | AliasChoices) -> set[str]:
    match alias:
        case str():
            return {alias}
        case AliasPath():
            return {str(alias.path[0])}
        case AliasChoices():
            return set[str]().union(*map(_first_names, alias.choices))


class _Accepts:
    """Acceptance by a model, of JSON values."""

    formats = False

    def __init__(self, reads: ModelReader, arguments: Callable[[BaseModel], dict[str, Any]]) -> None:
        self._reads = reads
        self._arguments = arguments

    def __call__(self, value: Any, /) -> dict[str, Any]:
        return self._arguments(self._reads.of_text(pydantic_core.to_json(value).decode(), value))
