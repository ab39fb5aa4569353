"""`spark.models.openai`: OpenAI's models, and servers with its Chat Completions API, by `toolcrib.agent.OpenAIChat`."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Required, Unpack, cast
from weakref import WeakKeyDictionary

from typing_extensions import TypedDict

from ....agent import ModelError, OpenAIChat, Request
from ....formats import Reply, TextDelta
from ..tools.types import ToolChoice, ToolSpec
from ._messages import answer_from, to_core_choice, to_core_spec, turns_from
from .base import Model
from .types import ChatCompletionAssistantMessage, Messages

if TYPE_CHECKING:
    from openai import AsyncOpenAI


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

    *client_args* are those of the SDK's client: `api_key`, `base_url`, `timeout`, `max_retries`, ... By default it uses
    OPENAI_API_KEY and OPENAI_BASE_URL. With a base URL the key may be missing, for servers that need none. Answers are
    not cached: `enable_cache` has no effect.

    Raises TypeError for an unknown option.
    """

    def __init__(self, client_args: dict[str, Any] | None = None, **model_config: Unpack[OpenAIConfig]) -> None:
        if "model_id" not in model_config:
            raise TypeError('OpenAIModel needs the name of a model: OpenAIModel(model_id="gpt-4o-mini").')
        self._client_args = dict(client_args or {})
        self._config: OpenAIConfig = {"model_id": ""}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = WeakKeyDictionary()
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
        reply = await self._chat(kwargs).reply(Request(turns, instructions, specs, to_core_choice(tool_choice)))
        return cast(ChatCompletionAssistantMessage, answer_from(reply))

    def update_config(self, **model_config: Any) -> None:
        """Change `model_id`, `params`, ... Options of the client do not reach one that has been used already."""
        options = OpenAIConfig.__annotations__
        if unknown := sorted(model_config.keys() - options.keys()):
            raise TypeError(
                f"OpenAIModel takes no '{unknown[0]}'. Parameters of the request go into params={{...}}, those of the "
                f"client into client_args={{...}}. Its options are: {', '.join(options)}."
            )
        # A key is a secret, so those of the client are not in the configuration.
        self._client_args |= {name: model_config.pop(name) for name in _OF_CLIENT if name in model_config}
        self._config = cast(OpenAIConfig, {**self._config, **model_config})

    def get_config(self) -> OpenAIConfig:
        """Return the model's options, without those of the client."""
        return self._config

    @property
    def name(self) -> str:
        return f"openai:{self._config['model_id']}"

    async def reply(self, request: Request, /) -> Reply:
        return await (super().reply(request) if self._overrides_get_text() else self._chat({}).reply(request))

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        pieces = super().stream(request) if self._overrides_get_text() else self._chat({}).stream(request)
        async for piece in pieces:
            yield piece

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        if (client := self._clients.pop(asyncio.get_running_loop(), None)) is not None:
            await client.close()

    def _overrides_get_text(self) -> bool:
        return type(self).get_text is not OpenAIModel.get_text

    def _chat(self, parameters: dict[str, Any]) -> OpenAIChat:
        own = {name: value for name, value in self._config.items() if name in _OF_REQUEST}
        options = {**(self._config.get("params") or {}), **own, **parameters}
        return OpenAIChat(self._config["model_id"], options=options, client=self._client)

    def _client(self) -> "AsyncOpenAI":
        """Return the client of the running event loop."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            options = dict(self._client_args)
            if not (options.get("api_key") or os.environ.get("OPENAI_API_KEY")):
                if not (options.get("base_url") or os.environ.get("OPENAI_BASE_URL")):
                    remedy = "Set OPENAI_API_KEY. Or pass client_args={'api_key': ...}."
                    raise ModelError(f"Model '{self.name}' has no API key. {remedy}", "unauthorized")
                options["api_key"] = "none"
            self._clients[loop] = AsyncOpenAI(**options)
        return self._clients[loop]
