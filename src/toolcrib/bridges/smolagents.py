"""smolagents: a workbench as tools of its agents, and its tools and tool collections as sources.

An agent that calls a tool expects it to raise: it shows the model what was raised, and goes on.
"""

import json
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from PIL import Image as Pillow
from smolagents import Tool, ToolCollection
from smolagents.agent_types import AgentType
from smolagents.tools import AUTHORIZED_TYPES

from ..core import Context, Data, DefinitionError, Image, Result, ToolError, ToolSpec
from ..formats import GEMINI, Offered, decode_picture, json_value
from ..machinery import in_thread
from ..schema import inlined
from ..tools import Tool as CoreTool
from ..workbench import Workbench, sync
from .foreign import closed, png, promise, tool_of
from .host import Host, by_name

_ACCEPTS = replace(
    GEMINI,  # a common ground of models
    name="smolagents",
    source="smolagents.tools.Tool.validate_arguments: each input has a type; a tool's name is one of Python's",
    recursion="none",
    names=rf"(?!(?:{'|'.join(keyword.kwlist)})\Z)[A-Za-z_][A-Za-z0-9_]{{0,63}}",
)

# Out


def tools(bench: Workbench) -> list[Tool]:
    """Return the tools that *bench* has now: `ToolCallingAgent(tools=tools(bench), model=model)`, or a CodeAgent.

    smolagents has no context of a run: of a crib, give the workbench of the caller, `crib.workbench(Caller("alice"))`.
    """
    host = Host(bench)
    return [_Tool(host, tool) for tool in host.listed(_ACCEPTS).tools]


class _Tool(Tool):
    skip_forward_signature_validation = True

    def __init__(self, host: Host, tool: Offered) -> None:
        self.name, self.description = tool.name, tool.description
        self.inputs = _inputs(inlined(tool.schema))
        self._optional = self.inputs.keys() - set(tool.schema.get("required", ()))
        output = tool.spec.output_schema
        kind = None if output is None else output.get("type")
        self.output_type = kind if isinstance(kind, str) and kind in AUTHORIZED_TYPES else "any"
        if output is not None and kind == "object":
            self.output_schema = dict(output)
        self._host = host
        super().__init__()

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the value of the result, for the code of an agent. Raises ToolError for a failed or pending call."""
        arguments = by_name(self.inputs, args, kwargs)
        # What is left out is None here.
        values = {name: value for name, value in arguments.items() if value is not None or name not in self._optional}
        result = sync.run(self._host.call(None, self.name, values, accepts=_ACCEPTS))
        view = result.shown()
        if view.is_error:
            raise ToolError(view.text)
        return _value_of(result)


def _inputs(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of *schema* as smolagents has them: with one type or several, nullable if optional."""
    required = schema.get("required", ())
    inputs: dict[str, Any] = {}
    for name, of in schema.get("properties", {}).items():
        parameter = {"description": "", **_typed(of)}
        inputs[name] = parameter if name in required else {**parameter, "nullable": True}
    return inputs


def _typed(of: Mapping[str, Any]) -> dict[str, Any]:
    if "type" in of:
        return dict(of)
    rest = dict(of)
    options = rest.pop("anyOf", ())
    branches = [branch for branch in options if branch != {"type": "null"}]
    nullable = {"nullable": True} if len(branches) < len(options) else {}
    if len(branches) == 1:  # a type or null, or a reference with a description
        return {**_typed(branches[0]), **rest, **nullable}
    types = _types(branches)
    if not types:
        return {**rest, "type": "any"}
    rest |= nullable
    if "object" in types:  # smolagents would make the members of anyOf types again, each as often as it occurs
        rest["description"] = f"{rest.get('description', '')} One of: {json.dumps(branches)}".strip()
    return {**rest, "type": types if len(types) > 1 else types[0]}


def _types(branches: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the types of *branches*, each once; none where one of them has several, or none."""
    types: list[Any] = [branch.get("type") for branch in branches]
    return [*dict.fromkeys(types)] if all(isinstance(kind, str) for kind in types) else []


def _value_of(result: Result[Any]) -> Any:
    match result.content:
        case (Data() as only,):
            return json_value(only)
        case (Image(data=data),):
            try:
                return decode_picture(data)
            except Exception:
                return result.text
        case _:
            return result.text


# In


def read(value: Any) -> list[CoreTool[..., Any]] | None:
    """Return the tools of *value*, a tool or a collection of smolagents; None for anything else."""
    if isinstance(value, ToolCollection):
        return [_tool(tool) for tool in value.tools]
    return [_tool(value)] if isinstance(value, Tool) else None


def _tool(theirs: Tool) -> CoreTool[..., Any]:
    async def work(arguments: dict[str, Any], context: Context) -> Any:
        return _content_of(await in_thread(lambda: theirs(**arguments)))

    spec = ToolSpec(theirs.name, theirs.description, _schema(theirs), promise(theirs.output_schema))
    return tool_of(spec, work, at_deadline="left_running")


def _schema(theirs: Tool) -> dict[str, Any]:
    properties = {name: _property(theirs.name, name, of) for name, of in theirs.inputs.items()}
    required = [name for name, of in theirs.inputs.items() if not of.get("nullable")]
    return closed({"properties": properties, "required": required})


def _property(tool: str, name: str, of: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [of["type"]] if isinstance(of["type"], str) else list(of["type"])
    if not {"image", "audio"}.isdisjoint(kinds):
        raise DefinitionError(f"Tool '{tool}' takes an image or sound as '{name}', which no call in JSON has.")
    rest = {key: value for key, value in of.items() if key not in ("type", "nullable")}
    if "any" in kinds:
        return rest
    kinds += ["null"] if of.get("nullable") and "null" not in kinds else []
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **rest}


def _content_of(value: Any) -> Any:
    """Return the result of a tool as a tool of ours returns it."""
    raw = value.to_raw() if isinstance(value, AgentType) else value
    return png(raw) if isinstance(raw, Pillow.Image) else raw
