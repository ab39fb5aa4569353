"""The official MCP client starts the Toolcrib server on the example tools and calls them; this prints what it sees.

Run it with `make demo`. It exits with status 1 if a call does not end as expected, so it is a check as well.
"""

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent, Tool

ROOT = Path(__file__).resolve().parents[2]
SERVER = ["-m", "toolcrib", "serve", "examples", "toolcrib.demo", "--stdio"]


@dataclass(frozen=True)
class Step:
    """One call, and the expected result: words in its text, its error code, and its repairs."""

    why: str
    tool: str
    arguments: dict[str, Any]
    text: str
    code: str | None = None
    repairs: list[str] = field(default_factory=list)


STEPS = [
    Step(
        "A correct call.",
        "convert_time",
        {"time": "2025-06-01T09:30:00", "from_zone": "Europe/Paris", "to_zone": "Asia/Tokyo"},
        text="2025-06-01T16:30:00+09:00",
    ),
    Step(
        "A correct call, on a database.",
        "query",
        {"sql": "SELECT name, discovered FROM moons WHERE planet = ? ORDER BY name", "parameters": ["Mars"]},
        text='[["Deimos",1877],["Phobos",1877]]',
    ),
    Step(
        "A number sent as text: only one reading fits the schema, so it is repaired and listed.",
        "query",
        {"sql": "SELECT name FROM planets WHERE radius_km > ? ORDER BY name", "parameters": [30000], "limit": "5"},
        text='[["Jupiter"],["Saturn"]]',
        repairs=["limit from string to integer"],
    ),
    Step(
        "A name in another case, repaired too.",
        "history",
        {"Limit": 1},
        text='"commits":[{',
        repairs=["Limit: renamed to limit"],
    ),
    Step(
        "A misspelt argument is refused with the right name, and the tool is not executed.",
        "read_lines",
        {"pth": "README.md"},
        text="Did you mean 'path'?",
        code="invalid_arguments",
    ),
    Step(
        "A tool explains an impossible request: on that night the clocks in Paris are put forward at two.",
        "convert_time",
        {"time": "2025-03-30T02:30:00", "from_zone": "Europe/Paris", "to_zone": "Asia/Tokyo"},
        text="never show 2025-03-30T02:30:00",
        code="invalid_arguments",
    ),
    Step(
        "A tool that refuses to write.",
        "query",
        {"sql": "DROP TABLE planets"},
        text="may only read",
        code="denied",
    ),
    Step(
        "A tool that does not exist.",
        "days_beetween",
        {"start": "2025-01-01", "end": "2025-12-31"},
        text="Did you mean 'days_between'?",
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
            problems = await show(client, step, tools)
            wrong += bool(problems)
            for problem in problems:
                print(f"  UNEXPECTED: {problem}")
    print(f"\n{len(STEPS) - wrong} of {len(STEPS)} calls ended as expected.")
    return 1 if wrong else 0


async def show(client: Client, step: Step, tools: list[Tool]) -> list[str]:
    """Make the call of *step* and print it. Returns what was not as expected."""
    print(f"\n# {step.why}\n> {step.tool} {json.dumps(step.arguments)}")
    text, code, repairs = await call(client, step, tools)
    for repair in repairs:
        print(f"  repaired {repair}")
    print(*(f"  {line}" for line in (f"error {code}: {text}" if code else text).splitlines()), sep="\n")
    values = {"error code": (code, step.code), "repairs": (repairs, step.repairs)}
    problems = [f"{what}: {got!r}, not {expected!r}" for what, (got, expected) in values.items() if got != expected]
    return problems if step.text in text else [*problems, f"the text does not contain {step.text!r}"]


async def call(client: Client, step: Step, tools: list[Tool]) -> tuple[str, str | None, list[str]]:
    """The text of the result, the code of its error and its repairs."""
    try:
        result: CallToolResult = await client.call_tool(step.tool, step.arguments)
    except MCPError as error:
        # A tool that does not exist is an error of the protocol, not of a tool.
        return error.message, error.data["toolcrib/error"]["code"], []
    meta = result.meta or {}
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    names = [name for tool in tools if tool.name == step.tool for name in tool.input_schema["properties"]]
    repairs = [repair_text(repair, names) for repair in meta.get("toolcrib/repairs", [])]
    return text, meta["toolcrib/error"]["code"] if result.is_error else None, repairs


def repair_text(repair: dict[str, str], names: list[str]) -> str:
    name = repair["path"].removeprefix("/")
    if repair["from"] == "key":
        return f"{name}: renamed to {next(known for known in names if known.lower() == name.lower())}"
    return f"{name} from {repair['from']} to {repair['to']}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
