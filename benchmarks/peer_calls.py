"""How each peer is called: by its public way to run one tool, from the model's JSON text to text for the model.

Each class below is one peer. A peer is imported when its class is made. What a peer sets up once for a tool or a run
is set up before the clock starts. Text out is the peer's own: where it writes a Python repr instead of JSON, it may.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from cases import Case, Loop
from report import FASTMCP


class Peer(Protocol):
    """One peer. `imported` is what a program imports of it.

    `calls` gives one or two ways in, the last one under `label`. `among` and `lister` give None where a peer holds no
    group of tools.
    """

    label: str
    imported: str

    async def calls(self, case: Case) -> Mapping[str, Loop]: ...
    async def among(self, tools: list[Callable[..., Any]], case: Case) -> Loop | None: ...
    async def lister(self, tools: list[Callable[..., Any]]) -> Callable[[], Awaitable[Any]] | None: ...
    def define(self, fn: Callable[..., Any]) -> Any: ...


class AutoGen:
    label = "AutoGen workbench"
    imported = "from autogen_core.tools import FunctionTool, StaticWorkbench"

    def __init__(self) -> None:
        from autogen_core import CancellationToken
        from autogen_core.tools import FunctionTool, StaticWorkbench

        self._token, self._tool, self._workbench = CancellationToken, FunctionTool, StaticWorkbench

    async def calls(self, case: Case) -> Mapping[str, Loop]:
        tool, token, text = self._made(case.fn), self._token, case.text

        async def alone(times: int) -> str:
            shown = ""
            for _ in range(times):
                shown = tool.return_value_as_string(await tool.run_json(json.loads(text), token()))
            return shown

        return {"AutoGen tool": alone, self.label: await self.among([case.fn], case)}

    async def among(self, tools: list[Callable[..., Any]], case: Case) -> Loop:
        workbench = self._workbench([self._made(fn) for fn in tools])
        name, text = case.name, case.text

        async def loop(times: int) -> str:
            shown = ""
            for _ in range(times):
                shown = (await workbench.call_tool(name, json.loads(text))).to_text()
            return shown

        return loop

    async def lister(self, tools: list[Callable[..., Any]]) -> Callable[[], Awaitable[Any]]:
        return self._workbench([self._made(fn) for fn in tools]).list_tools

    def define(self, fn: Callable[..., Any]) -> Any:
        return (tool := self._made(fn)), tool.schema

    def _made(self, fn: Callable[..., Any]) -> Any:
        return self._tool(fn, description=fn.__doc__ or "")


class FastMCP:
    label = FASTMCP
    imported = "from fastmcp import FastMCP"

    def __init__(self) -> None:
        from fastmcp import FastMCP
        from fastmcp.tools import Tool

        self._server, self._tool = FastMCP, Tool

    async def calls(self, case: Case) -> Mapping[str, Loop]:
        return {self.label: await self.among([case.fn], case)}

    async def among(self, tools: list[Callable[..., Any]], case: Case) -> Loop:
        server = self._filled(tools)
        name, text = case.name, case.text

        async def loop(times: int) -> str:
            shown = ""
            for _ in range(times):
                shown = (await server.call_tool(name, json.loads(text))).content[0].text
            return shown

        return loop

    async def lister(self, tools: list[Callable[..., Any]]) -> Callable[[], Awaitable[Any]]:
        return self._filled(tools).list_tools

    def define(self, fn: Callable[..., Any]) -> Any:
        return self._tool.from_function(fn)

    def _filled(self, tools: list[Callable[..., Any]]) -> Any:
        server = self._server("bench")
        for fn in tools:
            server.add_tool(fn)
        return server


class LangChain:
    label = "LangChain"
    imported = "from langchain_core.tools import tool"

    def __init__(self) -> None:
        from langchain_core.tools import StructuredTool

        self._tool = StructuredTool

    async def calls(self, case: Case) -> Mapping[str, Loop]:
        tool, name, text = self._made(case.fn), case.name, case.text

        async def loop(times: int) -> str:
            shown = ""
            for _ in range(times):
                call = {"type": "tool_call", "id": "call_1", "name": name, "args": json.loads(text)}
                shown = (await tool.ainvoke(call)).content
            return shown

        return {self.label: loop}

    async def among(self, tools: list[Callable[..., Any]], case: Case) -> None:
        return None

    async def lister(self, tools: list[Callable[..., Any]]) -> None:
        return None

    def define(self, fn: Callable[..., Any]) -> Any:
        return (tool := self._made(fn)), tool.tool_call_schema

    def _made(self, fn: Callable[..., Any]) -> Any:
        from inspect import iscoroutinefunction

        return self._tool.from_function(**{"coroutine" if iscoroutinefunction(fn) else "func": fn})


class PydanticAI:
    label = "pydantic-ai manager"
    imported = "from pydantic_ai import FunctionToolset"

    def __init__(self) -> None:
        from pydantic_ai import FunctionToolset, RunContext
        from pydantic_ai.messages import ToolCallPart, ToolReturnPart
        from pydantic_ai.models.test import TestModel
        from pydantic_ai.tool_manager import ToolManager
        from pydantic_ai.tools import Tool
        from pydantic_ai.usage import RunUsage

        self._toolset, self._manager, self._tool = FunctionToolset, ToolManager, Tool
        self._call, self._answer = ToolCallPart, ToolReturnPart
        self._context = lambda: RunContext(deps=None, model=TestModel(), usage=RunUsage())

    async def calls(self, case: Case) -> Mapping[str, Loop]:
        toolset, context = self._toolset([case.fn]), self._context()
        tool = (await toolset.get_tools(context))[case.name]
        name, text, answer = case.name, case.text, self._answer

        async def alone(times: int) -> str:
            shown = ""
            for _ in range(times):
                value = await toolset.call_tool(name, tool.args_validator.validate_json(text), context, tool)
                shown = answer(name, value, "call_1").model_response_str()
            return shown

        return {"pydantic-ai toolset": alone, self.label: await self.among([case.fn], case)}

    async def among(self, tools: list[Callable[..., Any]], case: Case) -> Loop:
        manager = await self._manager(self._toolset(tools)).for_run_step(self._context())
        name, text, call, answer = case.name, case.text, self._call, self._answer

        async def loop(times: int) -> str:
            shown = ""
            for _ in range(times):
                value = await manager.handle_call(call(name, text, "call_1"))
                shown = answer(name, value, "call_1").model_response_str()
            return shown

        return loop

    async def lister(self, tools: list[Callable[..., Any]]) -> Callable[[], Awaitable[Any]]:
        toolset, context = self._toolset(tools), self._context()
        return lambda: toolset.get_tools(context)

    def define(self, fn: Callable[..., Any]) -> Any:
        return (tool := self._tool(fn)), tool.tool_def


class OpenAIAgents:
    label = "OpenAI Agents"
    imported = "from agents import function_tool"

    def __init__(self) -> None:
        from agents import ItemHelpers, function_tool
        from agents.tool_context import ToolContext
        from openai.types.responses import ResponseFunctionToolCall

        self._tool, self._context, self._helpers, self._call = (
            function_tool,
            ToolContext,
            ItemHelpers,
            ResponseFunctionToolCall,
        )

    async def calls(self, case: Case) -> Mapping[str, Loop]:
        tool, context, helpers, name, text = self._tool(case.fn), self._context, self._helpers, case.name, case.text
        call = self._call(arguments=text, call_id="call_1", name=name, type="function_call")

        async def loop(times: int) -> str:
            shown = ""
            for _ in range(times):
                value = await tool.on_invoke_tool(context(None, None, name, "call_1", text), text)
                shown = helpers.tool_call_output_item(call, value)["output"]
            return shown

        return {self.label: loop}

    async def among(self, tools: list[Callable[..., Any]], case: Case) -> None:
        return None

    async def lister(self, tools: list[Callable[..., Any]]) -> None:
        return None

    def define(self, fn: Callable[..., Any]) -> Any:
        return self._tool(fn)


PEERS: Mapping[str, Callable[[], Peer]] = {
    "AutoGen": AutoGen,
    "FastMCP": FastMCP,
    "LangChain": LangChain,
    "pydantic-ai": PydanticAI,
    "OpenAI Agents": OpenAIAgents,
}
