"""`hyperpocket.tool.wasm.script`: what a tool in a folder is written in."""

from enum import Enum


class ScriptRuntime(Enum):
    """What runs a tool. The sandbox runs Python."""

    Node = "node"
    Python = "python"
    Wasm = "wasm"
