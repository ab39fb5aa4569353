"""`hyperpocket.tool.wasm`: tools in folders and git repositories, which run in the sandbox."""

from .tool import WasmTool, WasmToolRequest, from_git, from_local, request_of

__all__ = ["WasmTool", "WasmToolRequest", "from_git", "from_local", "request_of"]
