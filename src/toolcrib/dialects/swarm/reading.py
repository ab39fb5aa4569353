"""A tool in any of the ways it may be written → AgentTool. What is wrong with it is said here."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core import Caller, DefinitionError, ToolSpec
from ...schema import nearest
from ...tools import Tool
from .words import IAgentTool, IAgentToolCallbacks

TYPES = ("function",)
LOCAL = Caller().principal
"""The client where nobody says which."""
ANY_AGENT = "default"
"""The agent where nobody says which."""

_CAMEL = {"toolName": "tool_name", "docNote": "doc_note", "isAvailable": "is_available"}
_PARTS = ("tool_name", "type", "function", "call", "validate", "is_available", "callbacks", "doc_note")
_CALLBACKS = {
    "onBeforeCall": "on_before_call",
    "onAfterCall": "on_after_call",
    "onValidate": "on_validate",
    "onCallError": "on_call_error",
}
_NEEDED = ("tool_name", "function", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """A tool as it was read. *is_camel* where its functions expect camelCase keys.

    *function* is a factory until the tool is resolved; *agent_name* is for whom it was.
    """

    tool_name: str
    function: Mapping[str, Any] | Callable[..., Any]
    call: Callable[..., Any]
    validate: Callable[..., Any] | None = None
    is_available: Callable[..., Any] | None = None
    callbacks: Mapping[str, Callable[..., Any]]
    doc_note: str | None = None
    is_camel: bool = False
    agent_name: str = ANY_AGENT
    type: str = "function"

    async def resolved(self, client_id: str, agent_name: str) -> "AgentTool":
        """The tool with its *function* as it is for this client and agent. Raises what a factory raises."""
        if isinstance(self.function, Mapping):
            return self if self.agent_name == agent_name else replace(self, agent_name=agent_name)
        function = await awaited(self.function(client_id, agent_name))
        return replace(self, function=require_function(function, self.tool_name), agent_name=agent_name)

    def to_dict(self) -> dict[str, Any]:
        """What a model is told: the original's ITool."""
        return {"type": self.type, "function": dict(self._function())}

    @property
    def spec(self) -> ToolSpec:
        function = self._function()
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        return ToolSpec(function["name"], function.get("description") or "", schema)

    def _function(self) -> Mapping[str, Any]:
        if isinstance(self.function, Mapping):
            return self.function
        from ...workbench import door

        return door.run(self.resolved(LOCAL, self.agent_name))._function()

    def __toolcrib__(self) -> Tool[..., Any]:
        """The tool for any workbench: the caller's principal is the client; a factory is asked for "local"."""
        from .native import native

        return native(self)


def agent_tool(given: Any) -> AgentTool:
    """The tool that *given* is: an IAgentTool, an object like one, a dictionary, or the name of one that was added.

    Raises DefinitionError for what cannot be a tool.
    """
    if isinstance(given, AgentTool):
        return given
    if isinstance(given, str):
        from .added import added

        return added(given)
    if isinstance(given, Mapping):
        return _from_mapping(given)
    if isinstance(given, type):
        raise DefinitionError(f"{given.__name__} is a class of tools. Make one of it: {given.__name__}().")
    unset = {name: getattr(IAgentTool, name, None) for name in ("call", "validate", "is_available")}
    parts: dict[str, Any] = {}
    for name in _PARTS:
        part = getattr(given, name, None)
        if part is not None and getattr(part, "__func__", None) is not unset.get(name, parts):
            parts[name] = part
    if not parts:
        kind = type(given).__name__
        raise DefinitionError(f"A {kind} is no tool. A tool is an IAgentTool, or a dictionary like one.")
    return _read(parts, is_camel=False)


