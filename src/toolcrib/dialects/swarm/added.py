"""The tools of the program that are known by name, as in the original: added once, and used wherever `tools` are."""

from typing import TYPE_CHECKING, Any

from ...core import NameConflictError, UnknownToolError

if TYPE_CHECKING:
    from ...tools import Tool
    from .reading import AgentTool

# The original's `addTool` is a function of the program, so what it adds is the program's.
_added: "dict[str, AgentTool]" = {}


class AddedTool(str):
    """The name of a tool that was added. It is the text itself, and a source of tools for a workbench."""

    __slots__ = ()

    def __toolcrib__(self) -> "Tool[..., Any]":
        return added(self).__toolcrib__()


def add_tool(tool: Any) -> AddedTool:
    """Make *tool* known to the program under its tool name, which is given back.

    A file that is loaded again adds its tools anew. Raises NameConflictError where the name is taken, and
    DefinitionError for what cannot be a tool.
    """
    from .reading import agent_tool

    read = agent_tool(tool)
    known = _added.setdefault(read.tool_name, read)
    if known is not read:
        if not _is_of_a_later_load(read.call, known.call):
            raise NameConflictError(f"A tool '{read.tool_name}' already exists. Give one of them another name.")
        _added[read.tool_name] = read
    return AddedTool(read.tool_name)


def _is_of_a_later_load(call: Any, known: Any) -> bool:
    """Whether both are of one file, which was run once more since: in other globals."""
    code, known_code = getattr(call, "__code__", None), getattr(known, "__code__", None)
    if code is None or known_code is None or code.co_filename != known_code.co_filename:
        return False
    return call.__globals__ is not known.__globals__


def added(name: str) -> "AgentTool":
    """The tool that was added as *name*. Raises UnknownToolError."""
    from ...workbench.registry import unknown

    tool = _added.get(name)
    if tool is None:
        raise UnknownToolError(f"{unknown(name, _added)} Tools are added with add_tool().")
    return tool
