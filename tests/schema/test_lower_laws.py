"""What must hold of every lowered schema, with jsonschema-rs as the judge.

A lowered schema is never narrower than its original, once arguments are restored, unless a loss says so; never wider
without a loss; and a schema in the dialect's own words loses nothing.

Schemas are made by chance, and taken from real servers; `test_lower_attack.py` tries many more.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib.formats import accepts
from toolcrib.schema.lower import Accepts, Loss, Lowered, Restore, lower

from .. import fuzz
from .random_schemas import Generator

MODES: tuple[tuple[Accepts, bool], ...] = (
    (accepts.OPENAI, False),
    (accepts.OPENAI, True),
    (accepts.ANTHROPIC, False),
    (accepts.ANTHROPIC, True),
    (accepts.GEMINI, False),
    (accepts.BEDROCK, False),
    (accepts.MCP, False),
)
# What may be narrower, and then says so: unions of the arguments as one object; objects that strict mode closes.
NARROWER_OPEN = {"anyOf", "oneOf", "properties"}
NARROWER_STRICT = {*NARROWER_OPEN, "additionalProperties"}

counted: Counter[str] = Counter()


def report() -> str:
    """What was looked at in this run, in one line."""
    return (
        f"lowering: {counted['schemas']} schemas in {counted['lowered']} dialects' words, {counted['instances']} "
        f"instances, {counted['losses']} losses, {counted['needless']} of them for schemas that needed none"
    )


def judge(schema: Any) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=False, offline=True)


def problems(schema: dict[str, Any], instances: Iterable[Any], *, seed: int = 0, each: int = 12) -> Iterator[str]:
    """What is wrong with *schema* lowered in each mode, as far as *instances* and *each* made for it show."""
    counted["schemas"] += 1
    original = judge({"type": "object", **schema})
    chance = random.Random(seed)
    made = [value for _ in range(each // 2) if isinstance(value := make(schema, schema, chance), dict)]
    valid = [value for value in [*instances, *made] if isinstance(value, dict) and original.is_valid(value)]
    for mode, strict in MODES:
        low = lower(schema, mode, strict=strict)
        counted["lowered"] += 1
        counted["losses"] += len(low.losses)
        where = f"{mode.name}{' strict' if strict else ''}: {json.dumps(schema)} -> {json.dumps(low.schema)}"
        if not jsonschema_rs.meta.is_valid(low.schema):
            yield f"no JSON Schema: {where}"
            continue
        try:
            lowered = judge(low.schema)
        except (jsonschema_rs.ValidationError, ValueError):
            yield f"no JSON Schema, or a reference leads nowhere: {where}"
            continue
        lost = {loss.keyword for loss in low.losses}
        may_narrow = lost & (NARROWER_STRICT if low.strict else NARROWER_OPEN)
        for value in valid:
            counted["instances"] += 1
            if not any(lowered.is_valid(w) and same(low.lift(w), value, schema) for w in written(value, low, schema)):
                if not may_narrow and not lost & {"nesting", "$schema"}:
                    yield f"narrower, {json.dumps(value)} has no form: {where} losses {sorted(lost)}"
                break
        wider_by_losses = judge(without_what_is_lost(schema, low.losses))
        asked = [value for _ in range(each) if isinstance(value := make(low.schema, low.schema, chance), dict)]
        for value in [*asked, *valid, *instances]:
            if isinstance(value, dict) and lowered.is_valid(value):
                counted["instances"] += 1
                if not wider_by_losses.is_valid(low.lift(value)):
                    yield f"wider in silence, {json.dumps(value)} is let in: {where} losses {sorted(lost)}"
                    break
        if mode is accepts.MCP and low.losses and '"$dynamicRef":' not in where:
            counted["needless"] += len(low.losses)
            yield f"MCP takes everything: {where} losses {sorted(lost)}"


_WITH_NAMES = ("properties", "patternProperties", "$defs", "dependentSchemas", "dependencies")
_GO_TOGETHER = {
    "if": ("if", "then", "else"),
    "contains": ("contains", "minContains", "maxContains"),
    "prefixItems": ("prefixItems", "items"),
    "patternProperties": ("patternProperties", "additionalProperties"),
}


def without_what_is_lost(schema: dict[str, Any], losses: Iterable[Loss]) -> dict[str, Any]:
    """*schema* without the keywords in *losses*: what a lowered one may be as wide as, and no wider."""
    wider: Any = json.loads(json.dumps({"type": "object", **schema}))
    losses = [loss for loss in losses if loss.keyword != "strict"]
    if losses and any(f'"{word}"' in json.dumps(schema) for word in ("$ref", "$dynamicRef")) and _turns(schema):
        return {}  # what is taken out of a definition may be asked the other way round elsewhere
    ones: list[dict[str, Any]] = []
    for loss in losses:
        part: Any = wider
        steps = [step.replace("~1", "/").replace("~0", "~") for step in loss.path.split("/")[1:]]
        holder: Any = None
        last: Any = None
        named = False
        for step in steps:
            if step == "oneOf" and isinstance(part, dict) and not named and part not in ones:
                ones.append(part)
            named = not named and step in _WITH_NAMES
            holder, last = part, int(step) if isinstance(part, list) else step
            part = part[last] if isinstance(part, list) or (isinstance(part, dict) and last in part) else None
        if loss.keyword in ("nesting", "$ref", "$dynamicRef", "false", "type", "properties"):
            if holder is None:
                return {"$defs": wider.get("$defs", {})}
            if isinstance(holder, dict | list):
                holder[last] = True
        elif isinstance(part, dict) and loss.keyword != "additionalProperties":
            for word in _GO_TOGETHER.get(loss.keyword, (loss.keyword,)):
                part.pop(word, None)
        elif isinstance(part, dict) and not loss.meaning.startswith("The model can give"):
            part.pop("additionalProperties", None)
    for part in ones:  # of branches that let in more, more than one may fit
        if "oneOf" in part:
            part["allOf"] = [*part.get("allOf", ()), {"anyOf": part.pop("oneOf")}]
    if any(loss.keyword in _EVALUATING for loss in losses):
        # What is taken out no longer counts as evaluated.
        wider = json.loads(json.dumps(wider), object_hook=_without_unevaluated)
    lost: dict[str, Any] = wider
    return lost


def _turns(schema: Any) -> bool:
    return any(f'"{word}"' in json.dumps(schema) for word in ("not", "if", "oneOf", "maxContains"))


_EVALUATING = (
    "anyOf",
    "oneOf",
    "$ref",
    "if",
    "dependentSchemas",
    "patternProperties",
    "prefixItems",
    "contains",
    "items",
)


def _without_unevaluated(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if not key.startswith("unevaluated")}


def needless(schema: dict[str, Any], mode: Accepts, *, strict: bool) -> Iterator[str]:
    """Losses of a *schema* that is in the dialect's own words."""
    counted["schemas"] += 1
    counted["lowered"] += 1
    low = lower(schema, mode, strict=strict)
    counted["losses"] += len(low.losses)
    counted["needless"] += len(low.losses)
    for loss in low.losses:
        yield f"{mode.name}{' strict' if strict else ''} needs no loss: {json.dumps(schema)} but {loss}"
    if low.strict != strict:
        yield f"{mode.name} could be strict: {json.dumps(schema)}"


