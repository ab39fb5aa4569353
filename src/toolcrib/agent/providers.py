"""A model by its name, as in a command or a setting: "openai:gpt-5-mini". Providers' packages are imported on use."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core import SetupError

if TYPE_CHECKING:
    from .model import Model

# Provider → the module and the class, or the function, that makes its models.
_PROVIDERS: Mapping[str, tuple[str, str]] = {
    "openai": (".openai", "OpenAIChat"),
    "responses": (".openai", "OpenAIResponses"),
    "anthropic": (".anthropic", "AnthropicModel"),
    "gemini": (".gemini", "GeminiModel"),
    "bedrock": (".bedrock", "BedrockModel"),
    "scripted": (".scripted", "ScriptedModel.from_file"),
}
_FORMS = ", ".join(f'"{provider}:{"FILE" if provider == "scripted" else "MODEL"}"' for provider in _PROVIDERS)


def model_from_name(name: str) -> "Model":
    """The model called *name*: "PROVIDER:MODEL", or "scripted:FILE" for turns in a file.

    Raises SetupError for a name without a known provider, with the nearest one, and where the provider's package is
    missing.
    """
    from ..schema import closest_match, did_you_mean, display_name

    provider, colon, model = str(name).partition(":")
    if not colon and provider not in _PROVIDERS:
        raise SetupError(f"The model name '{display_name(str(name))}' names no provider. Write it as {_FORMS}.")
    if provider not in _PROVIDERS:
        hint = did_you_mean(closest_match(provider, _PROVIDERS))
        raise SetupError(f"There is no model provider '{display_name(provider)}'.{hint} Write it as {_FORMS}.")
    if not model:
        raise SetupError(f"'{display_name(str(name))}' has no model after the provider. Write it as {_FORMS}.")
    module, path = _PROVIDERS[provider]
    make: Any = import_module(module, __package__)
    for part in path.split("."):
        make = getattr(make, part)
    made: Model = make(model)
    return made
