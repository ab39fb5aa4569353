"""A JSON Schema without `$ref`s, for readers that do not follow them."""

from collections.abc import Mapping
from typing import Any

from .view import SchemaView, steps


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema* with what its `$ref`s lead to in the place of each.

    What stands beside a `$ref` goes before what it leads to. Definitions that contain themselves cannot be put in
    place: they stay in `$defs`, and the `$ref`s to them stay too. A `$ref` that leads anywhere but into `$defs` stays.
    """
    definitions = SchemaView({"$defs": schema.get("$defs", {})})
    recursive_names: set[str] = set()

    def put(view: SchemaView) -> Any:
        inner = view.rebuilt(put)
        if isinstance(discriminator := inner.get("discriminator"), Mapping):
            # OpenAPI's: its mapping leads to definitions, and these are gone.
            inner["discriminator"] = {name: value for name, value in discriminator.items() if name != "mapping"}
        reference = view.schema.get("$ref")
        path = steps(reference) if isinstance(reference, str) and reference.startswith("#/$defs/") else []
        if len(path) != 2 or path[1] not in definitions.schema["$defs"]:
            return inner
        target = definitions.at(*path)
        if target.is_recursive:
            recursive_names.add(path[1])
            return inner
        del inner["$ref"]
        return {**put(target), **inner}

    names = ("$id", "$schema")
    whole: dict[str, Any] = put(SchemaView({key: value for key, value in schema.items() if key != "$defs"}))
    done: dict[str, Any] = {}
    while left := recursive_names - done.keys():
        done |= {name: put(definitions.at("$defs", name)) for name in sorted(left)}
    whole = {**{name: schema[name] for name in names if name in schema}, **whole}
    return {**whole, "$defs": done} if done else whole
