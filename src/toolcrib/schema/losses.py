"""What a lowered schema no longer says, in words for a person."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that a schema says and its lowered form does not.

    *path* is a JSON pointer to the place in the original schema, *keyword* what stands there, *meaning* one sentence.
    """

    path: str
    keyword: str
    meaning: str

    def to_dict(self) -> dict[str, str]:
        """The loss as JSON data."""
        return {"path": self.path, "keyword": self.keyword, "meaning": self.meaning}


def untold(path: str, keyword: str, value: Any) -> str:
    """The sentence for a constraint that is left out: the model may break it, and is then told by the check."""
    phrase = _PHRASES.get(keyword)
    said = phrase(value) if phrase else f"keeps to its '{keyword}'"
    return f"The provider is not told that {subject(path)} {said}; Toolcrib still checks it."


def subject(path: str) -> str:
    """What stands at *path*, as a person would call it."""
    steps = iter([step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]])
    name, inside = "", False
    for keyword in steps:
        if keyword in _OF_NAMES:
            name, inside = next(steps, name), False
        elif keyword in _INSIDE:
            inside = True
        if keyword in _OF_STEPS:
            next(steps, None)
    if not name:
        return "what is inside the arguments" if inside else "the whole of the arguments"
    return f"what is inside '{name}'" if inside else f"'{name}'"


_OF_NAMES = ("properties", "$defs", "definitions")
_OF_STEPS = ("prefixItems", "patternProperties", "dependentSchemas", "allOf", "anyOf", "oneOf")
_INSIDE = ("items", "prefixItems", "contains", "additionalProperties", "patternProperties", "unevaluatedItems")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


_PHRASES: Mapping[str, Callable[[Any], str]] = {
    "minimum": lambda v: f"is at least {_shown(v)}",
    "maximum": lambda v: f"is at most {_shown(v)}",
    "exclusiveMinimum": lambda v: f"is more than {_shown(v)}",
    "exclusiveMaximum": lambda v: f"is less than {_shown(v)}",
    "multipleOf": lambda v: f"is a multiple of {_shown(v)}",
    "minLength": lambda v: f"has at least {_shown(v)} characters",
    "maxLength": lambda v: f"has at most {_shown(v)} characters",
    "pattern": lambda v: f"matches {_shown(v)}",
    "format": lambda v: f"is in the format {_shown(v)}",
    "minItems": lambda v: f"has at least {_shown(v)} items",
    "maxItems": lambda v: f"has at most {_shown(v)} items",
    "uniqueItems": lambda v: "has no item twice",
    "contains": lambda v: "contains a certain kind of item",
    "minContains": lambda v: f"contains at least {_shown(v)} of a certain kind of item",
    "maxContains": lambda v: f"contains at most {_shown(v)} of a certain kind of item",
    "prefixItems": lambda v: "has a certain kind of item at each place",
    "minProperties": lambda v: f"has at least {_shown(v)} members",
    "maxProperties": lambda v: f"has at most {_shown(v)} members",
    "required": lambda v: f"has {_shown(v)}",
    "propertyNames": lambda v: "has members of certain names only",
    "patternProperties": lambda v: "has certain kinds of values under certain names",
    "additionalProperties": lambda v: "has other members of a certain kind only",
    "unevaluatedProperties": lambda v: "has no other members than those spoken of",
    "unevaluatedItems": lambda v: "has no other items than those spoken of",
    "dependentRequired": lambda v: "has some members only together with others",
    "dependentSchemas": lambda v: "must keep to more when some members are there",
    "enum": lambda v: f"is one of {_shown(v)}",
    "const": lambda v: f"is {_shown(v)}",
    "not": lambda v: "must not be of a certain kind",
    "if": lambda v: "must keep to more under a condition",
    "anyOf": lambda v: "fits one of several descriptions",
    "oneOf": lambda v: "fits exactly one of several descriptions",
    "allOf": lambda v: "keeps to all of several descriptions",
    "type": lambda v: f"is of the type {_shown(v)}",
    "false": lambda v: "can have no value at all",
}
