"""Google's Gemini models, through Google's own SDK (google-genai).

GeminiModel("gemini-3-flash")
"""

import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..core import SetupError
from ..formats import IncompleteReply
from ..formats import gemini as provider_format
from .model import ModelError, ModelProblem, Request
from .sdk import Clients, ProviderErrors, SdkModel, package, reading, require_retries, retry_after

if TYPE_CHECKING:
    from google.genai import Client


class GeminiModel(SdkModel):
    """A model of Google's. It implements `toolcrib.agent.Model`.

    Without *api_key* the SDK takes GOOGLE_API_KEY or GEMINI_API_KEY, or its own settings for Google Cloud. *options*
    are more of the request's `config`, as the SDK names it: `{"temperature": 0}`. *timeout_s* is for one request,
    *max_retries* are the SDK's own for connection errors, limits and 5xx. *client* replaces all of these: a client,
    which its owner closes, or a function that makes one for each event loop.
    """

    _provider: ClassVar[str] = "gemini"
    _format: ClassVar[Any] = provider_format

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
            raise SetupError(f"These options are not valid in Gemini's config: '{at}': {problem['msg']}.") from None
        self._api_key = api_key
        self._http = {
            "timeout": int(timeout_s * 1000),
            "retry_options": {"attempts": 1 + require_retries(max_retries)},
            **({"base_url": base_url} if base_url else {}),
        }
        self._clients: Clients[Client] = Clients(client, self._new_client, lambda made: made.aio.aclose())
        keys = (os.environ.get("GOOGLE_API_KEY"), os.environ.get("GEMINI_API_KEY"))
        self._troubles = ProviderErrors(self.name, (api_key, *keys))

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        models = self._models()
        with reading():
            return await models.generate_content(**parameters)

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        models = self._models()
        with reading():
            async with aclosing(await models.generate_content_stream(**parameters)) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _models(self) -> Any:
        client = self._clients.get()
        # The SDK does not show the key of a client; should it move, the keys of the settings are still known.
        self._troubles.add_secrets(getattr(getattr(client, "_api_client", None), "api_key", None))
        return client.aio.models

    def _new_client(self) -> "Client":
        try:
            return cast("Client", self._sdk.Client(api_key=self._api_key, http_options=self._http))
        except ValueError as error:
            note = f"Or pass api_key. ({error})"
            raise self._troubles.missing_key("Set GEMINI_API_KEY.", in_program=note) from None

    def _parameters(self, request: Request) -> dict[str, Any]:
        config = super()._parameters(request)
        content = self._sdk.types.Content
        # By JSON: from a dictionary the SDK would take base64 for the bytes themselves.
        contents = [content.model_validate_json(json.dumps(message)) for message in config.pop("contents")]
        return {"model": self._model, "contents": contents, "config": {**config, **self._options}}

    @contextmanager
    def _errors(self) -> Generator[None]:
        import httpx2  # the SDK depends on it, and passes its errors on

        try:
            yield
        except self._sdk.errors.APIError as error:
            raise self._refused(error) from None
        except (httpx2.HTTPError, IncompleteReply) as error:
            raise self._troubles.no_connection(error) from None
        except ValueError as error:
            raise self._troubles.bad_answer(error) from None

    def _refused(self, error: Any) -> ModelError:
        message = str(error.message or error.status or error)
        # Google reports a wrong key as a bad request.
        problem: ModelProblem | None = "unauthorized" if "API_KEY_INVALID" in str(error.details) else None
        headers = getattr(error.response, "headers", None) or {}
        pause = re.search(r"'retryDelay': '(\d+(?:\.\d+)?)s'", str(error.details))
        after_s = float(pause[1]) if pause else retry_after(headers)
        return self._troubles.from_status(int(error.code or 0), message, problem=problem, retry_after_s=after_s)
