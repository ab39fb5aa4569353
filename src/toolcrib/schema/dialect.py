"""What one provider accepts of JSON Schema, as data, and what a schema lowered for it leaves out.

The table of providers is in `formats.accepts`.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .view import ASSERTIONS, COMBINING, STRUCTURE

PLAIN = STRUCTURE | ASSERTIONS.keys() - {"patternProperties"} | {"anyOf", "title", "description", "default", "examples"}
"""The keywords that can be rewritten, and those that describe."""


Recursion = Literal["any", "optional", "none"]
"""Where a schema may refer to itself: anywhere; only below optional members; nowhere."""


Weight = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Accepts:
    """What one provider accepts, in one mode. *source* says where that is documented.

    *keywords*: those it takes below the root; None: all. Conditions (`not`, `if`, `contains`, `oneOf` and the like) can
    only be taken with all others. *not_at_root*: those it refuses for the arguments themselves.
    *formats*, *enum_kinds* (JSON types of the values of an `enum`): None: all. *patterns*: a regular expression that
    a `pattern` must match to be taken; None: all. *at_most*: keywords taken up to a value only.
    *root_reference*: `"$ref": "#"`. *needs_items*: an array must have `items`. *closed*: an object lists its members
    and takes no others, and every place must have a type, an object or array no other type beside it; *all_required*:
    and all members must be written, so that null stands for absent. *member_names*: a regular expression for the names
    of arguments.
    *names*, *name_length*: for names of tools. *max_...*: for one schema; *most_...*: for all strict tools together.
    *large_enum*: an `enum` of more values than the first number has texts of at most the second number of characters.
    *strictly*: what it accepts in its strict mode; None: it has none.
    """

    name: str
    source: str
    keywords: frozenset[str] | None = None
    not_at_root: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None
    enum_kinds: frozenset[str] | None = None
    patterns: str | None = None
    at_most: tuple[tuple[str, float], ...] = ()
    root_reference: bool = True
    recursion: Recursion = "any"
    needs_items: bool = False
    closed: bool = False
    all_required: bool = False
    member_names: str | None = None
    max_depth: int | None = None
    max_members: int | None = None
    max_values: int | None = None
    max_characters: int | None = None
    large_enum: tuple[int, int] | None = None
    most_tools: int | None = None
    most_optional: int | None = None
    most_unions: int | None = None
    names: str = r"[A-Za-z0-9_-]{1,64}"
    name_length: int = 64
    strictly: "Accepts | None" = None

    def takes(self, keyword: str) -> bool:
        """Return whether *keyword* is taken below the root."""
        return self.keywords is None or keyword in self.keywords

    def takes_name(self, name: str) -> bool:
        """Return whether an argument may have this name."""
        return self.member_names is None or re.fullmatch(self.member_names, name) is not None


@dataclass(frozen=True, slots=True)
class Loss:
    """A demand of a schema that its lowered form does not make.

    *path* is a JSON pointer to the place in the original schema, *keyword* what stands there, *meaning* one sentence.
    *weight*: `high` where a part of the schema is missing, or strict mode that was asked for; `medium` for a demand
    that the model does not see as one; `low` where hardly any call is affected.
    """

    path: str
    keyword: str
    meaning: str
    weight: Weight = "medium"

    def to_dict(self) -> dict[str, str]:
        """Return the loss as JSON data."""
        return {"path": self.path, "keyword": self.keyword, "meaning": self.meaning, "weight": self.weight}


def heaviest_first(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Return *losses* by weight, so that what nearly every tool loses hides nothing."""
    return tuple(sorted(losses, key=lambda loss: ("high", "medium", "low").index(loss.weight)))


def omitted(path: str, keyword: str, value: Any) -> str:
    """Return the sentence for a keyword that is left out.

    The model may break it; the check then explains that to it.
    """
    text = json.dumps(value, ensure_ascii=False)
    of = f" ({text})" if len(text) <= 60 and not isinstance(value, dict | None) else ""
    return f"The schema for the provider omits '{keyword}'{of} of {subject(path)}; Toolcrib still checks it."


def subject(path: str) -> str:
    """Return the name for what stands at *path*, in a sentence."""
    steps = iter([step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]])
    name, inside = "", False
    for keyword in steps:
        if keyword in ("properties", "$defs", "definitions"):
            name, inside = next(steps, name), False
        elif keyword in ("items", "contains", "additionalProperties", "unevaluatedItems"):
            inside = True
        elif keyword in ("prefixItems", "patternProperties"):
            inside, _ = True, next(steps, None)
        elif keyword in ("dependentSchemas", *COMBINING):
            next(steps, None)
    what = f"'{name}'" if name else "the arguments"
    return f"the values inside {what}" if inside else what
