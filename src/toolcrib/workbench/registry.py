"""Names to tools: conflicts, references, serialization."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..core import LoadError, NameConflictError, ToolcribError, ToolSpec, UnknownToolError
from ..core.source import Listeners
from ..tools import Tool, as_tool
from ..tools.loading import imported, place_of


class Registry:
    """Tools by name. Looking one up costs the same for any number of them; `specs()` is made once for each change.

    `find(name)` returns the Tool of a name or None, as fast as a dictionary does.

    Names that differ only in `-` and `_` are one name to many models and providers, so only one of them is let in.
    """

    def __init__(self, tools: Iterable[Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool[..., Any]] = {}
        self.find = self._tools.get
        self._folded: dict[str, str] = {}
        self._specs: tuple[ToolSpec, ...] | None = None
        self._conditional: tuple[Tool[..., Any], ...] = ()
        self._lock = threading.Lock()
        self._listeners = Listeners()
        for tool in tools:
            self.add(tool)

    def add(self, tool: Callable[..., Any]) -> Tool[..., Any]:
        """Add a Tool, or the Tool of a callable. Raises NameConflictError, DefinitionError."""
        new_tool = as_tool(tool)
        holder = self.holder(new_tool.spec.name)
        if holder is new_tool:
            return new_tool  # the same Tool, from a second source
        if holder is not None:
            name = holder.spec.name
            if name == new_tool.spec.name:
                raise NameConflictError(
                    f"The registry already has a tool '{name}'. "
                    "Give the new one another name, or replace() the old one."
                )
            raise NameConflictError(
                f"The registry has a tool whose name differs only in - and _, '{name}'. "
                f"Give '{new_tool.spec.name}' another name, or remove() the old one first."
            )
        self._put(new_tool)
        self._changed()
        return new_tool

    def holder(self, name: str) -> Tool[..., Any] | None:
        """Return the tool that *name* is in conflict with: that of the name, or of one that differs in - and _."""
        folded_name = self._folded.get(fold(name))
        return None if folded_name is None else self._tools.get(folded_name)

    def replace(self, tool: Callable[..., Any]) -> Tool[..., Any]:
        """Put a tool in the place of the one of its name. Raises UnknownToolError where there is none."""
        new_tool = as_tool(tool)
        self.get(new_tool.spec.name)
        self._put(new_tool)
        self._changed()
        return new_tool

    def remove(self, name: str) -> Tool[..., Any]:
        """Take a tool out and give it back. Raises UnknownToolError."""
        tool = self.get(name)
        del self._tools[name], self._folded[fold(name)]
        self._changed()
        return tool

    def exchange(self, old: Iterable[str], new: Iterable[Callable[..., Any]]) -> None:
        """Take out the tools of the names *old* and put *new* ones in: all or none, as one change, from any thread.

        What keeps its name keeps its place. Raises UnknownToolError, NameConflictError, DefinitionError.
        """
        new_tools = [*map(as_tool, new)]
        with self._lock:
            old_tools = {name: self.get(name) for name in old}
            holders = {folded: self._tools[name] for folded, name in self._folded.items() if name not in old_tools}
            for tool in new_tools:
                holder = holders.setdefault(fold(tool.spec.name), tool)
                if holder is not tool:
                    raise NameConflictError(
                        f"'{tool.spec.name}'{_at(tool)} cannot be put in: there is a tool '{holder.spec.name}'"
                        f'{_at(holder)}. Give one of them another name: @tool(name="...").'
                    )
            # The new before the old goes: who looks one up meanwhile, in another thread, finds this one or that.
            for tool in new_tools:
                self._put(tool)
            names = {tool.spec.name for tool in new_tools}
            for name in old_tools.keys() - names:
                del self._tools[name]
                if self._folded[fold(name)] == name:
                    del self._folded[fold(name)]
        self._changed()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback*, which must not raise, after each change, in its thread. Returns what ends that."""
        return self._listeners.add(callback)

    def get(self, name: str) -> Tool[..., Any]:
        """Return the tool of that name. Raises UnknownToolError, naming the nearest."""
        try:
            return self._tools[name]
        except KeyError:
            raise UnknownToolError(unknown(name, self._tools)) from None

    def specs(self) -> Sequence[ToolSpec]:
        """Return what the tools promise, in the order in which they were added."""
        specs = self._specs
        if specs is None:
            with self._lock:
                specs = self._specs = tuple(tool.spec for tool in self._tools.values())
                self._conditional = tuple(tool for tool in self._tools.values() if tool.available is not None)
        return specs

    def conditional(self) -> Sequence[Tool[..., Any]]:
        """Return the tools that not every caller may see at every time."""
        self.specs()
        return self._conditional

    def to_dict(self) -> dict[str, Any]:
        """Return the registry by reference, as JSON data: `{"tools": [{"name": ..., "ref": "module:name"}]}`.

        Raises ToolcribError for a tool that cannot be imported again: a local function, a lambda, a bound method, or
        one whose reference leads elsewhere.
        """
        return {"tools": [{"name": tool.spec.name, "ref": _checked_reference(tool)} for tool in self]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, trusted: Sequence[str] | None = None) -> "Registry":
        """Return the registry that `to_dict` wrote. Its modules are imported; no source text is ever executed.

        Importing runs a module's code: for *data* from elsewhere, name the *trusted* packages. No other is imported,
        and only what these define themselves is registered, not what they import. Raises LoadError, naming the entry at
        fault; nothing is registered then.
        """
        entries = data.get("tools")
        if not isinstance(entries, list):
            raise LoadError('A registry is written as {"tools": [{"name": ..., "ref": "module:name"}, ...]}.')
        registry = cls()
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, Mapping) or not isinstance(entry.get("ref"), str):
                raise LoadError(f'Entry {number} of the registry has no "ref" of the form "module:name".')
            tool = _imported(entry["ref"], trusted)
            if entry.get("name", tool.spec.name) != tool.spec.name:
                raise LoadError(
                    f"Entry {number} of the registry is named '{entry['name']}', and {entry['ref']} is a tool named "
                    f"'{tool.spec.name}' now."
                )
            registry.add(tool)
        return registry

    def __getitem__(self, name: str) -> Tool[..., Any]:
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(tuple(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"<Registry of {len(self)} tools>"

    def _put(self, tool: Tool[..., Any]) -> None:
        self._tools[tool.spec.name] = tool
        self._folded[fold(tool.spec.name)] = tool.spec.name

    def _changed(self) -> None:
        with self._lock:
            self._specs = None
        self._listeners.notify()


def free_name(registry: Registry, names: Iterable[str]) -> str | None:
    """Return the first of *names* that no tool of *registry* has; None if there is none."""
    return next((name for name in names if registry.holder(name) is None), None)


def unknown(name: str, names: Iterable[str]) -> str:
    """Return the message for a name that is not there."""
    from ..schema import closest_match, did_you_mean, display_name

    all_names = list(names)
    hint = did_you_mean(closest_match(name, all_names))
    list_hint = (
        f" The tools are: {', '.join(all_names[:20])}{', …' if len(all_names) > 20 else ''}." if all_names else ""
    )
    return f"There is no tool '{display_name(name)}'.{hint}{list_hint or ' There are no tools here.'}"


def _at(tool: Tool[..., Any]) -> str:
    place = place_of(tool.fn)
    return "" if place is None else f" ({place})"


def fold(name: str) -> str:
    """Return *name* as it is compared with others."""
    return name.replace("-", "_")


def _checked_reference(tool: Tool[..., Any]) -> str:
    if tool.ref is None:
        raise ToolcribError(
            f"Tool '{tool.spec.name}' cannot be written by reference: its function is local, bound or a lambda. "
            "Define it at the top of a module."
        )
    try:
        imported_tool = _imported(tool.ref, None)
    except LoadError as error:
        raise ToolcribError(f"Tool '{tool.spec.name}' cannot be written by reference: {error}") from None
    if imported_tool.spec != tool.spec:
        raise ToolcribError(
            f"Tool '{tool.spec.name}' cannot be written by reference: {tool.ref} is another tool. Mark the function "
            "itself with @tool and its options."
        )
    return tool.ref


def _imported(ref: str, trusted: Sequence[str] | None) -> Tool[..., Any]:
    value = imported(ref, trusted=trusted)
    if not callable(value):
        raise LoadError(f"'{ref}' is a {type(value).__name__}, not a tool.")
    return as_tool(value)
