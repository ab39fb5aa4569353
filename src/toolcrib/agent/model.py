"""What an agent expects of a model: one turn at a time, whole or while it is written."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..core import ToolcribError, ToolSpec
from ..formats import Choice, Reply, Turn, Written


@dataclass(frozen=True, slots=True)
class Request:
    """All that a model is told for one turn."""

    turns: Sequence[Turn]
    instructions: str = ""
    specs: Sequence[ToolSpec] = ()
    choice: Choice = "auto"
    parallel: bool = True


class Model(Protocol):
    """One model of one provider. Its methods raise ModelError, and nothing else that a provider can cause."""

    @property
    def name(self) -> str:
        """As in `toolcrib chat --model`: "openai:gpt-5-mini"."""
        ...

    async def reply(self, request: Request, /) -> Reply: ...

    def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        """Words while they are written, and last of all the whole Reply."""
        ...


ModelProblem = Literal["unauthorized", "limited", "refused", "unavailable", "failed"]
"""The key is wrong; too many requests; the request is wrong; try later (a broken line, 5xx); anything else."""


class ModelError(ToolcribError):
    """A model gave no reply. `retry_after_s` where the provider said when to come back.

    The message names the model, the provider's own words (known secrets struck out) and the way out.
    """

    def __init__(self, message: str, problem: ModelProblem, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after_s = retry_after_s
