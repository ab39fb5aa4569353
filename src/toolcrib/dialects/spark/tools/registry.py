"""`spark.tools.registry`: the tools of a program, by name, as specs and by reference."""

import copy
import inspect
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

from ....core import DefinitionError, ToolcribError
from ....schema import require_schema
from ....tools import Tool, load, reference, referent, require_name
from ..utils.import_utils import import_from_ref
from ._core_tool import normalize_schema, schema_in, without_references
from .decorator import DecoratedFunctionTool
from .decorator import tool as make_tool
from .tools import normalize_tool_spec, renamed
from .types import BaseTool, ToolSpec

logger = logging.getLogger(__name__)

_SPECIFICATIONS = (
    "a tool, a function, the name of a registered one, a reference 'module.path:function', "
    "a .py file or a folder of them, a module, or a list of these"
)


class ToolRegistry:
    """Tools by name: `registry` has all of them, `dynamic_tools` those loaded while the program runs.

    `tool_refs` has the known references by which they can be imported again. `tool_config` is the program's own.
    """

    def __init__(self) -> None:
        self.registry: dict[str, BaseTool] = {}
        self.dynamic_tools: dict[str, BaseTool] = {}
        self.tool_config: dict[str, Any] | None = None
        self.tool_refs: dict[str, str] = {}

    def process_tools(self, tools: list[Any]) -> list[str]:
        """Register the tools that *tools* specify and return their names.

        An entry is a tool, a function (which becomes one, as by `@tool`), the name of a registered one, a reference
        (`module.path:function`), a `.py` file or a folder of them, a module or its name, or a list of these. Raises
        ValueError for anything else, before any tool is registered, and for a name that is taken.
        """
        entries = [match for entry in _flattened([tools]) for match in self._find(entry)]
        for tool, ref, is_registered in entries:
            if not is_registered:
                self.register_tool(tool)
            if ref is not None:
                self.tool_refs[tool.tool_name] = ref
        return [entry.tool.tool_name for entry in entries]

    def register_tool(self, tool: BaseTool) -> None:
        """Add *tool*.

        A tool that supports hot reload replaces an older version of the same function in the same module. Raises
        ValueError for a name that is taken, or that differs from another only in `-` and `_`.
        """
        candidate: object = tool
        if not isinstance(candidate, BaseTool):
            raise ValueError(
                f"A {type(candidate).__name__} is not a tool. Decorate the function with @tool, or subclass BaseTool."
            )
        try:
            name = require_name(tool.tool_name)
            tool.__toolcrib__()
        except DefinitionError as error:
            raise ValueError(str(error)) from error
        self._require_free(name, tool)
        self.registry[name] = tool
        self.tool_refs.pop(name, None)
        if (ref := _reference(tool)) is not None:
            self.tool_refs[name] = ref
        if tool.is_dynamic:
            self.dynamic_tools[name] = tool
        logger.debug("tool '%s' (%s) registered", name, tool.tool_type)

    def _require_free(self, name: str, tool: BaseTool) -> None:
        """Raise ValueError where another tool has the *name*, or one that differs only in `-` and `_`."""
        folded = name.replace("-", "_")
        old = next((key for key in self.registry if key.replace("-", "_") == folded), name)
        if old != name:
            raise ValueError(
                f"Tool name '{name}' already exists as '{old}'. "
                "Cannot add a duplicate tool which differs by a '-' or '_'."
            )
        if name in self.registry and not (tool.supports_hot_reload and _is_reload(self.registry[name], tool)):
            raise ValueError(f"Tool name '{name}' already exists. Cannot register tools with exact same name.")

    def register_tool_by_ref(
        self, ref: str, tool_name: str | None = None, *, trusted: Sequence[str] | None = None
    ) -> None:
        """Add the tool at *ref*, `module.path:function_name`, under its own name or *tool_name*.

        Importing a module runs its code; with *trusted* packages, nothing outside of them is imported. Raises
        ValueError for a reference that is invalid, cannot be imported or is not a tool, and for a name that is taken.
        """
        tool = _import_tool(ref, trusted)
        if tool_name is not None and tool_name != tool.tool_name:
            tool = renamed(tool, tool_name)
        self.register_tool(tool)
        self.tool_refs[tool.tool_name] = ref

    def get_tool(self, tool_name: str) -> BaseTool:
        """Return the tool with that name. Raises KeyError."""
        tool = self.registry.get(tool_name) or self.dynamic_tools.get(tool_name)
        if tool is None:
            raise KeyError(f"Tool '{tool_name}' is not registered")
        return tool

    def get_all_tool_specs(self) -> list[ToolSpec]:
        """Return copies of the specs of all tools."""
        return list(self.get_all_tools_config().values())

    def get_all_tools_config(self) -> dict[str, Any]:
        """Return copies of the specs of all tools, by name. An invalid spec is logged and left out."""
        specs: dict[str, Any] = {}
        for name, tool in {**self.dynamic_tools, **self.registry}.items():
            try:
                spec = copy.deepcopy(tool.tool_spec)
                if not isinstance(tool, DecoratedFunctionTool):  # whose spec is complete
                    spec = normalize_tool_spec(spec)
                    self.validate_tool_spec(spec)
            except (ValueError, ToolcribError) as error:
                logger.warning("the spec of tool '%s' is left out: %s", name, error)
            else:
                specs[name] = spec
        return specs

    def validate_tool_spec(self, tool_spec: ToolSpec) -> None:
        """Check *tool_spec*, and complete its parameters in place.

        A bare schema moves under the key "json". Missing "type", "properties" and "required" are added, and the type
        and description of each property; one with a "$ref" stays as it is. Raises ValueError for an invalid spec.
        """
        if not isinstance(tool_spec, dict):
            raise ValueError(f"A tool spec is a dictionary, not {type(tool_spec).__name__}.")
        if missing := [field for field in ("name", "description") if field not in tool_spec]:
            raise ValueError(f"Missing required fields in tool spec: {', '.join(missing)}")
        if not isinstance(tool_spec["name"], str) or not isinstance(tool_spec["description"], str):
            raise ValueError("The name and the description of a tool spec are text.")
        label = f"Tool '{tool_spec['name']}'"
        parameters: Any = tool_spec.get("parameters", {})
        if not isinstance(parameters, dict) or not isinstance(parameters.get("json", {}), dict):
            raise ValueError(f"{label}: parameters are a dictionary, {{'json': <JSON Schema>}}.")
        schema = normalize_schema(schema_in(parameters))
        try:
            require_schema(without_references(schema), label=label)
        except DefinitionError as error:
            raise ValueError(str(error)) from None
        tool_spec["parameters"] = {"json": schema}

    def get_tool_ref(self, tool_name: str) -> str | None:
        """Return the reference by which a tool can be imported again; None if there is none."""
        return self.tool_refs.get(tool_name)

    def to_spec_dict(self) -> dict[str, Any]:
        """Return the registry as JSON data: `{"tools": [{"name", "spec", "ref"?, "metadata"}]}`."""
        return {"tools": [self._entry(name, tool) for name, tool in self.registry.items()]}

    @classmethod
    def from_spec_dict(cls, spec: dict[str, Any], *, trusted: Sequence[str] | None = None) -> Self:
        """Return the registry that `to_spec_dict` wrote, with every tool imported by its reference.

        Importing a module runs its code; for a *spec* from elsewhere, name the *trusted* packages. Raises ValueError
        for a tool without a reference, or that cannot be imported.
        """
        data: object = spec
        entries = data.get("tools", []) if isinstance(data, Mapping) else None
        if not isinstance(entries, list):
            raise ValueError('A registry is written as {"tools": [{"name": ..., "ref": "module:name"}, ...]}.')
        registry = cls()
        for number, entry in enumerate(entries, 1):
            if not isinstance(entry, Mapping) or not isinstance(entry.get("ref"), str):
                name = f" '{entry['name']}'" if isinstance(entry, Mapping) and "name" in entry else ""
                raise ValueError(
                    f"Tool {number}{name} has no 'ref' of the form 'module:name', so it cannot be loaded. "
                    "Define it at the top level of a module that can be imported."
                )
            registry.register_tool_by_ref(entry["ref"], entry.get("name"), trusted=trusted)
        return registry

    def __toolcrib__(self) -> list[Tool[..., Any]]:
        return [tool.__toolcrib__() for tool in self.registry.values()]

    def _find(self, entry: Any) -> "list[_Entry]":
        """Return the tools that *entry* specifies."""
        if isinstance(entry, BaseTool):
            return [_Entry(entry)]
        if inspect.isroutine(entry):
            return [_Entry(make_tool(entry))]
        if isinstance(entry, str) and entry in self.registry:
            return [_Entry(self.registry[entry], is_registered=True)]
        if isinstance(entry, str) and _is_reference(entry):
            return [_Entry(_import_tool(entry, None), entry)]
        if not isinstance(entry, str | Path | ModuleType):
            kind = f"The class {entry.__name__}" if isinstance(entry, type) else f"A {type(entry).__name__}"
            raise ValueError(f"{kind} is not a tool specification. Pass {_SPECIFICATIONS}.")
        return [_Entry(tool) for tool in _tools_in(entry)]

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


