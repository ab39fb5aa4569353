"""`hyperpocket.tool.function`: tools of functions."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, overload

from pydantic import PrivateAttr

from ....core import Context, DefinitionError, Result, content_of
from ....machinery import Check, in_thread
from ....schema import json_schema_check, model_check, read_arguments, require_schema, returns_awaitable, serialize_any
from ....tools import Tool as CoreTool
from ....workbench import sync
from ..._modules import also_as
from ..auth import AuthProvider
from ..util import VARIADIC, flatten_json_schema, function_to_model
from .tool import OWN, Listed, Tool, ToolAuth, core_tool, envs_of, host_of, postprocessed, require_listed

_NOTHING_LISTED: Listed = {"thread_id": frozenset(), "profile": frozenset()}


class FunctionTool(Tool):
    """A tool of a function, which is sync (`func`) or async (`afunc`).

    `**kwargs` of the function get the credentials, the tool variables, `thread_id` and `profile`; no model sees or sets
    them. With `keep_structured_arguments` it is called with `body`, `thread_id`, `profile` and `envs` instead.
    """

    func: Callable[..., Any] | None = None
    afunc: Callable[..., Any] | None = None
    keep_structured_arguments: bool = False
    _is_schema_given: bool = PrivateAttr(default=True)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function: the async one, if it has both. Raises ValueError where it has none."""
        fn = self.afunc or self.func
        if fn is None:
            raise ValueError("Both func and afunc are None")
        return fn

    def __toolcrib__(self) -> CoreTool[..., Any]:
        kind, is_sync = type(self), not returns_awaitable(self.fn)
        is_own = kind.invoke is FunctionTool.invoke and kind.ainvoke is FunctionTool.ainvoke
        if self.keep_structured_arguments or not is_own:  # a subclass's methods are called, not the function
            return core_tool(self, self.fn, self._work, is_sync=is_sync)
        return core_tool(self, self.fn, self._call_function, is_sync=is_sync, check=self._check)

    async def _call_function(self, arguments: dict[str, Any], context: Context) -> Any:
        host, choices = host_of(context), (context.call.data or {}).get("hyperpocket", _NOTHING_LISTED)
        for name in self._identity:
            arguments[name] = require_listed(choices, self.name, name, arguments.get(name), host[name])
        value = await self._run(self._arguments(arguments, host, envs_of(self, context)))
        return await postprocessed(self, self.text(value)) if self.postprocessings else value

    def invoke(self, **kwargs: Any) -> str:
        """Call the function with the arguments in `body`, and `envs` and the others for its `**kwargs`.

        Returns text: JSON for what is not text. Raises ToolError for arguments that do not fit, and what the function
        raises.
        """
        if self.func is None or returns_awaitable(self.func):
            return sync.run(self.ainvoke(**kwargs))
        return self.text(self.func(**self._checked_arguments(**kwargs)))

    async def ainvoke(self, **kwargs: Any) -> str:
        """Do the same as `invoke`, on the running loop; a sync function gets a thread."""
        return self.text(await self._run(self._checked_arguments(**kwargs)))

    async def _run(self, arguments: Mapping[str, Any]) -> Any:
        call = partial(self.fn, **arguments)
        value = call() if returns_awaitable(self.fn) else await in_thread(call)
        return await value if hasattr(value, "__await__") else value

    def text(self, value: Any) -> str:
        """Return a value of the function as text, as a model reads it."""
        return Result(value, content_of(value, partial(serialize_any, self.name))).text

    # From what a model sends to the arguments of the function

    @cached_property
    def _named(self) -> frozenset[str]:
        """The parameters that take an argument each."""
        parameters = inspect.signature(self.fn).parameters.values()
        return frozenset(parameter.name for parameter in parameters if parameter.kind not in VARIADIC)

    @cached_property
    def _takes_rest(self) -> bool:
        parameters = inspect.signature(self.fn).parameters.values()
        return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)

    @cached_property
    def _identity(self) -> list[str]:
        """Those of `thread_id` and `profile` that are parameters with the default "default"."""
        parameters = inspect.signature(self.fn).parameters
        return [name for name in _NOTHING_LISTED if name in parameters and parameters[name].default == OWN]

    @cached_property
    def _convert(self) -> Check | None:
        """Converts arguments that fit a given schema to the annotations of the function, where it has any."""
        if not self._is_schema_given:
            return None
        try:
            model = function_to_model(self.fn)
        except DefinitionError:  # without annotations they stay JSON values
            return None
        return model_check(self.name, model, schema=model.model_json_schema(), arguments=read_arguments)

    def _check(self, name: str) -> Check:
        """Return the check of what a model sends, for errors that call the tool *name*."""
        schema = self.argument_json_schema or {}
        if not self._is_schema_given:
            return model_check(name, function_to_model(self.fn), schema=schema, arguments=read_arguments)
        return json_schema_check(name, require_schema({"type": "object", **schema}, label=f"Tool '{name}'"))

    def _checked_arguments(
        self, body: Any = None, envs: Mapping[str, str] | None = None, **host: Any
    ) -> dict[str, Any]:
        if self.keep_structured_arguments:
            return self._arguments(body or {}, host, envs or {})
        values, _ = self._check(self.name)(body, True)
        for name in self._identity:
            if values.get(name, OWN) == OWN and name in host:
                values[name] = host[name]
        return self._arguments(values, host, envs or {})

    def _arguments(self, values: Mapping[str, Any], host: Mapping[str, Any], envs: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of the function: *values*, and in `**kwargs` *envs*, variables and *host*."""
        variables = self._environment(envs)
        if self.keep_structured_arguments:
            return {"body": dict(values), **host, "envs": variables}
        own = {name: value for name, value in values.items() if name in self._named}
        if self._convert is not None:
            own |= self._convert(own, True)[0]
        if not self._takes_rest:
            return own
        rest = {name: value for name, value in host.items() if name not in self._named}
        return {**values, **own, **variables, **rest}

    # How one is made

    @classmethod
    def from_func(
        cls,
        func: "Callable[..., Any] | FunctionTool | None" = None,
        afunc: "Callable[..., Any] | FunctionTool | None" = None,
        name: str | None = None,
        description: str | None = None,
        json_schema: dict[str, Any] | None = None,
        auth: ToolAuth | None = None,
        tool_vars: dict[str, str] | None = None,
        keep_structured_arguments: bool = False,
    ) -> "FunctionTool":
        """Return the tool of *func*, *afunc*, or both; of one that is a tool already, that one with *tool_vars*.

        The *description* is its docstring, or else its name; the arguments are those of *json_schema*, or else of the
        signature. Raises ValueError for what cannot be called, and DefinitionError for what cannot be a tool.
        """
        tool_vars = tool_vars or {}
        if isinstance(func, FunctionTool):
            return func.override_tool_variables(tool_vars)
        if isinstance(afunc, FunctionTool):
            return afunc.override_tool_variables(tool_vars)
        fn: Any = afunc or func
        if not callable(fn):
            raise ValueError("FunctionTool can only be created from a callable")
        name = name or str(getattr(fn, "__name__", type(fn).__name__))
        docs = (description, getattr(func, "__doc__", None), getattr(afunc, "__doc__", None), name)
        tool = cls(
            func=func,
            afunc=func if afunc is None and returns_awaitable(func) else afunc,
            name=name,
            description=next(filter(None, docs)),
            argument_json_schema=flatten_json_schema(json_schema or function_to_model(fn).model_json_schema()),
            auth=auth,
            default_tool_vars=tool_vars,
            keep_structured_arguments=keep_structured_arguments,
        )
        tool._is_schema_given = json_schema is not None
        return tool

    @classmethod
    def from_dock(
        cls, dock: Sequence[Callable[..., Any]], tool_vars: dict[str, str] | None = None
    ) -> "list[FunctionTool]":
        """Return the tools of functions, which may have `__model__`, `__auth__` and `__vars__`."""
        tools: list[FunctionTool] = []
        for fn in dock:
            if not callable(fn):
                raise ValueError(f"Dock element should be a list of functions, but found {fn}")
            model, auth = getattr(fn, "__model__", None), getattr(fn, "__auth__", None)
            tools.append(
                cls.from_func(
                    fn,
                    json_schema=None if model is None else model.model_json_schema(),
                    auth=None if auth is None else ToolAuth(**auth),
                    tool_vars={**(tool_vars or {}), **getattr(fn, "__vars__", {})},
                )
            )
        return tools


@overload
def function_tool(func: Callable[..., Any]) -> FunctionTool: ...
@overload
def function_tool(
    func: None = None,
    *,
    auth_provider: AuthProvider | None = None,
    scopes: Sequence[str] | None = None,
    auth_handler: str | None = None,
    tool_vars: dict[str, str] | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def function_tool(
    func: Any = None,
    *,
    auth_provider: AuthProvider | None = None,
    scopes: Sequence[str] | None = None,
    auth_handler: str | None = None,
    tool_vars: dict[str, str] | None = None,
) -> Any:
    """Make a FunctionTool of a function: `@function_tool`, or with what it needs to be authorized and its variables.

    Raises ValueError for what cannot be called.
    """

    def decorate(inner: Any) -> FunctionTool:
        if not callable(inner):
            raise ValueError("FunctionTool can only be created from a callable")
        auth = None
        if auth_provider is not None:
            auth = ToolAuth(auth_provider=auth_provider, scopes=list(scopes or ()) or None, auth_handler=auth_handler)
        return FunctionTool.from_func(inner, auth=auth, tool_vars=tool_vars)

    return decorate if func is None else decorate(func)


from_func = FunctionTool.from_func
from_dock = FunctionTool.from_dock


also_as(__name__, "annotation", "tool")