def _from_mapping(given: Mapping[str, Any]) -> AgentTool:
    camel = [key for key in given if key in _CAMEL]
    snake = [key for key in given if key in _CAMEL.values()]
    if camel and snake:
        raise DefinitionError(
            f"A tool is written in one spelling, and this one has '{camel[0]}' and '{snake[0]}'. "
            "Its functions are called with keys of that spelling."
        )
    for key in given:
        if key not in _PARTS and key not in _CAMEL:
            known = [_CAMEL_OF.get(part, part) if camel else part for part in _PARTS]
            meant = nearest(str(key), known)
            hint = f" Did you mean '{meant}'?" if meant else ""
            raise DefinitionError(f"A tool has no '{key}'.{hint} It has: {', '.join(known)}.")
    parts = {_CAMEL.get(key, key): part for key, part in given.items() if part is not None}
    return _read(parts, is_camel=bool(camel))


_CAMEL_OF = {snake: camel for camel, snake in _CAMEL.items()}


def _read(parts: Mapping[str, Any], *, is_camel: bool) -> AgentTool:
    name = parts.get("tool_name")
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"A tool needs a '{_said('tool_name', is_camel)}', its name in the swarm: a text.")
    label = f"Tool '{name}'"
    for part in _NEEDED:
        if part not in parts:
            raise DefinitionError(f"{label} has no '{part}'.")
    kind = parts.get("type", "function")
    if kind not in TYPES:
        raise DefinitionError(f"{label}: {kind!r} is no type of tool. The types are: {', '.join(map(repr, TYPES))}.")
    for part in ("call", "validate", "is_available"):
        if part in parts and not callable(parts[part]):
            raise DefinitionError(f"{label}: '{_said(part, is_camel)}' is a function.")
    function = parts["function"]
    if not callable(function):
        require_function(function, name)
    return AgentTool(
        tool_name=name,
        function=function,
        call=parts["call"],
        validate=parts.get("validate"),
        is_available=parts.get("is_available"),
        callbacks=_callbacks(parts.get("callbacks"), label, is_camel=is_camel),
        doc_note=parts.get("doc_note"),
        is_camel=is_camel,
    )


def _said(part: str, is_camel: bool) -> str:
    return _CAMEL_OF.get(part, part) if is_camel else part


def require_function(function: Any, tool_name: str) -> Mapping[str, Any]:
    """*function*, if a model can be told of it. Raises DefinitionError."""
    from ...schema import require_schema
    from ...tools.function import require_name

    label = f"Tool '{tool_name}'"
    if not isinstance(function, Mapping):
        raise DefinitionError(
            f"{label}: 'function' is a dictionary with name, description and parameters, or a function that gives one "
            f"for a client and an agent; not {type(function).__name__}."
        )
    try:
        require_name(function.get("name"))
    except DefinitionError as error:
        raise DefinitionError(f"{label}: function.name: {str(error).partition(' Give one')[0]}") from None
    if not isinstance(function.get("description") or "", str):
        raise DefinitionError(f"{label}: function.description is a text.")
    try:
        require_schema(function.get("parameters") or {}, label=label)
    except DefinitionError as error:
        raise DefinitionError(str(error).replace("parameters=", "function.parameters")) from None
    return function


def _callbacks(given: Any, label: str, *, is_camel: bool) -> Mapping[str, Callable[..., Any]]:
    if given is None:
        return {}
    if isinstance(given, IAgentToolCallbacks):
        given = {name: getattr(given, name) for name in _CALLBACKS.values()}
    if not isinstance(given, Mapping):
        raise DefinitionError(f"{label}: 'callbacks' are IAgentToolCallbacks, or a dictionary of functions.")
    read: dict[str, Callable[..., Any]] = {}
    for key, callback in given.items():
        name = _CALLBACKS.get(str(key), str(key))
        if name not in _CALLBACKS.values():
            known = list(_CALLBACKS if is_camel else _CALLBACKS.values())
            meant = nearest(str(key), known)
            hint = f" Did you mean '{meant}'?" if meant else ""
            raise DefinitionError(f"{label} has no callback '{key}'.{hint} They are: {', '.join(known)}.")
        if callback is None:
            continue
        if not callable(callback):
            raise DefinitionError(f"{label}: callback '{key}' is a function.")
        read[name] = callback
    return read


async def awaited(value: Any) -> Any:
    """*value*, waited for where that is needed."""
    return await value if inspect.isawaitable(value) else value
