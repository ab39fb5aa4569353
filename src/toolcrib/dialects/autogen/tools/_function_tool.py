"""Functions as AutoGen's tools, and such tools as data."""

import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self, cast
from weakref import WeakSet

from pydantic import BaseModel

from ....call import Escaped, in_thread
from ....core import Context
from ....schema import gives_awaitable, model_check
from ....tools import Definition, reference
from .._cancellation_token import CancellationToken
from .._component_config import Component
from .._function_utils import (
    args_base_model_from_signature,
    bind_arguments,
    get_typed_signature,
    name_of,
    read_arguments,
)
from .._trust import UntrustedError, require_source_code_allowed, trusted_namespaces
from ..code_executor._func_with_reqs import Import, from_code, to_code
from ._base import BaseTool
from ._core import Parts, free_name, is_plain, token_of, with_token
from ._text import parameters_of

_TOKEN = "cancellation_token"  # noqa: S105 - the name of a parameter
_MAIN = "__main__:"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_OWN = ("toolcrib", "autogen_core", "autogen_agentchat", "autogen_ext", "autogen_studio", "autogenstudio")
"""Trusted with providers, whose classes are meant to be loaded. Their functions are not meant to be tools."""

_offered: WeakSet[Any] = WeakSet()
"""The functions of which this program has made a FunctionTool."""


class FunctionToolConfig(BaseModel):
    """Configuration for a function tool."""

    source_code: str
    name: str
    description: str
    global_imports: Sequence[Import]
    has_cancellation_support: bool

    strict: bool | None = None
    """Written only where it is true; AutoGen does not know it."""

    reference: str | None = None
    """`module:name` where the function can be imported, None elsewhere; AutoGen does not know it."""


class FunctionTool(BaseTool[BaseModel, BaseModel], Component[FunctionToolConfig]):
    """
    Create custom tools by wrapping standard Python functions.

    *func* is sync or async, and every parameter has an annotation; `Annotated[T, "text"]` says what it is for. A
    parameter `cancellation_token` is handed in and stays out of the schema. The tool's name is the function's own, if
    *name* says no other. *global_imports* are the imports that its source code needs, where it is loaded from a
    configuration. With *strict*, reading `schema` raises ValueError if a parameter has a default.

    Raises ValueError for a parameter without an annotation.
    """

    component_provider_override = "autogen_core.tools.FunctionTool"
    component_config_schema = FunctionToolConfig

    def __init__(
        self,
        func: Callable[..., Any],
        description: str,
        name: str | None = None,
        global_imports: Sequence[Import] = [],
        strict: bool = False,
    ) -> None:
        self._func = func
        self._global_imports = list(global_imports)
        signature = self._signature = get_typed_signature(func)
        self._has_cancellation_support = _TOKEN in signature.parameters
        tool_name = name or name_of(func)
        args_type = args_base_model_from_signature(f"{tool_name}args", signature)
        super().__init__(args_type, signature.return_annotation, tool_name, description, strict)
        takes = [each for each in signature.parameters.values() if each.name != _TOKEN]
        self._is_plain = all(each.kind in _BY_NAME for each in signature.parameters.values())
        self._is_read_at_once = self._is_plain and list(args_type.model_fields) == [each.name for each in takes]
        self._is_async = gives_awaitable(func)
        if inspect.isfunction(func):
            _offered.add(func)

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> Any:
        """Call the function: in a thread, where it is sync. Cancelling the token gives up on the thread."""
        checked = self._arguments(args)
        if self._has_cancellation_support:
            checked[_TOKEN] = cancellation_token
        if self._is_async:
            return await self._call(**checked)
        job = cast("Any", in_thread(functools.partial(self._call, **checked)))
        cancellation_token.link_future(job)
        try:
            value = await job
        except Escaped as escaped:
            raise escaped.error from None
        return await value if hasattr(type(value), "__await__") else value

    @property
    def _call(self) -> Callable[..., Any]:
        """The function, taking all arguments by name."""
        return self._func if self._is_plain else self._call_bound

    def _call_bound(self, **given: Any) -> Any:
        by_place, by_name = bind_arguments(self._signature, given)
        return self._func(*by_place, **by_name)

    def _arguments(self, args: BaseModel) -> dict[str, Any]:
        if self._is_read_at_once and type(args) is self._args_type:
            return dict(args.__dict__)
        return read_arguments(args, self._signature)

    def toolcrib_parts(self, *, by_name: bool) -> Parts:
        """The function itself, where nobody has put something else in its way."""
        if not (is_plain(self, "run_json") and is_plain(self, "run")):
            return super().toolcrib_parts(by_name=by_name)
        parameters = parameters_of(self._args_type)
        check = functools.partial(model_check, model=self._args_type, schema=parameters, arguments=self._arguments)
        call, name = self._call, free_name("context", self._signature.parameters)
        if not self._has_cancellation_support:
            return Parts(parameters, check, call, "async" if self._is_async else "sync")

        async def work(**checked: Any) -> Any:
            context: Context = checked.pop(name)
            return await call(**checked, cancellation_token=token_of(context))

        async def work_cheaply(**checked: Any) -> Any:
            return await with_token(lambda token: call(**checked, cancellation_token=token))

        def work_sync(**checked: Any) -> Any:
            context: Context = checked.pop(name)
            return call(**checked, cancellation_token=token_of(context))

        if not self._is_async:
            return Parts(parameters, check, work_sync, "sync", name)
        return Parts(parameters, check, work, "async", name) if by_name else Parts(parameters, check, work_cheaply)

    def _to_config(self) -> FunctionToolConfig:
        """The tool as data. Raises ValueError for what cannot be written down: a lambda, a partial, a closure."""
        found = _importable(self._func)
        try:
            source_code = to_code(self._func)
        except ValueError:
            if found is None or found.startswith(_MAIN):
                raise
            source_code = ""
        return FunctionToolConfig(
            source_code=source_code,
            global_imports=self._global_imports,
            name=self.name,
            description=self.description,
            has_cancellation_support=self._has_cancellation_support,
            strict=self._strict or None,
            reference=found,
        )

    @classmethod
    def _from_config(cls, config: FunctionToolConfig) -> Self:
        """The tool that *config* describes: of the function it refers to, if that is to be had, else of its source.

        A configuration may come from anywhere, and what it names, a model can call. So a reference alone makes a tool
        only of a function that the program itself offers as one (it has made a FunctionTool of it, or marked it with
        `@tool`), or that is defined in a namespace which the host trusts (`trust_namespaces`); and only if the source
        code in *config* is still that of the function. Anything else is run as source code, after AutoGen's warning,
        and only where `allow_source_code` allows it.

        Raises UntrustedError, a ValueError, where nothing of this is allowed, and what `from_code` raises.
        """
        func = _referenced(config)
        if func is None:
            require_source_code_allowed(config.name)
            warnings.warn(
                "\n⚠️  SECURITY WARNING ⚠️\n"
                "Loading a FunctionTool from config will execute code to import the provided global imports and and "
                "function code.\n"
                "Only load configs from TRUSTED sources to prevent arbitrary code execution.",
                UserWarning,
                stacklevel=2,
            )
            func = from_code(config.source_code, config.global_imports, name=config.name)
        offered = func in _offered
        made = cls(
            func,
            name=config.name,
            description=config.description,
            global_imports=config.global_imports,
            strict=bool(config.strict),
        )
        if not offered:
            _offered.discard(func)  # it was the configuration that wanted it, and not the program
        return made