def same(one: Any, other: Any, schema: Any) -> bool:
    """Whether two values are the same arguments: where null is the default, it is the same as nothing."""
    if '"default": null' in json.dumps(schema):
        one, other = _without_null(one), _without_null(other)
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def written(value: Any, low: Lowered, schema: Any) -> list[Any]:
    """How *value* could be written under a lowered schema: the way back from what `lift` does."""
    if not isinstance(low.lift, Restore):
        return [value]
    names = {own: new for new, own in low.lift.names.items()}
    definitions = low.schema.get("$defs", {})

    def fits(candidate: Any, schema: Any) -> bool:
        return judge({"$ref": "#/$defs/-", "$defs": {**definitions, "-": schema}}).is_valid(candidate)

    def ways(value: Any, schema: Any, depth: int = 0) -> list[Any]:
        if depth > 20 or not isinstance(schema, dict):
            return [value]
        if "$ref" in schema:
            ref = schema["$ref"]
            return ways(value, low.schema if ref == "#" else definitions[ref.removeprefix("#/$defs/")], depth + 1)
        if "anyOf" in schema:
            return [way for branch in schema["anyOf"] for way in ways(value, branch, depth + 1)]
        if isinstance(value, list) and "items" in schema:
            return [[best(item, schema["items"]) for item in value]]
        if isinstance(value, dict) and "properties" in schema:
            absent = dict.fromkeys(schema.get("required", ())) if low.strict else {}
            return [absent | {name: best(v, schema["properties"].get(name, {})) for name, v in value.items()}]
        return [value]

    def best(value: Any, schema: Any) -> Any:
        found = ways(value, schema)
        return next((way for way in found if fits(way, schema)), found[0] if found else value)

    return ways({names.get(name, name): inner for name, inner in value.items()}, low.schema)


