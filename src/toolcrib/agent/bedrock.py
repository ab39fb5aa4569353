"""Models on Amazon Bedrock, through AWS's own SDK (boto3) and its Converse API.

BedrockModel("eu.anthropic.claude-sonnet-5-v1:0", region="eu-central-1")
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from typing import Any, ClassVar

from ..core import SetupError
from ..formats import IncompleteReply
from ..formats import bedrock as provider_format
from ..machinery import from_any_thread
from .model import ModelError, ModelProblem, Request
from .sdk import ProviderErrors, SdkModel, package, reading, require_retries, retry_after

# For errors whose status is ambiguous, or that have none because they come inside a stream.
_PROBLEMS: Mapping[str, ModelProblem] = {
    "ThrottlingException": "limited",
    "ServiceQuotaExceededException": "limited",
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
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK")


class BedrockModel(SdkModel):
    """A model on Bedrock. It implements `toolcrib.agent.Model`.

    boto3 finds the credentials, and the *region* where none is passed; *profile* is a profile of AWS's configuration.
    *base_url* is another endpoint. *options* are more of Converse's parameters:
    `{"inferenceConfig": {"maxTokens": 500}}`. *timeout_s* is the longest silence, *max_retries* are boto3's own for
    connection errors, limits and 5xx. *client*, a `bedrock-runtime` client of boto3's, replaces all of these; its owner
    closes it.

    boto3 blocks, so each request has a thread of its own. One that is cancelled runs on there until its next event or
    its answer, which is dropped. Converse has neither "no tools" nor "one call at a time":
    for the choice "none" the tools are left out, and earlier calls and results are sent as text.
    """

    _provider: ClassVar[str] = "bedrock"
    _format: ClassVar[Any] = provider_format

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
        self._boto3 = package("boto3", "bedrock")
        self._model = model
        self._options = dict(options or {})
        self._session = {"region_name": region, "profile_name": profile}
        self._endpoint = base_url
        self._config = package("botocore.config", "bedrock").Config(
            read_timeout=timeout_s,
            connect_timeout=min(timeout_s, 10),
            retries={"total_max_attempts": 1 + require_retries(max_retries), "mode": "standard"},
        )
        self._client, self._owns_client = client, client is None
        self._lock = threading.Lock()
        self._secrets: list[object] = [os.environ.get(name) for name in _KEYS]

    async def close(self) -> None:
        """Close the connections, unless the client was passed in; the next request makes others."""
        with self._lock:
            if self._owns_client and self._client is not None:
                self._client.close()
                self._client = None

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
        def converse() -> Iterator[Any]:
            client = self._get_client()
            with reading():
                yield client.converse(**parameters)

        (answer,) = [answer async for answer in _threaded(converse)]
        if "output" not in answer:
            # botocore neither counts the bytes of an answer, nor reports that they are not JSON.
            raise IncompleteReply("the answer has no output")
        return answer

    async def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]:
        def converse() -> Iterator[Any]:
            client = self._get_client()
            with reading(), closing(client.converse_stream(**parameters)["stream"]) as events:
                yield from events

        async with aclosing(_threaded(converse)) as events:
            async for event in events:
                yield event

    def _get_client(self) -> Any:
        """Return the client. Made in the thread of the first request, as it reads files and may fetch credentials."""
        with self._lock:
            if self._client is None:
                session = self._boto3.session.Session(**self._session)
                if (credentials := session.get_credentials()) is not None:
                    keys = credentials.get_frozen_credentials()
                    self._secrets += [keys.access_key, keys.secret_key, keys.token]
                self._client = session.client("bedrock-runtime", endpoint_url=self._endpoint, config=self._config)
            return self._client

    @contextmanager
    def _errors(self) -> Generator[None]:
        eventstream, exceptions, parsers, urllib3 = (package(name, "bedrock") for name in _MODULES)

        try:
            yield
        except exceptions.ClientError as error:
            raise self._refused(error) from None
        except (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.NoAuthTokenError,
        ) as error:
            remedy = f"{error}. Set AWS's credentials, or AWS_PROFILE."
            raise self._troubles().missing_key(remedy, in_program="Or pass profile.") from None
        except exceptions.NoRegionError:
            missing = SetupError(f"Model '{self.name}' needs a region: set AWS_REGION.")
            missing.add_note("Or pass region.")
            raise missing from None
        except (exceptions.ParamValidationError, exceptions.ProfileNotFound) as error:
            raise self._troubles().from_status(400, str(error), problem="refused") from None
        except (
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            parsers.ResponseParserError,
            urllib3.HTTPError,
            IncompleteReply,
        ) as error:
            raise self._troubles().no_connection(error) from None
        except (exceptions.BotoCoreError, eventstream.ParserError, ValueError) as error:
            raise self._troubles().bad_answer(error) from None

    def _troubles(self) -> ProviderErrors:
        return ProviderErrors(self.name, self._secrets)

    def _refused(self, error: Any) -> ModelError:
        details: Mapping[str, Any] = error.response.get("Error") or {}
        metadata: Mapping[str, Any] = error.response.get("ResponseMetadata") or {}
        code = str(details.get("Code") or "")
        problem = _PROBLEMS.get(code[:1].upper() + code[1:])  # inside a stream they begin with a lower-case letter
        message = str(details.get("Message") or error)
        after_s = retry_after(metadata.get("HTTPHeaders") or {})
        return self._troubles().from_status(
            int(metadata.get("HTTPStatusCode") or 0), message, problem=problem, retry_after_s=after_s
        )


async def _threaded(request: Callable[[], Iterator[Any]]) -> AsyncGenerator[Any]:
    """Yield the values of *request*, which blocks, from a thread of its own. Closed, it asks for no more of them."""
    values: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()
    closed_by_reader = threading.Event()
    put_item = from_any_thread(values.put_nowait)

    def put(value: Any, error: BaseException | None = None) -> None:
        put_item((value, error))

    def work() -> None:
        try:
            for value in request():
                if closed_by_reader.is_set():
                    return
                put(value)
            put(None, StopAsyncIteration())
        except Exception as error:
            put(None, error)

    threading.Thread(target=work, name="toolcrib-model", daemon=True).start()
    try:
        while True:
            value, error = await values.get()
            if isinstance(error, StopAsyncIteration):
                return
            if error is not None:
                raise error
            yield value
    finally:
        closed_by_reader.set()
