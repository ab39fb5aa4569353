"""`spark.tools.decorator`: `@tool` makes a tool of a function, and ToolContext is what such a tool may be given."""

import asyncio
import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from ....core import Context, DefinitionError, Needs, ToolError
from ....tools import Tool
from ....tools.function import by_name
from . import _ours
from ._read import Read
from .types import BaseTool, ToolContext, ToolResult, ToolSpec, ToolUse, update_tool_runtime_metadata

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["BaseTool", "DecoratedFunctionTool", "ToolContext", "ToolResult", "ToolSpec", "ToolUse", "tool"]


class DecoratedFunctionTool(BaseTool, Generic[P, R]):
    """A function as a tool. Calling it calls the function.

    What its annotations say is found out when its spec, or a call through toolcrib, first needs it. As a method's
    decorator it binds: `obj.method` is a tool of that object.
    """

    def __init__(
        self,
        func: Callable[P, R],
        *,
        description: str | None = None,
        parameters: dict[str, Any] | None = None,
        name: str | None = None,
        context: bool | str = False,
        long_running: bool = False,
        async_execution: bool | None = None,
    ) -> None:
        from ....schema import gives_awaitable, innermost
        from ....schema.signature import enclosing_names

        super().__init__()
        if isinstance(context, str) and not context.strip():
            raise ValueError("The name of the context parameter must not be empty: context=True takes 'tool_context'.")
        self._kind: type[Any] | None = type(func) if isinstance(func, staticmethod | classmethod) else None
        plain = cast(Any, func.__func__ if isinstance(func, staticmethod | classmethod) else func)
        if isinstance(plain, BaseTool) or not callable(plain):
            raise ValueError(f"@tool makes a tool of a function, not of a {type(plain).__name__}.")
        self.tool_func = cast(Callable[P, R], plain)
        self._name = name or getattr(innermost(plain), "__name__", None) or type(plain).__name__
        self._description = description
        self._parameters = parameters
        self._context = "tool_context" if context is True else context or None
        self._is_async = gives_awaitable(plain) if async_execution is None else async_execution
        self._names = enclosing_names(plain)
        self._spec: ToolSpec | None = None
        self.__name__: str = self._name
        functools.update_wrapper(self, plain)
        # Those of a function that is a native tool as well would hide our own.
        vars(self).pop("__toolcrib__", None)
        if self._is_async:
            super().mark_supports_async()
        if long_running:
            super().mark_long_running()

    @property
    def tool_name(self) -> str:
        return self._name

    @property
    def tool_spec(self) -> ToolSpec:
        if self._spec is None:
            self._spec = self._read.spec(self, self._description)
        return self._spec

    @property
    def tool_type(self) -> str:
        return "function"

    @property
    def supports_hot_reload(self) -> bool:
        return True

    def mark_supports_async(self) -> None:
        super().mark_supports_async()
        update_tool_runtime_metadata(self.tool_spec, supports_async=True)

    def mark_long_running(self) -> None:
        super().mark_long_running()
        update_tool_runtime_metadata(self.tool_spec, long_running=True)

    def get_display_properties(self) -> dict[str, str]:
        return {**super().get_display_properties(), "Function": getattr(self.tool_func, "__name__", self._name)}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function. One that is async is run to its end, where no event loop runs.

        Raises RuntimeError where one does.
        """
        if self._is_async:
            require_no_loop()
        value: Any = self.tool_func(*args, **kwargs)
        return cast(R, run_sync(value) if inspect.isawaitable(value) else value)

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function from async code: on the event loop if it is async, else in a thread."""
        work = functools.partial(self.tool_func, *args, **kwargs)
        value: Any = work() if self._is_async else await asyncio.to_thread(work)
        return await value if inspect.isawaitable(value) else value

    def prepare_tool_kwargs(self, tool_use: ToolUse, invocation_state: dict[str, Any] | None = None) -> dict[str, Any]:
        """The arguments that the function is to be called with: checked, typed, defaults and ToolContext included.

        Raises ValueError where the input is not what the tool takes.
        """
        given = tool_use.get("input")
        if not isinstance(given, Mapping):
            raise ValueError(
                f"Validation failed for input parameters: the input of '{self._name}' is a "
                f"{type(given).__name__}, not a dictionary of its arguments."
            )
        read = self._read
        try:
            arguments, _ = read.check(self._name)(given, True)
        except ToolError as error:
            said = error.message.removeprefix(f"Tool '{self._name}': ")
            raise ValueError(f"Validation failed for input parameters: {said}") from error
        context = ToolContext(tool_use, {} if invocation_state is None else invocation_state)
        return {**read.defaults(), **read.taken(arguments), **dict.fromkeys(read.contexts, context)}

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> "DecoratedFunctionTool[..., Any]":
        """The tool of one object, where it was made of a method."""
        to = owner if self._kind is classmethod else instance
        if to is None or self._kind is staticmethod:
            return self
        bound = self._like()
        bound._kind = staticmethod  # it is bound once
        bound.tool_func = MethodType(self.tool_func, to)
        vars(bound)["__wrapped__"] = bound.tool_func
        return bound

    def named(self, name: str) -> "DecoratedFunctionTool[P, R]":
        """The same tool under another name, which its spec says, too."""
        made = self._like()
        made._name = name
        if self._spec is not None:
            made._spec = {**copy.deepcopy(self._spec), "name": name}
        return made

    def __repr__(self) -> str:
        return f"<DecoratedFunctionTool {self._name}>"

    def _like(self) -> "DecoratedFunctionTool[P, R]":
        made = copy.copy(self)
        for found in ("_ours", "_read", "_spec"):
            vars(made).pop(found, None)
        made._spec = None
        return made

    @functools.cached_property
    def _read(self) -> Read:
        return Read(self.tool_func, self._name, self._parameters, self._context, self._names)

    def _build(self) -> Tool[..., Any]:
        read = self._read
        if read.receiver is not None and self._kind is not staticmethod:
            raise DefinitionError(
                f"Tool '{self._name}' is a method, and nobody gives it its object. Give it bound: obj.{self.__name__}."
            )
        call = by_name(self.tool_func, read.signature, f"Tool '{self._name}'")

        def begun(arguments: dict[str, Any]) -> tuple[Context, Any]:
            context: Context = arguments.pop(_ours.CONTEXT)
            arguments = read.taken(arguments)
            if read.contexts:
                arguments |= dict.fromkeys(read.contexts, ToolContext(*_ours.use_of(context)))
            if (native := read.signature.needs.context) is not None:
                arguments[native] = context
            return context, call(**arguments)

        def work(**arguments: Any) -> Any:
            context, value = begun(arguments)
            return _ours.finished(value, context)

        async def async_work(**arguments: Any) -> Any:
            context, value = begun(arguments)
            return _ours.finished(await value if inspect.isawaitable(value) else value, context)

        ours = _ours.made(
            self,
            self.tool_spec["parameters"]["json"],
            async_work if self._is_async else work,
            is_async=self._is_async,
            check=read.check,
        )
        ours.needs = Needs(_ours.CONTEXT, read.signature.needs.depends)
        return ours


