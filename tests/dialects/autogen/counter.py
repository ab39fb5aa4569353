"""A tool with state as programs write one, and the results of calls."""

from pydantic import BaseModel

from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import BaseToolWithState, TextResultContent, ToolResult


class Nothing(BaseModel): ...


class Count(BaseModel):
    count: int = 0


class Counter(BaseToolWithState[Nothing, Count, Count]):
    def __init__(self) -> None:
        super().__init__(Nothing, Count, Count, "counter", "Count up.")
        self.count = 0

    async def run(self, args: Nothing, cancellation_token: CancellationToken) -> Count:
        self.count += 1
        return Count(count=self.count)

    def save_state(self) -> Count:
        return Count(count=self.count)

    def load_state(self, state: Count) -> None:
        self.count = state.count


def text(name: str, content: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=content)], is_error=is_error)
