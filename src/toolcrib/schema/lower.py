"""Lowers a JSON Schema to what a model provider accepts, and reports what is lost by that.

A lowered schema is never narrower than the original, once arguments are restored, without a loss that says so. One
that the provider takes as it is comes out as it is.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import jsonschema_rs

from .dialect import Accepts, Loss
from .places import Part, Places, below, rebuilt, within
from .restore import Lift, Member, Members, Restore, undoes
from .rewrite import Rewrite
from .walk import Out

_MAX_NESTING = 64  # levels of nested JSON; nobody writes as many by hand, and providers take far fewer

__all__ = ["Accepts", "Lift", "Loss", "Lowered", "lower"]


def _as_it_is(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


@dataclass(slots=True)
class Lowered:
    """A schema in a provider's dialect. A value, which is shared: do not change it.

    `lift` turns arguments as a model wrote them under `schema` into arguments as the original schema takes them, and
    returns the same object where nothing has to be done; `lifts` says whether anything ever has. `optional` and
    `unions` count the members that may be left out, and those of several types.
    """

    schema: dict[str, Any]
    losses: tuple[Loss, ...] = ()
    strict: bool = False
    lift: Lift = _as_it_is
    lifts: bool = False
    optional: int = 0
    unions: int = 0


def lower(schema: Mapping[str, Any], accepts: Accepts, *, strict: bool | None = None) -> Lowered:
    """*schema*, a JSON Schema 2020-12 of an object, in the dialect of *accepts*.

    *strict* True asks for the dialect's strict mode. Where that would change what the tool takes, the schema is lowered
    without it, and a loss with the keyword `strict` says why. None and False ask for no strict mode.
    The same schema again costs a look-up.
    """
    try:
        text = json.dumps(schema, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return _unreadable("is not valid JSON, or is nested too deeply")
    return _lower(text, accepts, bool(strict))


@lru_cache(maxsize=1024)
def _lower(text: str, accepts: Accepts, strict: bool) -> Lowered:
    schema: dict[str, Any] = json.loads(text)
    free = accepts.keywords is None and not (accepts.not_at_root or accepts.needs_items or accepts.member_names)
    if free and '$ref"' not in text and '$dynamicRef"' not in text:
        low = Lowered(schema if schema.get("type") == "object" else {"type": "object", **schema})
        return _without_strict(low, [], accepts) if strict else low
    schema, too_deep = _shallow(schema)
    if not jsonschema_rs.meta.is_valid(schema):
        return _unreadable("is not valid JSON Schema 2020-12")
    grave: list[Loss] = []
    if strict and accepts.strictly is not None:
        low, grave = _rewritten(schema, accepts.strictly)
        if not grave and not too_deep:
            return low
    low, _ = _rewritten(schema, accepts)
    low = replace(low, losses=(*too_deep, *low.losses))
    return _without_strict(low, grave, accepts) if strict and not accepts.closed else low


def _unreadable(why: str) -> Lowered:
    meaning = f"The schema for the provider is any object: the schema of the tool {why}."
    return Lowered({"type": "object", "properties": {}}, (Loss("", "$schema", meaning, "high"),))


def _without_strict(low: Lowered, grave: list[Loss], accepts: Accepts) -> Lowered:
    so = "So the tool is sent without strict mode."
    why = [Loss(loss.path, "strict", f"{loss.meaning} {so}", "high") for loss in grave]
    if not why:
        meaning = f"Strict mode was asked for, and the tool is sent without it: {accepts.name} has none for this tool."
        why = [Loss("", "strict", meaning, "high")]
    return replace(low, losses=(*low.losses, *why))


def _shallow(schema: dict[str, Any]) -> tuple[dict[str, Any], list[Loss]]:
    """*schema* without what is nested too deeply for any provider."""
    if _nesting(schema) <= _MAX_NESTING:
        return schema, []
    members = schema.get("properties")
    if isinstance(members, dict) and _nesting({**schema, "properties": {}}) <= _MAX_NESTING:
        deep = [name for name, member in members.items() if _nesting(member) > _MAX_NESTING - 2]
        paths = [Part("", schema).at("properties", name).path for name in deep]
        schema = {**schema, "properties": {**members, **{name: {} for name in deep}}}
    else:
        schema, paths = {"type": "object", "properties": {}}, [""]
    meaning = "The schema for the provider omits what is inside: it is nested too deeply; Toolcrib still checks it."
    return schema, [Loss(path, "nesting", meaning, "high") for path in paths]


def _nesting(value: Any) -> int:
    """How deeply objects and lists are nested in *value*."""
    depth, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        depth += 1
    return depth


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _rewritten(schema: dict[str, Any], accepts: Accepts, *, unrolled: int = 3) -> tuple[Lowered, list[Loss]]:
    """*schema* lowered, and those of its losses that rule strict mode out. *unrolled* is as for `Walk`."""
    if _fits(schema, accepts):
        as_it_is = {key: value for key, value in schema.items() if key != "$schema"}
        return Lowered({"type": "object", "properties": {}, **as_it_is}), []
    rewrite = Rewrite({"type": "object", **schema}, accepts, unrolled=unrolled)
    whole = rewrite.run()
    out = _renamed(whole, rewrite, accepts)
    definitions = dict(rewrite.definitions)
    name = rewrite.root_name
    final = out.schema
    if name is not None and accepts.root_reference and definitions[name] == whole.schema == out.schema:
        final = _with_root_references(final, f"#/$defs/{name}")
        definitions = {key: _with_root_references(each, f"#/$defs/{name}") for key, each in definitions.items()}
    used = _referred(final, definitions)
    if used:
        final = {**final, "$defs": {name: each for name, each in definitions.items() if name in used}}
    too_large = rewrite.unrolls and len(json.dumps(final)) >= 2 * len(json.dumps(schema))
    if unrolled > 1 and (too_large or rewrite.crowded):  # rather all of the first level than more of one branch
        return _rewritten(schema, accepts, unrolled=1)
    lifts = undoes(out.plan, rewrite.plans)
    lift: Lift = Restore(out.plan, rewrite.definitions, rewrite.plans) if lifts else _as_it_is
    optional, unions = _measure(final, rewrite, accepts)
    grave = [loss for key, loss in rewrite.losses.items() if key in rewrite.grave]
    return Lowered(final, tuple(rewrite.losses.values()), accepts.closed, lift, lifts, optional, unions), grave


def _fits(schema: dict[str, Any], accepts: Accepts) -> bool:
    """Whether *schema* can be sent as it is."""
    if accepts.keywords is not None or accepts.not_at_root & schema.keys() or schema.get("type", "object") != "object":
        return False
    places = Places(schema)
    for part in places.all():
        schema_here = part.schema if isinstance(part.schema, dict) else {}
        listless = "array" in schema_here.get("type", ()) and not isinstance(schema_here.get("items"), dict)
        if (accepts.needs_items and listless) or places.leads_out(part):
            return False
    return all(re.fullmatch(accepts.member_names or "(?s:.*)", name) for name in schema.get("properties", ()))


_OF_NAMES = ("if", "dependencies", "dependentSchemas", "dependentRequired", "propertyNames", "patternProperties")
_COMPOSED = ("allOf", "anyOf", "oneOf")


def _renamed(out: Out, rewrite: Rewrite, accepts: Accepts) -> Out:
    """*out* with names of arguments that the provider takes."""
    members: dict[str, Any] = out.schema["properties"]
    names = {name: name for name in members if re.fullmatch(accepts.member_names or "(?s:.*)", name)}
    if len(names) == len(members):
        return out
    taken = set(members)
    for name in members:
        if name not in names:
            new = fitting = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:50] or "_"
            salt = 0
            while new in taken:
                new = f"{fitting}_{sha256(f'{salt}:{name}'.encode()).hexdigest()[:8]}"
                salt += 1
            taken.add(new)
            names[name] = new
    schema = {**out.schema, "properties": {names[name]: member for name, member in members.items()}}
    if "required" in schema:
        schema["required"] = [names.get(name, name) for name in schema["required"]]
    if "patternProperties" in schema:  # which would leave no place for the members it describes
        schema.pop("additionalProperties", None)
    root = rewrite.places.root
    places = [root, *rewrite.places.reach(root, follow=lambda part, keyword, step: keyword in _COMPOSED)]
    for keyword in (*_OF_NAMES, "unevaluatedProperties", *accepts.not_at_root):
        if schema.pop(keyword, None) is not None:
            for part in places:
                if isinstance(part.schema, dict) and keyword in part.schema:
                    rewrite.lose(part, keyword)
    schema = {keyword: value for keyword, value in schema.items() if keyword not in ("then", "else")}
    if schema.get("additionalProperties") is not False:
        for name, new in names.items():
            if new != name:
                place = root.at("properties", name) if name in root.schema.get("properties", ()) else root
                meaning = f"The provider's name for '{name}' is '{new}', so no other argument can have that name."
                rewrite.lose(place, "properties", meaning, weight="low")
    old = out.plan.of if isinstance(out.plan, Members) else {}
    plan = {new: replace(old.get(name, Member(name)), name=name) for name, new in names.items()}
    return Out(schema, Members(plan))


def _referred(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """The names of the definitions that *schema* refers to, directly or by others."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        for part in within(Part("", waiting.pop())):
            ref = part.schema.get("$ref", "") if isinstance(part.schema, dict) else ""
            name = ref.removeprefix("#/$defs/")
            if name != ref and name not in found:
                found.add(name)
                waiting.append(definitions[name])
    return found


