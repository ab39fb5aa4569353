"""`hyperpocket.tool.function.tool`: tools of functions."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import PrivateAttr

from .....core import Context, Result, Work, content_of, finished, in_thread
from .....schema import returns_awaitable, serialize_any
from .....tools import Tool as CoreTool
from .....tools.work import work_of
from .....workbench import sync
from ...config import config
from ...util.flatten_json_schema import flatten_json_schema
from ...util.function_to_model import function_to_model
from .._core_tool import OWN, Listed, core_tool, envs_of, host_of, processed
from ..tool import Tool, ToolAuth
from ._binding import Binding


class FunctionTool(Tool):
    """A tool of a function, which is sync (`func`) or async (`afunc`).

    `**kwargs` of the function get the credentials, the tool variables, `thread_id` and `profile`; no model sees or sets
    them. With `keep_structured_arguments` it is called with `body`, `thread_id`, `profile` and `envs` instead.
    """

    func: Callable[..., Any] | None = None
    afunc: Callable[..., Any] | None = None
    keep_structured_arguments: bool = False
    _bound: Binding | None = PrivateAttr(default=None)

    @property
    def fn(self) -> Callable[..., Any]:
        """The function: the async one, if it has both. Raises ValueError where it has none."""
        fn = self.afunc or self.func
        if fn is None:
            raise ValueError("Both func and afunc are None")
        return fn

    @property
    def binding(self) -> Binding:
        """How the function is called."""
        if self._bound is None:
            keeps = self.keep_structured_arguments
            self._bound = Binding(self.fn, self.name, self.argument_json_schema, keeps_structure=keeps)
        return self._bound

    def __toolcrib__(self) -> CoreTool[..., Any]:
        binding, kind = self.binding, type(self)
        is_sync = binding.runs in ("sync", "generator")
        is_own = kind.invoke is FunctionTool.invoke and kind.ainvoke is FunctionTool.ainvoke
        if self.keep_structured_arguments or not is_own:  # its own methods are called, not the function
            return core_tool(self, self.fn, is_sync=is_sync)
        work = partial(self._call, work_of(binding.call, binding.runs, binding.signature.needs or None))
        return core_tool(self, self.fn, is_sync=is_sync, check=binding.check, work=work)

    async def _call(self, work: Work, arguments: dict[str, Any], context: Context) -> Any:
        host, data = host_of(context), context.call.data or {}
        listed: Listed = data.get("hyperpocket", Listed())
        for name in self.binding.identity:
            arguments[name] = listed.require(self.name, name, arguments.get(name), host[name])
        value = await work(self.binding.arguments(arguments, host, self.given(envs_of(self, context))), context)
        return await processed(self, self.text(value)) if self.postprocessings else value

    def invoke(self, **kwargs: Any) -> str:
        """Call the function with the arguments in `body`, and `envs` and the others for its `**kwargs`.

        Returns text: JSON for what is not text. Raises ToolError for arguments that do not fit, and what the function
        raises.
        """
        if self.func is None or returns_awaitable(self.func):
            return sync.run(self.ainvoke(**kwargs))
        value = self.func(**self._arguments(kwargs))
        return self.text(sync.run(value) if hasattr(value, "__await__") else value)

    async def ainvoke(self, **kwargs: Any) -> str:
        """`invoke`, on the running loop; a sync function gets a thread."""
        call = partial(self.binding.call, **self._arguments(kwargs))
        value = call() if returns_awaitable(self.fn) else await in_thread(call)
        return self.text(await value if hasattr(value, "__await__") else value)

    def text(self, value: Any) -> str:
        """Return what the function returned as text, as a model reads it."""
        return Result(value, content_of(value, partial(serialize_any, self.name))).text

    def _arguments(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        host = {key: value for key, value in kwargs.items() if key not in ("body", "envs")}
        checked: dict[str, Any] = kwargs.get("body") or {}
        if not self.keep_structured_arguments:
            check = self.binding.check(self.argument_json_schema or {}, self.name)
            checked, _ = finished(check, kwargs.get("body"), True)
        for name in self.binding.identity:
            if checked.get(name, OWN) == OWN and name in host:
                checked[name] = host[name]
        return self.binding.arguments(checked, host, self.given(kwargs.get("envs") or {}))

    def given(self, envs: Mapping[str, str]) -> dict[str, str]:
        """Return what `**kwargs` get: *envs*, the credentials, and the tool variables, those of the settings too."""
        return {**envs, **self.default_tool_vars, **config().tool_vars, **self.overridden_tool_vars}

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
        if isinstance(func, FunctionTool):
            return func.override_tool_variables(tool_vars or {})
        if isinstance(afunc, FunctionTool):
            return afunc.override_tool_variables(tool_vars or {})
        plain = afunc or func
        if plain is None or not callable(plain):
            raise ValueError("FunctionTool can only be created from a callable")
        if afunc is None and returns_awaitable(func):
            afunc = func
        title = name or str(getattr(plain, "__name__", type(plain).__name__))
        made = cls(
            func=func,
            afunc=afunc,
            name=title,
            description=description or _doc(func) or _doc(afunc) or title,
            auth=auth,
            default_tool_vars=tool_vars or {},
            keep_structured_arguments=keep_structured_arguments,
        )
        made._use(json_schema)
        return made

    @classmethod
    def from_dock(
        cls, dock: Sequence[Callable[..., Any]], tool_vars: dict[str, str] | None = None
    ) -> "list[FunctionTool]":
        """Return the tools of functions, which may have `__model__`, `__auth__` and `__vars__`."""
        made: list[FunctionTool] = []
        for fn in dock:
            if not callable(fn):
                raise ValueError(f"Dock element should be a list of functions, but found {fn}")
            model, auth = getattr(fn, "__model__", None), getattr(fn, "__auth__", None)
            made.append(
                cls.from_func(
                    fn,
                    json_schema=None if model is None else flatten_json_schema(model.model_json_schema()),
                    auth=None if auth is None else ToolAuth(**auth),
                    tool_vars={**(tool_vars or {}), **getattr(fn, "__vars__", {})},
                )
            )
        return made

    def _use(self, json_schema: dict[str, Any] | None) -> None:
        """Take the arguments from *json_schema*, or else from the signature."""
        self._bound = Binding(self.fn, self.name, json_schema, keeps_structure=self.keep_structured_arguments)
        schema = json_schema or function_to_model(self.func or self.fn).model_json_schema()
        self.argument_json_schema = flatten_json_schema(schema)


def _doc(fn: Any) -> str | None:
    return getattr(fn, "__doc__", None)
