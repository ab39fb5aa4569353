"""What the clients over providers' own SDKs share: one model class, of which each client fills in what differs.

Errors of an SDK become ModelErrors here, without its frames: those show the key where a server repeats it.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from ..core import SetupError, ToolcribError, ToolError
from ..formats import IncompleteReply, Reply, TextDelta
from ..formats import reading as shapes
from ..machinery import MIN_SECRET_CHARS, PerLoop, in_thread
from ..record import Redactor
from .model import ModelError, ModelProblem, Request

C = TypeVar("C")
T = TypeVar("T")

_REMEDIES: Mapping[ModelProblem, str] = {
    "unauthorized": "Check the key and its permissions.",
    "limited": "Send fewer requests, or try again later.",
    "refused": "Change the request.",
    "unavailable": "Try again later.",
    "failed": "See the provider's message.",
}


class SdkModel(ABC, Generic[C]):
    """A model behind a provider's SDK, whose client is a C: one for each event loop."""

    _provider: ClassVar[str]
    _format: ClassVar[Any]
    _package: ClassVar[str]
    """The SDK's module."""
    _key_variables: ClassVar[Sequence[str]]
    _key_attributes: ClassVar[Sequence[str]] = ("api_key",)
    """Where a client has its keys."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600,
        max_retries: int = 2,
        options: Mapping[str, Any] | None = None,
        client: "C | Callable[[], C] | None" = None,
    ) -> None:
        if type(max_retries) is not int or max_retries < 0:
            raise SetupError("max_retries is how often a request is made again: 0 or more.")
        self._sdk = package(self._package)
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._options = dict(options or {})
        self._owns_clients = client is None or callable(client)
        new: Any = client or self._new_client
        self._clients: PerLoop[C] = PerLoop(new if self._owns_clients else lambda: new)
        self._redactor = Redactor()
        self._add_secrets(api_key, *map(os.environ.get, self._key_variables))
        self._check_options()

    @property
    def name(self) -> str:
        return f"{self._provider}:{self._model}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._model}>"

    async def close(self) -> None:
        """Close the connections of the running event loop, unless the client was passed in."""
        client = self._clients.pop()
        if client is not None and self._owns_clients:
            await self._close_client(client)

    async def reply(self, request: Request, /) -> Reply:
        with self._errors():
            server = self._server()
        parameters = await self._in_thread(partial(self._parameters, _for_server(request, server)))
        with self._errors():
            answer = await self._answer(parameters)
            reply: Reply = await self._in_thread(partial(self._format.reply, answer, request.specs))
            return replace(reply, server=server)

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        with self._errors():
            server = self._server()
        parameters = await self._in_thread(partial(self._parameters, _for_server(request, server)))
        stream = self._format.Stream(request.specs)
        with self._errors():
            async with aclosing(self._chunks(parameters)) as chunks:
                async for chunk in chunks:
                    for delta in stream.add(chunk):
                        yield delta
            yield replace(await self._in_thread(stream.reply), server=server)

    # What a provider implements

    @abstractmethod
    def _new_client(self) -> C: ...

    @abstractmethod
    async def _close_client(self, client: C) -> None: ...

    @abstractmethod
    async def _answer(self, parameters: Mapping[str, Any]) -> Any: ...

    @abstractmethod
    def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]: ...

    def _check_options(self) -> None:
        """Raise SetupError for options that the provider does not have."""
        return

    def _parameters(self, request: Request) -> dict[str, Any]:
        """Return the parameters of the SDK's method that come from *request*."""
        form = self._format
        parameters: dict[str, Any] = form.conversation(request.turns, request.specs, instructions=request.instructions)
        if request.specs:
            parameters["tools"] = form.tools(request.specs)
            parameters |= form.tool_choice(request.choice, request.specs, parallel=request.parallel)
        return parameters

    def _server(self) -> str:
        """Return what distinguishes the server from others with the same format; empty where there are none.

        It is a digest, as an address may contain a key.
        """
        base_url = getattr(self._client(), "base_url", None)
        return "" if base_url is None else sha256(str(base_url).encode()).hexdigest()[:16]

    def _to_error(self, error: Exception) -> ToolcribError | None:
        """Return the error for what the provider or its SDK raised; None for an error of the program."""
        if isinstance(error, IncompleteReply):
            return self._no_connection(error)
        return self._bad_answer(error) if isinstance(error, ValueError) else None

    # What they use

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Return the value of *work*, which takes time in proportion to a conversation or an answer."""
        try:
            return await in_thread(work)
        except ToolError as error:  # no thread is left for it
            raise self._no_connection(error) from None

    def _client(self) -> C:
        """Return the running loop's client, made at the first call."""
        client = self._clients.get()
        for path in self._key_attributes:
            value: Any = client
            for name in path.split("."):
                value = getattr(value, name, None)
            self._add_secrets(value)
        return client

    def _add_secrets(self, *secrets: object) -> None:
        """Redact these from now on, too. Values that are not text, or too short for a key, are ignored."""
        for secret in secrets:
            if isinstance(secret, str) and len(secret) >= MIN_SECRET_CHARS:
                self._redactor.add(secret)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Raise ModelError for what the provider or its SDK raises inside."""
        try:
            yield
        except Exception as error:
            if (model_error := self._to_error(error)) is None:
                raise
            raise model_error from None

    def _status_error(
        self, status: int, message: str, problem: ModelProblem | None = None, retry_after_s: float | None = None
    ) -> ModelError:
        """Return the error of an answer with this HTTP status. *problem* overrides what the status stands for."""
        return self._error(f"answered with status {status}", message, problem or problem_of(status), retry_after_s)

    def _no_connection(self, message: object) -> ModelError:
        """Return the error of an answer that did not come, or broke off."""
        return self._error("could not be reached, or its answer broke off", message, "unavailable")

    def _bad_answer(self, message: object) -> ModelError:
        """Return the error of an answer that is not in the provider's own format."""
        return self._error("gave an answer that cannot be used", message, "failed")

    def _missing_key(self, remedy: str, *, in_program: str) -> ModelError:
        """Return the error of a request that was not made, because no key was found.

        *remedy* is for the person who runs the program. *in_program* is what its author can do: a note of the
        error, which a traceback shows and a command does not.
        """
        error = ModelError(f"Model '{self.name}' was not asked, as no key was found. {remedy}", "unauthorized")
        error.add_note(in_program)
        return error

    def _error(
        self, what: str, message: object, problem: ModelProblem, retry_after_s: float | None = None
    ) -> ModelError:
        text = self._redactor.redact(" ".join(str(message).split()) or "no message")
        text = text if len(text) <= shapes.MAX_REASON_CHARS else f"{text[: shapes.MAX_REASON_CHARS]}…"
        wait = f" It asks to wait {retry_after_s:g} s." if retry_after_s is not None else ""
        text = f"Model '{self.name}' {what}: {text.rstrip('. ')}.{wait} {_REMEDIES[problem]}"
        return ModelError(text, problem, retry_after_s=retry_after_s)


