"""Nobody is served as somebody else: what `identify` may return."""

from collections.abc import Mapping
from typing import Any

import pytest

from toolcrib import Context, Crib, tool
from toolcrib.core import SetupError
from toolcrib.serve.access.callers import Callers


@tool
async def who(ctx: Context) -> str:
    return ctx.caller.principal


@pytest.mark.parametrize("returned", [None, "alice", 0, {}])
async def test_whoever_is_not_identified_as_a_caller_is_refused_and_not_served_as_local(returned: Any) -> None:
    def identify(_headers: Mapping[str, str]) -> Any:
        return returned

    async with Crib([who]) as crib:
        with pytest.raises(SetupError, match="identify returned"):
            await Callers(crib, identify).workbench(None)
