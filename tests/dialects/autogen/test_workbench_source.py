"""A workbench that a program wrote for AutoGen, as a source of Toolcrib."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import PIL.Image

from toolcrib import Workbench
from toolcrib.core import Data, Emitted
from toolcrib.dialects.autogen import CancellationToken, Image
from toolcrib.dialects.autogen.tools import (
    ImageResultContent,
    StreamWorkbench,
    TextResultContent,
    ToolResult,
    ToolSchema,
)
from toolcrib.dialects.autogen.tools import Workbench as AutoGenWorkbench

from .counter import text


def schema(name: str, **properties: Any) -> ToolSchema:
    return {
        "name": name,
        "description": f"Does {name}.",
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        },
    }


class Notebook(AutoGenWorkbench):
    """Its tools may be others after every call."""

    def __init__(self) -> None:
        self.tools = ["a page"]  # a name that a program may use
        self.notes: list[str] = []
        self.log: list[str] = []
        self.is_open = False
        self.token: CancellationToken | None = None

    async def list_tools(self) -> list[ToolSchema]:
        opened = [schema("write/note", note={"type": "string"}), schema("wait")] if self.is_open else []
        return [schema("open"), schema("draw"), *opened]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> ToolResult:
        self.token = cancellation_token
        match name:
            case "open":
                self.is_open = True
                return text(name, "opened")
            case "draw":
                picture = ImageResultContent(content=Image(PIL.Image.new("RGB", (1, 1))))
                return ToolResult(name=name, result=[TextResultContent(content="a dot"), picture])
            case "wait":
                self.log.append("waits")
                await asyncio.Event().wait()
        note = (arguments or {})["note"]
        if not note:
            return text(name, "There is nothing to write.", is_error=True)
        self.notes.append(note)
        return text(name, f"{len(self.notes)} notes")

    async def start(self) -> None:
        self.log.append("start")

    async def stop(self) -> None:
        self.log.append("stop")

    async def reset(self) -> None:
        self.notes, self.is_open = [], False

    async def save_state(self) -> Mapping[str, Any]:
        return {"notes": list(self.notes)}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.notes, self.is_open = list(state["notes"]), True


async def test_tools_that_come_with_a_call_are_there_after_it() -> None:
    notebook = Notebook()
    async with Workbench([notebook]) as bench:
        assert (await bench.call("open", {})).text == "opened"
        assert [spec.name for spec in bench.specs()] == ["open", "draw", "write_note", "wait"]
        assert bench.specs()[2].input_schema == schema("x", note={"type": "string"})["parameters"]
        written = await bench.call("write_note", {"note": "bolts"})
        assert (written.text, written.value) == ("1 notes", "1 notes")
        missing = await bench.call("write_note", {"nte": "bolts"})
        assert missing.text == "Tool 'write_note' takes no argument 'nte'. Did you mean 'note'? It takes: note."
        failed = await bench.call("write_note", {"note": ""})
        assert (failed.status, failed.text) == ("error", "There is nothing to write.")


class Counting(Notebook, StreamWorkbench):
    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any, None]:
        for number in range(2):
            yield {"page": number}
        yield await self.call_tool(name, arguments, cancellation_token)


async def test_what_it_streams_is_emitted_before_the_result() -> None:
    async with Workbench([Counting()]) as bench:
        events = [event async for event in bench.stream("open", {})]
        emitted = [event.content for event in events if isinstance(event, Emitted)]
        assert emitted == [(Data('{"page":0}'),), (Data('{"page":1}'),)]
        assert events[-1].text == "opened"  # type: ignore[union-attr]
        assert "wait" in [spec.name for spec in bench.specs()]
