"""A workbench that a program wrote for AutoGen, as a source of Toolcrib: it starts, stops and keeps its state there."""

import logging
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from ....core import Context, Image, Result, Source, Text, ToolcribError, ToolError, ToolSpec
from ....schema import json_schema_check, require_schema
from ....tools import Tool as CoreTool
from .._image import Image as AutoGenImage
from ._core import Work, begin_with, core_tool, with_core_images
from ._names import core_names
from ._protocols import ToolSchema
from ._state import json_state

_log = logging.getLogger("toolcrib")


class WorkbenchSource(Source):
    """The tools of *workbench*, one of AutoGen, which are listed when it has started and again after every call.

    Its state is saved under its attribute `state_key`, or the name of its class.
    """

    def __init__(self, workbench: Any) -> None:
        self._workbench = workbench
        self._listed: list[ToolSchema] = []
        self._tools: list[CoreTool[..., Any]] = []

    def __reduce__(self) -> tuple[type["WorkbenchSource"], tuple[Any]]:
        return WorkbenchSource, (self._workbench,)  # of a copy, that of the copy

    @property
    def state_key(self) -> str:
        return getattr(self._workbench, "state_key", None) or type(self._workbench).__name__

    def tools(self) -> Sequence[CoreTool[..., Any]]:
        return list(self._tools)

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
        return json_state(await self._workbench.save_state(), self.state_key)

    async def load_state(self, state: Any, /) -> None:
        await self._workbench.load_state(state)

    async def _list(self) -> None:
        listed = await self._workbench.list_tools()
        if listed == self._listed:
            return
        before = list(zip(self._listed, self._tools, strict=True))
        names = core_names(schema["name"] for schema in listed)
        found: list[tuple[ToolSchema, CoreTool[..., Any]]] = []
        for schema in listed:
            known = next((tool for old, tool in before if old == schema), None)
            try:
                found.append((schema, known or self._tool(schema, names[schema["name"]])))
            except ToolcribError as error:
                _log.warning("Not loaded: the tool '%s' of %s: %s", schema["name"], self.state_key, error)
        self._listed, self._tools = [schema for schema, _ in found], [tool for _, tool in found]
        self.changed()

    def _tool(self, schema: ToolSchema, name: str) -> CoreTool[..., Any]:
        parameters = require_schema(schema.get("parameters", {}), label=f"Tool '{name}'")
        check = partial(json_schema_check, schema=parameters)
        call = begin_with(partial(self._workbench.call_tool, schema["name"]))
        stream_call = getattr(self._workbench, "call_tool_stream", None)
        stream = stream_call and partial(self._stream, begin_with(partial(stream_call, schema["name"])))

        async def run(arguments: dict[str, Any], context: Context) -> Any:
            result = await call(arguments, context)
            await self._list_again()
            return result

        spec = ToolSpec(name, schema.get("description", ""), parameters, strict=schema.get("strict") or None)
        home = type(self._workbench).__module__
        return core_tool(spec, Work(parameters, check, check, run, stream), check, _shown, home=home)

    async def _stream(self, call: Any, arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        async for item in call(arguments, context):
            yield item
        await self._list_again()

    async def _list_again(self) -> None:
        try:
            await self._list()
        except Exception:
            _log.warning("The tools of %s are unchanged: they could not be listed", self.state_key, exc_info=True)


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
