"""Google's Gemini models, through Google's own SDK (google-genai).

GeminiModel("gemini-3-flash")
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, cast

from ..core import SetupError, ToolcribError
from ..formats import gemini as provider_format
from .model import ModelProblem, Request
from .sdk import SdkModel, reading, retry_after

if TYPE_CHECKING:
    from google.genai import Client


class GeminiModel(SdkModel["Client"]):
    """A model of Google's. It implements `toolcrib.agent.Model`.

    Without *api_key* the SDK takes GOOGLE_API_KEY or GEMINI_API_KEY, or its own settings for Google Cloud. *options*
    are more of the request's `config`, as the SDK names it: `{"temperature": 0}`. *timeout_s* is for one request,
    *max_retries* are the SDK's own for connection errors, limits and 5xx. *client* replaces all of these: a client,
    which its owner closes, or a function that makes one for each event loop.
    """

    _provider: ClassVar[str] = "gemini"
    _format: ClassVar[Any] = provider_format
    _package = "google.genai"
    _key_variables = "GOOGLE_API_KEY", "GEMINI_API_KEY"
    # The SDK does not show the key of a client; should it move, the keys of the settings are still known.
    _key_attributes = ("_api_client.api_key",)

    def _check_options(self) -> None:
        try:
            self._sdk.types.GenerateContentConfig.model_validate(self._options)
        except ValueError as error:
            problem = next(iter(getattr(error, "errors", list)()), {"loc": (), "msg": str(error)})
            at = ".".join(map(str, problem["loc"]))
            raise SetupError(f"These options are not valid in Gemini's config: '{at}': {problem['msg']}.") from None

    def _new_client(self) -> "Client":
        http = {
            "timeout": int(self._timeout_s * 1000),
            "retry_options": {"attempts": 1 + self._max_retries},
            **({"base_url": self._base_url} if self._base_url else {}),
        }
        try:
            return cast("Client", self._sdk.Client(api_key=self._api_key, http_options=http))
        except ValueError as error:
            note = f"Or pass api_key. ({error})"
            raise self._missing_key("Set GEMINI_API_KEY.", in_program=note) from None

    async def _close_client(self, client: "Client") -> None:
        await client.aio.aclose()

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        models = self._client().aio.models
        with reading():
            return await models.generate_content(**parameters)

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        models = self._client().aio.models
        with reading():
            stream: Any = await models.generate_content_stream(**parameters)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    yield chunk

    def _parameters(self, request: Request) -> dict[str, Any]:
        config = super()._parameters(request)
        content = self._sdk.types.Content
        # By JSON: from a dictionary the SDK would take base64 for the bytes themselves.
        contents = [content.model_validate_json(json.dumps(message)) for message in config.pop("contents")]
        return {"model": self._model, "contents": contents, "config": {**config, **self._options}}

    def _to_error(self, error: Any) -> ToolcribError | None:
        import httpx2  # the SDK depends on it, and passes its errors on

        if isinstance(error, httpx2.HTTPError):
            return self._no_connection(error)
        if not isinstance(error, self._sdk.errors.APIError):
            return super()._to_error(error)
        message, details = str(error.message or error.status or error), str(error.details)
        # Google reports a wrong key as a bad request.
        problem: ModelProblem | None = "unauthorized" if "API_KEY_INVALID" in details else None
        pause = re.search(r"'retryDelay': '(\d+(?:\.\d+)?)s'", details)
        after_s = float(pause[1]) if pause else retry_after(getattr(error.response, "headers", None) or {})
        return self._status_error(int(error.code or 0), message, problem, after_s)
