"""Lowers a JSON Schema to what a model provider's dialect takes, and tells what is lost by it.

A lowered schema is never narrower than the original, after arguments are lifted back, without a loss that says so. A
schema that has all its words in the dialect loses nothing, and one that needs no other words comes out as it is.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import jsonschema_rs

from .accepts import Accepts
from .disjoint import apart
from .lift import Lift, Lifting, Member, Members, needed, settled
from .losses import Loss
from .lowering import Lowering
from .parts import Part, Places, below, nesting
from .strict import Strict
from .telling import Out

_DEEPEST = 64  # levels of nested JSON; nobody writes as many by hand, and providers take far fewer

__all__ = ["Accepts", "Lift", "Loss", "Lowered", "lower"]


def _as_it_is(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


@dataclass(slots=True)
class Lowered:
    """A schema in a provider's dialect. A value, which is shared: do not change it.

    `lift` turns arguments as a model wrote them under `schema` into arguments as the original schema takes them, and
    gives back the same object where nothing is to be done; `lifts` says whether there is anything to do at all.
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
        return _unreadable("is no JSON, or is nested too deeply")
    return _lower(text, accepts, bool(strict))


@lru_cache(maxsize=1024)
def _lower(text: str, accepts: Accepts, strict: bool) -> Lowered:
    schema: dict[str, Any] = json.loads(text)
    if _takes_all(accepts):
        low = Lowered(schema if schema.get("type") == "object" else {"type": "object", **schema})
        return _without_strict(low, [], accepts) if strict else low
    schema, too_deep = _shallow(schema)
    if not jsonschema_rs.meta.is_valid(schema):
        return _unreadable("is no JSON Schema 2020-12")
    if not strict or accepts.strictly is None:
        low, _ = _in_words_of(schema, accepts)
        low = replace(low, losses=(*too_deep, *low.losses), strict=accepts.closed)
        return _without_strict(low, [], accepts) if strict and not accepts.closed else low
    low, grave = _in_words_of(schema, accepts.strictly)
    if not grave and not too_deep:
        return replace(low, strict=True)
    loose, _ = _in_words_of(schema, accepts)
    return _without_strict(replace(loose, losses=(*too_deep, *loose.losses)), grave, accepts)


def _takes_all(accepts: Accepts) -> bool:
    plain = accepts.keywords is None and not accepts.not_at_root and not accepts.needs_items
    return plain and accepts.member_names is None and not accepts.closed


def _unreadable(why: str) -> Lowered:
    meaning = f"The provider is only told that the arguments are an object: their schema {why}."
    return Lowered({"type": "object", "properties": {}}, (Loss("", "$schema", meaning),))


def _without_strict(low: Lowered, grave: list[Loss], accepts: Accepts) -> Lowered:
    why = [Loss(loss.path, "strict", f"{loss.meaning} So the tool is sent without strict mode.") for loss in grave]
    if not why:
        meaning = f"Strict mode was asked for, and the tool is sent without it: {accepts.name} has none for this tool."
        why = [Loss("", "strict", meaning)]
    return replace(low, losses=(*low.losses, *why), strict=False)


def _shallow(schema: dict[str, Any]) -> tuple[dict[str, Any], list[Loss]]:
    """*schema* without what is nested too deeply for anybody."""
    if nesting(schema) <= _DEEPEST:
        return schema, []
    members = schema.get("properties")
    kept: dict[str, Any] = {"type": "object", "properties": {}}
    losses: list[Loss] = []
    if isinstance(members, dict) and nesting({k: v for k, v in schema.items() if k != "properties"}) <= _DEEPEST:
        kept = dict(schema)
        deep = {name for name, member in members.items() if nesting(member) > _DEEPEST - 2}
        kept["properties"] = {name: {} if name in deep else member for name, member in members.items()}
        paths = [Part("", schema).at("properties", name).path for name in members if name in deep]
    else:
        paths = [""]
    meaning = "The provider is not told what is inside: it is nested too deeply; Toolcrib still checks it."
    losses = [Loss(path, "nesting", meaning) for path in paths]
    return kept, losses


