"""Validates what a model sent: strictly first, then repaired, then refused with every problem named.

A call that is valid strictly is never altered. Repair begins only when strict validation has refused, and ends either
with arguments and what was repaired in them, or with an error.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pydantic_core
from pydantic import ValidationError

from ..core import Check, Checked, Repair, ToolError
from .document import Document, kind
from .duplicate_keys import unique_keys_test
from .errors import Path, Problem, locate, problems, refusal
from .from_python import Arguments
from .json_schema_validator import Validator, validator
from .parse import LIMIT_BYTES, JSONError, JSONTooLong, parse_json
from .repair import repair, with_integers

RawArguments = str | bytes | Mapping[str, Any] | None

_SURELY_SHORT = LIMIT_BYTES // 4
"""As many characters have at most `LIMIT_BYTES` bytes."""


def arguments_check(tool: str, arguments: Arguments) -> Check:
    """Return the check of a function's *arguments*, validated by pydantic straight from JSON text."""
    validate = arguments.validator.validate_json
    has_unique_keys = unique_keys_test(arguments.annotations)
    always_read = not arguments.countable or _takes_anything(arguments.schema)
    # What is always read, or refused by every float, need not be searched for what is not a number. In a name that
    # pydantic ignores it would be missed; but then not every colon has its key, and the text is read.
    searched = not (always_read or arguments.finite)
    recover = Recovery(tool, arguments.schema, lambda value: validate(pydantic_core.to_json(value), strict=True))

    def check(raw: RawArguments, repairs: bool, /) -> Checked:
        text = raw if type(raw) is str else to_json_text(tool, raw)
        try:
            if len(text) > _SURELY_SHORT or (searched and ("NaN" in text or "Infinity" in text)):
                parse_json(text)
            checked = validate(text, strict=True)
            if always_read or not has_unique_keys(text, checked):
                parse_json(text)  # perhaps a key appears twice, or a number is too large
            return checked, ()
        except ValidationError as error:
            return recover(text, repairs, error)
        except JSONError as error:
            raise unreadable(tool, error) from None

    return check


def json_schema_check(tool: str, schema: Mapping[str, Any]) -> Check:
    """Return the check of a bare JSON Schema: arguments stay the JSON values they are."""
    accepts: Validator = validator(schema, formats=True)

    def accept(value: Any) -> dict[str, Any] | None:
        return value if isinstance(value, dict) and accepts.is_valid(value) else None

    recover = Recovery(tool, schema, accept, formats=True)

    def check(raw: RawArguments, repairs: bool, /) -> Checked:
        text = raw if type(raw) is str else to_json_text(tool, raw)
        try:
            value = parse_json(text)
        except JSONError as error:
            if not text.strip():
                return recover(text, repairs, None)
            raise unreadable(tool, error) from None
        if isinstance(value, dict) and accepts.is_valid(value):
            return value, ()
        return recover(text, repairs, None)

    return check


class Recovery:
    """Repairs refused arguments, and where that is not enough, explains them.

    *accept* turns JSON values into arguments. It raises ValidationError, or returns None where only the *schema* can
    give the reasons. *formats*: it judges the formats of the schema too.
    """

    def __init__(
        self,
        tool: str,
        schema: Mapping[str, Any],
        accept: Callable[[Any], dict[str, Any] | None],
        *,
        formats: bool = False,
    ) -> None:
        self._tool = tool
        self._schema = schema
        self._accept = accept
        self._formats = formats

    @functools.cached_property
    def _document(self) -> Document:
        return Document(self._schema, formats=self._formats)

    def __call__(self, text: str, repairs: bool, error: ValidationError | None) -> Checked:
        empty = repairs and not text.strip()
        try:
            value = {} if empty else parse_json(text)
        except JSONError as bad:
            raise unreadable(self._tool, bad) from None
        if not repairs:
            raise self._refusal(value, error)
        repaired = repair(value, text, self._document, refused=_refused_names(error))
        arguments = None
        if empty or repaired.repairs or error is None:
            arguments, error = self._accepted(repaired.value)
        if error is not None and (places := _integers_expected(error, repaired.value)):
            # The schema that the model was shown takes 1.0 for an integer; strict reading does not.
            whole = with_integers(repaired, places)
            if whole is not repaired:
                repaired = whole
                arguments, error = self._accepted(repaired.value)
        if arguments is None:
            # What could be repaired is no problem.
            raise self._refusal(repaired.value, error)
        return arguments, ((Repair("", "empty", "object"),) if empty else ()) + repaired.repairs

    def _accepted(self, value: Any) -> tuple[dict[str, Any] | None, ValidationError | None]:
        try:
            return self._accept(value), None
        except ValidationError as error:
            return None, error

    def _refusal(self, value: Any, error: ValidationError | None) -> ToolError:
        found = problems(self._document, value, error)
        unknown = Problem("", "other arguments", kind(value), "the arguments do not match its schema.")
        return refusal(self._tool, found or [unknown])


def _refused_names(error: ValidationError | None) -> frozenset[str] | None:
    """The arguments that pydantic refused, by name. None where it could be any."""
    if error is None or error.error_count() > 10_000:
        return None
    places = [detail["loc"] for detail in error.errors(include_url=False, include_input=False)]
    return frozenset(str(place[0]) for place in places) if all(places) else None


def _integers_expected(error: ValidationError, value: Any) -> list[Path]:
    """The places of those numbers in *value* that should be integers, by *error*."""
    details = error.errors(include_url=False, include_context=False)
    floats = (detail for detail in details if detail["type"] == "int_type" and isinstance(detail["input"], float))
    return [locate(detail["loc"], value)[0] for detail in floats]


def to_json_text(tool: str, raw: RawArguments) -> str:
    """Return *raw* as JSON text. Raises ToolError for what has no JSON form."""
    if raw is None:
        return "{}"
    try:
        if isinstance(raw, str):
            return str(raw)
        if isinstance(raw, bytes | bytearray | memoryview):
            return bytes(raw).decode()
        return pydantic_core.to_json(raw, by_alias=True, fallback=_as_dict).decode()
    except UnicodeDecodeError as error:
        raise unreadable(tool, JSONError(f"byte {error.start + 1} of it is not UTF-8")) from None
    except (ValueError, RecursionError) as error:
        message = str(error).removeprefix("Error serializing to JSON: ").removeprefix("ValueError: ")
        reason = next((better for sign, better in _NO_JSON.items() if sign in message), message)
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
"""What pydantic's messages of values without a JSON form contain, and better messages."""


def unreadable(tool: str, error: JSONError) -> ToolError:
    """Return the error for text that cannot be parsed."""
    if isinstance(error, JSONTooLong):
        return ToolError(f"Tool '{tool}': {error}. Send less, or in several calls.", "too_large")
    return _invalid(tool, f"the arguments are not valid JSON: {error}. Send one JSON object.")


def _invalid(tool: str, sentence: str) -> ToolError:
    return refusal(tool, [Problem("", "one JSON object", "text", sentence)])


def _takes_anything(schema: Any) -> bool:
    """Whether a schema leaves some value open: there pydantic reads whatever comes, `1e999` as infinity too."""
    if not isinstance(schema, dict):
        return schema is True
    if not schema.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}:
        return True
    parts = [schema[word] for word in ("items", "additionalProperties") if word in schema]
    parts += [part for word in ("prefixItems", "anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    parts += [part for word in ("properties", "patternProperties", "$defs") for part in schema.get(word, {}).values()]
    return any(map(_takes_anything, parts))
