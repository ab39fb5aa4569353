"""The interface of a model: one turn at a time, whole or streamed; and models by name: "openai:gpt-5-mini"."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..core import SetupError, ToolcribError, ToolSpec
from ..formats import Choice, Reply, TextDelta, Turn

if TYPE_CHECKING:
    from .outcome import Outcome


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that a model gets for one turn."""

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

    def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        """Yield pieces of text as they are generated, and last the whole Reply."""
        ...


def require_model(value: Any) -> Model:
    """Return *value*, if it is a Model. Raises SetupError."""
    if isinstance(value, type) or not all(hasattr(value, part) for part in ("name", "reply", "stream")):
        raise SetupError(
            f'The model of an agent is a Model or its name, such as "openai:gpt-5-mini", not a {type(value).__name__}. '
            "For a function, ScriptedModel(function)."
        )
    return value  # type: ignore[no-any-return]


def require_reply(value: Any, name: str) -> Reply:
    """Return *value*, if it is a Reply. Raises ModelError: the model is at fault."""
    if isinstance(value, Reply):
        return value
    wrong = "None" if value is None else f"a {type(value).__name__}"
    raise ModelError(
        f"Model '{name}' returned {wrong}. Its `reply` must return a toolcrib.formats.Reply, and its `stream` must end "
        "with one: Reply(text, (Call(tool, arguments, id), ...)).",
        "failed",
    )


ModelProblem = Literal["unauthorized", "limited", "refused", "unavailable", "failed"]
"""The key is wrong; too many requests; the request is wrong; try later (no connection, 5xx); anything else."""


class ModelError(ToolcribError):
    """A model gave no reply. `retry_after_s` is set where the provider asked for a pause.

    The message has the model, the provider's own message with known secrets redacted, and the way out. `so_far` is what
    an agent's run had done until then: `agent.run(error.so_far.turns)` continues it.
    """

    def __init__(self, message: str, problem: ModelProblem, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.problem = problem
        self.retry_after_s = retry_after_s
        self.so_far: Outcome | None = None


# Provider → the module and the class, or the function, that makes its models.
_PROVIDERS: Mapping[str, tuple[str, str]] = {
    "openai": (".openai", "OpenAIChat"),
    "responses": (".openai", "OpenAIResponses"),
    "anthropic": (".anthropic", "AnthropicModel"),
    "gemini": (".gemini", "GeminiModel"),
    "bedrock": (".bedrock", "BedrockModel"),
    "scripted": (".scripted", "ScriptedModel.from_file"),
}
_FORMS = ", ".join(f'"{provider}:{"FILE" if provider == "scripted" else "MODEL"}"' for provider in _PROVIDERS)


def model_from_name(name: str) -> Model:
    """Return the model called *name*: "PROVIDER:MODEL", or "scripted:FILE" for turns in a file.

    Raises SetupError for a name without a known provider, with the nearest one, and where the provider's package is
    missing.
    """
    from ..schema import closest_match, did_you_mean, display_name

    provider, colon, model = str(name).partition(":")
    if not colon and provider not in _PROVIDERS:
        raise SetupError(f"The model name '{display_name(str(name))}' names no provider. Write it as {_FORMS}.")
    if provider not in _PROVIDERS:
        hint = did_you_mean(closest_match(provider, _PROVIDERS))
        raise SetupError(f"There is no model provider '{display_name(provider)}'.{hint} Write it as {_FORMS}.")
    if not model:
        raise SetupError(f"'{display_name(str(name))}' has no model after the provider. Write it as {_FORMS}.")
    module, path = _PROVIDERS[provider]
    client: Model = resolve_name(f"{__package__}{module}:{path}")(model)
    return client
