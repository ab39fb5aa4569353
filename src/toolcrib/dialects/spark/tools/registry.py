"""`spark.tools.registry`: the tools of a program by name, as specs and by reference."""

import copy
import inspect
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from ....core import DefinitionError, ToolcribError
from ....tools import Tool, load, reference
from ....tools.function import require_name
from ..utils.import_utils import import_from_ref
from ._alias import renamed
from .decorator import DecoratedFunctionTool
from .tools import normalize_property, normalize_tool_spec
from .types import BaseTool, ToolSpec

logger = logging.getLogger(__name__)

_TAKES = (
    "a tool (decorate a function with @tool), the name of a registered one, a reference 'module.path:function', "
    "a .py file or a folder of them, a module, or a list of these"
)


class ToolRegistry:
    """Tools by name: `registry` holds all of them, `dynamic_tools` those loaded while the program runs.

    `tool_refs` says by which reference each can be imported again, as far as that is known.
    """

    def __init__(self) -> None:
        self.registry: dict[str, BaseTool] = {}
        self.dynamic_tools: dict[str, BaseTool] = {}
        self.tool_refs: dict[str, str] = {}

    def process_tools(self, tools: list[Any]) -> list[str]:
        """Register what *tools* stand for, and give the names.

        An entry is a tool, the name of one that is registered, a reference (`module.path:function`), a `.py` file or a
        folder of them, a module or its name, or a list of these; and so may *tools* be. Raises ValueError for anything
        else, before any is registered, and where a name is taken.
        """
        found = [part for entry in _flat([tools]) for part in self._understood(entry)]
        for part in found:
            if not part.is_known:
                self.register_tool(part.tool)
            if part.ref is not None:
                self.tool_refs[part.tool.tool_name] = part.ref
        return [part.tool.tool_name for part in found]

    def register_tool(self, tool: BaseTool) -> None:
        """Add *tool*.

        Raises ValueError where its name is taken, or differs from another only in `-` and `_`. A tool that supports
        hot reload takes the place of an older version of the same function of the same module.
        """
        given: object = tool
        if not isinstance(given, BaseTool):
            raise ValueError(
                f"A {type(given).__name__} is no tool. Decorate the function with @tool, or subclass BaseTool."
            )
        try:
            name = require_name(tool.tool_name)
        except DefinitionError as error:
            raise ValueError(str(error)) from None
        folded = name.replace("-", "_")
        taken = next((other for other in self.registry if other.replace("-", "_") == folded), None)
        if taken is not None and taken != name:
            raise ValueError(
                f"Tool name '{name}' already exists as '{taken}'. "
                "Cannot add a duplicate tool which differs by a '-' or '_'."
            )
        if taken is not None and not (tool.supports_hot_reload and _is_reload(self.registry[taken], tool)):
            raise ValueError(f"Tool name '{name}' already exists. Cannot register tools with exact same name.")
        try:
            tool.__toolcrib__()
        except DefinitionError as error:
            raise ValueError(str(error)) from error
        self.registry[name] = tool
        self.tool_refs.pop(name, None)
        if (ref := _reference(tool)) is not None:
            self.tool_refs[name] = ref
        if tool.is_dynamic:
            self.dynamic_tools[name] = tool
        logger.debug("tool '%s' (%s) registered", name, tool.tool_type)

    def register_tool_by_ref(
        self, ref: str, tool_name: str | None = None, *, trusted: Sequence[str] | None = None
    ) -> None:
        """Add the tool at *ref*, `module.path:function_name`, under its own name or under *tool_name*.

        Importing runs a module's code: with *trusted* packages named, no other is imported. Raises ValueError where the
        reference is none, cannot be imported or leads to no tool, and where the name is taken.
        """
        tool = _at(ref, trusted)
        if tool_name is not None and tool_name != tool.tool_name:
            tool = renamed(tool, tool_name)
        self.register_tool(tool)
        self.tool_refs[tool.tool_name] = ref

    def get_tool(self, tool_name: str) -> BaseTool:
        """The tool of that name. Raises KeyError."""
        tool = self.registry.get(tool_name) or self.dynamic_tools.get(tool_name)
        if tool is None:
            raise KeyError(f"Tool '{tool_name}' is not registered")
        return tool

    def get_all_tool_specs(self) -> list[ToolSpec]:
        """What all tools promise, each spec a copy."""
        return list(self.get_all_tools_config().values())

    def get_all_tools_config(self) -> dict[str, Any]:
        """What all tools promise, by name, each spec a copy. One whose spec is invalid is left out, and logged."""
        found: dict[str, Any] = {}
        for name, tool in {**self.dynamic_tools, **self.registry}.items():
            try:
                # What a function's annotations gave is whole already.
                is_whole = isinstance(tool, DecoratedFunctionTool)
                spec = copy.deepcopy(tool.tool_spec) if is_whole else normalize_tool_spec(tool.tool_spec)
                if not is_whole:
                    self.validate_tool_spec(spec)
            except (ValueError, ToolcribError) as error:
                logger.warning("the spec of tool '%s' is left out: %s", name, error)
                continue
            found[name] = spec
        return found

    def validate_tool_spec(self, tool_spec: ToolSpec) -> None:
        """Make sure that *tool_spec* is one, and fill in what may be left out.

        A bare schema is put under "json"; "type", "properties" and "required" are filled in, and the type and
        description of each property. Raises ValueError where it is no spec.
        """
        from ....schema import require_schema

        if not isinstance(tool_spec, dict):
            raise ValueError(f"A tool spec is a dictionary, not {type(tool_spec).__name__}.")
        if missing := [field for field in ("name", "description") if field not in tool_spec]:
            raise ValueError(f"Missing required fields in tool spec: {', '.join(missing)}")
        if wrong := [field for field in ("name", "description") if not isinstance(tool_spec.get(field), str)]:
            raise ValueError(f"The {wrong[0]} of a tool spec is text.")
        label = f"Tool '{tool_spec['name']}'"
        parameters: Any = tool_spec.setdefault("parameters", {"json": {}})
        if not isinstance(parameters, dict):
            raise ValueError(f"{label}: parameters are a dictionary, {{'json': <JSON Schema>}}.")
        schema = parameters.get("json")
        if not isinstance(schema, dict):
            if schema is not None:
                raise ValueError(f"{label}: 'json' of its parameters is a {type(schema).__name__}, not a JSON Schema.")
            schema = parameters
        filled = {"type": "object", "properties": {}, "required": [], **schema}
        if isinstance(filled["properties"], dict):
            filled["properties"] = {name: normalize_property(name, of) for name, of in filled["properties"].items()}
        try:
            require_schema(filled, label=label)
        except DefinitionError as error:
            raise ValueError(str(error)) from None
        tool_spec["parameters"] = {"json": filled}

    def get_tool_ref(self, tool_name: str) -> str | None:
        """The reference by which a tool can be imported again; None where there is none."""
        return self.tool_refs.get(tool_name)

    def to_spec_dict(self) -> dict[str, Any]:
        """The registry as JSON data: `{"tools": [{"name", "spec", "ref"?, "metadata"}]}`."""
        return {"tools": [self._entry(name, tool) for name, tool in self.registry.items()]}

    @classmethod
    def from_spec_dict(cls, spec: dict[str, Any], *, trusted: Sequence[str] | None = None) -> Self:
        """The registry that `to_spec_dict` wrote: every tool, by its reference.

        Importing runs a module's code: for a *spec* from elsewhere, name the *trusted* packages, and no other is
        imported. Raises ValueError where a tool has no reference or cannot be imported.
        """
        given: object = spec
        entries = given.get("tools", []) if isinstance(given, Mapping) else None
        if not isinstance(entries, list):
            raise ValueError('A registry is written as {"tools": [{"name": ..., "ref": "module:name"}, ...]}.')
        made = cls()
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, Mapping) or not isinstance(entry.get("ref"), str):
                name = f" '{entry['name']}'" if isinstance(entry, Mapping) and "name" in entry else ""
                raise ValueError(
                    f"Tool {number}{name} has no 'ref' of the form 'module:name', so it cannot be loaded. "
                    "Define it at the top of a module that can be imported."
                )
            made.register_tool_by_ref(entry["ref"], entry.get("name"), trusted=trusted)
        return made

    def __toolcrib__(self) -> list[Tool[..., Any]]:
        return [tool.__toolcrib__() for tool in self.registry.values()]

    def _understood(self, entry: Any) -> "list[_Found]":
        """The tools that *entry* stands for."""
        if isinstance(entry, BaseTool):
            return [_Found(entry)]
        if isinstance(entry, str) and entry in self.registry:
            return [_Found(self.registry[entry], is_known=True)]
        if isinstance(entry, str) and ":" in entry and not _is_path(entry):
            return [_Found(_at(entry, None), entry)]
        if not isinstance(entry, str | Path | ModuleType):
            kind = f"The class {entry.__name__}" if isinstance(entry, type) else f"A {type(entry).__name__}"
            raise ValueError(f"{kind} is no specification of a tool. That is {_TAKES}.")
        shown = entry.__name__ if isinstance(entry, ModuleType) else str(entry)
        try:
            loaded = load(entry)
        except ToolcribError as error:
            raise ValueError(f"'{shown}' is no specification of a tool: {error}") from error
        if loaded.problems:
            raise ValueError(f"'{shown}' cannot be loaded: {loaded.problems[0]}")
        found: list[_Found] = []
        for tool in loaded.tools:
            of: Any = tool.fn
            if not isinstance(of, BaseTool):
                raise ValueError(
                    f"'{tool.spec.name}' in '{shown}' is no Spark tool. Put both into a Workbench, which takes either."
                )
            if not isinstance(entry, ModuleType) and _is_path(shown):
                of.mark_dynamic()
            found.append(_Found(of))
        return found

    def _entry(self, name: str, tool: BaseTool) -> dict[str, Any]:
        ref = self.tool_refs.get(name)
        return {
            "name": name,
            "spec": copy.deepcopy(tool.tool_spec),
            **({} if ref is None else {"ref": ref}),
            "metadata": {
                "tool_type": tool.tool_type,
                "is_dynamic": tool.is_dynamic,
                "supports_async": tool.supports_async,
                "is_long_running": tool.is_long_running,
                "supports_hot_reload": tool.supports_hot_reload,
            },
        }


