"""A JSON Schema without `$ref`s, for readers that do not follow them."""

from collections.abc import Iterator, Mapping
from typing import Any

_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data: a `$ref` in them is none."""

_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
_PREFIX = "#/$defs/"


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema*, what its `$ref`s lead to in the place of each.

    What stands beside a `$ref` goes before what it leads to. Definitions that contain themselves cannot be put in
    place: they stay in `$defs`, and the `$ref`s to them stay too. A `$ref` that leads anywhere but into `$defs` stays.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    recursive = {name for name in definitions if _reaches(name, definitions)}
    kept: set[str] = set()

    def put(part: Any) -> Any:
        if isinstance(part, list):
            return [put(item) for item in part]
        if not isinstance(part, Mapping):
            return part
        beside = {key: put_in(key, value) for key, value in part.items() if key != "$ref"}
        if (name := _target(part, definitions)) is None:
            return {key: part["$ref"] if key == "$ref" else beside[key] for key in part}
        if name in recursive:
            kept.add(name)
            return {"$ref": part["$ref"], **beside}
        return {**put(definitions[name]), **beside}

    def put_in(key: str, value: Any) -> Any:
        if key in _DATA:
            return value
        if key == "discriminator" and isinstance(value, Mapping):
            # OpenAPI's: its mapping leads to definitions, and these are gone.
            return {name: inner for name, inner in value.items() if name != "mapping"}
        if key in _BY_NAME and isinstance(value, Mapping):
            return {name: put(inner) for name, inner in value.items()}
        return put(value)

    whole: dict[str, Any] = put({key: value for key, value in schema.items() if key != "$defs"})
    done: dict[str, Any] = {}
    while left := kept - done.keys():
        for name in sorted(left):
            done[name] = put(definitions[name])
    return {**whole, "$defs": done} if done else whole


def _reaches(start: str, definitions: Mapping[str, Any]) -> bool:
    """Whether the definition *start* contains itself."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in _named_in(definitions[waiting.pop()], definitions):
            if name == start:
                return True
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return False


def _named_in(part: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _named_in(item, definitions)
    elif isinstance(part, Mapping):
        if (name := _target(part, definitions)) is not None:
            yield name
        for key, value in part.items():
            if key not in _DATA:
                inner = list(value.values()) if key in _BY_NAME and isinstance(value, Mapping) else value
                yield from _named_in(inner, definitions)


def _target(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> str | None:
    """The definition that a `$ref` in *part* leads to."""
    ref = part.get("$ref")
    if not isinstance(ref, str) or not ref.startswith(_PREFIX):
        return None
    name = ref.removeprefix(_PREFIX).replace("~1", "/").replace("~0", "~")
    return name if name in definitions else None
