"""What a function says of itself, as Spark has it: its schema, its parameters, and what a model never sees."""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from ....core import DefinitionError
from .types import BaseTool, ToolContext, ToolResult, ToolSpec, update_tool_runtime_metadata


class Read:
    """What a function says of itself, read once."""

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str,
        parameters: dict[str, Any] | None,
        context: str | None,
        names: Mapping[str, Any],
    ) -> None:
        from .... import schema

        label = f"Tool '{name}'"
        self.signature = schema.read_signature(fn, label=label, names=names)
        first = self.signature.written[0].name if self.signature.written else None
        self.receiver = first if first in ("self", "cls") and not inspect.ismethod(fn) else None
        self.contexts = [
            each.name for each in self.signature.parameters if each.name == context or _is_context(each.annotation)
        ]
        hidden = {*self.contexts, self.receiver}
        self.parameters = [each for each in self.signature.parameters if each.name not in hidden]
        self._rest = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in self.parameters)
        # What **kwargs must not bring in: the receiver, the contexts, and what the host gives.
        self._hidden = self.signature.hidden | {each.name for each in self.signature.parameters if each.name in hidden}
        self._known = {each.name for each in self.parameters if each.kind is not inspect.Parameter.VAR_KEYWORD}
        docs = schema.read_docstring(self.signature.doc).parameters
        if parameters is not None:
            given = parameters["json"] if isinstance(parameters.get("json"), dict) else parameters
            self.schema = schema.require_schema(given, label=label)
            self.schema = {"properties": {}, "required": [], **self.schema}
            self.check = functools.partial(schema.bare_check, schema=self.schema)
            self.aliases: Mapping[str, str] = {}
        else:
            arguments = schema.Arguments(self.parameters, docs, label=label, names=self.signature.names, closed=False)
            self.schema = _shown(arguments.schema)
            self.check = functools.partial(schema.typed_check, arguments=arguments)
            self.aliases = arguments.aliases

    def taken(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Those of *arguments* that the function takes from a model. The others are left out, as Spark does."""
        if self._rest:
            return {name: value for name, value in arguments.items() if name not in self._hidden}
        return {name: value for name, value in arguments.items() if name in self._known}

    def defaults(self) -> dict[str, Any]:
        """What the function would take for arguments that are left out."""
        return {
            each.name: copy.deepcopy(each.default)
            for each in self.parameters
            if each.default is not inspect.Parameter.empty and type(each.default).__module__ != "pydantic.fields"
        }

    def spec(self, tool: BaseTool, description: str | None) -> ToolSpec:
        """What *tool* promises; *description* instead of the docstring."""
        spec: ToolSpec = {
            "name": tool.tool_name,
            "description": description or (self.signature.doc or "").strip() or tool.tool_name,
            "parameters": {"json": self.schema},
        }
        response = self._response(tool.tool_name)
        if response:
            spec["response_schema"] = response
        update_tool_runtime_metadata(
            spec,
            supports_async=True if tool.supports_async else None,
            long_running=True if tool.is_long_running else None,
        )
        return spec

    def _response(self, name: str) -> dict[str, Any] | None:
        """The schema of what is returned; None where the annotation says nothing that JSON could hold."""
        from .... import schema

        returns = self.signature.returns
        if returns is schema.EMPTY or returns in (None, type(None), ToolResult) or schema.shapeless(returns):
            return None
        try:
            described, _ = schema.describe_return(
                returns, label=f"Tool '{name}'", tool=name, names=self.signature.names
            )
        except DefinitionError:
            return None
        return dict(described)


def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema* as Spark shows it: open, every parameter described, `Optional[T]` as T."""
    shown = {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}
    shown["properties"] = {
        name: {"description": f"Parameter {name}", **_flattened(of)} for name, of in schema["properties"].items()
    }
    return {**shown, "required": shown.get("required", [])}


def _flattened(of: Mapping[str, Any]) -> dict[str, Any]:
    branches = [branch for branch in of.get("anyOf", ()) if branch != {"type": "null"}]
    # A reference stays inside: many providers read nothing beside a "$ref".
    if len(branches) != 1 or len(of["anyOf"]) != 2 or "$ref" in branches[0]:
        return dict(of)
    return {**{key: value for key, value in of.items() if key != "anyOf"}, **branches[0]}


def _is_context(annotation: Any) -> bool:
    return annotation is ToolContext or any(map(_is_context, get_args(annotation)))
