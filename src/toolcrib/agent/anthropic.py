"""Models of Anthropic, and of whoever speaks its Messages format, through Anthropic's own SDK.

AnthropicModel("claude-sonnet-5")
"""

import os
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from ..formats import Reply, Written
from ..formats import anthropic as form
from ..formats.answers import BrokenOff
from .model import ModelProblem, Request
from .sdk import PerLoop, Troubles, package, require_retries, retry_after

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

# A stream tells of an error under status 200, so there its type says what it is.
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


class AnthropicModel:
    """One model of Anthropic's. It implements `toolcrib.agent.Model`.

    Without *api_key* the SDK finds the credentials where it always does (ANTHROPIC_API_KEY first). *base_url* is any
    server that speaks Messages. *max_tokens* bounds one reply, thinking included. *options* are more of the request's
    parameters, as Anthropic names them: `{"temperature": 0}`. *timeout_s* is for one request, *max_retries* are the
    SDK's own for lines that break, limits and 5xx. *client* is used in place of all that: a client, which stays its
    owner's to close, or what makes one for each event loop.
    """

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
        # In the body as they are: which parameters the SDK's method knows changes with its releases.
        self._asked = {"model": model, "max_tokens": max_tokens, "extra_body": dict(options or {})}

        def ours() -> "AsyncAnthropic":
            timeout = sdk.Timeout(timeout_s, connect=min(timeout_s, 10))
            made = sdk.AsyncAnthropic(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=max_retries)
            return cast("AsyncAnthropic", made)

        self._clients: PerLoop[AsyncAnthropic] = PerLoop.over(client, ours, lambda made: made.close())
        keys = (os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN"))
        self._troubles = Troubles(self.name, (api_key, *keys))

    @property
    def name(self) -> str:
        return f"anthropic:{self._model}"

    def __repr__(self) -> str:
        return f"<AnthropicModel {self._model}>"

    async def reply(self, request: Request, /) -> Reply:
        asked = self._request(request)
        with self._explained():
            return form.reply(await self._client().messages.create(**asked), request.specs)

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        asked, stream = self._request(request), form.Stream(request.specs)
        with self._explained():
            events = await self._client().messages.create(**asked, stream=True)
            async with events:
                async for event in events:
                    for written in stream.add(event):
                        yield written
            yield stream.reply()

    async def close(self) -> None:
        """Close the connections of the running event loop, unless the client was handed in."""
        await self._clients.close()

    def _client(self) -> "AsyncAnthropic":
        client = self._clients.get()
        self._troubles.know(*(getattr(client, name, None) for name in ("api_key", "auth_token")))
        return client

    def _request(self, request: Request) -> dict[str, Any]:
        said = form.conversation(request.turns, request.specs, instructions=request.instructions)
        if request.specs:
            said["tools"] = form.tools(request.specs)
            said |= form.tool_choice(request.choice, request.specs, parallel=request.parallel)
        return {**said, **self._asked}

    @contextmanager
    def _explained(self) -> Generator[None]:
        import httpx2  # the SDK brings it; a line that breaks in the middle of a stream shows as its errors

        try:
            yield
        except self._sdk.APIStatusError as error:
            words, headers = error.api_message or str(error), error.response.headers
            raise self._troubles.status(
                error.status_code, words, problem=_PROBLEMS.get(error.type), retry_after_s=retry_after(headers)
            ) from None
        except (self._sdk.APIConnectionError, httpx2.HTTPError, BrokenOff) as error:
            raise self._troubles.broken_line(error) from None
        except (self._sdk.CredentialsError, TypeError) as error:
            # Without any credentials the SDK raises a TypeError, of which only the words say so.
            if isinstance(error, TypeError) and "authentication" not in str(error):
                raise
            raise self._troubles.no_key("Set ANTHROPIC_API_KEY, or pass api_key.") from None
        except (self._sdk.AnthropicError, ValueError) as error:
            raise self._troubles.broken_answer(error) from None
