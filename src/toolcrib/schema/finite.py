"""Validators that refuse what only pydantic would take, inside a user's own models too: NaN, and unknown members.

pydantic reads both, and `1e999` as infinity, into a float of any class that does not say otherwise, and into a Decimal
of one that takes them. None of them is JSON (RFC 8259 §6), so no class can have been promised them by a model.

A member that no field takes, or under a second name of a field, is ignored by a class that does not say otherwise: then
a person would be shown what the tool never gets. Where a class takes any other member, a second name is refused still.
"""

import functools
from typing import Any

from pydantic_core import SchemaValidator

from .duplicate_keys import is_link
from .reading import fields_of, two_names

_OBJECTS = frozenset({"model-fields", "typed-dict", "dataclass-args"})


def strict_validator(core_schema: Any, validator: Any, *, finite: bool = True, closed: bool = True) -> tuple[Any, bool]:
    """Return the validator of *core_schema*, refusing such numbers and members wherever it reads one.

    *validator* is pydantic's own. *finite*: numbers are refused. *closed*: members are refused in the outermost object
    too. The second value is whether NaN is refused everywhere: not where anything at all is read, or where a user's
    code sees the value before pydantic does.
    """
    sure, changes = True, 0

    def without(plan: Any, config: Any = None, *, is_root: bool = False) -> Any:
        nonlocal sure, changes
        if isinstance(plan, list):
            return [without(part, config) for part in plan]
        if isinstance(plan, tuple):  # a choice of a union, with its label
            return tuple(without(part, config) for part in plan)
        if not isinstance(plan, dict):
            return plan
        kind = plan.get("type")
        config = plan.get("config") or config or {}
        extra = plan.get("extra_behavior") or config.get("extra_fields_behavior") or "ignore"
        if isinstance(kind, str) and (extra == "allow" or not (kind in _READ_BY_PYDANTIC or is_link(plan))):
            sure = False
        is_root = is_root and kind in ("definitions", "typed-dict")
        changed = {key: part if key in _NO_PLAN else inside(key, part, config, is_root) for key, part in plan.items()}
        if finite and kind in ("float", "decimal"):
            changes += 1
            changed["allow_inf_nan"] = False
        if kind not in _OBJECTS or (is_root and not closed):
            return changed
        names = _other_names(plan, config)
        if extra == "ignore" or (names and extra == "allow" and kind != "model-fields"):
            changes += 1
            changed["extra_behavior"] = "forbid"  # in others than models, an extra member can hide behind a field
        elif names and extra == "allow":
            changes += 1
            check = {"type": "no-info", "function": functools.partial(_require_one_name_each, names)}
            return {"type": "function-after", "function": check, "schema": changed}
        return changed

    def inside(key: str, part: Any, config: Any, is_root: bool) -> Any:
        if key in ("fields", "choices") and isinstance(part, dict):  # their names are a user's
            return {name: without(inner) for name, inner in part.items()}
        return without(part, config if key == "schema" else None, is_root=is_root and key == "schema")

    try:
        plan = without(core_schema, is_root=True)
        # Not the validators that classes hold ready: those are built from their own plans.
        return (SchemaValidator(plan, _use_prebuilt=False) if changes else validator), sure
    except Exception:  # a plan that only pydantic itself can build
        return validator, False


def _other_names(plan: Any, config: Any) -> dict[str, tuple[str, ...]]:
    """Return the names of fields that have several, each with all of them."""
    several = [field.names for field in fields_of(plan, config) if len(field.names) > 1]
    return {name: names for names in several for name in names}


def _require_one_name_each(names: dict[str, tuple[str, ...]], read: Any) -> Any:
    """Raise where one of *names* is an extra member of a model: it has the field under another of its names, too.

    *read* is what pydantic makes a model of: its fields, its extra members, and the names of the fields that were set.
    """
    for name in read[1] or ():
        if name in names:
            raise two_names(names[name])
    return read


_NO_PLAN = frozenset(
    {"cls", "config", "function", "metadata", "default", "default_factory", "serialization", "expected", "ref"}
)
"""Keys of a plan whose values are not plans."""

_READ_BY_PYDANTIC = frozenset(
    {"str", "int", "float", "bool", "decimal", "bytes", "date", "time", "datetime", "timedelta", "uuid", "url", "enum"}
    | {"none", "literal", "list", "set", "frozenset", "tuple", "dict", "nullable", "union", "tagged-union", "default"}
    | {"model", "model-fields", "model-field", "typed-dict", "typed-dict-field", "dataclass", "dataclass-args"}
    | {"dataclass-field", "definitions", "definition-ref", "function-after"}
)