def core_tools(tools: Mapping[str, BaseTool]) -> dict[str, Tool[..., Any]]:
    """Return *tools* as Toolcrib's, each under its name in *tools*."""
    core = {name: tool.__toolcrib__() for name, tool in tools.items()}
    return {name: tool if tool.spec.name == name else tool.named(name) for name, tool in core.items()}


class _Entry(NamedTuple):
    """A tool, and the reference that specified it."""

    tool: BaseTool
    ref: str | None = None
    is_registered: bool = False


def _flattened(entries: Iterable[Any]) -> Iterator[Any]:
    for entry in entries:
        if isinstance(entry, Iterable) and not isinstance(entry, str | bytes | bytearray | Mapping | BaseTool | type):
            yield from _flattened(entry)
        else:
            yield entry


def _tools_in(place: str | Path | ModuleType) -> list[BaseTool]:
    """Return the tools of a module, or of a file or folder at *place*, which are dynamic. Raises ValueError."""
    name = place.__name__ if isinstance(place, ModuleType) else str(place)
    try:
        source = load(place)
    except ToolcribError as error:
        raise ValueError(f"'{name}' is not a tool specification: {error}") from error
    if source.problems:
        raise ValueError(f"'{name}' cannot be loaded: {source.problems[0]}")
    tools: list[Any] = [core_tool.fn for core_tool in source.tools]
    for core_tool, tool in zip(source.tools, tools, strict=True):
        if not isinstance(tool, BaseTool):
            raise ValueError(
                f"'{core_tool.spec.name}' in '{name}' is not a Spark tool. A Workbench accepts both kinds."
            )
        if not isinstance(place, ModuleType) and _is_path(name):
            tool.mark_dynamic()
    return tools


