"""Google's Gemini models, through Google's own SDK (google-genai).

GeminiModel("gemini-3-flash")
"""

import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from ..core import SetupError
from ..formats import Reply, Written
from ..formats import gemini as form
from ..formats.answers import BrokenOff
from .model import ModelError, ModelProblem, Request
from .sdk import PerLoop, Troubles, package, reading, require_retries, retry_after

if TYPE_CHECKING:
    from google.genai import Client


class GeminiModel:
    """One model of Google's. It implements `toolcrib.agent.Model`.

    Without *api_key* the SDK takes GOOGLE_API_KEY or GEMINI_API_KEY, or its own settings for Google Cloud. *options*
    are more of the request's `config`, as the SDK names it: `{"temperature": 0}`. *timeout_s* is for one request,
    *max_retries* are the SDK's own for lines that break, limits and 5xx. *client* is used in place of all that: a
    client, which stays its owner's to close, or what makes one for each event loop.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
        client: "Client | Callable[[], Client] | None" = None,
    ) -> None:
        self._sdk = package("google.genai", "gemini")
        self._model = model
        self._options = dict(options or {})
        try:
            self._sdk.types.GenerateContentConfig.model_validate(self._options)
        except ValueError as error:
            problem = next(iter(getattr(error, "errors", list)()), {"loc": (), "msg": str(error)})
            at = ".".join(map(str, problem["loc"]))
            raise SetupError(f"Gemini's config does not take these options: '{at}': {problem['msg']}.") from None
        self._api_key = api_key
        self._http = {
            "timeout": int(timeout_s * 1000),
            "retry_options": {"attempts": 1 + require_retries(max_retries)},
            **({"base_url": base_url} if base_url else {}),
        }
        self._clients: PerLoop[Client] = PerLoop.over(client, self._new, lambda made: made.aio.aclose())
        keys = (os.environ.get("GOOGLE_API_KEY"), os.environ.get("GEMINI_API_KEY"))
        self._troubles = Troubles(self.name, (api_key, *keys))

    @property
    def name(self) -> str:
        return f"gemini:{self._model}"

    def __repr__(self) -> str:
        return f"<GeminiModel {self._model}>"

    async def reply(self, request: Request, /) -> Reply:
        asked = self._request(request)
        with self._explained():
            models = self._models()
            with reading():
                answer = await models.generate_content(**asked)
            return form.reply(answer, request.specs)

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        asked, stream = self._request(request), form.Stream(request.specs)
        with self._explained():
            async with aclosing(self._chunks(asked)) as chunks:
                async for chunk in chunks:
                    for written in stream.add(chunk):
                        yield written
            yield stream.reply()

    async def close(self) -> None:
        """Close the connections of the running event loop, unless the client was handed in."""
        await self._clients.close()

    async def _chunks(self, asked: Mapping[str, Any]) -> AsyncGenerator[Any]:
        models = self._models()
        with reading():
            async with aclosing(await models.generate_content_stream(**asked)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _models(self) -> Any:
        client = self._clients.get()
        # The SDK does not show the key of a client; where it is no longer there, the settings are still known.
        self._troubles.know(getattr(getattr(client, "_api_client", None), "api_key", None))
        return client.aio.models

    def _new(self) -> "Client":
        try:
            return cast("Client", self._sdk.Client(api_key=self._api_key, http_options=self._http))
        except ValueError as error:
            raise self._troubles.no_key(f"Set GEMINI_API_KEY, or pass api_key. ({error})") from None

    def _request(self, request: Request) -> dict[str, Any]:
        said = form.conversation(request.turns, request.specs, instructions=request.instructions)
        content = self._sdk.types.Content
        # By JSON: from a dictionary the SDK would take base64 for the bytes themselves.
        contents = [content.model_validate_json(json.dumps(one)) for one in said.pop("contents")]
        if request.specs:
            said["tools"] = form.tools(request.specs)
            said |= form.tool_choice(request.choice, request.specs, parallel=request.parallel)
        return {"model": self._model, "contents": contents, "config": {**said, **self._options}}

    @contextmanager
    def _explained(self) -> Generator[None]:
        import httpx2  # the SDK brings it, and lets its errors through

        try:
            yield
        except self._sdk.errors.APIError as error:
            raise self._refused(error) from None
        except (httpx2.HTTPError, BrokenOff) as error:
            raise self._troubles.broken_line(error) from None
        except ValueError as error:
            raise self._troubles.broken_answer(error) from None

    def _refused(self, error: Any) -> ModelError:
        words = str(error.message or error.status or error)
        # Google says of a wrong key that the request is wrong.
        problem: ModelProblem | None = "unauthorized" if "API_KEY_INVALID" in str(error.details) else None
        headers = getattr(error.response, "headers", None) or {}
        pause = re.search(r"'retryDelay': '(\d+(?:\.\d+)?)s'", str(error.details))
        after_s = float(pause[1]) if pause else retry_after(headers)
        return self._troubles.status(int(error.code or 0), words, problem=problem, retry_after_s=after_s)
