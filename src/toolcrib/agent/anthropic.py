"""Models of Anthropic, and of servers with its Messages API, through Anthropic's own SDK.

AnthropicModel("claude-sonnet-5")
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..core import ToolcribError
from ..formats import anthropic as provider_format
from .model import ModelProblem, Request
from .sdk import SdkModel, retry_after

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# A stream reports an error under status 200, so its type is what counts.
_PROBLEMS: Mapping[str, ModelProblem] = {
    **dict.fromkeys(("authentication_error", "permission_error"), "unauthorized"),
    "rate_limit_error": "limited",
    **dict.fromkeys(("invalid_request_error", "not_found_error", "request_too_large"), "refused"),
    **dict.fromkeys(("overloaded_error", "api_error", "timeout_error"), "unavailable"),
}


class AnthropicModel(SdkModel["AsyncAnthropic"]):
    """A model of Anthropic's. It implements `toolcrib.agent.Model`.

    Without *api_key* the SDK finds the credentials where it always does (ANTHROPIC_API_KEY first). *base_url* is any
    server with the Messages API. *max_tokens* limits one reply, thinking included. *options* are more parameters of the
    request, as Anthropic names them: `{"temperature": 0}`. *timeout_s* is for one request, *max_retries* are the SDK's
    own for connection errors, limits and 5xx. *client* replaces all of these: a client, which its owner closes, or a
    function that makes one for each event loop.
    """

    _provider: ClassVar[str] = "anthropic"
    _format: ClassVar[Any] = provider_format
    _package = "anthropic"
    _key_variables = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
    _key_attributes = "api_key", "auth_token"

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
        super().__init__(
            model,
            api_key=api_key,
            base_url=base_url,
            timeout_s=timeout_s,
            max_retries=max_retries,
            options=options,
            client=client,
        )
        self._max_tokens = max_tokens

    def _new_client(self) -> "AsyncAnthropic":
        timeout = self._sdk.Timeout(self._timeout_s, connect=min(self._timeout_s, 10))
        new = self._sdk.AsyncAnthropic(
            api_key=self._api_key, base_url=self._base_url, timeout=timeout, max_retries=self._max_retries
        )
        return cast("AsyncAnthropic", new)

    async def _close_client(self, client: "AsyncAnthropic") -> None:
        await client.close()

    def _parameters(self, request: Request) -> dict[str, Any]:
        # The options are in the body: which parameters the SDK's method knows changes with its releases.
        fixed = {"model": self._model, "max_tokens": self._max_tokens, "extra_body": self._options}
        return {**super()._parameters(request), **fixed}

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        return await self._client().messages.create(**parameters)

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        async with await self._client().messages.create(**parameters, stream=True) as events:
            async for event in events:
                yield event

    def _to_error(self, error: Any) -> ToolcribError | None:
        import httpx2  # the SDK depends on it; a connection that breaks in the middle of a stream raises its errors

        sdk = self._sdk
        if isinstance(error, sdk.APIStatusError):
            message, after_s = error.api_message or str(error), retry_after(error.response.headers)
            return self._status_error(error.status_code, message, _PROBLEMS.get(error.type), after_s)
        if isinstance(error, sdk.APIConnectionError | httpx2.HTTPError):
            return self._no_connection(error)
        # Without any credentials the SDK raises a TypeError, which only its text identifies.
        if isinstance(error, sdk.CredentialsError) or (isinstance(error, TypeError) and "authentication" in str(error)):
            return self._missing_key("Set ANTHROPIC_API_KEY.", in_program="Or pass api_key.")
        return self._bad_answer(error) if isinstance(error, sdk.AnthropicError) else super()._to_error(error)
