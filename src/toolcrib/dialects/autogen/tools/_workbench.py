"""AutoGen's interfaces of workbenches, and the results of their calls."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

from ....core import Source
from ....tools import Tool as CoreTool
from .._cancellation_token import CancellationToken
from .._component_config import ComponentBase
from .._image import Image
from ._core import ToolSchema, WorkbenchSource


class TextResultContent(BaseModel):
    """Text result content of a tool execution."""

    type: Literal["TextResultContent"] = "TextResultContent"

    content: str


class ImageResultContent(BaseModel):
    """Image result content of a tool execution."""

    type: Literal["ImageResultContent"] = "ImageResultContent"

    content: Image


ResultContent = Annotated[TextResultContent | ImageResultContent, Field(discriminator="type")]


if not TYPE_CHECKING and find_spec("autogen_core") is not None:
    from autogen_core.tools import ToolResult as _ResultBase  # an AssistantAgent asks for it, and models take no others
else:
    _ResultBase = BaseModel


class ToolResult(_ResultBase):
    """A result of a tool execution by a workbench."""

    type: Literal["ToolResult"] = "ToolResult"

    name: str
    result: list[ResultContent]
    is_error: bool = False

    def to_text(self, replace_image: str | None = None) -> str:
        """Return the parts as text, each on a line of its own.

        An image is *replace_image*, or by default `[Image: ...]` with a PNG in base64.
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
    """Tools that share resources and state. They may be other ones after every call.

    As an async context manager it starts and stops itself.
    """

    component_type = "workbench"

    @abstractmethod
    async def list_tools(self) -> list[ToolSchema]:
        """Return the current tools."""

    @abstractmethod
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call the tool *name*. *call_id* is for tracing."""

    @abstractmethod
    async def start(self) -> None:
        """Acquire resources."""

    @abstractmethod
    async def stop(self) -> None:
        """Release resources."""

    @abstractmethod
    async def reset(self) -> None:
        """Restore the state right after `start`."""

    @abstractmethod
    async def save_state(self) -> Mapping[str, Any]:
        """Return its state as JSON data, for `load_state`."""

    @abstractmethod
    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""

    def __toolcrib__(self) -> "Source | list[CoreTool[..., Any]]":
        """Return it as a source of Toolcrib, which starts and stops it, and saves its state."""
        source: Source = vars(self).setdefault("_toolcrib_source", WorkbenchSource(self))
        return source

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.stop()


class StreamWorkbench(Workbench, ABC):
    """A workbench whose tools may stream."""

    @abstractmethod
    def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any | ToolResult, None]:
        """Call the tool and yield what it streams, as it is; last comes the ToolResult."""
