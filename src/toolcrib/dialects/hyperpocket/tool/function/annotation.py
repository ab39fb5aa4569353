"""`hyperpocket.tool.function.annotation`: the decorator that makes a tool of a function."""

from collections.abc import Callable, Sequence
from typing import Any, overload

from ...auth import AuthProvider
from ..tool import ToolAuth
from .tool import FunctionTool


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
