"""`spark.models`: the models that an agent asks. Each of them is a `toolcrib.agent.Model`, too."""

from .base import ChatCompletionAssistantMessage, Message, Messages, Model
from .echo import EchoModel
from .openai import OpenAIModel

__all__ = ["ChatCompletionAssistantMessage", "EchoModel", "Message", "Messages", "Model", "OpenAIModel"]
