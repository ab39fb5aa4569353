"""`spark.models`: the models of an agent. Each is also a `toolcrib.agent.Model`."""

from .base import ChatCompletionAssistantMessage, Message, Messages, Model
from .echo import EchoModel
from .openai import OpenAIModel

__all__ = ["ChatCompletionAssistantMessage", "EchoModel", "Message", "Messages", "Model", "OpenAIModel"]
