"""What an agent expects of a model: one turn at a time, whole or while it is written."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..core import Call, SetupError, ToolcribError, ToolSpec
from ..formats import Choice, Reply, Turn, Usage, Written

if TYPE_CHECKING:
    from .outcome import Outcome


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


def require_model(given: Any) -> Model:
    """*given*, if it is a Model. Raises SetupError."""
    if isinstance(given, type) or not all(hasattr(given, part) for part in ("name", "reply", "stream")):
        raise SetupError(
            f'An agent\'s model is a Model or the name of one, as "openai:gpt-5-mini", not a {type(given).__name__}. '
            "For a function, ScriptedModel(function)."
        )
    return given  # type: ignore[no-any-return]


def require_reply(said: Any, name: str) -> Reply:
    """*said*, which has to be a whole Reply. Raises ModelError where a model of one's own gives anything else."""
    match said:
        case Reply(str(), tuple() | list() as calls, str(), Usage()):
            if all(map(_is_call, calls)):
                return said
            wrong = "a Reply with other things than calls in its calls"
        case Reply():
            wrong = "a Reply whose text, calls, stop or usage is of another kind"
        case _:
            wrong = "nothing" if said is None else f"a {type(said).__name__}"
    raise ModelError(
        f"Model '{name}' gave {wrong}. Its `reply` returns a toolcrib.formats.Reply, and its `stream` ends with one: "
        "Reply(text, (Call(tool, arguments, id), ...)).",
        "failed",
    )


def _is_call(call: Any) -> bool:
    match call:
        case Call(str(), None | str() | bytes() | Mapping(), str()):
            return True
        case _:
            return False


ModelProblem = Literal["unauthorized", "limited", "refused", "unavailable", "failed"]
"""The key is wrong; too many requests; the request is wrong; try later (a broken line, 5xx); anything else."""


class ModelError(ToolcribError):
    """A model gave no reply. `retry_after_s` where the provider said when to come back.

    The message names the model, the provider's own words (known secrets struck out) and the way out. Of an agent's run,
    `so_far` is what it had done: `agent.run(error.so_far.turns)` goes on with it.
    """

    def __init__(self, message: str, problem: ModelProblem, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after_s = retry_after_s
        self.so_far: Outcome | None = None
