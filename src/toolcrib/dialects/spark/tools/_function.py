"""What a function's signature, annotations and docstring say about it as a Spark tool."""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from ....core import DefinitionError
from ._schemas import schema_in
from .types import BaseTool, ToolContext, ToolResult, ToolSpec, update_tool_runtime_metadata


class FunctionSchema:
    """The schema, the check and the hidden parameters of a function, found out once."""

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
        everything = self.signature.parameters
        self.contexts = [each.name for each in everything if each.name == context or _is_context(each.annotation)]
        hidden = {*self.contexts, self.receiver}
        self.parameters = [each for each in everything if each.name not in hidden]
        # What **kwargs must not receive: the receiver, the contexts, and what the host provides.
        self._hidden = self.signature.hidden | {each.name for each in everything if each.name in hidden}
        named = [each.name for each in self.parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
        self._accepted = set(named) if len(named) == len(self.parameters) else None
        if parameters is not None:
            bare = schema.require_schema(schema_in(parameters), label=label)
            self.schema = {"properties": {}, "required": [], **bare}
            self.check = functools.partial(schema.json_schema_check, schema=self.schema)
        else:
            docs = schema.read_docstring(self.signature.doc).parameters
            arguments = schema.Arguments(self.parameters, docs, label=label, names=self.signature.names, closed=False)
            self.schema = _spark_schema(arguments.schema)
            self.check = functools.partial(schema.arguments_check, arguments=arguments)

    def accepted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Those of *arguments* that the function accepts from a model. Spark drops the others."""
        if self._accepted is None:
            return {name: value for name, value in arguments.items() if name not in self._hidden}
        return {name: value for name, value in arguments.items() if name in self._accepted}

    def defaults(self) -> dict[str, Any]:
        """The defaults of the parameters that a model sees."""
        return {
            each.name: copy.deepcopy(each.default)
            for each in self.parameters
            if each.default is not inspect.Parameter.empty and type(each.default).__module__ != "pydantic.fields"
        }

    def spec(self, tool: BaseTool, description: str | None) -> ToolSpec:
        """The spec of *tool*, with *description* or else the docstring."""
        spec: ToolSpec = {
            "name": tool.tool_name,
            "description": description or (self.signature.doc or "").strip() or tool.tool_name,
            "parameters": {"json": self.schema},
        }
        if response := self._response_schema(tool.tool_name):
            spec["response_schema"] = response
        update_tool_runtime_metadata(
            spec, supports_async=tool.supports_async or None, long_running=tool.is_long_running or None
        )
        return spec

    def _response_schema(self, name: str) -> dict[str, Any] | None:
        """The schema of the return annotation; None if it has no JSON form."""
        from .... import schema

        returns = self.signature.returns
        if returns is schema.EMPTY or returns in (None, type(None), ToolResult) or schema.has_no_schema(returns):
            return None
        try:
            described, _ = schema.return_serializer(
                returns, label=f"Tool '{name}'", tool=name, names=self.signature.names
            )
        except DefinitionError:
            return None
        return dict(described)


def _spark_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema* in Spark's form: open, with a description for each parameter, and `Optional[T]` as T."""
    shown = {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}
    shown["properties"] = {
        name: {"description": f"Parameter {name}", **_without_null(of)} for name, of in schema["properties"].items()
    }
    return {**shown, "required": shown.get("required", [])}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    # A reference stays a branch, because many providers ignore what is beside a "$ref".
    if len(branches) != 1 or len(schema["anyOf"]) != 2 or "$ref" in branches[0]:
        return dict(schema)
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **branches[0]}


def _is_context(annotation: Any) -> bool:
    return annotation is ToolContext or any(map(_is_context, get_args(annotation)))
