"""Restores arguments: from what a model wrote under a lowered schema to what the original schema describes.

A plan goes beside the lowered schema and says, place by place, what has to be undone. Values in which nothing has to
be undone are returned as the same objects. A value that does not have the lowered form is left alone: the check
explains what is wrong with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from .document import kind
from .json_schema_validator import Validator, validator

Lift = Callable[[dict[str, Any]], dict[str, Any]]

KEY, VALUE = "key", "value"
"""The members of one entry, where a map is asked for as a list of entries."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Continue with the plan of the definition of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its original name, whether null means that it is absent, the plan of its value."""

    name: str
    absent_if_null: bool = False
    inside: "Plan | None" = None


@dataclass(frozen=True, slots=True)
class Members:
    """An object, with the members that have something to undo, by their lowered names."""

    of: Mapping[str, Member]


@dataclass(frozen=True, slots=True)
class Entries:
    """A list of entries that stands for a map."""

    inside: "Plan | None"


@dataclass(frozen=True, slots=True)
class Items:
    """A list with something to undo in each item."""

    inside: "Plan | None"


@dataclass(frozen=True, slots=True)
class OneOf:
    """The plan of the first branch under whose schema the value is valid."""

    branches: "Sequence[tuple[Mapping[str, Any], Plan | None]]"


Plan = Ref | Members | Entries | Items | OneOf
Plans = Mapping[str, Plan | None]


@dataclass(slots=True)
class Restore:
    """A plan, with the definitions that its references lead to. Called with arguments, returns them restored."""

    plan: Plan | None
    definitions: Mapping[str, Mapping[str, Any]]
    plans: Plans
    _validators: dict[int, Validator | None] = field(default_factory=dict)

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        restored: dict[str, Any] = self._restore(arguments, self.plan)
        return restored

    def _restore(self, value: Any, plan: Plan | None, seen: frozenset[str] = frozenset()) -> Any:
        """*value* restored by *plan*. *seen* has the definitions whose plans have led here without a step inside."""
        match plan:
            case Members() if isinstance(value, dict):
                return self._members(value, plan)
            case Entries() if isinstance(value, list) and all(map(_is_entry, value)):
                members = {entry[KEY]: self._restore(entry[VALUE], plan.inside) for entry in value}
                return members if len(members) == len(value) else value
            case Items() if isinstance(value, list):
                items = [self._restore(item, plan.inside) for item in value]
                return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
            case OneOf():
                return self._restore(value, self._branch(value, plan), seen)
            case Ref() if plan.name not in seen:
                return self._restore(value, self.plans.get(plan.name), seen | {plan.name})
            case _:
                return value

    def _members(self, value: dict[str, Any], plan: Members) -> dict[str, Any]:
        changed = False
        restored: dict[str, Any] = {}
        for name, inner in value.items():
            member = plan.of.get(name, Member(name))
            if inner is None and member.absent_if_null:
                changed = True
                continue
            new = self._restore(inner, member.inside)
            own = member.name if member.name not in value else name
            changed |= new is not inner or own != name
            restored[own] = new
        return restored if changed else value

    def _branch(self, value: Any, plan: OneOf) -> Plan | None:
        fitting = [branch for branch in plan.branches if self._has_type(value, branch[0])]
        if len(fitting) > 1:
            fitting = [branch for branch in fitting if self._is_valid(value, branch[0])] or fitting
        return fitting[0][1] if fitting else None

    def _has_type(self, value: Any, schema: Mapping[str, Any]) -> bool:
        """Whether *value* is of a type that *schema* names, as far as one look can show."""
        ref = schema.get("$ref")
        if isinstance(ref, str):
            schema = self.definitions.get(ref.rpartition("/")[2], {})
        named = schema.get("type")
        kinds = [named] if isinstance(named, str) else named
        own = kind(value)
        return not kinds or own in kinds or (own == "integer" and "number" in kinds)

    def _is_valid(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if id(schema) not in self._validators:  # the plan keeps its schemas alive
            try:
                found = validator({**schema, "$defs": self.definitions}, formats=False)
            except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
                found = None
            self._validators[id(schema)] = found
        found = self._validators[id(schema)]
        return found is not None and found.is_valid(value)


def undoes(plan: Plan | None, plans: Plans, seen: set[str] | None = None) -> bool:
    """Whether *plan* has anything to undo, given the *plans* of the definitions."""
    seen = set() if seen is None else seen
    match plan:
        case Entries():
            return True
        case Members():
            members = plan.of.items()
            return any(m.absent_if_null or m.name != name or undoes(m.inside, plans, seen) for name, m in members)
        case Items():
            return undoes(plan.inside, plans, seen)
        case OneOf():
            return any(undoes(inside, plans, seen) for _, inside in plan.branches)
        case Ref() if plan.name not in seen:
            seen.add(plan.name)
            return undoes(plans.get(plan.name), plans, seen)
        case _:
            return False


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {KEY, VALUE} and isinstance(value[KEY], str)
