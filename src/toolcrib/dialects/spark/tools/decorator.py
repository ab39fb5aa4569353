"""`spark.tools.decorator`: `@tool` makes a function a tool, and ToolContext is injected into it."""

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from ....core import Context, DefinitionError
from ....schema import returns_awaitable
from ....tools import Tool, by_name, reference
from ._core_tool import build_tool, normalize_schema, schema_in, tool_use_of
from ._metadata import FunctionToolMetadata
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
        self._is_async = returns_awaitable(plain) if supports_async is None else supports_async
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
