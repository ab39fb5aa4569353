"""`spark.models.echo`: a model that repeats what the user wrote, and calls no tool."""

from typing import Any

from ..tools._blocks import text_of
from ._messages import to_message
from .base import Model
from .types import ChatCompletionAssistantMessage, Messages


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
