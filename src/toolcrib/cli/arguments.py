"""What was written behind a tool's name → the arguments of a call.

`key=value` is text where the schema admits text, and otherwise JSON. Everything else about arguments is the check's.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import LoadError
from .usage import UsageError

FORMS = 'key=value, key=@file, one JSON object \'{"key": "value"}\', @file.json, or - for standard input'

_EVERY_KIND = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})


@dataclass(frozen=True, slots=True)
class Written:
    """Arguments as they were written: one JSON text, or texts by key. Files are read by then."""

    json: str | None
    by_key: Mapping[str, Sequence[str]]


def read_written(arguments: Sequence[str]) -> Written:
    """Raises UsageError for what has none of the forms, LoadError for what cannot be read."""
    if not arguments:
        return Written(None, {})
    for argument in arguments:
        _require_text(argument)
    first = arguments[0]
    if first == "-" or first.startswith(("{", "@")):
        if len(arguments) > 1:
            raise UsageError(f"'{first[:40]}' is all the arguments, so nothing else can stand beside it.")
        return Written(first if first.startswith("{") else _content(first.removeprefix("@")), {})
    by_key: dict[str, list[str]] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key or key.startswith(("{", "[", '"', "@")):
            raise UsageError(f"'{argument[:40]}' is no argument. Write {FORMS}.")
        by_key.setdefault(key, []).append(_content(value[1:], key=key) if value.startswith("@") else value)
    return Written(None, by_key)


def given(written: Written, schema: Mapping[str, Any]) -> str | dict[str, Any]:
    """What *written* means under *schema*, for `Workbench.call`."""
    if written.json is not None:
        return written.json
    reader = Reader(schema)
    return {key: reader.values(texts, reader.place_of(key)) for key, texts in written.by_key.items()}


class Reader:
    """Reads texts as the values that a schema admits. A place in it is a JSON pointer (RFC 6901)."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from ..schema.document import Document

        self._document = Document(schema, formats=False)

    def place_of(self, key: str) -> str:
        named = key in self._document.at("/properties")
        return f"/properties/{_token(key)}" if named else "/additionalProperties"

    def values(self, texts: Sequence[str], place: str) -> Any:
        if len(texts) == 1:
            return self._value(texts[0], place)
        return [self._value(text, self._item(place, index)) for index, text in enumerate(texts)]

    def members(self) -> dict[str, tuple[str, bool]]:
        """The fields of an object, each with its place and whether it has to be there; none for another schema."""
        root = self._document.resolved("")
        schema = self._document.at(root)
        if self._kinds("") != frozenset({"object"}):
            return {}
        required = schema.get("required", ())
        names: list[str] = list(schema.get("properties", ()))
        return {name: (f"{root}/properties/{_token(name)}", name in required) for name in names}

    def admits(self, value: Any, place: str) -> bool:
        return self._document.valid(value, place)

    def described(self, place: str) -> str:
        from ..schema.words import describe_at

        return describe_at(self._document, place)

    def note(self, place: str) -> str:
        """What the schema says of *place* for people."""
        return str(self._document.at(place).get("description", "")) if place else ""

    def is_flag(self, place: str) -> bool:
        return "boolean" in self._kinds(place)

    def is_secret(self, place: str) -> bool:
        """Whether what is typed should not be seen, as pydantic's SecretStr says."""
        schema = self._document.at(self._document.resolved(place))
        return schema.get("format") == "password" or schema.get("writeOnly") is True

    def _value(self, text: str, place: str, depth: int = 0) -> Any:
        kinds = self._kinds(place)
        is_json, value, kind = _parsed(text)
        if "string" in kinds:
            # An enumeration of texts and numbers admits both, but not each.
            valid = self._document.valid
            return value if is_json and not valid(text, place) and valid(value, place) else text
        if "array" in kinds and kind not in kinds and depth < 8:
            return [self._value(text, self._item(place, 0), depth + 1)]
        return value if is_json else text

    def _kinds(self, place: str, depth: int = 0) -> frozenset[str]:
        """The JSON types that are admitted at *place*, as far as it names them."""
        place = self._document.resolved(place)
        schema = self._document.at(place)
        if not isinstance(schema, dict) or depth > 8:
            return _EVERY_KIND
        named = self._document.kinds(place)
        kinds = (named | {"integer"} if "number" in named else named) or _EVERY_KIND
        for union in ("anyOf", "oneOf"):
            if union in schema:
                branches = self._document.branches(place, union)
                kinds &= frozenset().union(*(self._kinds(branch, depth + 1) for branch in branches))
        for part in self._document.branches(place, "allOf"):
            kinds &= self._kinds(part, depth + 1)
        return kinds

    def _item(self, place: str, index: int, depth: int = 0) -> str:
        place = self._document.resolved(place)
        firsts = self._document.branches(place, "prefixItems")
        if index < len(firsts):
            return firsts[index]
        branches = [branch for which in ("anyOf", "oneOf", "allOf") for branch in self._document.branches(place, which)]
        lists = [branch for branch in branches if "array" in self._kinds(branch)]
        return self._item(lists[0], index, depth + 1) if len(lists) == 1 and depth < 8 else f"{place}/items"


def _token(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _parsed(text: str) -> tuple[bool, Any, str]:
    """Whether *text* is JSON, and which value of which kind."""
    from ..schema.document import kind
    from ..schema.text import BadText, read

    try:
        value = read(text)
    except BadText:
        return False, None, ""
    return True, value, kind(value)


def _content(name: str, *, key: str | None = None) -> str:
    """The text of a file, or of standard input for `-`."""
    what = "standard input" if name == "-" else f"'{name}'"
    instead = (
        ""
        if key is None
        else f' To send text that begins with @, write the arguments as JSON: \'{{"{key}": "@..."}}\'.'
    )
    try:
        if name != "-":
            content = Path(name).read_bytes()
        elif sys.stdin is None:
            raise OSError(None, "it is closed")
        else:
            content = sys.stdin.buffer.read()
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise LoadError(f"{what} is not UTF-8 text (at byte {error.start + 1}), so it cannot be sent.") from None
        said = getattr(error, "strerror", None) or str(error)
        raise LoadError(f"{what} cannot be read: {said}.{instead}") from None


def _require_text(argument: str) -> None:
    if re.search("[\ud800-\udfff]", argument):
        raise UsageError(f"'{argument[:40]}' is not UTF-8 text. Put it into a file and write key=@file.")