def _importable(func: Any) -> str | None:
    """`module:name` by which *func* is found again; None where something else, or nothing, is found there.

    A program finds what it defines itself under `__main__`, which is another program elsewhere.
    """
    name = _place(func)
    return name if name is not None and _found(name) is func else None


def _place(func: Any) -> str | None:
    name = reference(func)
    if name is None and inspect.isfunction(func) and func.__module__ == "__main__":
        return f"{_MAIN}{func.__qualname__}"
    return name


def _found(name: str) -> Any:
    """What `module:name` stands for in a module that is imported already; None where there is nothing."""
    module_name, _, path = name.partition(":")
    value: Any = sys.modules.get(module_name)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _referenced(config: FunctionToolConfig) -> Callable[..., Any] | None:
    """The function that *config* refers to, where that may be taken; None where its source code has to do."""
    if config.reference is None:
        return None
    module_name = config.reference.partition(":")[0]
    if trusted := _is_trusted(module_name):
        try:
            importlib.import_module(module_name)
        except ModuleNotFoundError:
            trusted = False
    func = _found(config.reference)
    offered = inspect.isfunction(func) and (
        func in _offered or isinstance(getattr(func, "__toolcrib__", None), Definition)
    )
    # Defined there, and not only imported there: `mymodule:os.system` is nobody's tool.
    if (trusted or offered) and inspect.isfunction(func) and _place(func) == config.reference:
        if config.source_code in ("", _code(func)):
            return cast("Callable[..., Any]", func)
    elif not config.source_code:
        raise UntrustedError(
            f"The configuration of the tool {config.name!r} refers to the function '{config.reference}' and carries no "
            "source code. Make a FunctionTool of the function before, or mark it with @tool; or trust its package: "
            f"toolcrib.dialects.autogen.trust_namespaces({module_name.partition('.')[0]!r})."
        )
    return None


def _is_trusted(module: str) -> bool:
    """Whether the host has said that *module* is in a trusted namespace."""
    within = any(module == name or module.startswith(f"{name}.") for name in trusted_namespaces())
    return within and module.partition(".")[0] not in _OWN


def _code(func: Any) -> str | None:
    try:
        return to_code(func)
    except ValueError:
        return None
