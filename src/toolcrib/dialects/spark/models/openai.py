"""`spark.models.openai`: OpenAI's models, and of all who speak as it does, through OpenAI's own SDK."""

import logging
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Required, Unpack, cast

from typing_extensions import TypedDict

from ....agent import OpenAIChat, Request
from ....agent.sdk import PerLoop, Troubles, package
from ....formats import Reply, Written
from ..tools.types import ToolChoice, ToolSpec
from . import _turns
from .base import ChatCompletionAssistantMessage, Messages, Model

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)


class OpenAIConfig(TypedDict, total=False):
    """`params` are the request's own parameters: `{"temperature": 0.7, "max_tokens": 1000}`."""

    model_id: Required[str]
    params: dict[str, Any] | None
    enable_cache: bool
    cache_ttl_seconds: int


_CONFIG = ("model_id", "params", "enable_cache", "cache_ttl_seconds")


class OpenAIModel(Model):
    """A model behind Chat Completions.

    *client_args* are those of the SDK's client: `api_key`, `base_url`, `timeout`, `max_retries`, ... Without them it
    takes OPENAI_API_KEY and OPENAI_BASE_URL; with a base URL a key may be missing, as a server of one's own needs none.
    Answers are not cached: `enable_cache=True` is taken, and logged.

    Raises TypeError for what it does not take.
    """

    def __init__(self, client_args: dict[str, Any] | None = None, **model_config: Unpack[OpenAIConfig]) -> None:
        self._sdk = package("openai", "openai")
        if "model_id" not in model_config:
            raise TypeError('OpenAIModel takes the name of a model: OpenAIModel(model_id="gpt-4o-mini").')
        self._client_args = dict(client_args or {})
        self._config: OpenAIConfig = {"model_id": ""}
        self._clients: PerLoop[AsyncOpenAI] = PerLoop(self._new_client, lambda made: made.close())
        self.update_config(**model_config)

    async def get_text(
        self,
        messages: Messages,
        system_prompt: str | None = None,
        tool_specs: list[ToolSpec] | None = None,
        tool_choice: ToolChoice | None = None,
        **kwargs: Any,
    ) -> ChatCompletionAssistantMessage:
        """What the model says. *kwargs* are parameters of this one request. Raises `toolcrib.agent.ModelError`."""
        system, turns = _turns.turns_of(messages)
        instructions = "\n\n".join(filter(None, (system_prompt, system)))
        specs = [_turns.our_spec(spec) for spec in tool_specs or ()]
        request = Request(turns, instructions, specs, _turns.our_choice(tool_choice))
        said = _turns.completion_of(await self._chat(kwargs).reply(request))
        return cast(ChatCompletionAssistantMessage, said)

    def update_config(self, **model_config: Any) -> None:
        """Change what the model was made with: `model_id`, `params`, ..."""
        if others := sorted(model_config.keys() - set(_CONFIG)):
            raise TypeError(
                f"OpenAIModel takes no '{others[0]}'. The request's own parameters belong into params={{...}}, those "
                f"of the client into client_args={{...}}. It takes: {', '.join(_CONFIG)}."
            )
        if model_config.get("enable_cache"):
            logger.warning("OpenAIModel does not cache: enable_cache has no effect")
        self._config = cast(OpenAIConfig, {**self._config, **model_config})

    def get_config(self) -> OpenAIConfig:
        """What the model was made with, without what is the client's."""
        return self._config

    @property
    def name(self) -> str:
        return f"openai:{self._config['model_id']}"

    async def reply(self, request: Request, /) -> Reply:
        if type(self).get_text is not OpenAIModel.get_text:
            return await super().reply(request)
        return await self._chat({}).reply(request)

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        of = super().stream if type(self).get_text is not OpenAIModel.get_text else self._chat({}).stream
        async for piece in of(request):
            yield piece

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.close()

    def _chat(self, more: dict[str, Any]) -> OpenAIChat:
        options = {**(self._config.get("params") or {}), **more}
        return OpenAIChat(self._config["model_id"], api_key=self._key(), options=options, client=self._clients.get)

    def _key(self) -> str | None:
        key = self._client_args.get("api_key") or os.environ.get("OPENAI_API_KEY")
        return key if isinstance(key, str) else None

    def _new_client(self) -> "AsyncOpenAI":
        given = dict(self._client_args)
        if not given.get("api_key") and self._key() is None:
            if not (given.get("base_url") or os.environ.get("OPENAI_BASE_URL")):
                raise Troubles(self.name).no_key("Set OPENAI_API_KEY, or pass client_args={'api_key': ...}.")
            given["api_key"] = "none"
        made: AsyncOpenAI = self._sdk.AsyncOpenAI(**given)
        return made
