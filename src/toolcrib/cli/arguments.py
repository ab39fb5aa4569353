"""The words after a command → sources, the tool's name, and the arguments of the call.

`key=value` is text where the schema admits text, and otherwise JSON. Everything else about arguments is the check's.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import LoadError
from .terminal import UsageError

_FORMS = 'key=value, key=@file, one JSON object \'{"key": "value"}\', @file.json, or - for standard input'
_ANY_KIND = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})


def is_source(word: str) -> bool:
    """Whether a word before the tool's name is a source, and not that name: it has `.`, `/` or `:`, and no `=`."""
    return any(mark in word for mark in "./:") and "=" not in word and not word.startswith(("{", "@", "-"))


@dataclass(frozen=True, slots=True)
class Words:
    """The words of `[SOURCE...] TOOL [ARGUMENT...]`."""

    sources: tuple[str, ...]
    tool: str | None
    arguments: tuple[str, ...]


def read_words(words: Sequence[str], tool: str | None = None) -> Words:
    """Split *words*; where `--tool` names the *tool*, there is no name among them."""
    count = next((at for at, word in enumerate(words) if not is_source(word)), len(words))
    sources, rest = tuple(words[:count]), tuple(words[count:])
    if tool is not None or not rest or "=" in rest[0]:
        return Words(sources, tool, rest)
    return Words(sources, rest[0], rest[1:])


def require_tool(words: Words, command: str) -> str:
    """The name of the tool. Raises UsageError, with the forms that work, where there is none."""
    if words.tool is not None:
        return words.tool
    if not words.sources:
        raise UsageError(f"Missing argument 'TOOL'. Try: toolcrib {command} --help")
    last = words.sources[-1]
    way_out = "" if last.endswith((".py", "/")) else f". If '{last[:60]}' is a tool: --tool {last[:60]}"
    raise UsageError(
        f"The name of the tool is missing after {last[:60]}. Write: toolcrib {command} {' '.join(words.sources)} TOOL. "
        f"To see the tools: toolcrib list {' '.join(words.sources)}{way_out}"
    )


@dataclass(frozen=True, slots=True)
class WrittenArguments:
    """Arguments as they were written: one JSON text, or texts by key. Files have been read."""

    json: str | None
    by_key: Mapping[str, Sequence[str]]


def read_arguments(arguments: Sequence[str], *, tool: str) -> WrittenArguments:
    """Raises UsageError for words of another form, LoadError for what cannot be read."""
    if not arguments:
        return WrittenArguments(None, {})
    for argument in arguments:
        if re.search("[\ud800-\udfff]", argument):
            raise UsageError(f"'{argument[:40]}' is not UTF-8 text. Put it into a file and write key=@file.")
    first = arguments[0]
    if first == "-" or first.startswith(("{", "@")):
        if len(arguments) > 1:
            raise UsageError(f"'{first[:40]}' gives all arguments at once, so nothing can be beside it.")
        return WrittenArguments(first if first.startswith("{") else _content(first.removeprefix("@")), {})
    by_key: dict[str, list[str]] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key or key.startswith(("{", "[", '"', "@")):
            way_out = "" if by_key else f" If '{tool[:40]}' is a source, write: -s {tool[:40]}"
            if is_source(argument) and not argument[0].isdigit():
                way_out = f" A source goes before the tool: {argument[:40]} {tool[:40]}"
            raise UsageError(f"'{argument[:40]}' is not an argument. Write {_FORMS}.{way_out}")
        by_key.setdefault(key, []).append(_content(value[1:], key=key) if value.startswith("@") else value)
    return WrittenArguments(None, by_key)


def to_json(written: WrittenArguments, schema: Mapping[str, Any]) -> str | dict[str, Any]:
    """The arguments for `Workbench.call`, read as *schema* has them. Raises UsageError for keys that contradict."""
    if written.json is not None:
        return written.json
    reader = SchemaReader(schema)
    arguments: dict[str, Any] = {}
    for key, texts in written.by_key.items():
        steps, place = reader.path_of(key)
        parent = arguments
        for step in steps[:-1]:
            parent = parent.setdefault(step, {})
            if not isinstance(parent, dict):
                break
        if not isinstance(parent, dict) or steps[-1] in parent:
            raise UsageError(f"'{steps[0]}' is given as a whole and by its members. Give it one way.")
        parent[steps[-1]] = reader.value(texts, place)
    return arguments


