"""A model by its name, as a command or a setting says it: "openai:gpt-5-mini". Providers' packages are loaded late."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..core import SetupError

if TYPE_CHECKING:
    from .model import Model


def model_of(name: str) -> "Model":
    """The model called *name*: "PROVIDER:MODEL", or "scripted:FILE" for turns in a file.

    Raises SetupError for a name that is none, with the nearest provider, and where the provider's package is missing.
    """
    from ..schema import nearest, spoken

    provider, colon, model = str(name).partition(":")
    if not colon and provider not in _MODELS:
        raise SetupError(f"'{spoken(str(name))}' does not say whose model it is. A model is called {_FORMS}.")
    if provider not in _MODELS:
        meant = nearest(provider, _MODELS)
        hint = f" Did you mean '{meant}'?" if meant else ""
        raise SetupError(f"There is no model provider '{spoken(provider)}'.{hint} A model is called {_FORMS}.")
    if not colon or not model:
        raise SetupError(f"'{spoken(str(name))}' does not say which model. A model is called {_FORMS}.")
    return _MODELS[provider](model)


def _openai(model: str) -> "Model":
    from .openai import OpenAIChat

    return OpenAIChat(model)


def _responses(model: str) -> "Model":
    from .openai import OpenAIResponses

    return OpenAIResponses(model)


def _anthropic(model: str) -> "Model":
    from .anthropic import AnthropicModel

    return AnthropicModel(model)


def _gemini(model: str) -> "Model":
    from .gemini import GeminiModel

    return GeminiModel(model)


def _bedrock(model: str) -> "Model":
    from .bedrock import BedrockModel

    return BedrockModel(model)


def _scripted(file: str) -> "Model":
    from .scripted import ScriptedModel

    return ScriptedModel.from_file(file)


_MODELS: Mapping[str, Callable[[str], "Model"]] = {
    "openai": _openai,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "scripted": _scripted,
}
_FORMS = ", ".join(f'"{provider}:{"FILE" if provider == "scripted" else "MODEL"}"' for provider in _MODELS)
