"""The middleware that gives LangChain's agents the tools that there are at each step. It needs `langchain` itself."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.prebuilt.tool_node import ToolCallRequest


class Offering(AgentMiddleware[Any, Any, Any]):
    """Offers what *listed* gives for the config of a run, and runs it. What raises there fails the run."""

    def __init__(self, listed: Callable[[RunnableConfig], list[BaseTool]]) -> None:
        super().__init__()
        self._listed = listed

    @property
    def name(self) -> str:
        return f"toolcrib_{id(self)}"  # an agent takes one of each name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return handler(self._offered(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        return await handler(self._offered(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return handler(self._found(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        return await handler(self._found(request))

    def _offered(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        return request.override(tools=[*request.tools, *self._listed(get_config())])

    def _found(self, request: ToolCallRequest) -> ToolCallRequest:
        if request.tool is not None:
            return request
        tools = {tool.name: tool for tool in self._listed(get_config())}
        return request.override(tool=tools.get(request.tool_call["name"]))
