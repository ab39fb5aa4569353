"""`spark.models.echo`: a model that says what it was told. It asks nobody, and calls no tool."""

from typing import Any

from ..tools import _content
from ..tools.types import ToolChoice, ToolSpec
from . import _turns
from .base import ChatCompletionAssistantMessage, Messages, Model


class EchoModel(Model):
    """Says the user's last words."""

    def __init__(self, model_id: str = "echo-model") -> None:
        self.model_id = model_id

    async def get_text(
        self,
        messages: Messages,
        system_prompt: str | None = None,
        tool_specs: list[ToolSpec] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatCompletionAssistantMessage:
        """The text of the last message of a user."""
        said = [message for message in map(_turns.message_of, messages) if message["role"] == "user"]
        words = _content.words_of(said[-1]["content"]) if said else ""
        return {"role": "assistant", "content": words, "stop_reason": "end_turn"}

    def update_config(self, **model_config: Any) -> None:
        """Change the model's name: *model_id*."""
        if others := sorted(model_config.keys() - {"model_id"}):
            raise TypeError(f"EchoModel has no '{others[0]}'. It takes: model_id.")
        self.model_id = model_config.get("model_id", self.model_id)

    def get_config(self) -> dict[str, Any]:
        """Its name, as `model_id`."""
        return {"model_id": self.model_id}