def make(schema: Any, root: Any, chance: random.Random, depth: int = 0) -> Any:
    """A value that is likely to be valid under *schema*; the judge decides."""
    if not isinstance(schema, dict):
        return chance.choice([1, "a", None])
    if depth > 7:
        return chance.choice([[], {}, None, "a", 1])
    schema = dict(schema)
    if "$ref" in schema:
        target = root
        for step in schema.pop("$ref").removeprefix("#").split("/")[1:]:
            target = target[int(step) if isinstance(target, list) else step.replace("~1", "/").replace("~0", "~")]
        schema = merged(target, schema)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            schema = merged(schema, chance.choice(schema.pop(keyword)))
            return make(schema, root, chance, depth + 1)
    for part in schema.pop("allOf", ()):
        schema = merged(schema, part)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return chance.choice(schema["enum"])
    kinds = schema.get("type", ["object", "array", "string", "integer", "number", "boolean", "null"])
    if "type" not in schema and {"properties", "required"} & schema.keys():
        kinds = "object"
    match kinds if isinstance(kinds, str) else chance.choice(kinds):
        case "object":
            made = {}
            names = list(schema.get("properties", ()))
            for name in dict.fromkeys([*schema.get("required", ()), *names]):
                if name in schema.get("required", ()) or chance.random() < 0.5:
                    made[name] = make(schema.get("properties", {}).get(name, {}), root, chance, depth + 1)
            if chance.random() < 0.5:
                other = schema.get("additionalProperties", {})
                if other is not False:
                    made[chance.choice(["a", "b", "x1", "y", "k"])] = make(other, root, chance, depth + 1)
                for pattern, inner in schema.get("patternProperties", {}).items():
                    made[pattern.strip("^$") or "p"] = make(inner, root, chance, depth + 1)
            return made
        case "array":
            first = schema.get("prefixItems", [])
            length = max(schema.get("minItems", 0), chance.choice([0, len(first), len(first) + 1]))
            length = min(length, schema.get("maxItems", 9))
            inner = schema.get("items", {})
            return [make(first[i] if i < len(first) else inner, root, chance, depth + 1) for i in range(min(length, 9))]
        case "string":
            text = chance.choice(["", "a", "b", "ab", "2020-01-01", "xyz"])
            return text + "a" * max(0, schema.get("minLength", 0) - len(text))
        case "integer":
            return chance.choice([schema.get("minimum", 0), schema.get("maximum", 5), -3, 0, 1, 2, 5, 7, 12])
        case "number":
            return chance.choice([schema.get("minimum", 0.5), schema.get("maximum", 1.5), -2.5, 0, 1, 5, 7.25])
        case "boolean":
            return chance.random() < 0.5
    return None