class SchemaReader:
    """Reads texts as the values that a schema admits. A place in it is a JSON pointer (RFC 6901)."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from ..schema.document import Document

        self._document = Document(schema, formats=False)

    def path_of(self, key: str) -> tuple[tuple[str, ...], str]:
        """The names that *key* stands for, and the place of its value: `issue.title` is a member of the object `issue`.

        An argument that has a dot in its own name goes before.
        """
        whole = (key,), self._member("", key) or "/additionalProperties"
        if self._member("", key, listed=True) or "." not in key:
            return whole
        from ..schema.document import names_at

        steps, place = key.split("."), ""
        for step in steps:
            found = self._member(place, step)
            if not step or (place and "object" not in self._kinds(place)):
                return whole
            if found is None and not (place and names_at(self._document, place, {}).known):
                return whole
            place = found or f"{place}/additionalProperties"  # a misspelt member, which the check explains
        return tuple(steps), place

    def value(self, texts: Sequence[str], place: str) -> Any:
        """The value of a key: several texts are the items of a list."""
        if len(texts) == 1:
            return self._value(texts[0], place)
        return [self._value(text, self._item(place, index)) for index, text in enumerate(texts)]

    def members(self) -> dict[str, tuple[str, bool]]:
        """The fields of an object, each with its place and whether it is required; none for another schema."""
        root = self._document.resolved("")
        schema = self._document.at(root)
        if self._kinds("") != frozenset({"object"}):
            return {}
        required = schema.get("required", ())
        names: list[str] = list(schema.get("properties", ()))
        return {name: (f"{root}/properties/{_token(name)}", name in required) for name in names}

    def choices(self, place: str) -> list[str]:
        """The values that are listed at *place*, as they are typed; none where any other is admitted too."""
        from ..schema.describe import choices

        if "boolean" in self._kinds(place):
            return ["true", "false"]
        return [choice if isinstance(choice, str) else str(choice) for choice in choices(self._document, place)]

    def admits(self, value: Any, place: str) -> bool:
        return self._document.valid(value, place)

    def described(self, place: str) -> str:
        from ..schema.describe import describe_at

        return describe_at(self._document, place)

    def note(self, place: str) -> str:
        """The description of *place*, for people."""
        return str(self._document.at(place).get("description", "")) if place else ""

    def is_flag(self, place: str) -> bool:
        return "boolean" in self._kinds(place)

    def is_secret(self, place: str) -> bool:
        """Whether what is typed should not be shown: pydantic's SecretStr is such a value."""
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
            return self._items(text, place, depth + 1)
        return value if is_json else text

    def _items(self, text: str, place: str, depth: int) -> list[Any]:
        """The one item that *text* is; or several, where it is none, and its parts between commas are."""
        first = self._value(text, self._item(place, 0), depth)
        if "," in text and not self.admits(first, self._item(place, 0)):
            parts = [part.strip() for part in text.split(",")]
            places = [self._item(place, index) for index in range(len(parts))]
            values = [self._value(part, at, depth) for part, at in zip(parts, places, strict=True)]
            if all(map(self.admits, values, places)):
                return values
        return [first]

    def _kinds(self, place: str, depth: int = 0) -> frozenset[str]:
        """The JSON types that are admitted at *place*, as far as it names them."""
        place = self._document.resolved(place)
        schema = self._document.at(place)
        if not isinstance(schema, dict) or depth > 8:
            return _ANY_KIND
        named = self._document.kinds(place)
        kinds = (named | {"integer"} if "number" in named else named) or _ANY_KIND
        for union in ("anyOf", "oneOf"):
            if union in schema:
                branches = self._document.branches(place, union)
                kinds &= frozenset().union(*(self._kinds(branch, depth + 1) for branch in branches))
        for part in self._document.branches(place, "allOf"):
            kinds &= self._kinds(part, depth + 1)
        return kinds

    def _member(self, place: str, name: str, *, listed: bool = False, depth: int = 0) -> str | None:
        """The place of the member *name* of an object at *place*; with *listed*, only if it is named there."""
        place = self._document.resolved(place)
        found = self._document.member_places(name, place)
        if found and not (listed and found[0].endswith("/additionalProperties")):
            return found[0]
        branches = [branch for which in ("anyOf", "oneOf", "allOf") for branch in self._document.branches(place, which)]
        inside = (self._member(branch, name, listed=True, depth=depth + 1) for branch in branches if depth < 8)
        return next((each for each in inside if each is not None), None)

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
    from ..schema.parse import JSONError, parse_json

    try:
        value = parse_json(text)
    except JSONError:
        return False, None, ""
    return True, value, kind(value)


def _content(name: str, *, key: str | None = None) -> str:
    """The text of a file, or of standard input for `-`."""
    what = "standard input" if name == "-" else f"'{name}'"
    as_json = f'\'{{"{key}": "@..."}}\''
    way_out = "" if key is None else f" To send text that begins with @, write the arguments as JSON: {as_json}."
    try:
        if name != "-":
            content = Path(name).read_bytes()
        elif sys.stdin is None:
            raise OSError(None, "it is closed")
        else:
            content = sys.stdin.buffer.read()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LoadError(f"{what} is not UTF-8 text (at byte {error.start + 1}), so it cannot be sent.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LoadError(f"{what} cannot be read: {reason}.{way_out}") from None
