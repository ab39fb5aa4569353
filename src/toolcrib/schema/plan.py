"""What pydantic's plan of the arguments (the core schema) says of names, Decimals and a user's code."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class Field(NamedTuple):
    """One field of an object: the paths under which it is accepted, the first as in the JSON Schema."""

    name: str
    plan: Mapping[str, Any]
    paths: tuple[Path, ...]


class Plan:
    """The plan of the arguments: `has_names` where a field has several names, `decimals` and `has_factories` where
    there are any.

    `names` are the groups of names by which a call may send the same member: a field's own name, and its aliases.
    `code` is what a user's types run to make the values: validators, factories of defaults, hooks of construction.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.refs: dict[str, Mapping[str, Any]] = {}
        self.fields: dict[int, tuple[Field, ...]] = {}
        self.code: list[Any] = []
        self.names: dict[frozenset[str], None] = {}
        self.decimals = self.has_names = self.has_factories = False
        self._find(root, {})

    def _find(self, plan: Any, config: Mapping[str, Any]) -> None:
        """Note what is anywhere in *plan*, and the fields of its objects."""
        if isinstance(plan, list | tuple):
            for part in plan:
                self._find(part, config)
        if not isinstance(plan, Mapping):
            return
        kind = plan.get("type")
        if kind == "definitions":
            self.refs |= {each["ref"]: each for each in plan["definitions"]}
        config = plan.get("config") or config
        if kind in ("model-fields", "dataclass-args", "typed-dict", "named-tuple"):
            fields = self.fields[id(plan)] = tuple(_fields(plan, config))
            self.has_names = self.has_names or any(len(field.paths) > 1 for field in fields)
            # A path of several steps is another place, and not another name.
            groups = (frozenset([f.name, *(str(p[0]) for p in f.paths if len(p) == 1)]) for f in fields)
            self.names |= dict.fromkeys(group for group in groups if len(group) > 1)
        self.decimals = self.decimals or kind == "decimal"
        if plan.get("post_init") or plan.get("custom_init"):
            self.code += [getattr(plan["cls"], hook, None) for hook in ("__init__", "__post_init__", "model_post_init")]
        if isinstance(function := plan.get("function"), Mapping):
            self.code.append(function["function"])
        self.code.append(plan.get("default_factory"))
        self.has_factories = self.has_factories or "default_factory" in plan
        for key, part in plan.items():
            if key in ("fields", "choices") and isinstance(part, Mapping):
                self._find(list(part.values()), config)  # their names are a user's
            elif key not in _NO_PLAN:
                self._find(part, config)


_NO_PLAN = frozenset({"cls", "config", "function", "metadata", "default", "serialization", "expected"})


def _fields(plan: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Field]:
    listed: Any = plan["fields"]
    by_alias = config.get("validate_by_alias") is not False
    by_name = bool(config.get("validate_by_name") or config.get("populate_by_name"))
    for name, field in listed.items() if isinstance(listed, Mapping) else ((each["name"], each) for each in listed):
        alias = field.get("validation_alias")
        paths: list[Path] = []
        if by_alias and alias is not None:
            paths = [(alias,)] if isinstance(alias, str) else [tuple(path) for path in _paths(alias)]
        if not paths or by_name:
            paths.append((name,))
        if field.get("init") is False:
            paths = []
        yield Field(name, field["schema"], tuple(dict.fromkeys(paths)))


def _paths(alias: Sequence[Any]) -> Sequence[Sequence[Any]]:
    return alias if isinstance(alias[0], list | tuple) else [alias]
