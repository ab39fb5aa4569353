"""`spark.models`: the models of an agent. Each is also a `toolcrib.agent.Model`."""

from .base import Model
from .echo import EchoModel
from .openai import OpenAIModel
from .types import ChatCompletionAssistantMessage, Message, Messages

__all__ = ["ChatCompletionAssistantMessage", "EchoModel", "Message", "Messages", "Model", "OpenAIModel"]
