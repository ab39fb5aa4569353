"""`FunctionToolMetadata`: what Spark reads off a function, and what checks the input of its tool."""

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from .... import schema
from ....core import DefinitionError, ToolError
from ._core_tool import schema_in
from .types import ToolContext, ToolResult, ToolSpec, ToolUse


class FunctionToolMetadata:
    """The signature, types, docstring and spec of *func*, and the check of its input. All are read when needed.

    *context_param* is the parameter that receives the ToolContext. *description* and *parameters* replace those that
    are read off the function. Raises DefinitionError for annotations that cannot be read, or that have no JSON form.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        context_param: str | None = None,
        *,
        description: str | None = None,
        parameters: dict[str, Any] | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self.func = func
        self._context_param = context_param
        self._description = description
        self._parameters = parameters
        # The local names around the function can be found only while these are being defined.
        self._names = schema.enclosing_names(func) if names is None else names

    def of(self, func: Callable[..., Any]) -> "FunctionToolMetadata":
        """Return the same of another *func*, such as a bound method."""
        return FunctionToolMetadata(
            func, self._context_param, description=self._description, parameters=self._parameters, names=self._names
        )

    def with_parameters(self, parameters: dict[str, Any]) -> "FunctionToolMetadata":
        """Return the same with the *parameters* of a spec, where they are others than those of the function."""
        try:
            if schema_in(parameters) == self.schema:
                return self
        except DefinitionError:  # the function has none
            pass
        metadata = self.of(self.func)
        metadata._parameters = parameters
        return metadata

    # What Spark's programs read

    @property
    def name(self) -> str:
        """Return the name of the function."""
        plain = schema.unwrap_partials(self.func)
        return getattr(plain, "__name__", None) or type(plain).__name__

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.func)

    @functools.cached_property
    def type_hints(self) -> dict[str, Any]:
        """Return the annotations, resolved, with "return"."""
        names = dict(self.read.names)
        plain: Any = inspect.unwrap(self.func)
        return typing.get_type_hints(plain if inspect.isroutine(plain) else type(plain).__call__, localns=names)

    @functools.cached_property
    def param_descriptions(self) -> dict[str, str]:
        """Return the descriptions of the parameters in the docstring."""
        descriptions = schema.read_docstring(self.read.doc).parameters
        return {name: text or f"Parameter {name}" for name, text in descriptions.items()}

    @functools.cached_property
    def input_model(self) -> type[BaseModel]:
        """Return a pydantic model of the arguments that a model fills in; it ignores others."""
        of_host = self.signature.parameters.keys() - {parameter.name for parameter in self._visible}
        name = f"{self.name.capitalize()}Tool"
        return schema.arguments_model(self.func, name=name, without=of_host, config=ConfigDict(extra="ignore"))

    def extract_metadata(self) -> ToolSpec:
        """Return the spec of the function."""
        return self.spec(self.name)

    def validate_input(self, input_data: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
        """Return *input_data* typed and with defaults, without what the function does not take.

        *name* is the tool's. Raises ValueError `Validation failed for input parameters: ...`.
        """
        name = name or self.name
        try:
            arguments, _ = self.check(name)(input_data, True)
        except ToolError as error:
            message = error.message.removeprefix(f"Tool '{name}': ")
            raise ValueError(f"Validation failed for input parameters: {message}") from error
        defaults = {
            parameter.name: copy.deepcopy(parameter.default)
            for parameter in self._visible
            if parameter.default is not inspect.Parameter.empty and not isinstance(parameter.default, FieldInfo)
        }
        return {**defaults, **self.accepted(arguments)}

    def inject_special_parameters(
        self, validated_input: dict[str, Any], tool_use: ToolUse, invocation_state: dict[str, Any]
    ) -> None:
        """Write the ToolContext into *validated_input*, and the agent of *invocation_state*, where they are taken."""
        validated_input |= dict.fromkeys(self.contexts, ToolContext(tool_use, invocation_state))
        if self.takes_agent and "agent" in invocation_state:
            validated_input["agent"] = invocation_state["agent"]

    # What the tool uses

    @functools.cached_property
    def read(self) -> schema.Signature:
        """Return the function's parameters as the core reads them."""
        return schema.read_signature(self.func, label=f"Tool '{self.name}'", names=self._names)

    @functools.cached_property
    def receiver(self) -> str | None:
        """Return the name of the object's parameter, `self` or `cls`, of a method that is not bound."""
        first = self.read.in_python[0].name if self.read.in_python else None
        return first if first in ("self", "cls") and not inspect.ismethod(self.func) else None

    @functools.cached_property
    def contexts(self) -> list[str]:
        """Return the names of the parameters that receive the ToolContext."""
        context = self._context_param
        return [p.name for p in self.read.parameters if p.name == context or _is_context(p.annotation)]

    @functools.cached_property
    def takes_agent(self) -> bool:
        """Return whether a parameter `agent` is for the host's agent, and not of a kind for models."""
        return any(p.name == "agent" and not _is_for_models(p.annotation) for p in self.read.parameters)

    @functools.cached_property
    def _visible(self) -> list[schema.Parameter]:
        of_host = {*self.contexts, self.receiver, *(["agent"] if self.takes_agent else [])}
        return [parameter for parameter in self.read.parameters if parameter.name not in of_host]

    @functools.cached_property
    def _own(self) -> tuple[dict[str, Any], Callable[[str], Any]]:
        """Return the schema of the arguments, and what returns their check for a tool's name."""
        label = f"Tool '{self.name}'"
        if self._parameters is not None:
            bare = {"properties": {}, "required": [], **schema.require_schema(schema_in(self._parameters), label=label)}
            return bare, functools.partial(schema.json_schema_check, schema=bare)
        docs = schema.read_docstring(self.read.doc).parameters
        arguments = schema.Arguments(self._visible, docs, label=label, names=self.read.names, closed=False)
        return _spark_schema(arguments.schema), functools.partial(schema.arguments_check, arguments=arguments)

    @property
    def schema(self) -> dict[str, Any]:
        return self._own[0]

    @property
    def check(self) -> Callable[[str], Any]:
        return self._own[1]

    def accepted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of *arguments* that the function accepts from a model. Spark drops the others."""
        names = {parameter.name for parameter in self._visible}
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in self._visible):
            # What **kwargs must not receive: the receiver, the contexts, and what the host provides.
            of_host = {*self.read.reserved_names, *(parameter.name for parameter in self.read.parameters)} - names
            return {name: value for name, value in arguments.items() if name not in of_host}
        return {name: value for name, value in arguments.items() if name in names}

    def spec(self, name: str) -> ToolSpec:
        """Return the spec of the tool *name*, which is described by the docstring if by nothing else."""
        description = self._description or (self.read.doc or "").strip() or name
        spec: ToolSpec = {"name": name, "description": description, "parameters": {"json": self.schema}}
        if response := self._response_schema(name):
            spec["response_schema"] = response
        return spec

    def _response_schema(self, name: str) -> dict[str, Any] | None:
        """Return the schema of the return annotation; None if it has no JSON form."""
        returns = self.read.returns
        if returns is schema.EMPTY or returns in (None, type(None), ToolResult) or schema.has_no_schema(returns):
            return None
        label = f"Tool '{name}'"
        try:
            return dict(schema.return_serializer(returns, label=label, tool=name, names=self.read.names)[0])
        except DefinitionError:
            return None


def _spark_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return *schema* in Spark's form: open, with a description for each parameter, and `Optional[T]` as T."""
    properties = {
        name: {"description": f"Parameter {name}", **_without_null(of)} for name, of in schema["properties"].items()
    }
    rest = {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}
    return {"required": [], **rest, "properties": properties}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    # A reference stays a branch, because many providers ignore what is beside a "$ref".
    if len(branches) != 1 or len(schema["anyOf"]) != 2 or "$ref" in branches[0]:
        return dict(schema)
    return {**{key: value for key, value in schema.items() if key != "anyOf"}, **branches[0]}


def _is_context(annotation: Any) -> bool:
    return annotation is ToolContext or any(map(_is_context, get_args(annotation)))


def _is_for_models(annotation: Any) -> bool:
    """Return whether *annotation* is of text, numbers and the like, which no agent is."""
    if get_origin(annotation) is Literal or any(annotation is kind for kind in (str, int, float, bool)):
        return True
    parts = get_args(annotation)[: 1 if get_origin(annotation) is Annotated else None]
    return bool(parts) and all(part is type(None) or _is_for_models(part) for part in parts)
