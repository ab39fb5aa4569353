"""Restores arguments: from what a model wrote under a lowered schema to what the original schema describes.

Two things are undone: names of arguments that a provider refuses, and null where it stands for an absent member.
Values in which nothing has to be undone are returned as the same objects.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .view import SchemaView

_MAX_GROUPS = 2_000  # groups of places that may describe the same value


@dataclass(frozen=True, slots=True, eq=False)
class Restore:
    """What has to be undone under a lowered schema. Called with arguments, it returns them restored.

    *followed*: where references and unions of a place of the original schema lead. *nullable*: the members of an object
    that are absent where they are null. *names*: the arguments' own names by the provider's, where they differ.

    Which branch of a union a value follows is not looked for: `ambiguous` has the places where that would matter.
    """

    root: SchemaView
    followed: Mapping[SchemaView, Iterable[SchemaView]]
    nullable: Mapping[SchemaView, set[str]]
    names: Mapping[str, str]

    @property
    def is_needed(self) -> bool:
        """Whether anything has to be undone, ever."""
        return bool(self.nullable or self.names)

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if not arguments.keys().isdisjoint(self.names):
            own = {self.names.get(name, name) for name in arguments}
            if len(own) == len(arguments):
                arguments = {self.names.get(name, name): value for name, value in arguments.items()}
        restored: dict[str, Any] = self._restore(arguments, self._leaves([self.root])) if self.nullable else arguments
        return restored

    def _restore(self, value: Any, views: frozenset[SchemaView]) -> Any:
        if isinstance(value, dict):
            restored = {
                name: self._restore(inner, self._members(views, name))
                for name, inner in value.items()
                if inner is not None or not any(name in self.nullable.get(view, ()) for view in views)
            }
            is_same = len(restored) == len(value) and all(restored[name] is value[name] for name in value)
            return value if is_same else restored
        if isinstance(value, list):
            inside = self._items(views)
            items = [self._restore(item, inside) for item in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        return value

    def ambiguous(self) -> Iterator[SchemaView]:
        """Return the members that are absent if null under one description of a value, and may be null under another.

        Descriptions that may hold for the same value are looked at together, as `_restore` does.
        """
        waiting = [self._leaves([self.root])] if self.nullable else []
        seen = set(waiting)
        while waiting:
            views = waiting.pop()
            groups = [self._items(views)]
            for name in {name for view in views for name in view.members}:
                groups.append(self._members(views, name))
                absent = [view for view in views if name in self.nullable.get(view, ())]
                others = [view.members[name] for view in views.difference(absent) if name in view.members]
                if absent and (others := [member for member in others if member.is_valid(None)]):
                    yield others[0]
            new = [group for group in groups if group and group not in seen]
            if len(seen) > _MAX_GROUPS:
                yield self.root
                return
            seen.update(new)
            waiting += new

    def _members(self, views: Iterable[SchemaView], name: str) -> frozenset[SchemaView]:
        return self._leaves([view.members[name] for view in views if name in view.members])

    def _items(self, views: Iterable[SchemaView]) -> frozenset[SchemaView]:
        return self._leaves([view.at("items") for view in views if "items" in view.schema])

    def _leaves(self, views: list[SchemaView]) -> frozenset[SchemaView]:
        """Return the places that *views* lead to, which are no references and no unions."""
        seen, waiting = set(views), list(views)
        while waiting:
            new = [view for view in self.followed.get(waiting.pop(), ()) if view not in seen]
            seen.update(new)
            waiting += new
        return frozenset(view for view in seen if view not in self.followed)
