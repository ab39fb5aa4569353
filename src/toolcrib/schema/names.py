"""The names by which a call may send the same member: a field's own name, and its aliases."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

_HOLDERS = ("model-fields", "typed-dict", "dataclass-args")


def accepted_names(adapter: TypeAdapter[Any]) -> Sequence[frozenset[str]]:
    """The groups of names of one field each, of all types that *adapter* reads; none for fields with a single name."""
    return tuple(dict.fromkeys(group for group in _groups(adapter.core_schema) if len(group) > 1))


def _groups(schema: Any) -> Iterator[frozenset[str]]:
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if part.get("type") in _HOLDERS:
                fields = part["fields"]
                named = fields.items() if isinstance(fields, Mapping) else [(each["name"], each) for each in fields]
                yield from (frozenset((name, *_aliases(field.get("validation_alias")))) for name, field in named)
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)


def _aliases(alias: Any) -> Sequence[str]:
    # A path of several steps is another place, and not another name.
    match alias:
        case str():
            return (alias,)
        case [str(name)]:
            return (name,)
        case [*paths]:
            return [name for path in paths if isinstance(path, list) for name in _aliases(path)]
        case _:
            return ()