def _flat(tools: Any) -> Iterator[Any]:
    for entry in tools:
        if isinstance(entry, Iterable) and not isinstance(entry, str | bytes | bytearray | Mapping | BaseTool | type):
            yield from _flat(entry)
        else:
            yield entry


@dataclass(frozen=True, slots=True)
class _Found:
    """A tool, the reference by which it was named, and whether it is in the registry."""

    tool: BaseTool
    ref: str | None = None
    is_known: bool = False


def _at(ref: str, trusted: Sequence[str] | None) -> BaseTool:
    try:
        found: Any = import_from_ref(ref, trusted=trusted)
    except ImportError as error:
        raise ValueError(f"Invalid tool reference {ref!r}: {error}") from error
    if not isinstance(found, BaseTool):
        raise ValueError(f"Tool at {ref!r} is not a BaseTool instance. Use the @tool decorator or subclass BaseTool.")
    return found


def _is_path(text: str) -> bool:
    return text.endswith(".py") or ".py:" in text or "/" in text or os.sep in text or Path(text).is_dir()


def _function(tool: BaseTool) -> Any:
    return getattr(tool, "tool_func", getattr(tool, "_tool_func", None))


def _is_reload(old: BaseTool, new: BaseTool) -> bool:
    """Whether *new* is of the same function of the same module as *old*, perhaps a newer version of it."""
    before, after = _function(old), _function(new)
    if before is None or inspect.ismethod(before) or inspect.ismethod(after):
        return before is not None and before == after
    if before is after:
        return True
    place = [(getattr(fn, "__module__", None), getattr(fn, "__qualname__", "<unnamed>")) for fn in (before, after)]
    # What is local is not made again by a reload.
    return place[0] == place[1] and "<" not in place[0][1]


def _reference(tool: BaseTool) -> str | None:
    """By which reference *tool* can be imported again; None where that is not known."""
    ref = reference(getattr(tool, "tool_func", None))
    if ref is None:
        return None
    module, _, path = ref.partition(":")
    there: Any = sys.modules.get(module)
    for part in path.split("."):
        there = getattr(there, part, None)
    # Another object may stand there: the plain function of `search = tool(fn)`.
    return None if there is not None and not isinstance(there, BaseTool) else ref
