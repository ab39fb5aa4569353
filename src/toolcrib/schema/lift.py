"""Lifts arguments back: from what a model wrote under a lowered schema to what the original schema describes.

A plan goes beside the lowered schema and says, place by place, what is to be undone. Values that need nothing undone
come back as the same objects. What does not have the form it was asked for in is left alone: the check explains it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from .bare import Validator, validator
from .document import kind

Lift = Callable[[dict[str, Any]], dict[str, Any]]

KEY, VALUE = "key", "value"
"""The members of one entry, where an object of any names is asked for as a list of entries."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Go on as the definition of this name says."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """What becomes of one member: its own name, whether null means that it is left out, what is undone inside."""

    name: str
    absent_if_null: bool = False
    inside: "Plan | None" = None


@dataclass(frozen=True, slots=True)
class Members:
    """An object whose members, by the name they are asked for under, have something to undo."""

    of: Mapping[str, Member]
    rest: "Plan | None" = None


@dataclass(frozen=True, slots=True)
class Entries:
    """A list of entries that stands for an object."""

    inside: "Plan | None"


@dataclass(frozen=True, slots=True)
class Items:
    """A list with something to undo in its items: the first ones each by itself, then all others."""

    first: "Sequence[Plan | None]"
    rest: "Plan | None"


@dataclass(frozen=True, slots=True)
class OneOf:
    """As the first of the branches says under which the value is valid."""

    branches: "Sequence[tuple[Mapping[str, Any], Plan | None]]"


Plan = Ref | Members | Entries | Items | OneOf


@dataclass(slots=True)
class Lifting:
    """A plan with the definitions its references lead to. Called with arguments, gives them lifted."""

    plan: Plan | None
    definitions: Mapping[str, Mapping[str, Any]]
    plans: Mapping[str, Plan | None]
    _judges: dict[int, Validator | None] = field(default_factory=dict)

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        lifted: dict[str, Any] = self._lift(arguments, self.plan)
        return lifted

    def _lift(self, value: Any, plan: Plan | None) -> Any:
        match plan:
            case Members() if isinstance(value, dict):
                return self._members(value, plan)
            case Entries():
                return self._entries(value, plan)
            case Items() if isinstance(value, list):
                return self._items(value, plan)
            case OneOf():
                return self._lift(value, self._chosen(value, plan))
            case Ref():
                return self._lift(value, self.plans.get(plan.name))
            case _:
                return value

    def _members(self, value: dict[str, Any], plan: Members) -> dict[str, Any]:
        changed = False
        lifted: dict[str, Any] = {}
        for name, inner in value.items():
            member = plan.of.get(name)
            if member is None:
                new, own = self._lift(inner, plan.rest), name
            elif inner is None and member.absent_if_null:
                changed = True
                continue
            else:
                new = self._lift(inner, member.inside)
                own = member.name if member.name == name or member.name not in value else name
            changed |= new is not inner or own != name
            lifted[own] = new
        return lifted if changed else value

    def _entries(self, value: Any, plan: Entries) -> Any:
        if not isinstance(value, list) or not all(_is_entry(entry) for entry in value):
            return value
        lifted = {entry[KEY]: self._lift(entry[VALUE], plan.inside) for entry in value}
        return lifted if len(lifted) == len(value) else value

    def _items(self, value: list[Any], plan: Items) -> list[Any]:
        first = [self._lift(item, inside) for item, inside in zip(value, plan.first, strict=False)]
        lifted = first + [self._lift(item, plan.rest) for item in value[len(first) :]]
        return lifted if any(new is not old for new, old in zip(lifted, value, strict=True)) else value

    def _chosen(self, value: Any, plan: OneOf) -> "Plan | None":
        fitting = [branch for branch in plan.branches if _may_be(value, branch[0], self.definitions)]
        if len(fitting) > 1:
            valid = [branch for branch in fitting if self._valid(value, branch[0])]
            fitting = valid or fitting
        return fitting[0][1] if fitting else None

    def _valid(self, value: Any, schema: Mapping[str, Any]) -> bool:
        if id(schema) not in self._judges:  # the plan keeps its schemas alive
            try:
                judge = validator({**schema, "$defs": self.definitions}, formats=False)
            except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
                judge = None
            self._judges[id(schema)] = judge
        judge = self._judges[id(schema)]
        return judge is not None and judge.is_valid(value)


def settled(plans: Mapping[str, Plan | None]) -> dict[str, Plan | None]:
    """*plans* of definitions without those that lead to nothing to undo, however they refer to one another."""
    useful = {name for name, plan in plans.items() if plan is not None and _undoes(plan)}
    while more := {
        name for name, plan in plans.items() if plan is not None and name not in useful and _leads(plan) & useful
    }:
        useful |= more
    return {name: plan if name in useful else None for name, plan in plans.items()}


def needed(plan: Plan | None, plans: Mapping[str, Plan | None]) -> bool:
    """Whether *plan* has anything to undo, given the *plans* of the definitions, settled."""
    return plan is not None and (_undoes(plan) or any(plans.get(name) is not None for name in _leads(plan)))


def _undoes(plan: Plan | None) -> bool:
    """Whether *plan* undoes something by itself, whatever its references lead to."""
    match plan:
        case Entries():
            return True
        case Members():
            of = plan.of.items()
            return any(m.absent_if_null or m.name != name or _undoes(m.inside) for name, m in of) or _undoes(plan.rest)
        case Items():
            return any(map(_undoes, plan.first)) or _undoes(plan.rest)
        case OneOf():
            return any(_undoes(inside) for _, inside in plan.branches)
        case _:
            return False


def _leads(plan: Plan | None) -> set[str]:
    """The names of the definitions that *plan* leads to."""
    match plan:
        case Ref():
            return {plan.name}
        case Entries():
            return _leads(plan.inside)
        case Members():
            return set().union(_leads(plan.rest), *(_leads(member.inside) for member in plan.of.values()))
        case Items():
            return set().union(_leads(plan.rest), *map(_leads, plan.first))
        case OneOf():
            return set().union(*(_leads(inside) for _, inside in plan.branches))
        case _:
            return set()


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {KEY, VALUE} and isinstance(value[KEY], str)


def _may_be(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether *value* is of a type that *schema* names, as far as can be seen at a glance."""
    ref = schema.get("$ref")
    if isinstance(ref, str):
        schema = definitions.get(ref.rpartition("/")[2], {})
    named = schema.get("type")
    kinds = [named] if isinstance(named, str) else named
    own = kind(value)
    return not kinds or own in kinds or (own == "integer" and "number" in kinds)
