"""The tools that agent-swarm-kit's document on IAgentTool (004) names, "search" and "calculate", with their functions.

They are written as the original's dictionaries, and as its interface in Python.
"""

from toolcrib.dialects.swarm import IAgentTool, IAgentToolCallbacks, IToolCallDto, IToolValidateDto

seen = []


async def search(dto):
    seen.append(dto)
    return f"results for {dto['params']['query']}"


search_tool = {
    "docNote": "Searches the catalogue.",
    "toolName": "search-tool",
    "type": "function",
    "function": {
        "name": "search",
        "description": "Performs a search query",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to search for"},
                "scope": {"type": "string", "description": "Where", "enum": ["all", "new"]},
            },
            "required": ["query"],
        },
    },
    "validate": lambda dto: dto["params"]["query"] != "",
    "call": search,
    "callbacks": {"onBeforeCall": lambda tool_id, client_id, agent_name, params: seen.append(("before", tool_id))},
}


class Calculate(IAgentTool):
    tool_name = "calculate-tool"
    doc_note = "Adds numbers."
    function = {
        "name": "calculate",
        "description": "Adds two numbers",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "number", "description": "The first"},
                "b": {"type": "number", "description": "The second"},
            },
            "required": ["a", "b"],
        },
    }
    callbacks = IAgentToolCallbacks(
        on_after_call=lambda tool_id, client_id, agent_name, params: seen.append(("after", tool_id))
    )

    async def validate(self, dto: IToolValidateDto) -> bool:
        return dto.params["a"] >= 0

    async def call(self, dto: IToolCallDto) -> float:
        seen.append(dto)
        return dto.params["a"] + dto.params["b"]