def _with_root_references(schema: Any, ref: str) -> Any:
    """*schema* with `#` for *ref*."""
    if not isinstance(schema, dict):
        return schema
    out = rebuilt(Part("", schema), lambda part: _with_root_references(part.schema, ref))
    return {**out, "$ref": "#"} if out.get("$ref") == ref else out


def _measure(schema: dict[str, Any], rewrite: Rewrite, accepts: Accepts) -> tuple[int, int]:
    """The numbers of optional members and of members of several types. Reports a schema that is too large."""
    optional = unions = members = values = characters = deepest = longest = 0
    waiting = [(Part("", schema), 0)]
    while waiting:
        part, depth = waiting.pop()
        if not isinstance(part.schema, dict):
            continue
        own, listed = part.schema.get("properties", {}), part.schema.get("enum", ())
        optional += len(own.keys() - set(part.schema.get("required", ())))
        unions += sum("anyOf" in m or isinstance(m.get("type"), list) for m in own.values() if isinstance(m, dict))
        depth += "properties" in part.schema
        deepest = max(deepest, depth)
        members += len(own)
        values += len(listed)
        if accepts.large_enum is not None and len(listed) > accepts.large_enum[0]:
            longest = max(longest, sum(len(value) for value in listed if isinstance(value, str)))
        names = [*own, *listed, *part.schema.get("$defs", ()), part.schema.get("const", "")]
        characters += sum(len(str(word)) for word in names)
        waiting.extend((inner, depth) for _, inner in below(part))
    for found, most, what in (
        (deepest, accepts.max_depth, "levels of objects"),
        (members, accepts.max_members, "members"),
        (values, accepts.max_values, "listed values"),
        (characters, accepts.max_characters, "characters in names and values"),
        (longest, (accepts.large_enum or (0, None))[1], "characters in a long list of values"),
    ):
        if most is not None and found > most:
            meaning = f"The provider takes at most {most} {what} in one schema, and this one has {found}."
            rewrite.lose(rewrite.places.root, what, meaning, grave=True)
    return optional, unions
