"""How long the event loop of the host is held by 1 MB of foreign data, where it takes the longest.

A task ticks every millisecond on the same loop; the longest time between two ticks is what counts. It is the smaller of
the clock's and of the processor's time of this process: on a busy machine others run meanwhile, too.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import mcp_types as wire
from pydantic import BaseModel

from toolcrib import Text, ToolSpec, Workbench
from toolcrib.formats import openai
from toolcrib.machinery import in_thread
from toolcrib.tools.mcp.tools import tool_of

SECRET = "s3cr3t-value-1"
MEGABYTE = 1_000_000


class All(BaseModel):
    """A branch of a union that is inside itself."""

    items: list["All | Some | Leaf"]


class Some(BaseModel):
    """Another one, with the same member."""

    op: Literal["some"] = "some"
    items: list["All | Some | Leaf"]


class Leaf(BaseModel):
    """What the branches end with."""

    field: str
    value: int


All.model_rebuild()
Some.model_rebuild()


async def rows(rows: list[dict[str, int]]) -> int:
    """Count rows."""
    return len(rows)


async def query(query: All | Some | Leaf) -> int:
    """Take a query."""
    return 1


async def nothing() -> int:
    """Take nothing."""
    return 1


def _nested(depth: int) -> Any:
    leaves: Any = {"items": [{"field": "a", "value": "x"}] * 25_000}
    for _ in range(depth):
        leaves = {"items": [leaves]}
    return leaves


def _full(value: Any) -> Callable[[], Awaitable[Any]]:
    async def read() -> Any:
        """Return what is large."""
        return value

    return read


CHECKS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "check, valid": (rows, json.dumps({"rows": [{"a": n, "b": n} for n in range(42_000)]})),
    "check, wrong throughout": (rows, json.dumps({"rows": [{"a": "x"}] * 80_000})),
    "check, unions nested 40 deep": (query, json.dumps({"query": _nested(40)})),
    "message, unknown names": (nothing, json.dumps({f"name_{n}": n for n in range(50_000)})),
}
RESULTS: Mapping[str, Any] = {
    "redaction, nothing to redact": "no secret in this line\n" * (MEGABYTE // 23),
    "redaction, a secret on every line": f"{SECRET}\n" * (MEGABYTE // 15),
    "redaction, JSON of secrets": [{"key": SECRET} for _ in range(MEGABYTE // 26)],
    "redaction, 300,000 parts": [Text("abc")] * 300_000,
}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "plain members": {"properties": {f"p{n}": {"type": "string"} for n in range(7_000)}},
    "many parts": {"allOf": [{"properties": {f"p{n}": {"type": "integer"}}} for n in range(4_500)]},
}


async def longest_hold(work: Callable[[], Awaitable[Any]]) -> float:
    """Seconds between the two ticks that are the furthest apart while *work* is done."""
    longest, is_over = 0.0, False

    async def tick() -> None:
        nonlocal longest
        clock, processor = time.perf_counter(), time.process_time()
        while not is_over:
            await asyncio.sleep(0.001)
            clock_now, processor_now = time.perf_counter(), time.process_time()
            longest = max(longest, min(clock_now - clock, processor_now - processor))
            clock, processor = clock_now, processor_now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0.01)
    await work()
    await asyncio.sleep(0.003)
    is_over = True
    await ticking
    return longest


async def holds(rounds: int) -> dict[str, list[float]]:
    """The longest hold of each kind of data, round by round."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (tool, text) in CHECKS.items():
            async with Workbench([tool], secrets=[SECRET]) as bench:
                await bench.call(tool.__name__, "{}")  # which makes the check
                work = _calling(bench, tool.__name__, text)
                found.setdefault(name, []).append(await longest_hold(work))
        for name, value in RESULTS.items():
            async with Workbench([_full(value)], secrets=[SECRET]) as bench:
                found.setdefault(name, []).append(await longest_hold(_calling(bench, "read", "{}")))
                handle = (await bench.call("read", "{}")).metadata["handle"]
                text = json.dumps({"handle": handle, "search": "a"})
                preview = name.replace("redaction", "preview and read_result")
                found.setdefault(preview, []).append(await longest_hold(_calling(bench, "read_result", text)))
        for name, schema in SCHEMAS.items():
            title = f"schemas of {name}"
            found.setdefault(title, []).append(await longest_hold(lambda schema=schema: _listed(schema)))
    return found


def _calling(bench: Workbench, name: str, text: str) -> Callable[[], Awaitable[Any]]:
    return lambda: bench.call(name, text)


async def _listed(schema: Mapping[str, Any]) -> None:
    """Read and lower what a server lists, as its source and a model's client do: in threads."""
    count = MEGABYTE // len(json.dumps(schema))

    def read() -> list[ToolSpec]:
        tools = [wire.Tool(name=f"t{n}", inputSchema={"type": "object", **schema}) for n in range(count)]
        return [tool_of(definition, "server", _never).spec for definition in tools]

    specs = await in_thread(read)
    await in_thread(lambda: openai.tools(specs, strict=True))


async def _never(name: str, arguments: dict[str, Any], context: Any) -> Any:
    raise NotImplementedError