def _in_words_of(schema: dict[str, Any], accepts: Accepts) -> tuple[Lowered, list[Loss]]:
    """*schema* lowered, and those of its losses that are too grave for a strict mode."""
    if not accepts.closed and _fits(schema, accepts):
        return Lowered({"type": "object", "properties": {}, **_bare(schema)}), []
    make = Strict if accepts.closed else Lowering
    lowering = make(schema, accepts)
    out = lowering.run()
    if _led_to(lowering.exact, lowering.definitions) & lowering.lossy:
        lowering = make(schema, accepts, distrust=True)
        out = lowering.run()
    definitions = lowering.definitions
    plans = settled(lowering.plans)
    for told in lowering.told:
        if told.union.keyword == "oneOf" and not _all(
            told.branches, lambda a, b: apart(a.schema, b.schema, definitions)
        ):
            lowering.lose(told.union.part, "oneOf")
    for part, outs in lowering.lifted:
        certain = all(not needed(out.plan, plans) for out in outs)
        if not certain and not _all(outs, lambda a, b: apart(a.schema, b.schema, definitions)):
            meaning = "In strict mode it could not be told from the arguments which of several descriptions was meant."
            lowering.lose(part, "anyOf", meaning, grave=True)
    whole = out.schema
    root_name = lowering.root_name()
    out = _named_anew(out, lowering, accepts)
    used = _led_to(_names_in(out.schema), definitions)
    kept = {name: definition for name, definition in definitions.items() if name in used}
    same = root_name in kept and accepts.root_reference and kept[root_name] == whole == out.schema
    final: dict[str, Any] = {**out.schema, **({"$defs": kept} if kept else {})}
    if same and root_name is not None:
        kept.pop(root_name)
        final = _to_root({**out.schema, **({"$defs": kept} if kept else {})}, f"#/$defs/{root_name}")
    lifts = needed(out.plan, plans)
    lift: Lift = Lifting(out.plan, definitions, plans) if lifts else _as_it_is
    _limit(final, lowering, accepts)
    losses = tuple(lowering.losses.values())
    optional, unions = _counts(final)
    grave = [lowering.losses[key] for key in lowering.losses if key in lowering.grave]
    return Lowered(final, losses, accepts.closed, lift, lifts, optional, unions), grave


def _fits(schema: dict[str, Any], accepts: Accepts) -> bool:
    """Whether *schema* can be sent as it is."""
    if accepts.keywords is not None or accepts.not_at_root & schema.keys():
        return False
    if schema.get("type", "object") != "object":
        return False
    if accepts.member_names and not all(re.fullmatch(accepts.member_names, n) for n in schema.get("properties", ())):
        return False
    if not accepts.needs_items:
        return True
    waiting = [Places(schema).root]
    while waiting:
        part = waiting.pop()
        if isinstance(part.schema, dict):
            if "array" in (part.schema.get("type") or ()) and not isinstance(part.schema.get("items"), dict):
                return False
            waiting.extend(below(part))
    return True


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "$schema"}


def _named_anew(out: Out, lowering: Lowering, accepts: Accepts) -> Out:
    """*out* with names of arguments that the provider takes."""
    members: dict[str, Any] = out.schema.get("properties", {})
    if accepts.member_names is None or all(re.fullmatch(accepts.member_names, name) for name in members):
        return out
    names: dict[str, str] = {name: name for name in members if re.fullmatch(accepts.member_names, name)}
    taken = set(members)
    for name in members:
        if name not in names:
            fitting = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:50] or "_"
            new = fitting if fitting not in taken and fitting else ""
            for salt in range(len(taken) + 1):
                new = new or f"{fitting}_{sha256(f'{salt}:{name}'.encode()).hexdigest()[:8]}"
                if new not in taken:
                    break
                new = ""
            taken.add(new)
            names[name] = new
    schema = {**out.schema, "properties": {names[name]: member for name, member in members.items()}}
    if "required" in schema:
        schema["required"] = [names.get(name, name) for name in schema["required"]]
    root = lowering.places.root
    for keyword in _SPEAK_OF_NAMES & schema.keys():
        del schema[keyword]
        for part in _of_the_whole(lowering.places):
            if keyword in part.schema:
                lowering.lose(part, keyword)
    if schema.get("additionalProperties") is not False:
        for name, new in names.items():
            if new != name:
                place = root.at("properties", name) if name in root.schema.get("properties", ()) else root
                meaning = f"The provider is told of '{name}' as '{new}', so no other argument can be called that."
                lowering.lose(place, "properties", meaning)
    old = out.plan.of if isinstance(out.plan, Members) else {}
    plan = {new: replace(old.get(name, Member(name)), name=name) for name, new in names.items()}
    return Out(schema, Members({new: member for new, member in plan.items() if member != Member(new)}))


