"""The ways in which a tool may be written: an object, a subclass, a dictionary, or the name of one that was added."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Generic, get_args

from ...core import DefinitionError, NameConflictError, UnknownToolError
from ...schema import closest_match, did_you_mean
from ...tools import Tool
from .interfaces import (
    AgentName,
    CallbackName,
    Function,
    FunctionFactory,
    IAgentToolCallbacks,
    IToolCallDto,
    IToolValidateDto,
    T,
    ToolName,
)
from .tool import TYPES, AgentTool, camel, require_function

_PARTS = ("tool_name", "type", "function", "call", "validate", "is_available", "callbacks", "doc_note")
_CAMEL = {part: camel(part) for part in _PARTS if camel(part) != part}
_SNAKE = {spelled: part for part, spelled in _CAMEL.items()}
_CALLBACKS = {camel(name): name for name in get_args(CallbackName)}


class ITool:
    """The description of a tool for a model. `type` is "function": there is no other."""

    type: str = "function"
    function: Function | FunctionFactory


class IAgentTool(ITool, Generic[T]):
    """A tool of an agent: made with its parts, or a subclass that has them.

    - *tool_name*: its name in the swarm. The model calls it by the name in *function*.
    - *function*: a dictionary, or a function that returns one for a client and an agent, plain or async.
    - *call*: does the work, plain (in a thread) or async. Its output is what it commits, or else what it returns.
    - *validate*: whether arguments that fit the schema are accepted; an exception refuses them.
    - *is_available*: whether a client and an agent have the tool; with an exception they have not.

    Raises DefinitionError for what cannot be a tool.
    """

    tool_name: ToolName
    doc_note: str | None = None
    callbacks: IAgentToolCallbacks[T] | Mapping[str, Callable[..., Any]] | None = None

    def __init__(
        self,
        *,
        tool_name: ToolName | None = None,
        function: Function | FunctionFactory | None = None,
        call: Callable[[IToolCallDto[T]], Any] | None = None,
        validate: Callable[[IToolValidateDto[T]], bool | Awaitable[bool]] | None = None,
        is_available: Callable[[str, AgentName, ToolName], bool | Awaitable[bool]] | None = None,
        callbacks: IAgentToolCallbacks[T] | Mapping[str, Callable[..., Any]] | None = None,
        doc_note: str | None = None,
        type: str | None = None,  # noqa: A002
    ) -> None:
        parts = (tool_name, type, function, call, validate, is_available, callbacks, doc_note)
        vars(self).update({name: part for name, part in zip(_PARTS, parts, strict=True) if part is not None})
        agent_tool(self)  # so that an error is raised where the tool is written

    def call(self, dto: IToolCallDto[T], /) -> Any:
        """Do the work."""
        raise NotImplementedError

    def validate(self, dto: IToolValidateDto[T], /) -> bool | Awaitable[bool]:
        """Return whether these arguments are accepted."""
        return True

    def is_available(self, client_id: str, agent_name: AgentName, tool_name: ToolName, /) -> bool | Awaitable[bool]:
        """Return whether *client_id* and *agent_name* have this tool."""
        return True

    def __toolcrib__(self) -> Tool[..., Any]:
        return agent_tool(self).__toolcrib__()


def agent_tool(tool: Any) -> AgentTool:
    """Return the tool that *tool* is: an IAgentTool, an object like one, a dictionary, or the name of an added tool.

    Raises DefinitionError for what cannot be a tool.
    """
    if isinstance(tool, AgentTool):
        return tool
    if isinstance(tool, str):
        return get_tool(tool)
    if isinstance(tool, Mapping):
        return _from_mapping(tool)
    if isinstance(tool, type):
        raise DefinitionError(f"{tool.__name__} is a class, not a tool. Make a tool of it: {tool.__name__}().")
    inherited = {IAgentTool.call, IAgentTool.validate, IAgentTool.is_available}
    own = {name: getattr(tool, name, None) for name in _PARTS}
    parts = {name: part for name, part in own.items() if getattr(part, "__func__", None) not in inherited}
    if all(part is None for part in parts.values()):
        raise DefinitionError(f"A tool is an IAgentTool, or a dictionary like one; not {type(tool).__name__}.")
    return _from_parts(parts, is_camel=False)


def _from_mapping(tool: Mapping[str, Any]) -> AgentTool:
    camel, snake = _SNAKE.keys() & tool.keys(), _CAMEL.keys() & tool.keys()
    if camel and snake:
        raise DefinitionError(
            f"A tool is written in one spelling, and this one has '{min(camel)}' and '{min(snake)}'. "
            "Its functions are called with keys of that spelling."
        )
    names = [_CAMEL.get(part, part) if camel else part for part in _PARTS]
    if unknown := [key for key in tool if key not in _PARTS and key not in _SNAKE]:
        raise DefinitionError(f"A tool has no '{unknown[0]}'.{_hint(unknown[0], names)} It has: {', '.join(names)}.")
    return _from_parts({_SNAKE.get(key, key): part for key, part in tool.items()}, is_camel=bool(camel))


def _from_parts(given: Mapping[str, Any], *, is_camel: bool) -> AgentTool:
    parts = {name: part for name, part in given.items() if part is not None}
    spelled = _CAMEL if is_camel else {}
    name = parts.get("tool_name")
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"A tool needs a '{spelled.get('tool_name', 'tool_name')}', its name in the swarm.")
    label = f"Tool '{name}'"
    _require_parts(parts, label, spelled)
    parts["callbacks"] = _callbacks(parts.get("callbacks"), label, _CALLBACKS if is_camel else _CALLBACKS.values())
    return AgentTool(**parts, is_camel=is_camel)


def _require_parts(parts: Mapping[str, Any], label: str, spelled: Mapping[str, str]) -> None:
    """Raise DefinitionError where a part is missing, or is not of its kind."""
    if missing := [part for part in ("function", "call") if part not in parts]:
        raise DefinitionError(f"{label} has no '{missing[0]}'.")
    kind = parts.get("type", "function")
    if kind not in TYPES:
        raise DefinitionError(f"{label}: {kind!r} is not a type of tool. The types are: {', '.join(map(repr, TYPES))}.")
    for part in ("call", "validate", "is_available"):
        if part in parts and not callable(parts[part]):
            raise DefinitionError(f"{label}: '{spelled.get(part, part)}' is not a function.")
    if not callable(parts["function"]):
        require_function(parts["function"], parts["tool_name"])


def _callbacks(callbacks: Any, label: str, names: Collection[str]) -> Mapping[str, Callable[..., Any]]:
    if isinstance(callbacks, IAgentToolCallbacks):
        callbacks = {name: getattr(callbacks, name) for name in _CALLBACKS.values()}
    if not isinstance(callbacks, Mapping | None):
        raise DefinitionError(f"{label}: 'callbacks' is not an IAgentToolCallbacks, or a dictionary of functions.")
    by_name: dict[str, Callable[..., Any]] = {}
    for key, callback in (callbacks or {}).items():
        name = _CALLBACKS.get(str(key), str(key))
        if name not in _CALLBACKS.values():
            raise DefinitionError(f"{label} has no callback '{key}'.{_hint(key, names)} It has: {', '.join(names)}.")
        if callback is None:
            continue
        if not callable(callback):
            raise DefinitionError(f"{label}: callback '{key}' is not a function.")
        by_name[name] = callback
    return by_name


def _hint(key: Any, names: Collection[str]) -> str:
    return did_you_mean(closest_match(str(key), names))


# Tools that are known by name

_tools: dict[str, AgentTool] = {}
"""As in the original, `add_tool` is a function of the program, so its tools are the program's."""


