"""AutoGen's interface of code executors, for programs that have one. The dialect has none."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pydantic import BaseModel

from .._cancellation_token import CancellationToken
from .._component_config import ComponentBase


@dataclass
class CodeBlock:
    """Code that a model wrote, and its language."""

    code: str
    language: str


@dataclass
class CodeResult:
    """The exit code, and what the code printed."""

    exit_code: int
    output: str


class CodeExecutor(ABC, ComponentBase[BaseModel]):
    """Runs blocks of code. As an async context manager it starts and stops itself."""

    component_type = "code_executor"

    @abstractmethod
    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run *code_blocks*, and return the result."""

    @abstractmethod
    async def start(self) -> None:
        """Acquire resources."""

    @abstractmethod
    async def stop(self) -> None:
        """Release resources."""

    @abstractmethod
    async def restart(self) -> None:
        """Start again, without the state of earlier code."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.stop()
