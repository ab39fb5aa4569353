"""The definition of 10,000 function tools: processor time and memory of each, and of its spec at the first look.

`python benchmarks/definition.py` prints it. The floor is what pydantic takes for one function by hand.
"""

import gc
import tracemalloc
from collections.abc import Callable
from time import process_time
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from toolcrib import Tool

TITLE = "the definition of 10,000 function tools"
TOOLS = 10_000


def _function(number: int) -> Callable[..., Any]:
    def search(query: str, limit: int = 10, tags: list[str] | None = None) -> str:
        """Search the notes.

        Args:
            query: The words to look for.
            limit: At most so many.
        """
        return query

    search.__name__ = f"search_{number}"
    return search


def _by_hand() -> None:
    fields = {"query": str, "limit": int, "tags": list[str] | None}
    TypeAdapter(TypedDict("Arguments", fields)).json_schema()  # type: ignore[operator]


def seconds() -> dict[str, float]:
    """Return the processor time of one definition: a floor by hand, a tool, and the spec of one."""
    functions = [_function(number) for number in range(TOOLS + 1)]
    Tool(functions.pop()).spec.to_dict()  # imports what it needs
    times: dict[str, float] = {}
    started = process_time()
    for _ in range(TOOLS // 10):
        _by_hand()
    times["floor"] = (process_time() - started) / (TOOLS // 10)
    started = process_time()
    tools = [Tool(function) for function in functions]
    times["Toolcrib"] = (process_time() - started) / TOOLS
    started = process_time()
    for tool in tools:
        tool.spec.to_dict()
    times["its spec"] = (process_time() - started) / TOOLS
    return times


def tool_bytes(define: Callable[[Callable[..., Any]], Any]) -> float:
    """Return the memory of a tool that *define* makes of a function."""
    functions = [_function(number) for number in range(TOOLS // 10 + 1)]
    define(functions.pop())  # imports what it needs
    gc.collect()
    tracemalloc.start()
    tools = [define(function) for function in functions]
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / len(tools)


def described(function: Callable[..., Any]) -> Tool[..., Any]:
    """Return a tool whose spec was looked at."""
    tool: Tool[..., Any] = Tool(function)
    tool.spec.to_dict()
    return tool


if __name__ == "__main__":
    print({name: f"{time * 1000:.2f} ms" for name, time in seconds().items()})
    print(f"{tool_bytes(Tool) / 1024:.1f} KiB each, {tool_bytes(described) / 1024:.1f} KiB with its spec")
