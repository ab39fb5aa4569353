"""What a workbench is to AutoGen's programs, and what its calls give them."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

from .._cancellation_token import CancellationToken
from .._component_config import ComponentBase
from .._image import Image
from ._base import ToolSchema


class TextResultContent(BaseModel):
    """Text result content of a tool execution."""

    type: Literal["TextResultContent"] = "TextResultContent"

    content: str


class ImageResultContent(BaseModel):
    """Image result content of a tool execution."""

    type: Literal["ImageResultContent"] = "ImageResultContent"

    content: Image


ResultContent = Annotated[TextResultContent | ImageResultContent, Field(discriminator="type")]


class ToolResult(BaseModel):
    """A result of a tool execution by a workbench."""

    type: Literal["ToolResult"] = "ToolResult"

    name: str
    result: list[ResultContent]
    is_error: bool = False

    def to_text(self, replace_image: str | None = None) -> str:
        """The result in words, part by part on lines of their own.

        In the place of an image stands *replace_image*, or without it `[Image: ...]` with a PNG in base64.
        """
        return "\n".join(
            part.content
            if isinstance(part, TextResultContent)
            else f"[Image: {part.content.to_base64()}]"
            if replace_image is None
            else replace_image
            for part in self.result
        )


class Workbench(ABC, ComponentBase[BaseModel]):
    """Tools with resources and state in common, under one door.

    Which tools there are may be another after every call. As an async context manager it starts and stops itself.
    """

    component_type = "workbench"

    @abstractmethod
    async def list_tools(self) -> list[ToolSchema]:
        """The tools there are now."""

    @abstractmethod
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call the tool *name*; without *arguments*, with none. *call_id* is for those who follow calls."""

    @abstractmethod
    async def start(self) -> None:
        """Make ready."""

    @abstractmethod
    async def stop(self) -> None:
        """Give up what `start` took."""

    @abstractmethod
    async def reset(self) -> None:
        """Back to how it was right after `start`."""

    @abstractmethod
    async def save_state(self) -> Mapping[str, Any]:
        """Its state as JSON data, for `load_state`."""

    @abstractmethod
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `save_state` gave."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.stop()


class StreamWorkbench(Workbench, ABC):
    """A workbench whose tools may tell something while they work."""

    @abstractmethod
    def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """`call_tool`, and what the tool gives meanwhile: first those values as they are, last the ToolResult."""
        ...