def _of_the_whole(places: Places) -> list[Part]:
    """The places that speak of the arguments themselves, all of them or in some case."""
    found: dict[Part, None] = {}
    waiting = [places.root]
    while waiting:
        part = waiting.pop()
        if isinstance(part.schema, dict) and part not in found:
            found[part] = None
            for keyword in ("allOf", "anyOf", "oneOf"):
                waiting += [part.at(keyword, index) for index in range(len(part.schema.get(keyword, ())))]
            if ("$ref" in part.schema or "$dynamicRef" in part.schema) and (target := places.target(part)):
                waiting.append(target)
    return list(found)


_SPEAK_OF_NAMES = frozenset(
    {"if", "then", "else", "dependentSchemas", "dependentRequired", "propertyNames", "patternProperties", "$ref"}
    | {"unevaluatedProperties", "anyOf", "oneOf", "allOf", "not"}
)


def _all(outs: list[Out], holds: Callable[[Out, Out], bool]) -> bool:
    return all(holds(one, other) for index, one in enumerate(outs) for other in outs[:index])


_DATA = ("enum", "const", "default", "examples")


def _names_in(schema: Any) -> set[str]:
    """The names of the definitions that *schema* refers to."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(ref := value.get("$ref"), str) and ref.startswith("#/$defs/"):
                found.add(ref.removeprefix("#/$defs/"))
            waiting.extend(inner for key, inner in value.items() if key not in _DATA)
        elif isinstance(value, list):
            waiting.extend(value)
    return found


def _led_to(names: set[str], definitions: Mapping[str, Any]) -> set[str]:
    """*names*, and those of all definitions that they lead to."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_names_in(definitions.get(name)))
    return found


def _to_root(schema: Any, ref: str) -> Any:
    """*schema* with `#` for *ref*."""
    if isinstance(schema, dict):
        return {
            key: "#" if key == "$ref" and value == ref else value if key in _DATA else _to_root(value, ref)
            for key, value in schema.items()
        }
    return [_to_root(item, ref) for item in schema] if isinstance(schema, list) else schema


def _counts(schema: dict[str, Any]) -> tuple[int, int]:
    """How many members may be left out, and how many have several types: what Anthropic counts."""
    optional = unions = 0
    waiting = [Places(schema).root]
    while waiting:
        part = waiting.pop()
        if isinstance(part.schema, dict):
            members = part.schema.get("properties", {})
            optional += len(members) - len([name for name in part.schema.get("required", ()) if name in members])
            unions += sum(
                "anyOf" in m or isinstance(m.get("type"), list) for m in members.values() if isinstance(m, dict)
            )
            waiting.extend(below(part))
    return optional, unions


def _limit(schema: dict[str, Any], lowering: Lowering, accepts: Accepts) -> None:
    """Tell where *schema* is larger than the provider takes."""
    members = values = characters = deepest = 0
    waiting = [(Places(schema).root, 0)]
    while waiting:
        part, depth = waiting.pop()
        if not isinstance(part.schema, dict):
            continue
        listed = part.schema.get("enum", ())
        depth += "properties" in part.schema
        deepest = max(deepest, depth)
        members += len(part.schema.get("properties", ()))
        values += len(listed)
        characters += sum(len(str(word)) for word in [*part.schema.get("properties", ()), *listed])
        characters += sum(map(len, part.schema.get("$defs", ()))) + len(str(part.schema.get("const", "")))
        waiting.extend((inner, depth) for inner in below(part))
    for found, most, what in (
        (deepest, accepts.max_depth, "levels of objects"),
        (members, accepts.max_members, "members"),
        (values, accepts.max_values, "listed values"),
        (characters, accepts.max_characters, "characters in names and values"),
    ):
        if most is not None and found > most:
            meaning = f"The provider takes at most {most} {what} in one schema, and this one has {found}."
            lowering.lose(lowering.places.root, what, meaning, grave=True)
