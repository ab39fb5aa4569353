"""The state of a tool, as that of a source: a workbench of Toolcrib saves, loads and resets it."""

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core

from ....core import Source, ToolcribError
from ._protocols import Tool

_log = logging.getLogger("toolcrib")


class ToolState(Source):
    """The state of *tool*, under its name or its `state_key`. The first start remembers it for `reset`."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._initial: Mapping[str, Any] | None = None
        self._is_started = False

    @property
    def state_key(self) -> str:
        return getattr(self._tool, "state_key", None) or self._tool.name

    def tools(self) -> Sequence[Any]:
        return [self._tool]

    async def start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        try:
            self._initial = copy.deepcopy(await self._tool.save_state_json())
        except Exception:
            name = self._tool.name
            _log.warning("The state of the tool '%s' cannot be saved, so `reset` does not change it", name)

    async def reset(self) -> None:
        if self._initial is not None:
            await self._tool.load_state_json(copy.deepcopy(self._initial))

    async def save_state(self) -> Any:
        return json_state(await self._tool.save_state_json(), f"the tool '{self._tool.name}'")

    async def load_state(self, state: Any, /) -> None:
        await self._tool.load_state_json(state)


def json_state(state: Any, owner: str) -> Any:
    """Return *state* as JSON data. Raises ToolcribError, which names the *owner*, for state that JSON cannot hold."""
    try:
        return pydantic_core.to_jsonable_python(state)
    except ValueError as error:
        raise ToolcribError(f"The state of {owner} cannot be saved: {error}") from error