def _import_tool(ref: str, trusted: Sequence[str] | None) -> BaseTool:
    try:
        tool: Any = import_from_ref(ref, trusted=trusted)
    except ImportError as error:
        raise ValueError(f"Invalid tool reference {ref!r}: {error}") from error
    if not isinstance(tool, BaseTool):
        raise ValueError(f"Tool at {ref!r} is not a BaseTool instance. Use the @tool decorator or subclass BaseTool.")
    return tool


def _is_reference(text: str) -> bool:
    return ":" in text and not _is_path(text)


def _is_path(text: str) -> bool:
    return text.endswith(".py") or ".py:" in text or "/" in text or os.sep in text or Path(text).is_dir()


def _is_reload(old: BaseTool, new: BaseTool) -> bool:
    """Return whether *new* has the same function of the same module as *old*, perhaps a newer version of it."""
    before, after = getattr(old, "tool_func", None), getattr(new, "tool_func", None)
    if before is None or inspect.ismethod(before) or inspect.ismethod(after):
        return before is not None and before == after
    if before is after:
        return True
    places = [(getattr(fn, "__module__", None), getattr(fn, "__qualname__", "<unnamed>")) for fn in (before, after)]
    # A reload does not make a local function again.
    return places[0] == places[1] and "<" not in places[0][1]


def _reference(tool: BaseTool) -> str | None:
    """Return the reference by which *tool* can be imported again; None if there is none."""
    ref = reference(getattr(tool, "tool_func", None)) if isinstance(tool, DecoratedFunctionTool) else None
    if ref is None:
        return None
    target = referent(ref)
    # The reference may lead to the plain function, as after `search = tool(fn)`.
    return ref if target is None or isinstance(target, BaseTool) else None
