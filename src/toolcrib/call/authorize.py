"""The step of authorization: credentials for a tool that requires them, by the broker."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..core import Call, Credential, Pending, Suspended, Tool, ToolError, current_deadline
from .execute import Bounded
from .runtime import Runtime

NO_CREDENTIALS: Mapping[str, Credential] = MappingProxyType({})


async def authorize(tool: Tool, call: Call, runtime: Runtime) -> Mapping[str, Credential]:
    """The credentials that *tool* requires, by provider; their secrets are redacted for this caller from now on.

    Raises ToolError `unauthorized` where nobody can give them, and Suspended where somebody has to be asked.
    """
    auth = tool.spec.auth
    assert auth is not None
    if runtime.broker is None:
        raise ToolError(
            f"Tool '{tool.spec.name}' needs credentials for '{auth.provider}', and no provider of credentials is "
            "configured here.",
            "unauthorized",
        )
    asked: Any = runtime.broker.authorize((auth,), runtime.caller, call)
    deadline = current_deadline.get()
    if deadline is not None or call.cancellation is not None:
        asked = Bounded(asked, tool.spec.name, deadline, call.cancellation)
    granted = await asked
    if isinstance(granted, Pending):
        raise Suspended(granted)
    runtime.redact_also(credential.secret for credential in granted)
    return {credential.provider: credential for credential in granted}
