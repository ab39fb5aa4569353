"""What a model sent → arguments: strict first, then repaired, then explained.

A call that is valid strictly takes the first road and is never altered. The second road is taken only when the first
refused, and ends either with arguments and what was repaired in them, or with every problem named.
"""

import functools
from collections.abc import Mapping
from typing import Any, Protocol

import pydantic_core
from pydantic import ValidationError

from ..core import Check, Checked, Repair, ToolError
from .bare import Validator, validator
from .derive import Arguments
from .document import Document, kind
from .explain import Path, Problem, in_question, lead, other_problems, problems, refusal
from .keys import counter, most_keys
from .repair import mend, with_integers
from .text import LIMIT_BYTES, BadText, TooLong, read

Given = str | bytes | Mapping[str, Any] | None

_SURELY_SHORT = LIMIT_BYTES // 4
"""As many characters have at most `LIMIT_BYTES` bytes."""


def typed_check(tool: str, arguments: Arguments) -> Check:
    """The check of a function's *arguments*, validated by pydantic straight from JSON text."""
    validate = arguments.validator.validate_json
    inside = counter(arguments.annotations)
    always_read = not arguments.countable or _takes_anything(arguments.schema)
    # What is always read, or refused by every float, need not be searched for what is no number. In a name that
    # pydantic ignores it would be missed; but then not every colon has its key, and the text is read.
    searched = not (always_read or arguments.finite)
    second_road = SecondRoad(tool, arguments.schema, _Typed(arguments))

    def check(given: Given, repair: bool, /) -> Checked:
        text = given if type(given) is str else text_of(tool, given)
        try:
            if len(text) > _SURELY_SHORT or (searched and ("NaN" in text or "Infinity" in text)):
                read(text)
            checked = validate(text, strict=True)
            keys, colons = len(checked), text.count(":")
            if keys != colons or always_read:
                if inside is not None:
                    keys += inside(checked)
                if always_read or (keys != colons and keys != most_keys(text)):
                    read(text)  # perhaps a key stands twice, or a number is too large
            return checked, ()
        except ValidationError as error:
            return second_road(text, repair, error)
        except BadText as error:
            raise unreadable(tool, error) from None

    return check


def bare_check(tool: str, schema: Mapping[str, Any]) -> Check:
    """The check of a bare JSON Schema: arguments stay the JSON values they are."""
    accepts = _Bare(schema)
    second_road = SecondRoad(tool, schema, accepts)

    def check(given: Given, repair: bool, /) -> Checked:
        text = given if type(given) is str else text_of(tool, given)
        try:
            value = read(text)
        except BadText as error:
            if not text.strip():
                return second_road(text, repair, None)
            raise unreadable(tool, error) from None
        if isinstance(value, dict) and accepts.validator.is_valid(value):
            return value, ()
        return second_road(text, repair, None)

    return check


class _Typed:
    """Acceptance by pydantic, which judges formats itself."""

    formats = False

    def __init__(self, arguments: Arguments) -> None:
        self._validate = arguments.validator.validate_json

    def __call__(self, value: Any) -> dict[str, Any]:
        return self._validate(pydantic_core.to_json(value), strict=True)  # type: ignore[no-any-return]