class AddedTool(str):
    """The name of a tool that was added. It is the text itself, and a source of tools for a workbench."""

    __slots__ = ()

    def __toolcrib__(self) -> Tool[..., Any]:
        return get_tool(self).__toolcrib__()


def add_tool(tool: Any) -> AddedTool:
    """Make *tool* known to the program under its tool name, and return that.

    A file that is loaded again replaces its tools. Raises NameConflictError where the name is taken, and
    DefinitionError for what cannot be a tool.
    """
    new = agent_tool(tool)
    old = _tools.setdefault(new.tool_name, new)
    if old is not new and not _is_later_load(new.call, old.call):
        raise NameConflictError(f"A tool '{new.tool_name}' already exists. Give one of them another name.")
    _tools[new.tool_name] = new
    return AddedTool(new.tool_name)


def get_tool(tool_name: ToolName) -> AgentTool:
    """Return the tool that was added under *tool_name*. Raises UnknownToolError."""
    tool = _tools.get(tool_name)
    if tool is None:
        hint, names = _hint(tool_name, _tools), ", ".join(_tools) or "none"
        raise UnknownToolError(f"There is no tool '{tool_name}'.{hint} Added with add_tool() are: {names}.")
    return tool


def override_tool(tool: Mapping[str, Any]) -> AddedTool:
    """Replace the parts in *tool* of the tool that was added under its tool name, and return that name.

    Turns that are under way keep the tool that they began with. Raises UnknownToolError where none was added, and
    DefinitionError for parts that cannot be a tool's, or in another spelling than the tool's own.
    """
    is_camel = "toolName" in tool
    old = get_tool(str(tool.get("toolName" if is_camel else "tool_name")))
    if old.is_camel != is_camel:
        spelling = "toolName" if old.is_camel else "tool_name"
        raise DefinitionError(
            f"Tool '{old.tool_name}' is written with '{spelling}'. Write its overrides in the same spelling."
        )
    spelled = _CAMEL if is_camel else {}
    parts = {spelled.get(name, name): getattr(old, name) for name in _PARTS}
    _tools[old.tool_name] = _from_mapping({**parts, **tool})
    return AddedTool(old.tool_name)


def _is_later_load(call: Any, known: Any) -> bool:
    """Return whether both are of one file that has been run again: in other globals."""
    code, known_code = getattr(call, "__code__", None), getattr(known, "__code__", None)
    if code is None or known_code is None or code.co_filename != known_code.co_filename:
        return False
    return call.__globals__ is not known.__globals__