def require_no_loop() -> None:
    """Raises RuntimeError where an event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "Attempted to invoke async tool synchronously while an event loop is running. "
        "Use 'await tool.acall(...)' instead."
    )


def run_sync(value: Awaitable[R]) -> R:
    """What *value* gives, run to its end. Raises RuntimeError where an event loop runs."""

    async def run() -> R:
        return await value

    try:
        require_no_loop()
    except RuntimeError:
        if inspect.iscoroutine(value):
            value.close()
        elif asyncio.isfuture(value):
            value.cancel()
        raise
    return asyncio.run(run())


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
    """Make a tool of a function: `@tool`, or `@tool(name=..., context=True)`.

    - *description*: instead of the docstring, which otherwise is the description as a whole.
    - *parameters*: a JSON Schema, bare or as `{"json": ...}`, instead of the one that the annotations give; arguments
      are held against it, and stay JSON values.
    - *context*: the parameter that is given the ToolContext; True means `tool_context`. A parameter that is annotated
      with ToolContext is given it in any case.
    - *long_running*: a hint.
    - *async_execution*: whether the function is to be run on the event loop; else that is found out.

    Raises ValueError for an empty *context*.
    """
    make = functools.partial(
        cast(Any, DecoratedFunctionTool),
        description=description,
        parameters=parameters,
        name=name,
        context=context,
        long_running=long_running,
        async_execution=async_execution,
    )
    return make if func is None else make(func)
