"""A JSON Schema without `$ref`s, for readers that do not follow them."""

from collections.abc import Mapping
from typing import Any

from .places import Part, Places, rebuilt


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema*, with what its `$ref`s lead to in the place of each.

    What stands beside a `$ref` goes before what it leads to. Definitions that contain themselves cannot be put in
    place: they stay in `$defs`, and the `$ref`s to them stay too. A `$ref` that leads anywhere but into `$defs` stays.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    places = Places({"$defs": definitions})
    recursive = {name for name in definitions if (part := places.root.at("$defs", name)) in places.reach(part)}
    kept: set[str] = set()

    def put(part: Part) -> Any:
        if not isinstance(part.schema, Mapping):
            return part.schema
        out = rebuilt(part, put)
        if isinstance(discriminator := out.get("discriminator"), Mapping):
            # OpenAPI's: its mapping leads to definitions, and these are gone.
            out["discriminator"] = {name: inner for name, inner in discriminator.items() if name != "mapping"}
        name = _definition(part.schema.get("$ref"))
        if name not in definitions:
            return out
        if name in recursive:
            kept.add(name)
            return out
        del out["$ref"]
        return {**put(places.root.at("$defs", name)), **out}

    whole: dict[str, Any] = put(Part("", {key: value for key, value in schema.items() if key != "$defs"}))
    done: dict[str, Any] = {}
    while left := kept - done.keys():
        done |= {name: put(places.root.at("$defs", name)) for name in sorted(left)}
    return {**whole, "$defs": done} if done else whole


def _definition(ref: Any) -> str:
    """The name of the definition that *ref* leads to; empty for another place."""
    found = isinstance(ref, str) and ref.startswith("#/$defs/")
    return ref.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~") if found else ""
