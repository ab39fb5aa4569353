"""What a provider's schema dialect takes, as data. Which provider takes what is told in `formats.accepts`."""

from dataclasses import dataclass
from typing import Literal

Recursion = Literal["any", "optional", "none"]
"""Where a schema may refer to itself: anywhere; only below members that may be left out; nowhere."""


@dataclass(frozen=True, slots=True)
class Accepts:
    """What one provider takes, in one mode. *source* says where that is told.

    *keywords*: those it takes below the root; None: all. *not_at_root*: those it refuses for the arguments themselves.
    *formats*, *enum_kinds* (JSON types of the values of an `enum`): None: all. *patterns*: a regular expression that
    a `pattern` must match to be taken; None: all. *at_most*: keywords taken up to a value only.
    *references*: `$ref`; *root_reference*: `"$ref": "#"`; *siblings*: other keywords beside a `$ref`.
    *needs_items*: an array must say `items`. *needs_type*: every place must say its type.
    *unions_alone*: nothing that demands anything stands beside an `anyOf`.
    *closed*: an object lists its members and takes no others; *all_required*: and all of them must be written, so that
    null stands for absent. *member_names*: a regular expression for the names of the arguments.
    *names*, *name_length*: for names of tools. *max_...*: for one schema; *most_...*: for all strict tools together.
    *strictly*: what it takes in its strict mode; None: it has none.
    """

    name: str
    source: str
    keywords: frozenset[str] | None = None
    not_at_root: frozenset[str] = frozenset()
    formats: frozenset[str] | None = None
    enum_kinds: frozenset[str] | None = None
    patterns: str | None = None
    at_most: tuple[tuple[str, float], ...] = ()
    references: bool = True
    root_reference: bool = True
    siblings: bool = True
    recursion: Recursion = "any"
    needs_items: bool = False
    needs_type: bool = False
    unions_alone: bool = False
    closed: bool = False
    all_required: bool = False
    member_names: str | None = None
    max_depth: int | None = None
    max_members: int | None = None
    max_values: int | None = None
    max_characters: int | None = None
    most_tools: int | None = None
    most_optional: int | None = None
    most_unions: int | None = None
    names: str = r"[A-Za-z0-9_-]{1,64}"
    name_length: int = 64
    strictly: "Accepts | None" = None

    def takes(self, keyword: str) -> bool:
        """Whether *keyword* is taken below the root."""
        return self.keywords is None or keyword in self.keywords
