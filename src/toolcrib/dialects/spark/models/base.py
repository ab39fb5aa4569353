"""`spark.models.base`: what an agent asks. A subclass has `get_text`, and that is all it needs.

`get_json` is not called: no tool needs it.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, NotRequired

# pydantic takes no other TypedDict before Python 3.12, and users put these into their own models.
from typing_extensions import TypedDict

from ....agent import ModelError, Request
from ....core import ToolcribError
from ....formats import Reply, Written
from ..tools.types import ToolChoice, ToolSpec
from . import _turns

Message = dict[str, Any]
"""`{"role": "user" | "assistant" | "system", "content": [{"text": ...}, ...]}`"""

Messages = list[Message]


class ChatCompletionAssistantMessage(TypedDict):
    """What a model says. `stop_reason` is "tool_use" where it asks for tools, and "end_turn" where it is done."""

    role: str
    content: Any
    stop_reason: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    raw: NotRequired[Any]


class Model(ABC):
    """The base of all models. Each is a `toolcrib.agent.Model` as well, by what `get_text` gives."""

    @abstractmethod
    async def get_text(
        self,
        messages: Messages,
        system_prompt: str | None = None,
        tool_specs: list[ToolSpec] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatCompletionAssistantMessage:
        """What the model says to *messages*. *kwargs* are more of the request's parameters, as the provider has them.

        `tool_calls` is a list of `{"id", "type": "function", "function": {"name", "arguments": <JSON text>}}`.
        """

    def update_config(self, **model_config: Any) -> None:
        """Change what the model was made with."""
        raise NotImplementedError(f"{type(self).__name__} has no configuration to change.")

    def get_config(self) -> Any:
        """What the model was made with."""
        return {}

    @property
    def name(self) -> str:
        config = self.get_config()
        model_id = config.get("model_id") if isinstance(config, dict) else getattr(self, "model_id", None)
        return f"{type(self).__name__}:{model_id}" if model_id else type(self).__name__

    async def reply(self, request: Request, /) -> Reply:
        try:
            said = await self.get_text(
                _turns.messages_of(request.turns),
                system_prompt=request.instructions or None,
                tool_specs=[_turns.spec_of(spec) for spec in request.specs] or None,
                tool_choice=_turns.choice_of(request.choice) if request.specs else None,  # type: ignore[arg-type]
            )
            return _turns.reply_of(said)
        except ToolcribError:
            raise
        except Exception as error:
            raise ModelError(f"Model '{self.name}' failed: {type(error).__name__}: {error}", "failed") from error

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        reply = await self.reply(request)
        if reply.text:
            yield Written(reply.text)
        yield reply

    def __repr__(self) -> str:
        return f"<{self.name}>"
