"""A Toolcrib tool for a hyperpocket tool: what it requires, how it is called, and what its result goes through."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....core import Check, Context, ToolError, ToolSpec, Work, in_thread
from ....core import ToolAuth as CoreToolAuth
from ....schema import returns_awaitable
from ....tools import Tool as CoreTool
from ....tools import from_work
from ..auth import core_handler, environment_of

OWN = "default"
"""The thread or profile that a model names for its own."""

Listed = Mapping[str, frozenset[str]]
"""The threads and profiles that a model may name, by `thread_id` and `profile`. A Pocket gives it in `Call.data`."""


def require_listed(listed: Listed, tool: str, name: str, value: Any, own: str) -> str:
    """Return the thread or profile that a model has named: *own* for "default". Raises ToolError for another."""
    if value in (None, OWN, own):
        return own
    if not isinstance(value, str) or value not in listed[name]:
        known = ", ".join(map(repr, sorted({*listed[name], own})))
        raise ToolError(f"Tool '{tool}' does not take this '{name}'. It takes: {known}.", "invalid_arguments")
    return value


def core_tool(
    tool: Any, fn: Any, work: Work, *, is_sync: bool, check: Callable[[str], Check] | None = None
) -> CoreTool[..., Any]:
    """Return *tool*, a Tool of hyperpocket, as one of Toolcrib's, which does *work*.

    Raises DefinitionError for a name or a schema that cannot work.
    """
    auth = None
    if tool.auth is not None and (provider := tool.auth.auth_provider) is not None:
        handler = core_handler(provider, tool.auth.auth_handler)
        auth = CoreToolAuth(provider.value, handler, tuple(tool.auth.scopes or ()))
    return from_work(
        ToolSpec(tool.name, tool.description, {"type": "object", **(tool.argument_json_schema or {})}, auth=auth),
        work,
        check=check,
        fn=fn,
        home=getattr(fn, "__module__", None) or type(tool).__module__,
        at_deadline="left_running" if is_sync else "cancelled",
    )


def envs_of(tool: Any, context: Context) -> dict[str, str]:
    """Return the credentials of a call under the names that hyperpocket's tools know them by."""
    envs: dict[str, str] = {}
    for credential in context.credentials.values():
        if (own := getattr(credential, "envs", None)) is not None:  # of a Pocket
            envs |= own
            continue
        names = environment_of(credential, None if tool.auth is None else tool.auth.auth_handler)
        secret = credential.secret
        if credential.kind == "basic":
            secret = b64encode(secret.encode()).decode()
        envs |= dict(zip(names, secret.split(":", 1) if len(names) > 1 else [secret], strict=True))
    return envs


def host_of(context: Context) -> dict[str, str]:
    return {"thread_id": context.caller.thread, "profile": context.caller.profile}


async def postprocessed(tool: Any, value: Any) -> Any:
    """Pass *value* through the postprocessings of *tool*, in order, the sync ones in threads."""
    for process in tool.postprocessings or ():
        value = process(value) if returns_awaitable(process) else await in_thread(partial(process, value))
        if hasattr(type(value), "__await__"):
            value = await value
    return value
