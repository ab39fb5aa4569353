"""The official MCP client starts the Toolcrib server on the example tools and calls them; this prints what it sees.

Run it with `make demo`. It ends with status 1 if a call does not end as it is said to, so it is a check as well.
"""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

ROOT = Path(__file__).resolve().parents[2]
SERVER = ["-m", "toolcrib", "serve", "examples", "toolcrib.demo", "--stdio"]


@dataclass(frozen=True)
class Step:
    """One call, and how it is said to end: with which error code, after which repairs, with which words in its text."""

    why: str
    tool: str
    arguments: dict[str, Any]
    says: str
    code: str | None = None
    repairs: list[str] = field(default_factory=list)


STEPS = [
    Step(
        "A right call.",
        "convert_time",
        {"time": "2025-06-01T09:30:00", "from_zone": "Europe/Paris", "to_zone": "Asia/Tokyo"},
        says="2025-06-01T16:30:00+09:00",
    ),
    Step(
        "A right call, on a database.",
        "query",
        {"sql": "SELECT name, discovered FROM moons WHERE planet = ? ORDER BY name", "parameters": ["Mars"]},
        says='[["Deimos",1877],["Phobos",1877]]',
    ),
    Step(
        "A number sent as text: only one reading fits the schema, so it is repaired, and that is noted.",
        "query",
        {"sql": "SELECT name FROM planets WHERE radius_km > ? ORDER BY name", "parameters": [30000], "limit": "5"},
        says='[["Jupiter"],["Saturn"]]',
        repairs=["/limit: string to integer"],
    ),
    Step(
        "A name in another case, repaired too.",
        "history",
        {"Limit": 1},
        says='"commits":[{',
        repairs=["/Limit: key to key"],
    ),
    Step(
        "A misspelt argument is refused with the right name, and nothing has run.",
        "read_lines",
        {"pth": "README.md"},
        says="Did you mean 'path'?",
        code="invalid_arguments",
    ),
    Step(
        "A tool that fails says what to do instead: on that night the clocks in Paris are put forward at two.",
        "convert_time",
        {"time": "2025-03-30T02:30:00", "from_zone": "Europe/Paris", "to_zone": "Asia/Tokyo"},
        says="never show 2025-03-30T02:30:00",
        code="invalid_arguments",
    ),
    Step(
        "A tool that refuses what it is not for.",
        "query",
        {"sql": "DROP TABLE planets"},
        says="may only read",
        code="denied",
    ),
    Step(
        "A tool that is not there.",
        "days_beetween",
        {"start": "2025-01-01", "end": "2025-12-31"},
        says="Did you mean 'days_between'?",
        code="unknown_tool",
    ),
]


async def main() -> int:
    print(f"$ python {' '.join(SERVER)}")
    server = StdioServerParameters(command=sys.executable, args=SERVER, cwd=ROOT)
    wrong = 0
    async with Client(server) as client:
        print(f"Connected over stdio, MCP {client.session.protocol_version}.\n")
        tools = (await client.list_tools()).tools
        print(f"{len(tools)} tools:")
        for tool in tools:
            print(f"  {tool.name}({', '.join(tool.input_schema['properties'])})")
        for step in STEPS:
            problems = await show(client, step)
            wrong += bool(problems)
            for problem in problems:
                print(f"  NOT AS SAID: {problem}")
    print(f"\n{len(STEPS) - wrong} of {len(STEPS)} calls ended as said.")
    return 1 if wrong else 0


async def show(client: Client, step: Step) -> list[str]:
    """Make the call of *step* and print it. Returns in what it did not end as said."""
    print(f"\n# {step.why}\n> {step.tool} {json.dumps(step.arguments)}")
    text, code, repairs = await called(client, step)
    for repair in repairs:
        print(f"  repaired {repair}")
    print(*(f"  {line}" for line in (f"error {code}: {text}" if code else text).splitlines()), sep="\n")
    said = {"the error code": (code, step.code), "the repairs": (repairs, step.repairs)}
    problems = [f"{what}: {got!r}, not {wanted!r}" for what, (got, wanted) in said.items() if got != wanted]
    return problems if step.says in text else [*problems, f"its text does not say {step.says!r}"]


async def called(client: Client, step: Step) -> tuple[str, str | None, list[str]]:
    """The text of the result, the code of its error and its repairs."""
    try:
        result: CallToolResult = await client.call_tool(step.tool, step.arguments)
    except MCPError as error:
        # A tool that is not there is an error of the protocol, not of a tool.
        return error.message, error.data["toolcrib/error"]["code"], []
    meta = result.meta or {}
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    repairs = [f"{r['path']}: {r['from']} to {r['to']}" for r in meta.get("toolcrib/repairs", [])]
    return text, meta["toolcrib/error"]["code"] if result.is_error else None, repairs


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
