"""What a function's signature, annotations and docstring say about it as a Spark tool."""

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from ....core import DefinitionError, ToolError, finished
from ._schemas import schema_in
from .types import ToolContext, ToolResult, ToolSpec


class FunctionSchema:
    """The schema, the check and the hidden parameters of a function, computed once."""

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
        self.takes_agent = any(map(_is_agent, everything))
        self.contexts = [each.name for each in everything if each.name == context or _is_context(each.annotation)]
        hidden = {*self.contexts, self.receiver, *(["agent"] if self.takes_agent else [])}
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

    def inject(self, arguments: dict[str, Any], tool_use: Any, state: dict[str, Any]) -> None:
        """Write into *arguments* what the host provides: the ToolContext, and the agent in *state*, if there is one."""
        arguments |= dict.fromkeys(self.contexts, ToolContext(tool_use, state))
        if self.takes_agent and "agent" in state:
            arguments["agent"] = state["agent"]

    def read(self, written: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The typed arguments of the tool *name* in *written*, with defaults. Raises ValueError in Spark's words."""
        try:
            arguments, _ = finished(self.check(name), written, True)
        except ToolError as error:
            message = error.message.removeprefix(f"Tool '{name}': ")
            raise ValueError(f"Validation failed for input parameters: {message}") from error
        return {**self.defaults(), **self.accepted(arguments)}

    def defaults(self) -> dict[str, Any]:
        """The defaults of the parameters that a model sees."""
        return {
            each.name: copy.deepcopy(each.default)
            for each in self.parameters
            if each.default is not inspect.Parameter.empty and type(each.default).__module__ != "pydantic.fields"
        }

    def spec(self, name: str, description: str | None) -> ToolSpec:
        """The spec of the tool *name*, with *description* or else the docstring."""
        spec: ToolSpec = {
            "name": name,
            "description": description or (self.signature.doc or "").strip() or name,
            "parameters": {"json": self.schema},
        }
        if response := self._response_schema(name):
            spec["response_schema"] = response
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


def _is_agent(parameter: Any) -> bool:
    """Whether the host's agent is injected into *parameter*: one of that name, unless it is of a kind for models."""
    return parameter.name == "agent" and not _is_for_models(parameter.annotation)


def _is_for_models(annotation: Any) -> bool:
    """Whether *annotation* is of text, numbers and the like, which no agent is."""
    if get_origin(annotation) is Literal or any(annotation is kind for kind in (str, int, float, bool)):
        return True
    parts = get_args(annotation)[: 1 if get_origin(annotation) is Annotated else None]
    return bool(parts) and all(part is type(None) or _is_for_models(part) for part in parts)
