"""The middleware that gives LangChain's agents the tools that there are at each step. It needs `langchain` itself."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest

from ..workbench import sync


class Offering(AgentMiddleware[Any, Any, Any]):
    """Offers what *listed* gives for the config of a run, and runs it."""

    def __init__(self, listed: Callable[[RunnableConfig], Coroutine[Any, Any, list[BaseTool]]]) -> None:
        super().__init__()
        self._listed = listed

    @property
    def name(self) -> str:
        return f"toolcrib_{id(self)}"  # an agent takes one of each name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return handler(sync.run(self._offered(request, get_config())))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(await self._offered(request, get_config()))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return handler(sync.run(self._found(request, get_config())))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        return await handler(await self._found(request, get_config()))

    async def _offered(self, request: ModelRequest[Any], config: RunnableConfig) -> ModelRequest[Any]:
        return request.override(tools=[*request.tools, *await self._listed(config)])

    async def _found(self, request: ToolCallRequest, config: RunnableConfig) -> ToolCallRequest:
        if request.tool is not None:
            return request
        tools = {tool.name: tool for tool in await self._listed(config)}
        return request.override(tool=tools.get(request.tool_call["name"]))
