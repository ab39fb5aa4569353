"""The step of authorization: credentials for a tool that requires them, by the broker."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..core import Call, Credential, Pending, Suspended, Tool, ToolAuth, ToolError, current_deadline
from .execute import Bounded
from .runtime import Runtime

NO_CREDENTIALS: Mapping[str, Credential] = MappingProxyType({})


async def authorize(tool: Tool, call: Call, runtime: Runtime) -> Mapping[str, Credential]:
    """Return the credentials that *tool* requires, by provider; their secrets are redacted for this caller from now on.

    Raises ToolError `unauthorized` where nobody can give them, and Suspended where somebody has to be asked.
    """
    requirements = tool.spec.requirements
    if runtime.broker is None:
        needs = ", ".join(f"'{each.provider if isinstance(each, ToolAuth) else each.name}'" for each in requirements)
        raise ToolError(
            f"Tool '{tool.spec.name}' needs credentials for {needs}, and no provider of credentials is "
            "configured here.",
            "unauthorized",
        )
    asked: Any = runtime.broker.authorize(requirements, runtime.caller, call)
    deadline = current_deadline.get()
    if deadline is not None or call.cancellation is not None:
        asked = Bounded(asked, tool.spec.name, deadline, call.cancellation)
    granted = await asked
    if isinstance(granted, Pending):
        # Without a digest nothing says what it is about, so it is not put beside others.
        store, now = runtime.pending.store, runtime.pending.clock()
        raise Suspended(await store.open(granted, now=now) if granted.digest else granted)
    for credential in granted:
        runtime.redact_also(credential.secrets)
    return {credential.provider: credential for credential in granted}
