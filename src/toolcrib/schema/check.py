"""What a model sent → arguments: strict first, then repaired, then explained.

A call that is valid strictly takes the first road and is never altered. The second road is taken only when the first
refused, and ends either with arguments and what was repaired in them, or with every problem named.
"""

from collections.abc import Mapping
from typing import Any

import pydantic_core
from pydantic import ValidationError

from ..core import Check, Checked, Repair, ToolError
from .bare import Validator, validator
from .derive import Arguments
from .explain import Problem, other_problems, pointer, refusal, schema_problems
from .keys import counter
from .repair import Repairer, kind
from .text import LIMIT_BYTES, BadText, TooLong, lossy_numbers, read

Given = str | bytes | Mapping[str, Any] | None


def typed_check(tool: str, arguments: Arguments) -> Check:
    """The check of a function's *arguments*, validated by pydantic straight from JSON text."""
    validate = arguments.adapter.validator.validate_json
    inside = counter(arguments.annotations)
    always_read = not arguments.countable
    second_road = _SecondRoad(tool, arguments.schema, _Typed(arguments))

    def check(given: Given, repair: bool, /) -> Checked:
        text = given if type(given) is str else _text(tool, given)
        try:
            if "N" in text or "I" in text or len(text) > LIMIT_BYTES:
                read(text)  # NaN and Infinity: pydantic lets them through inside models and Any
            checked = validate(text, strict=True)
            keys = text.count(":")
            if always_read or (keys != len(checked) and (inside is None or keys != len(checked) + inside(checked))):
                read(text)  # perhaps a key stands twice
            return checked, ()
        except ValidationError as error:
            return second_road(text, repair, error)
        except BadText as error:
            raise _unreadable(tool, error) from None

    return check


def bare_check(tool: str, schema: Mapping[str, Any]) -> Check:
    """The check of a bare JSON Schema: arguments stay the JSON values they are."""
    accepts = _Bare(schema)
    second_road = _SecondRoad(tool, schema, accepts)

    def check(given: Given, repair: bool, /) -> Checked:
        text = given if type(given) is str else _text(tool, given)
        try:
            value = read(text)
        except BadText as error:
            if not text.strip():
                return second_road(text, repair, None)
            raise _unreadable(tool, error) from None
        if isinstance(value, dict) and accepts.validator.is_valid(value):
            return value, ()
        return second_road(text, repair, None)

    return check


class _Typed:
    """Acceptance by pydantic."""

    def __init__(self, arguments: Arguments) -> None:
        self._validator = arguments.adapter.validator

    def strictly(self, text: bytes, value: Any) -> dict[str, Any]:
        return self._validator.validate_json(text, strict=True)  # type: ignore[no-any-return]

    def leniently(self, text: bytes, value: Any) -> dict[str, Any]:
        return self._validator.validate_json(text, strict=False)  # type: ignore[no-any-return]

    explains_formats = True


class _Bare:
    """Acceptance by a JSON Schema, formats included."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.validator: Validator = validator(schema, formats=True)

    def strictly(self, text: bytes, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not self.validator.is_valid(value):
            raise _Refused
        return value

    leniently = strictly
    explains_formats = False


class _Refused(Exception):
    """A bare schema's no; its reasons are asked for separately."""


class _SecondRoad:
    """Repair, and where that is not enough, explain. Everything it needs is made at its first use."""

    def __init__(self, tool: str, schema: Mapping[str, Any], accepts: _Typed | _Bare) -> None:
        self._tool = tool
        self._schema = schema
        self._accepts = accepts
        self._repairer: Repairer | None = None
        self._explainer: Validator | None = None

    def __call__(self, text: str, repair: bool, error: ValidationError | None) -> Checked:
        empty = not text.strip()
        try:
            value = {} if empty and repair else read(text)
        except BadText as bad:
            raise _unreadable(self._tool, bad) from None
        if not repair:
            raise refusal(self._tool, self._problems(value, error))
        noted = (Repair("", "empty", "object"),) if empty else ()
        self._repairer = self._repairer or Repairer(self._schema)
        mended, repairs = self._repairer.arguments(value, frozenset() if empty else lossy_numbers(text))
        try:
            return self._accepts.strictly(pydantic_core.to_json(mended), mended), noted + repairs
        except (ValidationError, _Refused) as refused:
            last = refused if isinstance(refused, ValidationError) else None
        if not self._schema_errors(mended):
            # The schema that the model was shown admits this; strict reading alone does not (1.0 for an integer).
            try:
                arguments = self._accepts.leniently(pydantic_core.to_json(mended), mended)
                return arguments, noted + repairs + _coercions(last, mended)
            except (ValidationError, _Refused) as refused:
                last = refused if isinstance(refused, ValidationError) else None
        # What could be repaired is no problem; what is still wrong is shown as it was sent.
        raise refusal(self._tool, self._problems(_unmended(value, mended, repairs, last), last))

    def _schema_errors(self, value: Any) -> list[Problem]:
        if self._explainer is None:
            self._explainer = validator(self._schema, formats=not self._accepts.explains_formats)
        return schema_problems(self._explainer.iter_errors(value), self._schema, value)

    def _problems(self, value: Any, error: ValidationError | None) -> list[Problem]:
        problems = self._schema_errors(value)
        if error is not None:
            details: list[Any] = error.errors(include_url=False, include_input=False, include_context=False)
            problems += other_problems(details, value, problems)
        return problems or [Problem("", "the arguments were refused.", "other arguments", kind(value))]


def _text(tool: str, given: Given) -> str:
    if given is None:
        return "{}"
    try:
        if isinstance(given, str):
            return str(given)
        if isinstance(given, bytes | bytearray | memoryview):
            return bytes(given).decode()
        return pydantic_core.to_json(given, by_alias=True).decode()
    except (ValueError, RecursionError) as error:
        said = str(error).partition("\n")[0]
        raise ToolError(
            f"Tool '{tool}': the arguments have no JSON form: {said}. Send one JSON object.", "invalid_arguments"
        ) from None


def _unreadable(tool: str, error: BadText) -> ToolError:
    if isinstance(error, TooLong):
        return ToolError(f"Tool '{tool}': {error}. Send less, or in several calls.", "too_large")
    return ToolError(
        f"Tool '{tool}': the arguments are not valid JSON: {error}. Send one JSON object.", "invalid_arguments"
    )


def _coercions(error: ValidationError | None, value: Any) -> tuple[Repair, ...]:
    """What strict reading had refused, and so what lenient reading changed."""
    found: dict[str, Repair] = {}
    for detail in error.errors(include_url=False, include_context=False) if error else ():
        place = pointer(part for part in detail["loc"] if not isinstance(part, str) or "[" not in part)
        wanted = detail["type"].removesuffix("_type")
        found.setdefault(place, Repair(place, kind(detail["input"]), _KINDS.get(wanted, wanted)))
    return tuple(found.values())


_KINDS = {"int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}


def _unmended(value: Any, mended: Any, repairs: tuple[Repair, ...], error: ValidationError | None) -> Any:
    """*mended* without the repairs of arguments that were refused all the same."""
    if error is None or not isinstance(value, dict) or not isinstance(mended, dict):
        return mended
    refused = {str(detail["loc"][0]) for detail in error.errors(include_url=False) if detail["loc"]}
    return {name: value.get(name, member) if name in refused else member for name, member in mended.items()}
