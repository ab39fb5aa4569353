"""OpenAI's models, and those of every server that speaks as OpenAI does, through OpenAI's own SDK.

    OpenAIChat("gpt-5-mini")
    OpenAIChat("qwen3", base_url="http://127.0.0.1:11434/v1")      # Ollama; also Mistral, Groq, vLLM, OpenRouter, ...
    OpenAIResponses("gpt-5-mini", options={"reasoning": {"effort": "low"}})

Errors of the SDK become ModelErrors here, without its frames: those show the key where a server repeats it.
"""

import inspect
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from .. import formats
from ..formats import Reply, Written
from ..formats.answers import BrokenOff
from .model import ModelError, ModelProblem, Request
from .sdk import PerLoop, Troubles, package, require_retries, retry_after

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
_NO_KEY = "none"


class _OpenAI:
    """What OpenAI's two interfaces have in common. Both implement `toolcrib.agent.Model`.

    Without *api_key* and *base_url* the SDK takes OPENAI_API_KEY and OPENAI_BASE_URL; with *base_url* a key may be
    missing, as a server of one's own needs none. *options* are more of the request's parameters, as OpenAI or the other
    server names them (`{"temperature": 0}`); one that is None is not sent. *timeout_s* is for one request,
    *max_retries* are the SDK's own for lines that break, limits and 5xx. *client* is used in place of all that: a
    client, which stays its owner's to close, or what makes one for each event loop.
    """

    _format: ClassVar[Any]
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
            "api_key": api_key or os.environ.get("OPENAI_API_KEY") or (_NO_KEY if base_url else None),
            "base_url": base_url,
            "timeout": timeout_s,
            "max_retries": require_retries(max_retries),
        }
        self._clients: PerLoop[AsyncOpenAI] = PerLoop.over(client, self._new, lambda made: made.close())
        self._troubles = Troubles(self.name, (api_key, os.environ.get("OPENAI_API_KEY")))

    @property
    @abstractmethod
    def name(self) -> str: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._model}>"

    async def reply(self, request: Request, /) -> Reply:
        asked = self._request(request)
        client = self._client()
        with self._explained(client):
            answer = await _sent(self._create(client), asked)
            replied: Reply = self._format.reply(answer, request.specs)
            return replied

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        asked = {**self._streaming, **self._request(request)}
        stream = self._format.Stream(request.specs)
        client = self._client()
        with self._explained(client):
            async with await _sent(self._create(client), asked) as pieces:
                async for piece in pieces:
                    for written in stream.add(piece):
                        yield written
            yield stream.reply()

    async def close(self) -> None:
        """Close the connections of the running event loop, unless the client was handed in."""
        await self._clients.close()

    def _request(self, request: Request) -> dict[str, Any]:
        said = self._format.conversation(request.turns, request.specs, instructions=request.instructions)
        if request.specs:
            said["tools"] = self._format.tools(request.specs)
            said |= self._format.tool_choice(request.choice, request.specs, parallel=request.parallel)
        return {"model": self._model, **said, **self._options}

    def _client(self) -> "AsyncOpenAI":
        client = self._clients.get()
        self._troubles.know(client.api_key)
        return client

    @abstractmethod
    def _create(self, client: "AsyncOpenAI") -> Callable[..., Any]: ...

    def _new(self) -> "AsyncOpenAI":
        if self._settings["api_key"] is None:
            raise self._troubles.no_key("Set OPENAI_API_KEY, or pass api_key.")
        made: AsyncOpenAI = self._sdk.AsyncOpenAI(**self._settings)
        return made

    @contextmanager
    def _explained(self, client: "AsyncOpenAI") -> Generator[None]:
        base = client.base_url.copy_with(userinfo=b"", query=None)
        try:
            yield
        except self._sdk.NotFoundError as error:
            raise self._troubles.status(404, f"{_words(error)} (no such model, or not at base_url {base})") from None
        except self._sdk.APIStatusError as error:
            after_s = retry_after(error.response.headers)
            raise self._troubles.status(error.status_code, _words(error), retry_after_s=after_s) from None
        except self._sdk.APIConnectionError as error:
            raise self._troubles.broken_line(f"{error.message} (base_url {base})") from None
        except (self._sdk.APIError, BrokenOff) as error:
            raise self._broken_off(error) from None
        except (self._sdk.OpenAIError, ValueError, OSError) as error:
            raise self._troubles.broken_answer(f"{error} (base_url {base})") from None

    def _broken_off(self, error: Any) -> ModelError:
        code = str(error.code or getattr(error, "type", ""))
        if code.isdecimal():  # some gateways have statuses for codes
            return self._troubles.status(int(code), _words(error))
        if _PROBLEMS.get(code) == "unavailable":
            return self._troubles.broken_line(_words(error))
        return self._troubles.status(200, f"{_words(error)} ({code})", problem=_PROBLEMS.get(code, "failed"))


class OpenAIChat(_OpenAI):
    __doc__ = f"A model behind Chat Completions, OpenAI's or anybody's.\n{_OpenAI.__doc__}"

    _format: ClassVar[Any] = formats.openai
    # Else a stream does not tell its tokens.
    _streaming: ClassVar[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}

    @property
    def name(self) -> str:
        return f"openai:{self._model}"

    def _create(self, client: "AsyncOpenAI") -> Callable[..., Any]:
        return client.chat.completions.create


class OpenAIResponses(_OpenAI):
    __doc__ = f"A model behind OpenAI's Responses.\n{_OpenAI.__doc__}"

    _format: ClassVar[Any] = formats.openai_responses
    _streaming: ClassVar[Mapping[str, Any]] = {"stream": True}

    @property
    def name(self) -> str:
        return f"responses:{self._model}"

    def _create(self, client: "AsyncOpenAI") -> Callable[..., Any]:
        return client.responses.create


def _sent(create: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
    """What *create* gives for *asked*: in the body as they are go those parameters that this SDK does not know."""
    known = inspect.signature(create).parameters
    said = {name: value for name, value in asked.items() if value is not None}
    others = {name: said.pop(name) for name in [*said] if name not in known}
    if others:
        said["extra_body"] = {**others, **said.get("extra_body", {})}
    return create(**said)


def _words(error: Any) -> str:
    """What the provider says in its error, without the SDK's frame around it."""
    body = getattr(error, "body", None)
    if isinstance(body, Mapping):
        # OpenAI says `message`; servers made with FastAPI say `detail`.
        body = body.get("message") or body.get("detail")
    return body if isinstance(body, str) and body else str(error)
