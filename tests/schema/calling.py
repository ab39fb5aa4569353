"""What the tests of this room share: a tool called in a workbench of its own, one of any type, one of a bare schema."""

from collections.abc import Callable
from typing import Any

import pytest

from toolcrib import Result, Tool, Workbench
from toolcrib.core import DefinitionError


async def called(source: Any, arguments: Any, *, repair: bool = True) -> Result[Any]:
    async with Workbench([source], repair=repair) as bench:
        [spec] = bench.specs()
        return await bench.call(spec.name, arguments)


def refusal(result: Result[Any]) -> str:
    """The message for arguments that were refused."""
    assert result.error is not None, result.value
    assert result.error.code == "invalid_arguments"
    return result.error.message


def takes(kind: Any) -> Tool[..., Any]:
    """A tool `give` with one argument `v` of this type, which it returns."""

    def give(v: Any) -> Any:
        return v

    give.__annotations__ = {"v": kind}
    return Tool(give)


def bare(**schema: Any) -> Tool[..., Any]:
    return Tool(lambda **arguments: arguments, name="bare", parameters={"type": "object", **schema})


def refused_definition(fn: Callable[..., Any]) -> str:
    """The message for what cannot be a tool."""
    with pytest.raises(DefinitionError) as raised:
        Tool(fn)
    return str(raised.value)