def merged(one: Any, other: Any) -> dict[str, Any]:
    """Two schemas as one, roughly."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one if isinstance(one, dict) else other if isinstance(other, dict) else {}
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


# -- schemas made here ---------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "x1", "$top", "k"])
COUNTS = st.integers(0, 3)


def calm(max_examples: int) -> settings:
    return settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))


def own_words(mode: Accepts, *, strict: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas that are in a dialect's own words already."""
    if mode.keywords is None and not strict:
        # Every list must say its items at OpenAI, so none are unevaluated.
        free = SEEDS.map(lambda seed: Generator(seed).schema(1)).filter(
            lambda schema: _readable(schema) and not (mode.needs_items and "unevaluatedItems" in str(schema))
        )
        return st.builds(
            lambda members, more: {"type": "object", "properties": members, **more}, _members(free), CLOSED
        )
    number: st.SearchStrategy[Any] = st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])})
    text = st.fixed_dictionaries({"type": st.just("string")}, optional={"format": st.just("date")})
    listed = st.fixed_dictionaries({"type": st.just("string"), "enum": st.lists(st.sampled_from("abc"), min_size=1)})
    if mode is not accepts.ANTHROPIC:
        number = st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": COUNTS, "maximum": COUNTS})

    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        array = st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"minItems": st.just(1)})
        closed = st.builds(_object, _members(inner), st.lists(NAMES), st.just({"additionalProperties": False}))
        either = st.tuples(closed, text).map(lambda pair: {"anyOf": list(pair), "description": "d"})
        if strict:
            return array | closed | either
        opened = st.builds(_object, _members(inner), st.lists(NAMES), CLOSED | inner.map(_others))
        first = st.lists(inner, min_size=1, max_size=2).map(lambda items: {"type": "array", "prefixItems": items})
        return array | closed | either | opened | first | st.just({}) | st.just({"type": ["string", "null"]})

    inner = st.recursive(number | text | listed | st.just({"type": "boolean"}), grown, max_leaves=6)
    return st.builds(_object, _members(inner), st.lists(NAMES), st.just({"additionalProperties": False}))


CLOSED = st.sampled_from([{}, {"additionalProperties": False}])
SEEDS = st.integers(0, 10**6)


def _members(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["a", "b", "x1", "k"]), inner, max_size=3)


def _object(members: dict[str, Any], required: list[str], more: dict[str, Any]) -> dict[str, Any]:
    kept = [name for name in dict.fromkeys(required) if name in members]
    return {"type": "object", "properties": members, "required": kept, **more}


def _others(inner: Any) -> dict[str, Any]:
    return {"additionalProperties": inner}


def _readable(schema: Any) -> bool:
    return not {"$ref", "$dynamicRef"} & {*json.dumps(schema).split('"')}


def problems_of_chance(seed: int, *, each: int = 12) -> list[str]:
    schema = Generator(seed).whole()
    try:
        judge({"type": "object", **schema})
    except (ValueError, jsonschema_rs.ReferencingError):  # a reference that leads nowhere, for one
        return []
    return list(problems(schema, [], seed=seed, each=each))


@pytest.mark.parametrize("seed", fuzz.seeds(40))
def test_a_lowered_schema_is_never_narrower_or_wider_in_silence(seed: int) -> None:
    assert problems_of_chance(seed) == []


@pytest.mark.parametrize(("mode", "strict"), MODES[:-1], ids=lambda value: getattr(value, "name", value))
def test_a_schema_in_the_dialects_own_words_loses_nothing(mode: Accepts, strict: bool) -> None:
    @calm(12)
    @given(own_words(mode, strict=strict), st.integers(0, 9999))
    def holds(schema: dict[str, Any], seed: int) -> None:
        assert [*needless(schema, mode, strict=strict), *problems(schema, [], seed=seed)] == []

    holds()


# -- real ones -----------------------------------------------------------------------------------------------------

REAL = Path(__file__).parents[1] / "formats" / "schemas"


def real() -> dict[str, dict[str, Any]]:
    """The schemas of the tools of real servers, by server and tool."""
    files = {file.stem: json.loads(file.read_text()) for file in sorted(REAL.glob("*.json"))}
    return {f"{name} {tool}": of for name, data in files.items() for tool, of in data["tools"].items()}


def test_the_tools_of_real_servers_lose_nothing_but_in_strict_mode() -> None:
    found = [problem for schema in real().values() for problem in problems(schema, [])]
    for schema in real().values():
        for mode in (accepts.OPENAI, accepts.ANTHROPIC, accepts.GEMINI, accepts.BEDROCK, accepts.MCP):
            found += needless(schema, mode, strict=False)
    assert found == []
    assert len(real()) == 20
