"""Schemas, places and names in words, for models and people. No value is quoted here."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Any

from .view import SchemaView

SHOWN = 20
"""How many names, choices or problems one sentence or answer lists."""

ANY = "any value"
_MAX_DEPTH = 6
MAX_NAMES = 5_000
_MAX_COMPARED, _MAX_NAME_CHARS, _MAX_PAIRS = 20, 100, 24
"""Of how many names the closest is looked for; how many of these are compared letter by letter, and by how much."""


def describe(schema: Any, root: Mapping[str, Any]) -> str:
    """Describe in a few words what *schema*, a part of *root*, expects."""
    return describe_at(SchemaView({**root, "$toolcrib": schema}).at("$toolcrib"))


def describe_at(view: SchemaView, *, depth: int = 0) -> str:
    """Describe in a few words what is expected at *view*."""
    schema, kinds = view.resolved.schema, view.resolved.kinds
    if view.alternatives != (view.resolved,):
        return forms_of(view.alternatives, depth + 1)
    if view.resolved.is_false:
        return "nothing"
    if view.choices:
        return one_of(view.choices)
    if not kinds or depth > _MAX_DEPTH:
        return _without_kind(view.resolved)
    if len(kinds) > 1:
        return either(schema["type"])
    [words] = kinds
    if words == "array" and isinstance(schema.get("items"), Mapping):
        words = f"array of {describe_at(view.resolved.at('items'), depth=depth + 1)}"
    return f"{words}{_limits_of(view)}" if depth < 3 else words


def _without_kind(view: SchemaView) -> str:
    return f"object with {in_braces(view.required)}" if view.required else ANY


def forms_of(leaves: Sequence[SchemaView], depth: int = 0) -> str:
    """Describe the first *leaves*; name the keys of objects where there are several."""
    forms = [describe_at(leaf, depth=depth) for leaf in leaves[:SHOWN]]
    if len(set(forms)) < len(forms):
        keys = [leaf.members or leaf.required for leaf in leaves]
        forms = [f"{form} {in_braces(names)}" if names else form for form, names in zip(forms, keys, strict=False)]
    return either(forms) + (f" … ({len(leaves)} in all)" if len(leaves) > SHOWN else "")


def _limits_of(view: SchemaView) -> str:
    """Return the format and the limits of a value at *view*, in brackets behind its kind."""
    schema = view.resolved.schema
    keywords = [(word, limit) for step in reversed(view.chain) for word, limit in step.schema.items()]
    limits = [display_name(schema["format"])] if "format" in schema else []
    limits += [LIMITS[word](limit) for word, limit in keywords if word in LIMITS]
    return f" ({', '.join(limits)})" if limits else ""


def in_braces(names: Iterable[str]) -> str:
    """Return the first of an object's *names*, by which it is told apart from others."""
    return f"{{{', '.join(map(display_name, islice(names, 6)))}}}"


def one_of(listed: Sequence[Any]) -> str:
    """Return choices, as JSON."""
    text = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in listed[:SHOWN])
    more = f" … ({len(listed)} in all)" if len(listed) > SHOWN else ""
    return f"one of {text}{more}" if len(listed) > 1 else text


def either(words: Iterable[str]) -> str:
    """Return alternatives, each once."""
    *firsts, last = list(dict.fromkeys(words)) or [ANY]
    return f"{', '.join(firsts)} or {last}" if firsts else last


def display_path(path: Sequence[str | int]) -> str:
    """Display a place in the arguments as a program would write it: `'rows[2].name'`."""
    if not path:
        return "the arguments"
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not text:
            text = display_name(part)
        else:
            text += f".{part}" if re.fullmatch(r"[\w-]{1,64}", part) else f'["{display_name(part)}"]'
    return f"'{text if len(text) <= 200 else '…' + text[-200:]}'"


def display_name(name: str) -> str:
    """Display a name that came from outside, short and on one line."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[:64])
    return plain + ("…" if len(name) > 64 else "")


def closest_match(name: str, names: Iterable[str]) -> str | None:
    """Return the one of *names* that *name* is probably a misspelling of. Of very many, the first are looked at."""
    by_fold = {candidate.lower().replace("-", "_"): candidate for candidate in islice(names, MAX_NAMES)}
    folded = name[:_MAX_NAME_CHARS].lower().replace("-", "_")
    if folded in by_fold:
        return by_fold[folded]
    # Of lengths so different, no two texts are close.
    likely = [other for other in by_fold if 3 * len(other) <= 7 * len(folded) <= 17 * len(other)]
    if len(likely) > _MAX_COMPARED:
        # To compare two texts takes as long as to count the pairs of letters that thirty have in common with one.
        pairs = [folded[at : at + 2] for at in range(0, len(folded) - 1, len(folded) // _MAX_PAIRS + 1)]
        likely = nlargest(
            _MAX_COMPARED, likely, key=lambda other: sum(pair in other for pair in pairs) / (len(other) + 1)
        )
    close = difflib.get_close_matches(folded, likely, n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def did_you_mean(match: str | None, mark: str = "'") -> str:
    """Return a question that proposes *match*; nothing where there is none."""
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

_PHRASES: Mapping[str, Callable[[Any], str]] = {
    **LIMITS,
    "pattern": lambda pattern: f"text that matches `{pattern}`",
    "format": lambda name: f"format `{name}`",
    "enum": one_of,
}


def in_words(keyword: str, value: Any) -> list[str]:
    """Return a demand as sentences for the description of a schema that cannot make it; none if they would be long."""
    if keyword == "dependentRequired":
        groups = [(name, names) for name, names in value.items() if isinstance(names, list) and names]
        phrases = [f"if '{name}' is given, {' and '.join(map(repr, names))} must be too" for name, names in groups]
    else:
        phrases = [_PHRASES[keyword](value)] if keyword in _PHRASES else []
    return [f"{words[0].upper()}{words[1:]}." for words in phrases if len(words) <= 300]


def with_sentences(description: Any, sentences: Iterable[str]) -> str:
    """Return *description* with *sentences* behind it, each once."""
    text = description.rstrip() if isinstance(description, str) else ""
    return " ".join([*([text if text[-1] in ".!?:;" else f"{text}."] if text else []), *dict.fromkeys(sentences)])
