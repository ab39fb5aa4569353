"""`FunctionToolMetadata`: what Spark extracts of a function, for programs that make tools of functions themselves."""

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....core import DefinitionError
from ._function import FunctionSchema
from ._schemas import schema_in
from .types import BaseTool, ToolSpec, ToolUse, write_hints

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class ParameterDoc:
    """The description of a parameter in a docstring."""

    arg_name: str
    description: str | None


@dataclass(frozen=True, slots=True)
class FunctionDoc:
    """A docstring: its first line, the rest of its description, and the parameters that it describes."""

    short_description: str | None = None
    long_description: str | None = None
    params: list[ParameterDoc] = field(default_factory=list[ParameterDoc])


class FunctionToolMetadata:
    """The signature, types, docstring and spec of *func*, and the check of its input. All are read when needed.

    *context_param* is the parameter that receives the ToolContext. Raises DefinitionError for annotations that cannot
    be read, or that have no JSON form.
    """

    def __init__(self, func: Callable[..., Any], context_param: str | None = None) -> None:
        from ....schema.signature import enclosing_names

        self.func = func
        self._context_param = context_param
        self._names = enclosing_names(func)
        self._description: str | None = None
        self._parameters: dict[str, Any] | None = None

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.func)

    @functools.cached_property
    def type_hints(self) -> dict[str, Any]:
        """The annotations, resolved, with "return"."""
        names = dict(self._own.signature.names)
        plain: Any = inspect.unwrap(self.func)
        return typing.get_type_hints(plain if inspect.isroutine(plain) else type(plain).__call__, localns=names)

    @functools.cached_property
    def doc(self) -> FunctionDoc:
        """The parsed docstring."""
        from ....schema import read_docstring

        read = read_docstring(self._own.signature.doc)
        short, _, more = read.description.partition("\n")
        params = [ParameterDoc(name, described or None) for name, described in read.parameters.items()]
        return FunctionDoc(short.strip() or None, more.strip() or None, params)

    @functools.cached_property
    def param_descriptions(self) -> dict[str, str]:
        """The descriptions of the parameters in the docstring."""
        return {each.arg_name: each.description or f"Parameter {each.arg_name}" for each in self.doc.params}

    @functools.cached_property
    def input_model(self) -> "type[BaseModel]":
        """A pydantic model of the arguments that a model fills in; it ignores others."""
        from pydantic import ConfigDict

        from ....schema import arguments_model

        visible = {each.name for each in self._own.parameters}
        name = f"{self.name.capitalize()}Tool"
        hidden = self.signature.parameters.keys() - visible
        return arguments_model(self.func, name=name, without=hidden, config=ConfigDict(extra="ignore"))

    def extract_metadata(self) -> ToolSpec:
        """The spec of the function."""
        return self._own.spec(self.name, self._description)

    def validate_input(self, input_data: dict[str, Any]) -> dict[str, Any]:
        """*input_data* typed and with defaults, without what the function does not take.

        Raises ValueError `Validation failed for input parameters: ...`.
        """
        return self._own.read(input_data, self.name)

    def inject_special_parameters(
        self, validated_input: dict[str, Any], tool_use: ToolUse, invocation_state: dict[str, Any]
    ) -> None:
        """Write the ToolContext into *validated_input*, and the agent of *invocation_state*, where they are taken."""
        self._own.inject(validated_input, tool_use, invocation_state)

    def schema_of(self, name: str, parameters: dict[str, Any] | None) -> FunctionSchema:
        """The schema and check of the tool *name*, with the *parameters* of its spec where they are others."""
        if parameters is not None and schema_in(parameters) != self._extracted:
            return FunctionSchema(self.func, name, parameters, self._context_param, self._names)
        return FunctionSchema(self.func, name, self._parameters, self._context_param, self._names)

    def spec_of(self, tool: BaseTool, schema: FunctionSchema) -> ToolSpec:
        """The spec of *tool*, whose *schema* is that of `schema_of`."""
        spec = schema.spec(tool.tool_name, self._description)
        write_hints(tool, spec)
        return spec

    def of(self, func: Callable[..., Any]) -> "FunctionToolMetadata":
        """The same of another *func*, such as a bound method."""
        made = FunctionToolMetadata(func, self._context_param)
        made._names, made._description, made._parameters = self._names, self._description, self._parameters
        return made

    def overridden(self, description: str | None, parameters: dict[str, Any] | None) -> "FunctionToolMetadata":
        """The same with another *description* and other *parameters*, where they are given."""
        made = self.of(self.func)
        made._description, made._parameters = description, parameters
        return made

    @property
    def name(self) -> str:
        """The name of the function."""
        from ....schema import unwrap_partials

        plain = unwrap_partials(self.func)
        return getattr(plain, "__name__", None) or type(plain).__name__

    @functools.cached_property
    def _own(self) -> FunctionSchema:
        return self.schema_of(self.name, None)

    @property
    def _extracted(self) -> Any:
        """The schema of the function; None if its annotations have none."""
        try:
            return self._own.schema
        except DefinitionError:
            return None
