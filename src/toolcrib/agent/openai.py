"""OpenAI's models, and those of every server with an API like OpenAI's, through OpenAI's own SDK.

    OpenAIChat("gpt-5-mini")
    OpenAIChat("qwen3", base_url="http://127.0.0.1:11434/v1")      # Ollama; also Mistral, Groq, vLLM, OpenRouter, ...
    OpenAIResponses("gpt-5-mini", options={"reasoning": {"effort": "low"}})

Errors of the SDK become ModelErrors here, without its frames: those show the key where a server repeats it.
"""

import inspect
import os
import re
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from ..formats import IncompleteReply, openai, openai_responses
from .model import ModelError, ModelProblem, Request
from .sdk import Clients, ProviderErrors, SdkModel, package, require_retries, retry_after, server_id

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# An answer that has begun has its status; what goes wrong after that has a code.
_PROBLEMS: Mapping[str, ModelProblem] = {
    "cut": "unavailable",
    "server_error": "unavailable",
    "rate_limit_exceeded": "limited",
    "insufficient_quota": "limited",
    "invalid_api_key": "unauthorized",
    "invalid_prompt": "refused",
    "invalid_request_error": "refused",
}
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_DONE_LENGTH = 16
_PLACEHOLDER_KEY = "none"


class _OpenAI(SdkModel):
    """What OpenAI's two APIs have in common. Both classes implement `toolcrib.agent.Model`.

    Without *api_key* and *base_url* the SDK takes OPENAI_API_KEY and OPENAI_BASE_URL; with *base_url* the key may be
    missing, as your own server needs none. *options* are more parameters of the request, as OpenAI or the other server
    names them (`{"temperature": 0}`); one that is None is not sent. *timeout_s* is for one request, *max_retries* are
    the SDK's own for connection errors, limits and 5xx. *client* replaces all of these: a client, which its owner
    closes, or a function that makes one for each event loop.
    """

    _streaming: ClassVar[Mapping[str, Any]]

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
        client: "AsyncOpenAI | Callable[[], AsyncOpenAI] | None" = None,
    ) -> None:
        self._sdk = package("openai", "openai")
        self._model = model
        self._options = dict(options or {})
        self._settings: Mapping[str, Any] = {
            "api_key": api_key or os.environ.get("OPENAI_API_KEY") or (_PLACEHOLDER_KEY if base_url else None),
            "base_url": base_url,
            "timeout": timeout_s,
            "max_retries": require_retries(max_retries),
        }
        self._clients: Clients[AsyncOpenAI] = Clients(client, self._new_client, lambda made: made.close())
        self._troubles = ProviderErrors(self.name, (api_key, os.environ.get("OPENAI_API_KEY")))

    def _parameters(self, request: Request) -> dict[str, Any]:
        return {"model": self._model, **super()._parameters(request), **self._options}

    def _server(self) -> str:
        return server_id(self._client().base_url)

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        try:
            return await _send(self._create(self._client()), parameters)
        except self._sdk.APIError as error:
            return self._failed_call(error)

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        try:
            async with await _send(self._create(self._client()), {**self._streaming, **parameters}) as chunks:
                ends = _watch_end(chunks.response)
                async for chunk in chunks:
                    yield chunk
                if ends:
                    yield "[DONE]"
        except self._sdk.APIError as error:
            yield self._failed_call(error)

    def _failed_call(self, error: Any) -> dict[str, Any]:
        """Return Groq's error for a call that its model wrote wrong, for the format. Raises any other *error*."""
        if error.code != "tool_use_failed" or not isinstance(error.body, Mapping):
            raise error
        fields = {name: self._troubles.redact(error.body.get(name, "")) for name in ("message", "failed_generation")}
        return {"error": {"code": error.code, **fields}}

    def _client(self) -> "AsyncOpenAI":
        client = self._clients.get()
        self._troubles.add_secrets(client.api_key)
        return client

    @abstractmethod
    def _create(self, client: "AsyncOpenAI") -> Callable[..., Any]: ...

    def _new_client(self) -> "AsyncOpenAI":
        if self._settings["api_key"] is None:
            raise self._troubles.missing_key("Set OPENAI_API_KEY.", in_program="Or pass api_key.")
        new: AsyncOpenAI = self._sdk.AsyncOpenAI(**self._settings)
        return new

    @contextmanager
    def _errors(self) -> Generator[None]:
        base = self._client().base_url.copy_with(userinfo=b"", query=None)
        try:
            yield
        except self._sdk.NotFoundError as error:
            message = f"{_message(error)} (no such model, or not at base_url {base})"
            raise self._troubles.from_status(404, message) from None
        except self._sdk.APIStatusError as error:
            after_s = retry_after(error.response.headers)
            raise self._troubles.from_status(error.status_code, _message(error), retry_after_s=after_s) from None
        except self._sdk.APIConnectionError as error:
            raise self._troubles.no_connection(f"{error.message} (base_url {base})") from None
        except (self._sdk.APIError, IncompleteReply) as error:
            raise self._broken_off(error) from None
        except (self._sdk.OpenAIError, ValueError, OSError) as error:
            raise self._troubles.bad_answer(f"{error} (base_url {base})") from None

    def _broken_off(self, error: Any) -> ModelError:
        code = str(error.code or getattr(error, "type", ""))
        if code.isdecimal():  # some gateways use statuses as codes
            return self._troubles.from_status(int(code), _message(error))
        if _PROBLEMS.get(code) == "unavailable":
            return self._troubles.no_connection(_message(error))
        return self._troubles.from_status(200, f"{_message(error)} ({code})", problem=_PROBLEMS.get(code, "failed"))


