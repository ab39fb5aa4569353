"""`spark.models.openai`: OpenAI's models, and servers with its Chat Completions API, by `toolcrib.agent.OpenAIChat`."""

from typing import Any, Required, Unpack, cast

from typing_extensions import TypedDict

from ....agent import OpenAIChat, Request
from ....formats import Reply
from ..tools.types import ToolChoice, ToolSpec
from ._messages import answer_from, to_core_choice, to_core_spec, turns_from
from .base import Model
from .types import ChatCompletionAssistantMessage, Messages


class OpenAIConfig(TypedDict, total=False):
    """`params` are parameters of each request: `{"temperature": 0.7, "max_tokens": 1000}`.

    Some of them, and of the client's, may stand beside it: `OpenAIModel(model_id=..., temperature=0.7, api_key=...)`.
    """

    model_id: Required[str]
    params: dict[str, Any] | None
    enable_cache: bool
    cache_ttl_seconds: int
    max_tokens: int
    temperature: float
    top_p: float
    api_key: str
    base_url: str
    timeout: float
    max_retries: int


_OF_REQUEST = ("max_tokens", "temperature", "top_p")
_OF_CLIENT = ("api_key", "base_url", "timeout", "max_retries")


class OpenAIModel(Model):
    """A model behind Chat Completions.

    *client_args* are those of the SDK's client. By default it uses OPENAI_API_KEY and OPENAI_BASE_URL. With a base URL
    the key may be missing, for servers that need none. Answers are not cached: `enable_cache` has no effect.

    Raises TypeError for an unknown option.
    """

    def __init__(self, client_args: dict[str, Any] | None = None, **model_config: Unpack[OpenAIConfig]) -> None:
        if "model_id" not in model_config:
            raise TypeError('OpenAIModel needs the name of a model: OpenAIModel(model_id="gpt-4o-mini").')
        self._client_args = dict(client_args or {})
        self._config: OpenAIConfig = {"model_id": ""}
        self.update_config(**model_config)

    async def get_text(
        self,
        messages: Messages,
        system_prompt: str | None = None,
        tool_specs: list[ToolSpec] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatCompletionAssistantMessage:
        """Return the model's answer. *kwargs* are parameters of this request only. Raises ModelError of the core."""
        system, turns = turns_from(messages)
        instructions = "\n\n".join(filter(None, (system_prompt, system)))
        specs = [to_core_spec(spec) for spec in tool_specs or ()]
        request = Request(turns, instructions, specs, to_core_choice(tool_choice))
        if not kwargs:
            return cast(ChatCompletionAssistantMessage, answer_from(await self._chat.reply(request)))
        chat = self._new_chat(kwargs)
        try:
            return cast(ChatCompletionAssistantMessage, answer_from(await chat.reply(request)))
        finally:
            await chat.close()

    def update_config(self, **model_config: Any) -> None:
        """Change `model_id`, `params`, ..."""
        options = OpenAIConfig.__annotations__
        if unknown := sorted(model_config.keys() - options.keys()):
            raise TypeError(
                f"OpenAIModel takes no '{unknown[0]}'. Parameters of the request go into params={{...}}, those of the "
                f"client into client_args={{...}}. Its options are: {', '.join(options)}."
            )
        # A key is a secret, so those of the client are not in the configuration.
        self._client_args |= {name: model_config.pop(name) for name in _OF_CLIENT if name in model_config}
        self._config = cast(OpenAIConfig, {**self._config, **model_config})
        self._chat = self._new_chat({})

    def get_config(self) -> OpenAIConfig:
        """Return the model's options, without those of the client."""
        return self._config

    @property
    def name(self) -> str:
        return f"openai:{self._config['model_id']}"

    async def reply(self, request: Request, /) -> Reply:
        is_own = type(self).get_text is OpenAIModel.get_text
        return await (self._chat.reply(request) if is_own else super().reply(request))

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._chat.close()

    def _new_chat(self, parameters: dict[str, Any]) -> OpenAIChat:
        own = {name: value for name, value in self._config.items() if name in _OF_REQUEST}
        options = {**(self._config.get("params") or {}), **own, **parameters}
        return OpenAIChat(self._config["model_id"], options=options, client=self._client if self._client_args else None)

    def _client(self) -> Any:
        from openai import AsyncOpenAI

        arguments: dict[str, Any] = self._client_args
        if "base_url" in arguments:
            arguments = {"api_key": "none", **arguments}
        return AsyncOpenAI(**arguments)
