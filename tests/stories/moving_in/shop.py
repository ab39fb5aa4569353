"""A tool of an agent swarm: the dictionary is the original's, its functions are Python."""

from agent_swarm_kit import add_tool


async def search(dto):
    last = "the last" if dto["isLast"] else "not the last"
    return f"results for {dto['params']['query']}, {last} of {len(dto['toolCalls'])}"


search_tool = add_tool(
    {
        "toolName": "search-tool",
        "type": "function",
        "function": {
            "name": "search",
            "description": "Performs a search query",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What to search for"}},
                "required": ["query"],
            },
        },
        "validate": lambda dto: dto["params"]["query"] != "",
        "call": search,
    }
)
