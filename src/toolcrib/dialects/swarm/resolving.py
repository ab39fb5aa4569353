"""Which tools an agent has for a client: those that are available, each with its function as it is for them."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from ...core import SetupError
from .reading import AgentTool, agent_tool, awaited

_log = logging.getLogger("toolcrib")


async def resolve_tools(
    client_id: str, agent_name: str, tools: Iterable[Any], *, timeout_s: float | None = None
) -> list[AgentTool]:
    """The *tools* that are available to this client and agent, in order, for a model and for `execute_tools`.

    They are asked side by side. Of several whose functions have one name there is the first. Raises what the factory
    of a function raises, and SetupError where one has not answered within *timeout_s* seconds.
    """
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise SetupError("tools is a list: of IAgentTools, dictionaries, or the names of tools that were added.")
    read = [agent_tool(tool) for tool in tools]
    found = await asyncio.gather(*(_resolved(tool, client_id, agent_name, timeout_s) for tool in read))
    by_name: dict[str, AgentTool] = {}
    for tool in found:
        if tool is not None and by_name.setdefault(tool.spec.name, tool) is not tool:
            _log.warning(
                "The function of tool '%s' is called '%s', as is that of '%s', which comes first and is taken.",
                tool.tool_name,
                tool.spec.name,
                by_name[tool.spec.name].tool_name,
            )
    return list(by_name.values())


async def _resolved(tool: AgentTool, client_id: str, agent_name: str, timeout_s: float | None) -> AgentTool | None:
    if tool.is_available is not None:
        try:
            async with asyncio.timeout(timeout_s):
                if not await awaited(tool.is_available(client_id, agent_name, tool.tool_name)):
                    return None
        except Exception:
            _log.exception("Whether '%s' is available could not be asked; it is taken not to be", tool.tool_name)
            return None
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await tool.resolved(client_id, agent_name)
    except TimeoutError:
        if not limit.expired():
            raise
        raise SetupError(f"The function of tool '{tool.tool_name}' was not there within {timeout_s:g} s.") from None