class _Bare:
    """Acceptance by a JSON Schema, formats included."""

    formats = True

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.validator: Validator = validator(schema, formats=True)

    def __call__(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not self.validator.is_valid(value):
            raise _Refused
        return value


class _Refused(Exception):
    """A bare schema's no; its reasons are asked for separately."""


class Accepts(Protocol):
    """Acceptance of JSON values. Raises ValidationError, or what says that there are no reasons to give."""

    @property
    def formats(self) -> bool:
        """Whether the formats of the schema are judged too."""
        ...

    def __call__(self, value: Any, /) -> dict[str, Any]: ...


class SecondRoad:
    """Repair, and where that is not enough, explain. The schema is taken apart at the first use."""

    def __init__(self, tool: str, schema: Mapping[str, Any], accepts: Accepts) -> None:
        self._tool = tool
        self._schema = schema
        self._accepts = accepts

    @functools.cached_property
    def _document(self) -> Document:
        return Document(self._schema, formats=self._accepts.formats)

    def __call__(self, text: str, repair: bool, error: ValidationError | None) -> Checked:
        empty = repair and not text.strip()
        try:
            value = {} if empty else read(text)
        except BadText as bad:
            raise unreadable(self._tool, bad) from None
        if not repair:
            raise refusal(self._tool, self._problems(value, error))
        mended = mend(value, text, self._document, refused=_refused_names(error))
        unchanged = not empty and not mended.repairs
        arguments, last = (None, error) if error is not None and unchanged else self._accepted(mended.value)
        if last is not None and (whole := with_integers(mended, _integers_wanted(last, mended.value))) is not mended:
            # The schema that the model was shown takes 1.0 for an integer; strict reading does not.
            mended = whole
            arguments, last = self._accepted(mended.value)
        if arguments is None:
            # What could be repaired is no problem.
            raise refusal(self._tool, self._problems(mended.value, last))
        return arguments, ((Repair("", "empty", "object"),) if empty else ()) + mended.repairs

    def _accepted(self, value: Any) -> tuple[dict[str, Any] | None, ValidationError | None]:
        try:
            return self._accepts(value), None
        except ValidationError as error:
            return None, error
        except _Refused:
            return None, None

    def _problems(self, value: Any, error: ValidationError | None) -> list[Problem]:
        found = problems(self._document, value)
        if error is not None and error.error_count() <= _LISTED:
            details = _details(error)
            # A validator may take what the schema does not show: what it took is no problem.
            found = in_question(found, details, value)
            found += other_problems(details, value, found)
        return found or [Problem("", "the arguments are not what its schema admits.", "other arguments", kind(value))]


_LISTED = 10_000
"""More errors of pydantic than these are not gone through one by one."""


def _refused_names(error: ValidationError | None) -> frozenset[str] | None:
    """The arguments that pydantic refused, by name. None where it could be any."""
    if error is None or error.error_count() > _LISTED:
        return None
    places = [detail["loc"] for detail in _details(error)]
    return frozenset(str(place[0]) for place in places) if all(places) else None


def _integers_wanted(error: ValidationError, value: Any) -> list[Path]:
    """The places of those numbers in *value* of which *error* says that they should be integers."""
    details = error.errors(include_url=False, include_context=False)
    wanted = (detail for detail in details if detail["type"] == "int_type" and isinstance(detail["input"], float))
    return [lead(detail["loc"], value)[0] for detail in wanted]


def _details(error: ValidationError) -> list[Any]:
    return error.errors(include_url=False, include_input=False)


def text_of(tool: str, given: Given) -> str:
    """What was *given* as JSON text. Raises ToolError for what has none."""
    if given is None:
        return "{}"
    try:
        if isinstance(given, str):
            return str(given)
        if isinstance(given, bytes | bytearray | memoryview):
            return bytes(given).decode()
        return pydantic_core.to_json(given, by_alias=True, fallback=_as_dict).decode()
    except UnicodeDecodeError as error:
        raise unreadable(tool, BadText(f"byte {error.start + 1} of it is not UTF-8")) from None
    except (ValueError, RecursionError) as error:
        said = str(error).removeprefix("Error serializing to JSON: ").removeprefix("ValueError: ")
        reason = next((words for sign, words in _NO_JSON.items() if sign in said), said)
        raise _invalid(tool, f"the arguments have no JSON form: {reason}. Send one JSON object.") from None


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(f"a value of type {type(value).__name__} has none")


_NO_JSON = {
    "surrogates not allowed": "a lone surrogate (half of a character) is among them",
    "Circular reference": "something among them contains itself",
    "depth exceeded": "they are nested too deeply",
    "recursion": "they are nested too deeply",
    "utf-8": "some bytes among them are not UTF-8",
}
"""What pydantic says of values that have no JSON form, in better words."""


def unreadable(tool: str, error: BadText) -> ToolError:
    """What is told of text that is not read."""
    if isinstance(error, TooLong):
        return ToolError(f"Tool '{tool}': {error}. Send less, or in several calls.", "too_large")
    return _invalid(tool, f"the arguments are not valid JSON: {error}. Send one JSON object.")


def _invalid(tool: str, sentence: str) -> ToolError:
    return refusal(tool, [Problem("", sentence, "one JSON object", "text")])


def _takes_anything(schema: Any) -> bool:
    """Whether a schema says nothing of some value: there pydantic reads whatever comes, `1e999` as infinity too."""
    if not isinstance(schema, dict):
        return schema is True
    if not schema.keys() & _SAYING:
        return True
    parts = [schema[word] for word in ("items", "additionalProperties") if word in schema]
    parts += [part for word in ("prefixItems", "anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    parts += [part for word in ("properties", "patternProperties", "$defs") for part in schema.get(word, {}).values()]
    return any(map(_takes_anything, parts))


_SAYING = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})
