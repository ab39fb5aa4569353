"""A Toolcrib tool for a hyperpocket tool: what it requires, how it is called, and what its result goes through."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....core import Check, Context, ToolError, ToolSpec, Work, in_thread
from ....core import ToolAuth as CoreToolAuth
from ....schema import json_schema_check, require_schema, returns_awaitable, serialize_any
from ....tools import Tool as CoreTool
from ....tools.function import Parts
from ....tools.spec import require_name
from ..auth import context_of, core_handler

OWN = "default"
"""The thread or profile that a model names for its own."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The threads and profiles that a model may name. A Pocket gives it to its calls, in `Call.data`."""

    threads: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()

    def require(self, tool: str, name: str, value: Any, own: str) -> str:
        """Return the thread or profile that a model has named: *own* for "default". Raises ToolError for another."""
        listed = self.threads if name == "thread_id" else self.profiles
        if value in (None, OWN, own):
            return own
        if not isinstance(value, str) or value not in listed:
            known = ", ".join(map(repr, sorted({*listed, own})))
            raise ToolError(f"Tool '{tool}' does not take this '{name}'. It takes: {known}.", "invalid_arguments")
        return value


def core_tool(
    tool: Any,
    fn: Any,
    *,
    is_sync: bool,
    check: Callable[[Mapping[str, Any], str], Check] | None = None,
    work: Work | None = None,
) -> CoreTool[..., Any]:
    """Return *tool*, a Tool of hyperpocket, as one of Toolcrib's, which calls its `ainvoke` or else does *work*.

    *check* is given the schema and the name. Raises DefinitionError for a name or a schema that cannot work.
    """
    label = f"Tool '{require_name(tool.name)}'"
    schema = require_schema(tool.argument_json_schema or {}, label=label)
    spec = ToolSpec(tool.name, tool.description, schema, auth=_requirement(tool.auth))
    named = partial(json_schema_check, schema=schema) if check is None else partial(check, schema)
    home = getattr(fn, "__module__", None) or type(tool).__module__
    parts = Parts(spec, fn, named, partial(partial, serialize_any), work or partial(_call_tool, tool), home)
    made: CoreTool[..., Any] = CoreTool(parts)
    made.at_deadline = "left_running" if is_sync else "cancelled"
    return made


def _requirement(auth: Any) -> CoreToolAuth | None:
    if auth is None or auth.auth_provider is None:
        return None
    handler = core_handler(auth.auth_provider, auth.auth_handler)
    return CoreToolAuth(auth.auth_provider.value, handler, tuple(auth.scopes or ()))


def envs_of(tool: Any, context: Context) -> dict[str, str]:
    """The credentials of a call under the names that hyperpocket's tools know them by."""
    envs: dict[str, str] = {}
    handler = None if tool.auth is None else tool.auth.auth_handler
    for credential in context.credentials.values():
        given: Mapping[str, str] | None = getattr(credential, "envs", None)
        envs |= context_of(credential, handler).to_dict() if given is None else given
    return envs


def host_of(context: Context) -> dict[str, str]:
    return {"thread_id": context.caller.thread, "profile": context.caller.profile}


async def _call_tool(tool: Any, arguments: dict[str, Any], context: Context) -> Any:
    value = await tool.ainvoke(body=arguments, **host_of(context), envs=envs_of(tool, context))
    return await processed(tool, value)


async def processed(tool: Any, value: Any) -> Any:
    """What the postprocessings of *tool* make of *value*, one after the other, each in a thread if it is sync."""
    for process in tool.postprocessings or ():
        value = process(value) if returns_awaitable(process) else await in_thread(partial(process, value))
        if hasattr(type(value), "__await__"):
            value = await value
    return value
