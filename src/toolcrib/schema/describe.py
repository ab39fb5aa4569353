"""Schemas, places and names in words, for models and people. No value is quoted here."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .document import Document

SHOWN = 20
"""How many names, choices or problems one sentence or answer lists."""

ANY = "any value"
_DEEPEST = 6


def describe(schema: Any, root: Mapping[str, Any]) -> str:
    """Describe in a few words what *schema*, a part of *root*, expects."""
    return describe_at(Document({**root, "$toolcrib": schema}, formats=False), "/$toolcrib")


def describe_at(document: Document, place: str, *, depth: int = 0) -> str:
    """Describe in a few words what is expected at *place*."""
    *beside, place = document.chain(place)
    schema = document.at(place)
    if document.forbids(place):
        return "nothing"
    if depth > _DEEPEST:
        return ANY
    if "enum" in schema or "const" in schema:
        return one_of(choices(document, place))
    for union in ("anyOf", "oneOf"):
        if union in schema:
            branches = list(document.alternatives(place, union))
            words = [describe_at(document, branch, depth=depth + 1) for branch in branches]
            if len(set(words)) < len(words):
                words = [_with_keys(document, *pair) for pair in zip(branches, words, strict=True)]
            return either(words)
    if len(every := document.branches(place, "allOf")) == 1 and "type" not in schema:
        return describe_at(document, every[0], depth=depth + 1)
    named = schema.get("type")
    if isinstance(named, list):
        return either(named)
    if not isinstance(named, str):
        return ANY
    if named == "array" and isinstance(schema.get("items"), dict):
        named = f"array of {describe_at(document, f'{place}/items', depth=depth + 1)}"
    keywords = [(word, limit) for step in (place, *beside) for word, limit in document.at(step).items()]
    limits = [LIMITS[word](limit) for word, limit in keywords if word in LIMITS]
    if "format" in schema:
        limits.insert(0, display_name(schema["format"]))
    return f"{named} ({', '.join(limits)})" if limits and depth < 3 else named


def _with_keys(document: Document, place: str, words: str) -> str:
    """An object's description with its keys, by which several objects are told apart."""
    keys = list(document.at(document.resolved(place)).get("properties", {}))
    return f"{words} {{{', '.join(map(display_name, keys[:6]))}}}" if keys else words


def choices(document: Document, place: str, *, depth: int = 0) -> list[Any]:
    """List the values that are named at *place* as admitted, in unions too."""
    place = document.resolved(place)
    schema = document.at(place)
    if depth > _DEEPEST:
        return []
    if "const" in schema:
        return [schema["const"]]
    listed = list(schema.get("enum", ()))
    for union in ("anyOf", "oneOf"):
        for branch in document.branches(place, union):
            listed += choices(document, branch, depth=depth + 1)
    return listed


def one_of(listed: Sequence[Any]) -> str:
    """Choices, as JSON."""
    shown = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in listed[:SHOWN])
    more = f" … ({len(listed)} in all)" if len(listed) > SHOWN else ""
    return f"one of {shown}{more}" if len(listed) > 1 else shown


def either(words: Iterable[str]) -> str:
    """Alternatives, each once."""
    *firsts, last = list(dict.fromkeys(words)) or [ANY]
    return f"{', '.join(firsts)} or {last}" if firsts else last


def display_path(path: Sequence[str | int]) -> str:
    """Display a place in the arguments as a program would write it: `'rows[2].name'`."""
    if not path:
        return "the arguments"
    written = ""
    for part in path:
        if isinstance(part, int):
            written += f"[{part}]"
        elif not written:
            written = display_name(part)
        else:
            written += f".{part}" if re.fullmatch(r"[\w-]{1,64}", part) else f'["{display_name(part)}"]'
    return f"'{written if len(written) <= 200 else '…' + written[-200:]}'"


def display_name(name: str) -> str:
    """Display a name that came from outside, short and on one line."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[:64])
    return plain + ("…" if len(name) > 64 else "")


def closest_match(name: str, names: Iterable[str]) -> str | None:
    """Return the one of *names* that *name* is probably a misspelling of."""
    known = {candidate.lower().replace("-", "_"): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower().replace("-", "_")[:100], known, n=1, cutoff=0.6)
    return known[close[0]] if close else None


def did_you_mean(match: str | None, mark: str = "'") -> str:
    """A question that proposes *match*; nothing where there is none."""
    return f" Did you mean {mark}{display_name(match)}{mark}?" if match is not None else ""


def _count(amount: str, one: str, many: str) -> Callable[[Any], str]:
    return lambda limit: f"{amount} {limit} {one if limit == 1 else many}"


LIMITS: Mapping[str, Callable[[Any], str]] = {
    "minimum": lambda limit: f"at least {limit}",
    "maximum": lambda limit: f"at most {limit}",
    "exclusiveMinimum": lambda limit: f"more than {limit}",
    "exclusiveMaximum": lambda limit: f"less than {limit}",
    "multipleOf": lambda limit: f"a multiple of {limit}",
    "minLength": _count("at least", "character", "characters"),
    "maxLength": _count("at most", "character", "characters"),
    "pattern": lambda limit: f"text that matches {limit}",
    "minItems": _count("at least", "item", "items"),
    "maxItems": _count("at most", "item", "items"),
    "uniqueItems": lambda _: "items that differ from one another",
    "minProperties": _count("at least", "property", "properties"),
    "maxProperties": _count("at most", "property", "properties"),
}
"""Keywords that hold a limit, and how each is worded."""
