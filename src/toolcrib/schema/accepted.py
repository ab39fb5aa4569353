"""The document of an accepted call: the JSON that was sent, as it is read. Rules, people and digests look at this one.

It is what was validated: after repair, under the names of the input schema, with exact numbers. So it has everything
that the function gets, also what the types themselves hide: excluded fields, init-only ones, what a serializer changes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from .describe import display_name, display_path
from .errors import Problem, refusal
from .exact_json import canonical_json, parse_exact, write_json
from .parse import JSONError, parse_json
from .reading import ABSENT, MASK, Plan, Purpose, Reading
from .repair import Repaired
from .view import pointer
from .written import written

Validate = Callable[..., dict[str, Any]]


class AcceptedDocument:
    """The JSON document of one accepted call.

    *sent* is its JSON, numbers exact; *value* is what *plan* made of it. *defaults* are those of the function, by name.
    """

    def __init__(
        self, sent: Any, value: Any = ABSENT, plan: Plan | None = None, *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._sent = sent
        self._value = value
        self._plan = plan
        self._defaults = defaults or {}

    @cached_property
    def values(self) -> dict[str, Any]:
        """The arguments as JSON values, with the defaults that apply; Decimals where a float has not all the digits."""
        values: dict[str, Any] = self._read("values")
        return values

    @cached_property
    def text(self) -> str:
        """The arguments for a person, with the defaults that apply, as JSON text; values of secret types masked."""
        return write_json(self._read("shown"))

    @cached_property
    def identity(self) -> str:
        """A text that two calls share only if they give the function the same values, made defaults aside."""
        sent = self._sent if self._plan is None else Reading(self._plan, "sent")(self._sent, self._value)
        return canonical_json([sent, self._read("bound")])

    @cached_property
    def decided(self) -> str:
        """`identity` with the defaults that were made for this call."""
        return canonical_json([self.identity, self.values])

    @cached_property
    def complete(self) -> str:
        """The document with the defaults that factories made, as JSON text to be checked again; "" without such."""
        if self._plan is None or not self._plan.has_factories:
            return ""
        reading = Reading(self._plan, "complete")
        document = reading(self._sent, self._value)
        return write_json(document) if reading.is_complete else ""

    def _read(self, purpose: Purpose) -> Any:
        """Return the document, with the defaults of the function too."""
        read = self._sent if self._plan is None else Reading(self._plan, purpose)(self._sent, self._value)
        if not isinstance(read, dict):
            return read
        mask = MASK if purpose == "shown" else None
        missing = {name: value for name, value in self._defaults.items() if name not in read}
        return read | {name: written(value, mask=mask, strict=False) for name, value in missing.items()}


def one_name_each(plan: Plan, validate: Validate) -> Validate:
    """Return *validate*, refusing a field that is given under two of its names. Raises ValidationError."""
    if not plan.has_names:
        return validate

    def validated(text: str | bytes, *, strict: bool | None = None) -> dict[str, Any]:
        value = validate(text, strict=strict)
        require_one_name_each(plan, parse_exact(text), value)
        return value

    return validated


def require_one_name_each(plan: Plan, document: Any, value: Any) -> None:
    """Raise ValidationError for a field that *document* has under two of its names: one of them would be hidden."""
    if not plan.has_names:
        return
    reading = Reading(plan, "sent")
    reading(document, value)
    errors: list[InitErrorDetails] = []
    for path, names in reading.twice:
        listed = " and ".join(f"'{display_name(name)}'" for name in names)
        problem = PydanticCustomError(
            "two_names", "{names} are names of one field; send one of them", {"names": listed}
        )
        errors.append({"type": problem, "loc": path, "input": None})
    if errors:
        raise ValidationError.from_exception_data("arguments", errors)


def exact_decimals(tool: str, plan: Plan, text: str) -> str:
    """Return JSON *text* with those numbers as text that a Decimal would get rounded: pydantic reads them as floats.

    Raises ToolError where only the value of a union decides whether a number is a Decimal.
    """
    if not (plan.decimals and _LONG_NUMBER.search(text)):
        return text
    try:
        parse_json(text)
    except JSONError:
        return text
    return _exact_text(tool, plan, parse_exact(text))


def exact_repaired(tool: str, plan: Plan, text: str, repaired: Repaired) -> Repaired:
    """Return what was *repaired* in *text* with those numbers as text that a Decimal would get rounded.

    Raises ToolError where two numbers in *text* are the same float, and as `exact_decimals` does.
    """
    if not (plan.decimals and _LONG_NUMBER.search(text)):
        return repaired

    def restored(value: Any, path: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {name: restored(member, (*path, name)) for name, member in value.items()}
        if isinstance(value, list):
            return [restored(item, (*path, index)) for index, item in enumerate(value)]
        if type(value) is not float or not (spelled := repaired.respelled.get(written := repr(value))):
            return value
        numbers = {parse_exact(each) for each in ({*spelled, written} if written in text else spelled)}
        if len(numbers) > 1:
            raise refusal(tool, [_inexact(path)])
        return numbers.pop()

    return replace(repaired, value=parse_json(_exact_text(tool, plan, restored(repaired.value, ()))))


def _exact_text(tool: str, plan: Plan, document: Any) -> str:
    reading = Reading(plan, "exact")
    document = reading(document, ABSENT)
    if reading.inexact:
        raise refusal(tool, [_inexact(path) for path in reading.inexact])
    return write_json(document)


_LONG_NUMBER = re.compile(r"\d[\d.]{15}|\d[eE]")
"""What every number has that a float cannot hold."""


def _inexact(path: tuple[str | int, ...]) -> Problem:
    sentence = f"{display_path(path)}: a number has more digits than are read here. Send fewer, or send it as text."
    return Problem(pointer(path), "a shorter number, or text", "number", sentence)
