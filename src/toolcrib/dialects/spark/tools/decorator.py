"""`spark.tools.decorator`: `@tool` makes a function a tool, by what it reads off it, and ToolContext is injected."""

import asyncio
import copy
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Annotated, Any, Generic, Literal, ParamSpec, TypeVar, cast, get_args, get_origin, overload

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from .... import schema
from ....core import Context, DefinitionError, ToolError
from ....tools import Tool, by_name, reference
from ._core_tool import build_tool, normalize_schema, schema_in, tool_use_of
from .types import (
    BaseTool,
    ToolContext,
    ToolResult,
    ToolSpec,
    ToolUse,
    run_call,
    update_tool_runtime_metadata,
    write_hints,
)

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "BaseTool",
    "DecoratedFunctionTool",
    "FunctionToolMetadata",
    "ToolContext",
    "ToolResult",
    "ToolSpec",
    "ToolUse",
    "tool",
]


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


class FunctionTool(BaseTool, Generic[P, R]):
    """A tool that calls `tool_func`."""

    tool_func: Callable[P, R]
    _name: str
    _is_async: bool

    @property
    def tool_name(self) -> str:
        return self._name

    @property
    def supports_hot_reload(self) -> bool:
        return True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function. An async one runs to its end; it raises RuntimeError in a running event loop."""
        value: Any = self.tool_func(*args, **kwargs)
        return cast(R, _finished(value) if inspect.isawaitable(value) else value)

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function from async code: on the event loop if it is async, else in a thread."""
        call = functools.partial(self.tool_func, *args, **kwargs)
        return await run_call(call, is_async=self._is_async)


