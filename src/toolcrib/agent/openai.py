"""OpenAI's models, and those of every server with an API like OpenAI's, through OpenAI's own SDK.

OpenAIChat("gpt-5-mini")
OpenAIChat("qwen3", base_url="http://127.0.0.1:11434/v1")      # Ollama; also Mistral, Groq, vLLM, OpenRouter, ...
OpenAIResponses("gpt-5-mini", options={"reasoning": {"effort": "low"}})
"""

import inspect
import os
import re
from collections.abc import AsyncGenerator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from ..core import ToolcribError
from ..formats import IncompleteReply, openai, openai_responses
from .model import ModelProblem, Request
from .sdk import SdkModel, retry_after

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# An answer that has begun has its status; what goes wrong after that has a code.
_PROBLEMS: Mapping[str, ModelProblem] = {
    **dict.fromkeys(("cut", "server_error"), "unavailable"),
    **dict.fromkeys(("rate_limit_exceeded", "insufficient_quota"), "limited"),
    "invalid_api_key": "unauthorized",
    **dict.fromkeys(("invalid_prompt", "invalid_request_error"), "refused"),
}
_DONE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_PLACEHOLDER_KEY = "none"


class _OpenAI(SdkModel["AsyncOpenAI"]):
    """What OpenAI's two APIs have in common. Both classes implement `toolcrib.agent.Model`."""

    _package = "openai"
    _key_variables = ("OPENAI_API_KEY",)
    _method: ClassVar[str]
    _streaming: ClassVar[Mapping[str, Any]]

    def _new_client(self) -> "AsyncOpenAI":
        key = self._api_key or os.environ.get("OPENAI_API_KEY") or (_PLACEHOLDER_KEY if self._base_url else None)
        if key is None:
            raise self._missing_key("Set OPENAI_API_KEY.", in_program="Or pass api_key.")
        settings = {"base_url": self._base_url, "timeout": self._timeout_s, "max_retries": self._max_retries}
        new: AsyncOpenAI = self._sdk.AsyncOpenAI(api_key=key, **settings)
        return new

    async def _close_client(self, client: "AsyncOpenAI") -> None:
        await client.close()

    def _parameters(self, request: Request) -> dict[str, Any]:
        return {"model": self._model, **super()._parameters(request), **self._options}

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        try:
            return await self._send(parameters)
        except self._sdk.APIError as error:
            return self._failed_call(error)

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        try:
            async with await self._send({**self._streaming, **parameters}) as chunks:
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
        fields = {
            name: self._redactor.redact(str(error.body.get(name, ""))) for name in ("message", "failed_generation")
        }
        return {"error": {"code": error.code, **fields}}

    def _send(self, parameters: Mapping[str, Any]) -> Any:
        """Return the answer to *parameters*; those that this SDK does not know go into the body as they are."""
        create = attrgetter(self._method)(self._client())
        parameter_names = inspect.signature(create).parameters
        arguments = {name: value for name, value in parameters.items() if value is not None}
        body = {name: arguments.pop(name) for name in [*arguments] if name not in parameter_names}
        if body:
            arguments["extra_body"] = {**body, **arguments.get("extra_body", {})}
        return create(**arguments)

    def _to_error(self, error: Any) -> ToolcribError | None:
        sdk = self._sdk
        if not isinstance(error, sdk.OpenAIError | ValueError | OSError):
            return None
        address = f"base_url {self._client().base_url.copy_with(userinfo=b'', query=None)}"
        match error:
            case sdk.NotFoundError():
                return self._status_error(404, f"{_message(error)} (no such model, or not at {address})")
            case sdk.APIStatusError():
                after_s = retry_after(error.response.headers)
                return self._status_error(error.status_code, _message(error), retry_after_s=after_s)
            case sdk.APIConnectionError():
                return self._no_connection(f"{error.message} ({address})")
            case sdk.APIError() | IncompleteReply():
                return self._broken_off(error)
            case _:
                return self._bad_answer(f"{error} ({address})")

    def _broken_off(self, error: Any) -> ToolcribError:
        code = str(error.code or getattr(error, "type", ""))
        if code.isdecimal():  # some gateways use statuses as codes
            return self._status_error(int(code), _message(error))
        if _PROBLEMS.get(code) == "unavailable":
            return self._no_connection(_message(error))
        return self._status_error(200, f"{_message(error)} ({code})", _PROBLEMS.get(code, "failed"))


class OpenAIChat(_OpenAI):
    """A model behind Chat Completions, OpenAI's or another server's. It takes what `OpenAIResponses` takes."""

    _provider: ClassVar[str] = "openai"
    _format: ClassVar[Any] = openai
    # Without this a stream has no count of its tokens.
    _streaming: ClassVar[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}
    _method = "chat.completions.create"


class OpenAIResponses(_OpenAI):
    """A model behind OpenAI's Responses.

    Without *api_key* and *base_url* the SDK takes OPENAI_API_KEY and OPENAI_BASE_URL; with *base_url* the key may be
    missing. *options* are more parameters of the request, as the server names them (`{"temperature": 0}`); one that is
    None is not sent. *timeout_s* is for one request, *max_retries* are the SDK's own for connection errors, limits and
    5xx. *client* replaces all of these: a client, which its owner closes, or a function that makes one for each loop.
    """

    _provider: ClassVar[str] = "responses"
    _format: ClassVar[Any] = openai_responses
    _streaming: ClassVar[Mapping[str, Any]] = {"stream": True}
    _method = "responses.create"


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
            tail = tail[-len(b"\ndata: [DONE]") :]
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
