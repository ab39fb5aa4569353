"""`spark.models`: the models of an agent. Each is also a `toolcrib.agent.Model`."""

from ..._modules import also_as, left_out
from .base import EchoModel, Model
from .openai import OpenAIModel
from .types import ChatCompletionAssistantMessage, Message, Messages

__all__ = ["ChatCompletionAssistantMessage", "EchoModel", "Message", "Messages", "Model", "OpenAIModel"]

also_as(__name__, "echo")

__getattr__ = left_out(__name__, "AgentConfig(model=...) takes any model of toolcrib.agent.")