class DecoratedFunctionTool(FunctionTool[P, R]):
    """A function as a tool, which `@tool` makes. Calling it calls the function.

    Name and spec are those given; the arguments of calls are checked against the spec. Without a *tool_spec* it is what
    *metadata* extracts, when it is first needed: annotations may use names that are defined later. On a method the
    tool binds: `obj.method` is a tool of that object.
    """

    def __init__(
        self,
        tool_name: str,
        tool_spec: ToolSpec | None,
        tool_func: Callable[P, R],
        metadata: FunctionToolMetadata,
        *,
        long_running: bool = False,
        supports_async: bool | None = None,
    ) -> None:
        name: object = tool_name
        if not isinstance(name, str):
            raise ValueError(f"Tool name must be a string, got {type(name)}")
        kind, plain = _unbound(tool_func)
        self._method_type = kind
        self.tool_func = plain
        self._name = tool_name
        self._metadata = metadata
        self._parameters = None if tool_spec is None else tool_spec.get("parameters")
        self._is_async = schema.returns_awaitable(plain) if supports_async is None else supports_async
        self._spec = tool_spec
        self.__name__: str = self._name
        functools.update_wrapper(self, plain)
        # A function that is also a native tool has its own, which would hide ours.
        vars(self).pop("__toolcrib__", None)
        self._supports_async = self._is_async
        self._is_long_running = long_running
        if tool_spec is not None:
            write_hints(self, tool_spec)

    @property
    def tool_spec(self) -> ToolSpec:
        if self._spec is None:
            self._spec = self._read.spec(self._name)
            write_hints(self, self._spec)
        return self._spec

    @property
    def tool_type(self) -> str:
        return "function"

    def mark_supports_async(self) -> None:
        super().mark_supports_async()
        update_tool_runtime_metadata(self.tool_spec, supports_async=True)

    def mark_long_running(self) -> None:
        super().mark_long_running()
        update_tool_runtime_metadata(self.tool_spec, long_running=True)

    def get_display_properties(self) -> dict[str, str]:
        return {**super().get_display_properties(), "Function": getattr(self.tool_func, "__name__", self._name)}

    def prepare_tool_kwargs(self, tool_use: ToolUse, invocation_state: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the arguments to call the function with: checked and typed, with defaults and the ToolContext.

        Raises ValueError for input that the tool does not accept.
        """
        value = tool_use.get("input")
        if not isinstance(value, Mapping | None):
            raise ValueError(f"Tool '{self._name}' expects object input, a dictionary, not {type(value).__name__}.")
        arguments = self._read.validate_input(value or {}, self._name)
        self._read.inject_special_parameters(arguments, tool_use, {} if invocation_state is None else invocation_state)
        return arguments

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> "DecoratedFunctionTool[..., Any]":
        """Return the tool of one object, if this is a method."""
        receiver = owner if self._method_type is classmethod else instance
        if receiver is None or self._method_type is staticmethod:
            return self
        method = self._copy()
        method._method_type = staticmethod  # so that it is bound only once
        method.tool_func = MethodType(self.tool_func, receiver)
        vars(method)["__wrapped__"] = method.tool_func
        method._metadata = self._metadata.of(method.tool_func)
        return method

    def named(self, name: str) -> "DecoratedFunctionTool[P, R]":
        """Return the same tool under another name, in its spec too."""
        twin = self._copy()
        twin._name = name
        if self._spec is not None:
            twin._spec = {**copy.deepcopy(self._spec), "name": name}
        return twin

    def __repr__(self) -> str:
        return f"<DecoratedFunctionTool {self._name}>"

    def _copy(self) -> "DecoratedFunctionTool[P, R]":
        twin = copy.copy(self)
        twin._spec = None if self._parameters is None else copy.deepcopy(self._spec)
        for cached in ("_built", "_read"):
            vars(twin).pop(cached, None)
        return twin

    @functools.cached_property
    def _read(self) -> FunctionToolMetadata:
        return self._metadata if self._parameters is None else self._metadata.with_parameters(self._parameters)

    def _build(self) -> Tool[..., Any]:
        read = self._read
        if read.receiver is not None and self._method_type is not staticmethod:
            raise DefinitionError(
                f"Tool '{self._name}' is a method without its object. Pass it bound: obj.{self.__name__}."
            )
        call = by_name(self.tool_func, read.read, f"Tool '{self._name}'")

        async def awaited(**arguments: Any) -> Any:
            value = call(**arguments)  # which is not awaitable where only `async_execution` makes the function async
            return await value if inspect.isawaitable(value) else value

        def prepared(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
            arguments = read.accepted(arguments)
            if read.contexts or read.takes_agent:
                read.inject_special_parameters(arguments, *tool_use_of(context))
            return arguments

        core_tool = build_tool(
            self,
            normalize_schema(schema_in(self.tool_spec.get("parameters", {}))) if self._parameters else read.schema,
            awaited if self._is_async else call,
            prepared,
            is_async=self._is_async,
            home=getattr(self.tool_func, "__module__", None) or __name__,
            check=read.check,
            context=read.read.needs.context,
            depends=read.read.needs.depends,
        )
        core_tool.ref = reference(self.tool_func)
        return core_tool


def _finished(value: Any) -> Any:
    """Return what *value* gives when it is awaited. Raises RuntimeError in a running event loop."""

    async def finish() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(finish())
    if inspect.iscoroutine(value):
        value.close()
    raise RuntimeError(
        "Attempted to invoke async tool synchronously while an event loop is running. "
        "Use 'await tool.acall(...)' instead."
    )


@overload
def tool(
    func: Callable[P, R],
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    name: str | None = None,
    context: bool | str = False,
    long_running: bool = False,
    async_execution: bool | None = None,
) -> DecoratedFunctionTool[P, R]: ...
@overload
def tool(
    func: None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    name: str | None = None,
    context: bool | str = False,
    long_running: bool = False,
    async_execution: bool | None = None,
) -> Callable[[Callable[P, R]], DecoratedFunctionTool[P, R]]: ...
def tool(
    func: Callable[..., Any] | None = None,
    description: str | None = None,
    parameters: dict[str, Any] | None = None,
    name: str | None = None,
    context: bool | str = False,
    long_running: bool = False,
    async_execution: bool | None = None,
) -> Any:
    """Make a function a tool: `@tool`, or `@tool(name=..., context=True)`.

    - *description*: replaces the docstring, which otherwise is the whole description.
    - *parameters*: a JSON Schema, bare or as `{"json": ...}`, that replaces the one of the annotations. Arguments are
      checked against it and stay JSON values.
    - *context*: the parameter that receives the ToolContext; True means `tool_context`. A parameter annotated with
      ToolContext always receives it.
    - *long_running*: a hint.
    - *async_execution*: whether to run the function on the event loop; detected by default.

    A parameter named `agent` receives the agent that runs the tool, unless it is annotated as text or a number.

    Raises ValueError for an empty *context*, and a *name* that is not text.
    """
    param = "tool_context" if context is True else context.strip() if context else None
    if isinstance(context, str) and not param:
        raise ValueError("Context parameter name cannot be empty: context=True takes 'tool_context'.")

    def decorate(fn: Callable[..., Any]) -> DecoratedFunctionTool[..., Any]:
        metadata = FunctionToolMetadata(_unbound(fn)[1], param, description=description, parameters=parameters)
        return DecoratedFunctionTool(
            metadata.name if name is None else name,
            None,
            fn,
            metadata,
            long_running=long_running,
            supports_async=async_execution,
        )

    return decorate if func is None else decorate(func)


def _unbound(func: Any) -> tuple[type[Any] | None, Any]:
    """Return the function of *func*, and its type if it is a static or class method. Raises ValueError for others."""
    kind = type(func) if isinstance(func, staticmethod | classmethod) else None
    plain = func.__func__ if kind else func
    if isinstance(plain, BaseTool) or not callable(plain):
        raise ValueError(f"@tool decorates a function, not a {type(plain).__name__}.")
    return kind, plain


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