class OpenAIChat(_OpenAI):
    __doc__ = f"A model behind Chat Completions, OpenAI's or another server's.\n{_OpenAI.__doc__}"

    _provider: ClassVar[str] = "openai"
    _format: ClassVar[Any] = openai
    # Without this a stream has no count of its tokens.
    _streaming: ClassVar[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}

    def _create(self, client: "AsyncOpenAI") -> Callable[..., Any]:
        return client.chat.completions.create


class OpenAIResponses(_OpenAI):
    __doc__ = f"A model behind OpenAI's Responses.\n{_OpenAI.__doc__}"

    _provider: ClassVar[str] = "responses"
    _format: ClassVar[Any] = openai_responses
    _streaming: ClassVar[Mapping[str, Any]] = {"stream": True}

    def _create(self, client: "AsyncOpenAI") -> Callable[..., Any]:
        return client.responses.create


def _send(create: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """Return what *create* returns for *parameters*; those that this SDK does not know go into the body as they are."""
    parameter_names = inspect.signature(create).parameters
    arguments = {name: value for name, value in parameters.items() if value is not None}
    body = {name: arguments.pop(name) for name in [*arguments] if name not in parameter_names}
    if body:
        arguments["extra_body"] = {**body, **arguments.get("extra_body", {})}
    return create(**arguments)


def _watch_end(response: Any) -> list[bytes]:
    """Return a list that gets a value when the stream of *response* ends as such: the SDK reads "[DONE]" and does not
    tell.
    """
    ends: list[bytes] = []
    read = response.aiter_bytes

    async def watched(*args: Any, **named: Any) -> AsyncGenerator[bytes]:
        tail = b"\n"
        async for piece in read(*args, **named):
            tail += piece
            if _DONE.search(tail):
                ends.append(tail)
            tail = tail[-_DONE_LENGTH:]
            yield piece

    response.aiter_bytes = watched
    return ends


def _message(error: Any) -> str:
    """Return the provider's own message in an error, without the SDK's text around it."""
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        # OpenAI has `message`; servers made with FastAPI have `detail`.
        body = body.get("message") or body.get("detail")
    return body if isinstance(body, str) and body else str(error)
