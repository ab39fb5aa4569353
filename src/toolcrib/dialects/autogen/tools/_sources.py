"""The sources of Toolcrib that AutoGen's objects are: the state of a tool, and a workbench that a program wrote."""

import copy
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pydantic_core

from ....core import Context, Image, Result, Source, Text, ToolcribError, ToolError
from ....schema import json_schema_check, require_schema
from ....tools import Tool as CoreTool
from .._image import Image as AutoGenImage
from ._core import Work, core_tool, spec_from, with_core_images, with_token
from ._protocols import Tool, ToolSchema

MAX_NAME_CHARS = 64

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
        return _json_state(await self._tool.save_state_json(), f"the tool '{self._tool.name}'")

    async def load_state(self, state: Any, /) -> None:
        await self._tool.load_state_json(state)


class WorkbenchSource(Source):
    """The tools of *workbench*, one of AutoGen, which are listed when it has started and again after every call.

    Its state is saved under its attribute `state_key`, or the name of its class.
    """

    def __init__(self, workbench: Any) -> None:
        self._workbench = workbench
        self._listed: list[tuple[ToolSchema, CoreTool[..., Any]]] = []

    def __reduce__(self) -> tuple[type["WorkbenchSource"], tuple[Any]]:
        return WorkbenchSource, (self._workbench,)  # of a copy, that of the copy

    @property
    def state_key(self) -> str:
        return getattr(self._workbench, "state_key", None) or type(self._workbench).__name__

    def tools(self) -> Sequence[CoreTool[..., Any]]:
        return [tool for _, tool in self._listed]

    async def start(self) -> None:
        await self._workbench.start()
        try:
            await self._list()
        except BaseException:
            await self._workbench.stop()
            raise

    async def stop(self) -> None:
        await self._workbench.stop()

    async def reset(self) -> None:
        await self._workbench.reset()
        await self._list()

    async def save_state(self) -> Any:
        return _json_state(await self._workbench.save_state(), self.state_key)

    async def load_state(self, state: Any, /) -> None:
        await self._workbench.load_state(state)

    async def _list(self) -> None:
        schemas = await self._workbench.list_tools()
        if schemas == [schema for schema, _ in self._listed]:
            return
        names = core_names(schema["name"] for schema in schemas)
        entries: list[tuple[ToolSchema, CoreTool[..., Any]]] = []
        for schema in schemas:
            old_tool = next((tool for old, tool in self._listed if old == schema), None)
            try:
                entries.append((schema, old_tool or self._tool(schema, names[schema["name"]])))
            except ToolcribError as error:
                _log.warning("Not loaded: the tool '%s' of %s: %s", schema["name"], self.state_key, error)
        self._listed = entries
        self.changed()

    def _tool(self, schema: ToolSchema, name: str) -> CoreTool[..., Any]:
        spec = spec_from(schema, name)
        parameters = require_schema(schema.get("parameters", {}), label=f"Tool '{name}'")
        call = with_token(partial(self._workbench.call_tool, schema["name"]))
        stream_call = getattr(self._workbench, "call_tool_stream", None)

        async def run(arguments: dict[str, Any], context: Context) -> Any:
            result = await call(arguments, context)
            await self._list_again()
            return result

        async def stream(items: Any, arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
            async for item in items(arguments, context):
                yield item
            await self._list_again()

        streamed = stream_call and partial(stream, with_token(partial(stream_call, schema["name"])))
        work = Work(parameters, partial(json_schema_check, schema=parameters), run, streamed)
        return core_tool(spec, work, _shown, home=type(self._workbench).__module__)

    async def _list_again(self) -> None:
        try:
            await self._list()
        except Exception:
            _log.warning("The tools of %s are unchanged: they could not be listed", self.state_key, exc_info=True)


def core_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each of *names* the one that it has in the core: the same, wherever models could call it by that.

    AutoGen takes any text for a name, and two that differ only in `-` and `_`.
    """
    core_name: dict[str, str] = {}
    names_in_use: set[str] = set()
    for name in names:
        stem = free = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:MAX_NAME_CHARS] or "tool"
        number = 1
        while free.replace("-", "_") in names_in_use:
            number += 1
            free = f"{stem[: MAX_NAME_CHARS - len(str(number)) - 1]}_{number}"
        names_in_use.add(free.replace("-", "_"))
        core_name[name] = free
    return core_name


def _json_state(state: Any, owner: str) -> Any:
    """Return *state* as JSON data. Raises ToolcribError, which names the *owner*, for state that JSON cannot hold."""
    try:
        return pydantic_core.to_jsonable_python(state)
    except ValueError as error:
        raise ToolcribError(f"The state of {owner} cannot be saved: {error}") from error


def _shown(value: Any) -> Any:
    """Return a ToolResult as a Result, and anything that came before it as it is. Raises ToolError for a failure."""
    parts = getattr(value, "result", None)
    if getattr(value, "type", None) != "ToolResult" or not isinstance(parts, list):
        return with_core_images(value)
    content = tuple(
        with_core_images(part.content) if isinstance(part.content, AutoGenImage) else Text(part.content)
        for part in parts
    )
    if value.is_error:
        raise ToolError("\n".join(part.text for part in content) or "The tool failed.")
    texts = [part.text for part in content if not isinstance(part, Image)]
    return Result("\n".join(texts), content or (Text(""),))
