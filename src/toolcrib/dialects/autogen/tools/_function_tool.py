"""Functions as AutoGen's tools, and the configurations of such tools."""

import asyncio
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Self

from pydantic import BaseModel

from ....machinery import Escaped
from ....machinery import Work as CoreWork
from ....schema import model_check, read_arguments, read_signature, returns_awaitable
from ....tools import by_name, work_of
from .._cancellation_token import CancellationToken
from .._component_config import Component
from .._function_utils import args_base_model_from_signature, get_typed_signature, name_of
from .._trust import require_source_code_allowed
from ..code_executor import Import, from_code, to_code
from ._base import BaseTool
from ._core import Work, is_plain, linked_token, parameters_of, token_of

_TOKEN = "cancellation_token"  # noqa: S105 - the name of a parameter


class FunctionToolConfig(BaseModel):
    """Configuration for a function tool."""

    source_code: str
    name: str
    description: str
    global_imports: Sequence[Import]
    has_cancellation_support: bool

    strict: bool | None = None
    """Written only where it is true; AutoGen does not have it."""


class FunctionTool(BaseTool[BaseModel, BaseModel], Component[FunctionToolConfig]):
    """
    Create custom tools by wrapping standard Python functions.

    *func* is sync or async, and every parameter has an annotation; `Annotated[T, "text"]` describes it. A parameter
    `cancellation_token` is injected and is not in the schema. *name* is the function's own by default.
    *global_imports* are the imports that its source code needs where it is loaded from a configuration. With *strict*,
    reading `schema` raises ValueError if a parameter has a default.

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
        signature = get_typed_signature(func)
        self._has_cancellation_support = _TOKEN in signature.parameters
        tool_name = name or name_of(func)
        args_type = args_base_model_from_signature(f"{tool_name}args", signature)
        super().__init__(args_type, signature.return_annotation, tool_name, description, strict)
        self._is_async = returns_awaitable(func)

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> Any:
        """Call the function, in a thread if it is sync. Cancelling the token abandons the thread."""
        arguments = read_arguments(args)
        if self._has_cancellation_support:
            arguments[_TOKEN] = cancellation_token
        if self._is_async:
            return await self._call(arguments, None)
        job = cancellation_token.link_future(asyncio.ensure_future(self._call(arguments, None)))
        try:
            return await job
        except Escaped as escaped:
            raise escaped.error from None

    @cached_property
    def _call(self) -> CoreWork:
        """Return what calls the function with all arguments by name."""
        label = f"Function '{self._name}'"
        fn = by_name(self._func, read_signature(self._func, label=label), label)
        return work_of(fn, "async" if self._is_async else "sync", None)

    def toolcrib_work(self) -> Work:
        """Return the function itself, where no subclass has its own `run` or `run_json`."""
        if not (is_plain(self, "run_json") and is_plain(self, "run")):
            return super().toolcrib_work()
        parameters = parameters_of(self._args_type)
        call, token = self._call, token_of if self._is_async else linked_token
        return Work(
            parameters,
            partial(model_check, model=self._args_type, schema=parameters, arguments=read_arguments),
            (lambda arguments, context: call({**arguments, _TOKEN: token(context)}, context))
            if self._has_cancellation_support
            else call,
            needs_context=self._has_cancellation_support,
            at_deadline="cancelled" if self._is_async else "left_running",
            fn=self._func,
        )

    def _to_config(self) -> FunctionToolConfig:
        """Return the configuration. Raises ValueError for a function without source code: a lambda, a closure."""
        return FunctionToolConfig(
            source_code=to_code(self._func),
            global_imports=self._global_imports,
            name=self.name,
            description=self.description,
            has_cancellation_support=self._has_cancellation_support,
            strict=self._strict or None,
        )

    @classmethod
    def _from_config(cls, config: FunctionToolConfig) -> Self:
        """Run the source code in *config*, after AutoGen's warning, and return the tool of the function.

        Raises UntrustedError, a ValueError, unless `allow_source_code` allows it, and what `from_code` raises.
        """
        require_source_code_allowed(config.name)
        warnings.warn(
            "\n⚠️  SECURITY WARNING ⚠️\n"
            "Loading a FunctionTool from config will execute code to import the provided global imports and and "
            "function code.\n"
            "Only load configs from TRUSTED sources to prevent arbitrary code execution.",
            UserWarning,
            stacklevel=2,
        )
        return cls(
            from_code(config.source_code, config.global_imports, name=config.name),
            name=config.name,
            description=config.description,
            global_imports=config.global_imports,
            strict=bool(config.strict),
        )
