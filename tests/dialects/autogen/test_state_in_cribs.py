"""AutoGen's state in a workbench and in a crib, where one object serves all callers and its state is the crib's."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from toolcrib import Caller, Crib, SetupError, Workbench
from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import StaticWorkbench, ToolResult
from toolcrib.dialects.autogen.tools import Workbench as AutoGenWorkbench

from .counter import Counter, text


class Counting(AutoGenWorkbench):
    state_key = "counter"

    def __init__(self) -> None:
        self.counter = Counter()

    async def list_tools(self) -> list[Any]:
        return [self.counter.schema]

    async def call_tool(self, name: str, arguments: Any = None, cancellation_token: Any = None) -> ToolResult:
        counted = await self.counter.run_json({}, CancellationToken())
        return text(name, counted.model_dump_json())

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    async def reset(self) -> None:
        self.counter.count = 0

    async def save_state(self) -> Mapping[str, Any]:
        return await self.counter.save_state_json()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await self.counter.load_state_json(state)


KINDS = [Counter, lambda: StaticWorkbench([Counter()]), Counting]


async def count(bench: Workbench) -> str:
    return (await bench.call("counter", {})).text


@pytest.mark.parametrize("made", KINDS, ids=["tool", "StaticWorkbench", "Workbench"])
async def test_one_object_for_all_callers_has_its_state_in_the_crib(made: Callable[[], Any]) -> None:
    async with Crib([made()]) as crib:
        alice, bob = crib.workbench(Caller("alice")), crib.workbench(Caller("bob"))
        assert [await count(alice), await count(bob)] == ['{"count":1}', '{"count":2}']
        saved = await crib.save_state()
        assert saved == {"version": 1, "sources": {"counter": {"count": 2}}}
        # What others have done is not one caller's to save, load or reset.
        assert await alice.save_state() == {"version": 1, "sources": {}}
        with pytest.raises(
            SetupError, match=r"'counter' is shared by all callers, so the crib loads it: crib\.load_state"
        ):
            await alice.load_state({"version": 1, "sources": {"counter": {"count": 40}}})
        await alice.reset()
        assert await count(bob) == '{"count":3}'
        await crib.load_state(saved)
        assert await count(alice) == '{"count":3}'
        await crib.reset()
        assert await count(bob) == '{"count":1}'
