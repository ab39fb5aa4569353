"""`spark.models.echo`: a model that repeats what the user wrote, and calls no tool."""

from typing import Any

from ..tools._blocks import text_of
from ._messages import to_message
from .base import ChatCompletionAssistantMessage, Messages, Model


class EchoModel(Model):
    """Answers with the text of the user's last message."""

    def __init__(self, model_id: str = "echo-model") -> None:
        self.model_id = model_id

    async def get_text(self, messages: Messages, *args: Any, **kwargs: Any) -> ChatCompletionAssistantMessage:
        """The text of the last message of a user."""
        texts = [text_of(message["content"]) for message in map(to_message, messages) if message["role"] == "user"]
        return {"role": "assistant", "content": texts[-1] if texts else "", "stop_reason": "end_turn"}

    def update_config(self, **model_config: Any) -> None:
        """Change the model's name, *model_id*."""
        if unknown := sorted(model_config.keys() - {"model_id"}):
            raise TypeError(f"EchoModel has no option '{unknown[0]}'. Its option is model_id.")
        self.model_id = model_config.get("model_id", self.model_id)

    def get_config(self) -> dict[str, Any]:
        """The model's name, as `model_id`."""
        return {"model_id": self.model_id}
