"""A model that uses a workbench: the contract of a model, the clients of providers, the loop, and evals."""

from typing import TYPE_CHECKING

from ..machinery import lazy_names
from .agent import Agent
from .model import Model, ModelError, ModelProblem, Request, model_from_name
from .outcome import Outcome, RunStatus, Trace
from .run import CallEvent, CallFinished, CallStarted, RunEvent
from .scripted import ScriptedModel

if TYPE_CHECKING:
    from .anthropic import AnthropicModel
    from .bedrock import BedrockModel
    from .evals import EvalEstimate, EvalReport, EvalRun, evaluate
    from .gemini import GeminiModel
    from .openai import OpenAIChat, OpenAIResponses

__all__ = [
    "Agent",
    "AnthropicModel",
    "BedrockModel",
    "CallEvent",
    "CallFinished",
    "CallStarted",
    "EvalEstimate",
    "EvalReport",
    "EvalRun",
    "GeminiModel",
    "Model",
    "ModelError",
    "ModelProblem",
    "OpenAIChat",
    "OpenAIResponses",
    "Outcome",
    "Request",
    "RunEvent",
    "RunStatus",
    "ScriptedModel",
    "Trace",
    "evaluate",
    "model_from_name",
]

# The clients of providers, and evals, which read files as settings do: they come when they are first asked for.
__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("EvalEstimate", "EvalReport", "EvalRun", "evaluate"), ".evals"),
        **dict.fromkeys(("OpenAIChat", "OpenAIResponses"), ".openai"),
        "AnthropicModel": ".anthropic",
        "BedrockModel": ".bedrock",
        "GeminiModel": ".gemini",
    },
)
