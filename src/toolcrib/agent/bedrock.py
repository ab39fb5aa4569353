"""Models on Amazon Bedrock, through AWS's own SDK (boto3) and its Converse interface.

BedrockModel("eu.anthropic.claude-sonnet-5-v1:0", region="eu-central-1")
"""

import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from ..core import SetupError
from ..formats import Reply, Written
from ..formats import bedrock as form
from ..formats.answers import BrokenOff
from .model import ModelError, ModelProblem, Request
from .sdk import Troubles, package, reading, require_retries, retry_after
from .thread import InThread, closable

# Where the status does not say it, or where there is none: errors inside a stream.
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


class BedrockModel:
    """One model on Bedrock. It implements `toolcrib.agent.Model`.

    The credentials, and the *region* where it is not given, are found where boto3 finds them; *profile* is one of AWS's
    configuration. *base_url* is another endpoint. *options* are more of Converse's parameters:
    `{"inferenceConfig": {"maxTokens": 500}}`. *timeout_s* is the longest silence, *max_retries* are boto3's own for
    lines that break, limits and 5xx. *client* is a `bedrock-runtime` client of boto3's in place of all that; it stays
    its owner's to close, and with it a request that is given up runs on until it is answered.

    boto3 waits, so each request has a thread of its own. Converse knows neither "no tools" nor "one call at a time":
    for the choice "none" the tools are left out, and the earlier calls and results are said in words.
    """

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
        self._client, self._ours = client, client is None
        self._making = threading.Lock()
        self._secrets: list[object] = [os.environ.get(name) for name in _KEYS]

    @property
    def name(self) -> str:
        return f"bedrock:{self._model}"

    def __repr__(self) -> str:
        return f"<BedrockModel {self._model}>"

    async def reply(self, request: Request, /) -> Reply:
        asked = self._request(request)
        with self._explained():
            async with InThread(lambda: self._whole(asked)) as pieces:
                (answer,) = [piece async for piece in pieces]
            if "output" not in answer:
                # botocore neither counts the bytes of an answer, nor tells when they are no JSON.
                raise BrokenOff("the answer has no output")
            return form.reply(answer, request.specs)

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        asked, stream = self._request(request), form.Stream(request.specs)
        with self._explained():
            async with InThread(lambda: self._events(asked)) as pieces:
                async for event in pieces:
                    for written in stream.add(event):
                        yield written
            yield stream.reply()

    async def close(self) -> None:
        """Close the connections, unless the client was handed in; the next request makes others."""
        with self._making:
            if self._ours and self._client is not None:
                self._client.close()
                self._client = None

    def _request(self, request: Request) -> dict[str, Any]:
        said = form.conversation(request.turns, request.specs, instructions=request.instructions)
        if request.specs and request.choice != "none":
            choice = form.tool_choice(request.choice, request.specs, parallel=request.parallel)
            said["toolConfig"] = {"tools": form.tools(request.specs), **choice}
        else:
            said["messages"] = form.without_tools(said["messages"])
        return {"modelId": self._model, **said, **self._options}

    def _whole(self, asked: Mapping[str, Any]) -> Iterator[Any]:
        client = self._made()
        with reading():
            yield client.converse(**asked)

    def _events(self, asked: Mapping[str, Any]) -> Iterator[Any]:
        client = self._made()
        with reading(), closing(client.converse_stream(**asked)["stream"]) as told:
            yield from told

    def _made(self) -> Any:
        """The client. Made in the thread of the first request, as it reads files, and may ask for credentials."""
        with self._making:
            if self._client is None:
                session = self._boto3.session.Session(**self._session)
                if (credentials := session.get_credentials()) is not None:
                    keys = credentials.get_frozen_credentials()
                    self._secrets += [keys.access_key, keys.secret_key, keys.token]
                client = session.client("bedrock-runtime", endpoint_url=self._endpoint, config=self._config)
                self._client = closable(client)
            return self._client

    @contextmanager
    def _explained(self) -> Generator[None]:
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
            raise self._troubles().no_key(f"{error}. Set AWS's credentials, or pass profile.") from None
        except exceptions.NoRegionError:
            raise SetupError(f"Model '{self.name}' needs a region: set AWS_REGION, or pass region.") from None
        except (exceptions.ParamValidationError, exceptions.ProfileNotFound) as error:
            raise self._troubles().status(400, str(error), problem="refused") from None
        except (
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            parsers.ResponseParserError,
            urllib3.HTTPError,
            BrokenOff,
        ) as error:
            raise self._troubles().broken_line(error) from None
        except (exceptions.BotoCoreError, eventstream.ParserError, ValueError) as error:
            raise self._troubles().broken_answer(error) from None

    def _troubles(self) -> Troubles:
        return Troubles(self.name, self._secrets)

    def _refused(self, error: Any) -> ModelError:
        told: Mapping[str, Any] = error.response.get("Error") or {}
        about: Mapping[str, Any] = error.response.get("ResponseMetadata") or {}
        code = str(told.get("Code") or "")
        problem = _PROBLEMS.get(code[:1].upper() + code[1:])  # inside a stream they begin with a small letter
        words = str(told.get("Message") or error)
        after_s = retry_after(about.get("HTTPHeaders") or {})
        return self._troubles().status(
            int(about.get("HTTPStatusCode") or 0), words, problem=problem, retry_after_s=after_s
        )
