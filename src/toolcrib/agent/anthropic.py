"""Models of Anthropic, and of servers with its Messages API, through Anthropic's own SDK.

AnthropicModel("claude-sonnet-5")
"""

import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..formats import IncompleteReply
from ..formats import anthropic as provider_format
from .model import ModelProblem, Request
from .sdk import Clients, ProviderErrors, SdkModel, package, require_retries, retry_after, server_id

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# A stream reports an error under status 200, so its type is what counts.
_PROBLEMS: Mapping[str, ModelProblem] = {
    "authentication_error": "unauthorized",
    "permission_error": "unauthorized",
    "rate_limit_error": "limited",
    "invalid_request_error": "refused",
    "not_found_error": "refused",
    "request_too_large": "refused",
    "overloaded_error": "unavailable",
    "api_error": "unavailable",
    "timeout_error": "unavailable",
}


class AnthropicModel(SdkModel):
    """A model of Anthropic's. It implements `toolcrib.agent.Model`.

    Without *api_key* the SDK finds the credentials where it always does (ANTHROPIC_API_KEY first). *base_url* is any
    server with the Messages API. *max_tokens* limits one reply, thinking included. *options* are more parameters of the
    request, as Anthropic names them: `{"temperature": 0}`. *timeout_s* is for one request, *max_retries* are the SDK's
    own for connection errors, limits and 5xx. *client* replaces all of these: a client, which its owner closes, or a
    function that makes one for each event loop.
    """

    _provider: ClassVar[str] = "anthropic"
    _format: ClassVar[Any] = provider_format

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = 16_384,
        timeout_s: float = 600,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
        client: "AsyncAnthropic | Callable[[], AsyncAnthropic] | None" = None,
    ) -> None:
        self._sdk = sdk = package("anthropic", "anthropic")
        self._model = model
        require_retries(max_retries)
        # In the body: which parameters the SDK's method knows changes with its releases.
        self._fixed = {"model": model, "max_tokens": max_tokens, "extra_body": dict(options or {})}

        def new_client() -> "AsyncAnthropic":
            timeout = sdk.Timeout(timeout_s, connect=min(timeout_s, 10))
            new = sdk.AsyncAnthropic(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=max_retries)
            return cast("AsyncAnthropic", new)

        self._clients: Clients[AsyncAnthropic] = Clients(client, new_client, lambda made: made.close())
        keys = (os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN"))
        self._troubles = ProviderErrors(self.name, (api_key, *keys))

    def _parameters(self, request: Request) -> dict[str, Any]:
        return {**super()._parameters(request), **self._fixed}

    def _server(self) -> str:
        return server_id(getattr(self._client(), "base_url", ""))

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        return await self._client().messages.create(**parameters)

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        async with await self._client().messages.create(**parameters, stream=True) as events:
            async for event in events:
                yield event

    def _client(self) -> "AsyncAnthropic":
        client = self._clients.get()
        self._troubles.add_secrets(*(getattr(client, name, None) for name in ("api_key", "auth_token")))
        return client

    @contextmanager
    def _errors(self) -> Generator[None]:
        import httpx2  # the SDK depends on it; a connection that breaks in the middle of a stream raises its errors

        try:
            yield
        except self._sdk.APIStatusError as error:
            message, headers = error.api_message or str(error), error.response.headers
            raise self._troubles.from_status(
                error.status_code, message, problem=_PROBLEMS.get(error.type), retry_after_s=retry_after(headers)
            ) from None
        except (self._sdk.APIConnectionError, httpx2.HTTPError, IncompleteReply) as error:
            raise self._troubles.no_connection(error) from None
        except (self._sdk.CredentialsError, TypeError) as error:
            # Without any credentials the SDK raises a TypeError, which only its text identifies.
            if isinstance(error, TypeError) and "authentication" not in str(error):
                raise
            raise self._troubles.missing_key("Set ANTHROPIC_API_KEY.", in_program="Or pass api_key.") from None
        except (self._sdk.AnthropicError, ValueError) as error:
            raise self._troubles.bad_answer(error) from None
