"""Validators that refuse NaN and Infinity, inside a user's own models too.

pydantic reads both, and `1e999` as infinity, into a float of any class that does not say otherwise, and into a Decimal
of one that takes them. None of them is JSON (RFC 8259 §6), so no class can have been promised them by a model.
"""

from typing import Any

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator

from .duplicate_keys import is_link


def finite(adapter: "TypeAdapter[Any]") -> tuple[Any, bool]:
    """Return the validator of *adapter*, refusing such numbers wherever it reads one, and whether that is everywhere.

    It is not where anything at all is read, or where code of the user's sees the value before pydantic does.
    """
    sure, numbers = True, False

    def without(plan: Any) -> Any:
        nonlocal sure, numbers
        if isinstance(plan, list):
            return [without(part) for part in plan]
        if isinstance(plan, tuple):  # a choice of a union, with its label
            return tuple(without(part) for part in plan)
        if not isinstance(plan, dict):
            return plan
        kind = plan.get("type")
        if isinstance(kind, str):
            config = plan.get("config") or {}
            if not (kind in _READ_BY_PYDANTIC or is_link(plan)) or "allow" in (
                plan.get("extra_behavior"),
                config.get("extra_fields_behavior"),
            ):
                sure = False
        changed = {key: part if key in _NO_PLAN else inside(key, part) for key, part in plan.items()}
        if kind not in ("float", "decimal"):
            return changed
        numbers = True
        return {**changed, "allow_inf_nan": False}

    def inside(key: str, part: Any) -> Any:
        if key in ("fields", "choices") and isinstance(part, dict):  # their names are a user's
            return {name: without(inner) for name, inner in part.items()}
        return without(part)

    try:
        plan = without(adapter.core_schema)
        if not numbers:
            return adapter.validator, sure
        # Not the validators that classes hold ready: those are built from their own plans.
        return SchemaValidator(plan, _use_prebuilt=False), sure
    except Exception:  # a plan that only pydantic itself can build
        return adapter.validator, False


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
