"""The names of operations as tools: those of the document where they can be names, each once, at most 64 characters.

A name depends on the operation, and where two would have one name, on the other operation; not on their order.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from .operation import Operation

NAMELESS = re.compile(r"[^A-Za-z0-9_-]+")
_MOST_NAME = 64


def named(found: Sequence[tuple[Operation, bool]]) -> list[Operation]:
    """The operations, in their order, each under a name of its own, which does not depend on that order."""

    def rank(index: int) -> tuple[bool, bool, str, str]:
        operation, is_named = found[index]
        plain = _plain(operation.name)
        return not is_named, plain != operation.name, operation.path, operation.method

    names: dict[int, str] = {}
    taken: set[str] = set()
    for index in sorted(range(len(found)), key=rank):
        operation, _ = found[index]
        name = _plain(operation.name)
        if len(name) > _MOST_NAME:
            name = f"{name[: _MOST_NAME - 7]}_{_mark(operation, 6)}"
        length = 6
        # A registry takes `-` and `_` as one.
        while name.replace("-", "_") in taken:
            name, length = f"{_plain(operation.name)[: _MOST_NAME - 1 - length]}_{_mark(operation, length)}", length + 2
        taken.add(name.replace("-", "_"))
        names[index] = name
    return [
        operation if operation.name == names[index] else replace(operation, name=names[index])
        for index, (operation, _) in enumerate(found)
    ]


def _mark(operation: Operation, length: int) -> str:
    return hashlib.sha256(operation.label.encode()).hexdigest()[:length]


def _plain(name: str) -> str:
    return NAMELESS.sub("_", name).strip("_") or "operation"
