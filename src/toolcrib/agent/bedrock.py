"""Models on Amazon Bedrock, through AWS's own SDK (boto3) and its Converse API.

BedrockModel("eu.anthropic.claude-sonnet-5-v1:0", region="eu-central-1")
"""

import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

from ..core import SetupError, ToolcribError
from ..formats import IncompleteReply
from ..formats import bedrock as provider_format
from .model import ModelProblem, Request
from .sdk import SdkModel, package, reading, retry_after

# For errors whose status is ambiguous, or that have none because they come inside a stream.
_PROBLEMS: Mapping[str, ModelProblem] = {
    **dict.fromkeys(("ThrottlingException", "ServiceQuotaExceededException"), "limited"),
    "ModelNotReadyException": "unavailable",
    "ModelTimeoutException": "unavailable",
    "ModelErrorException": "unavailable",
    "ModelStreamErrorException": "unavailable",
    "InternalServerException": "unavailable",
    "ServiceUnavailableException": "unavailable",
    "ValidationException": "refused",
    "ExpiredTokenException": "unauthorized",
    "UnrecognizedClientException": "unauthorized",
    "InvalidSignatureException": "unauthorized",
}
_MODULES = ("botocore.eventstream", "botocore.exceptions", "botocore.parsers", "urllib3.exceptions")


class BedrockModel(SdkModel[Any]):
    """A model on Bedrock. It implements `toolcrib.agent.Model`.

    boto3 finds the credentials, and the *region* where none is passed; *profile* is a profile of AWS's configuration.
    *base_url* is another endpoint. *options* are more of Converse's parameters:
    `{"inferenceConfig": {"maxTokens": 500}}`. *timeout_s* is the longest silence, *max_retries* are boto3's own for
    connection errors, limits and 5xx. *client*, a `bedrock-runtime` client of boto3's, replaces all of these; its owner
    closes it.

    boto3 blocks, so it runs in a thread. A request that is cancelled runs on there until its next event or its answer,
    which is dropped. Converse has neither "no tools" nor "one call at a time":
    for the choice "none" the tools are left out, and earlier calls and results are sent as text.
    """

    _provider: ClassVar[str] = "bedrock"
    _format: ClassVar[Any] = provider_format
    _package = "boto3"
    _key_variables = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        profile: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
        client: Any = None,
    ) -> None:
        super().__init__(
            model, base_url=base_url, timeout_s=timeout_s, max_retries=max_retries, options=options, client=client
        )
        self._session = {"region_name": region, "profile_name": profile}
        # boto3's client is for all threads, so for all event loops.
        self._shared_client = client
        self._lock = threading.Lock()

    async def close(self) -> None:
        """Close the connections, unless the client was passed in; the next request makes others."""
        with self._lock:
            if self._owns_clients and self._shared_client is not None:
                self._shared_client.close()
                self._shared_client = None

    def _client(self) -> Any:
        """Return the client. Made in the thread of the first request, as it reads files and may fetch credentials."""
        with self._lock:
            if self._shared_client is None:
                self._shared_client = self._new_client()
            return self._shared_client

    def _new_client(self) -> Any:
        session = self._sdk.session.Session(**self._session)
        if (credentials := session.get_credentials()) is not None:
            keys = credentials.get_frozen_credentials()
            self._add_secrets(keys.access_key, keys.secret_key, keys.token)
        config = package("botocore.config").Config(
            read_timeout=self._timeout_s,
            connect_timeout=min(self._timeout_s, 10),
            retries={"total_max_attempts": 1 + self._max_retries, "mode": "standard"},
        )
        return session.client("bedrock-runtime", endpoint_url=self._base_url, config=config)

    async def _close_client(self, client: Any) -> None:
        client.close()

    def _server(self) -> str:
        return ""

    def _parameters(self, request: Request) -> dict[str, Any]:
        form = self._format
        parameters = form.conversation(request.turns, request.specs, instructions=request.instructions)
        if request.specs and request.choice != "none":
            choice = form.tool_choice(request.choice, request.specs, parallel=request.parallel)
            parameters["toolConfig"] = {"tools": form.tools(request.specs), **choice}
        else:
            parameters["messages"] = form.without_tools(parameters["messages"])
        return {"modelId": self._model, **parameters, **self._options}

    async def _answer(self, parameters: Mapping[str, Any]) -> Any:
        def converse() -> Any:
            client = self._client()
            with reading():
                return client.converse(**parameters)

        answer = await self._in_thread(converse)
        if "output" not in answer:
            # botocore neither counts the bytes of an answer, nor reports that they are not JSON.
            raise IncompleteReply("the answer has no output")
        return answer

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        def converse() -> Iterator[Any]:
            client = self._client()
            with reading(), closing(client.converse_stream(**parameters)["stream"]) as events:
                yield from events

        # Each event is awaited in a thread. Where that wait is cancelled, the thread has the last reference to the
        # generator, which then ends there: so it closes the stream.
        events = converse()
        while (event := await self._in_thread(partial(next, events, None))) is not None:
            yield event

    def _to_error(self, error: Any) -> ToolcribError | None:
        eventstream, exceptions, parsers, urllib3 = map(package, _MODULES)
        match error:
            case exceptions.ClientError():
                return self._client_error(error)
            case exceptions.NoCredentialsError() | exceptions.PartialCredentialsError() | exceptions.NoAuthTokenError():
                remedy = f"{error}. Set AWS's credentials, or AWS_PROFILE."
                return self._missing_key(remedy, in_program="Or pass profile.")
            case exceptions.NoRegionError():
                missing = SetupError(f"Model '{self.name}' needs a region: set AWS_REGION.")
                missing.add_note("Or pass region.")
                return missing
            case exceptions.ParamValidationError() | exceptions.ProfileNotFound():
                return self._status_error(400, str(error), "refused")
            case exceptions.HTTPClientError() | exceptions.ConnectionError():
                return self._no_connection(error)
            case parsers.ResponseParserError() | urllib3.HTTPError():
                return self._no_connection(error)
            case exceptions.BotoCoreError() | eventstream.ParserError():
                return self._bad_answer(error)
            case _:
                return super()._to_error(error)

    def _client_error(self, error: Any) -> ToolcribError:
        details: Mapping[str, Any] = error.response.get("Error") or {}
        metadata: Mapping[str, Any] = error.response.get("ResponseMetadata") or {}
        code = str(details.get("Code") or "")
        problem = _PROBLEMS.get(code[:1].upper() + code[1:])  # inside a stream they begin with a lower-case letter
        after_s = retry_after(metadata.get("HTTPHeaders") or {})
        status = int(metadata.get("HTTPStatusCode") or 0)
        return self._status_error(status, str(details.get("Message") or error), problem, after_s)