def _for_server(request: Request, server: str) -> Request:
    """Return *request* without messages as other servers wrote them: they have members that only these accept."""
    turns = [
        replace(turn, native=None) if isinstance(turn, Reply) and turn.server not in ("", server) else turn
        for turn in request.turns
    ]
    return replace(request, turns=tuple(turns))


def package(module: str) -> Any:
    """Return the module of a provider's SDK. Raises SetupError, which names the extra, where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise SetupError(
            f"Models of this provider need the package '{module}', which is missing: pip install 'toolcrib[models]'"
        ) from None


@contextmanager
def reading() -> Generator[None]:
    """Turn errors of the SDK's own code about a malformed answer into ValueErrors. Put nothing else inside."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"its SDK cannot read it ({type(error).__name__}: {error})") from None


def problem_of(status: int) -> ModelProblem:
    """Return what an HTTP status of a provider stands for."""
    if status in (401, 403):
        return "unauthorized"
    if status == 429:
        return "limited"
    if status in (408, 409, 425) or status >= 500:
        return "unavailable"
    return "refused" if 400 <= status < 500 and status != 402 else "failed"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return seconds until the provider accepts requests again, as its headers have them; None where they do not."""
    for name, units_per_s in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            number = float(headers.get(name) or "")
        except ValueError:
            continue
        if 0 <= number < float("inf"):
            return number / units_per_s
    return None
