"""`spark.models.base`: the model of an agent, and one that repeats what the user wrote, `spark.models.echo`.

A subclass needs `get_text`; `get_json` is not called for tools.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, cast

from ....agent import ModelError, Request
from ....core import ToolcribError
from ....formats import Reply, TextDelta
from ..tools._core_tool import text_of
from ..tools.types import ToolChoice, ToolSpec
from ._messages import messages_from, reply_from, to_message, to_spark_choice, to_spark_spec
from .types import ChatCompletionAssistantMessage, Messages


class Model(ABC):
    """The base class of all models. Each is also a `toolcrib.agent.Model`, by means of `get_text`."""

    @abstractmethod
    async def get_text(
        self,
        messages: Messages,
        system_prompt: str | None = None,
        tool_specs: list[ToolSpec] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatCompletionAssistantMessage:
        """Return the model's answer to *messages*. *kwargs* are parameters of the request, in the provider's names.

        `tool_calls` is a list of `{"id", "type": "function", "function": {"name", "arguments"}}`, whose arguments are a
        dictionary or JSON text.
        """

    def update_config(self, **model_config: Any) -> None:
        """Change the model's configuration."""
        raise NotImplementedError(f"{type(self).__name__} has no configuration to change.")

    def get_config(self) -> Any:
        """Return the model's configuration."""
        return {}

    @property
    def name(self) -> str:
        config = self.get_config()
        model_id = config.get("model_id") if isinstance(config, dict) else getattr(self, "model_id", None)
        return f"{type(self).__name__}:{model_id}" if model_id else type(self).__name__

    async def reply(self, request: Request, /) -> Reply:
        try:
            answer = await self.get_text(
                cast(Messages, messages_from(request.turns)),
                system_prompt=request.instructions or None,
                tool_specs=[to_spark_spec(spec) for spec in request.specs] or None,
                tool_choice=to_spark_choice(request.choice) if request.specs else None,  # type: ignore[arg-type]
            )
            return reply_from(answer)
        except ToolcribError:
            raise
        except Exception as error:
            raise ModelError(f"Model '{self.name}' failed: {type(error).__name__}: {error}", "failed") from error

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        reply = await self.reply(request)
        if reply.text:
            yield TextDelta(reply.text)
        yield reply

    def __repr__(self) -> str:
        return f"<{self.name}>"


class EchoModel(Model):
    """A model that answers with the text of the user's last message. *streaming* has no effect."""

    def __init__(self, streaming: bool = False) -> None:
        self.model_id = "echo"
        self.streaming = streaming

    async def get_text(self, messages: Messages, *args: Any, **kwargs: Any) -> ChatCompletionAssistantMessage:
        """Return the text of the last message of a user."""
        texts = [text_of(message["content"]) for message in map(to_message, messages) if message["role"] == "user"]
        return {"role": "assistant", "content": texts[-1] if texts else "", "stop_reason": "end_turn"}

    def update_config(self, **model_config: Any) -> None:
        """Change `model_id`, the model's name, and `streaming`."""
        vars(self).update(model_config)

    def get_config(self) -> dict[str, Any]:
        """Return the model's name, as `model_id`, and `streaming`."""
        return {"model_id": self.model_id, "streaming": self.streaming}
