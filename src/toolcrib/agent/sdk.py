"""What the clients over providers' own SDKs share: the model class, the package, a client per event loop, errors."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from ..core import SetupError
from ..formats import Reply, TextDelta
from ..machinery import PerLoop
from ..record import Redactor
from .model import ModelError, ModelProblem, Request

T = TypeVar("T")

_MESSAGE_CHARS = 600
"""How many characters of a provider's own message an error shows."""

_REMEDIES: Mapping[ModelProblem, str] = {
    "unauthorized": "Check the key and its permissions.",
    "limited": "Send fewer requests, or try again later.",
    "refused": "Change the request.",
    "unavailable": "Try again later.",
    "failed": "See the provider's message.",
}


class SdkModel(ABC):
    """A model behind a provider's SDK: the part of `toolcrib.agent.Model` that is the same for all of them."""

    _provider: ClassVar[str]
    _format: ClassVar[Any]
    _model: str
    _clients: "Clients[Any]"

    @property
    def name(self) -> str:
        return f"{self._provider}:{self._model}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._model}>"

    async def close(self) -> None:
        """Close the connections of the running event loop, unless the client was passed in."""
        await self._clients.close()

    async def reply(self, request: Request, /) -> Reply:
        with self._errors():
            server = self._server()
        parameters = self._parameters(_for_server(request, server))
        with self._errors():
            reply: Reply = self._format.reply(await self._answer(parameters), request.specs)
            return replace(reply, server=server)

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        with self._errors():
            server = self._server()
        parameters, stream = self._parameters(_for_server(request, server)), self._format.Stream(request.specs)
        with self._errors():
            async with aclosing(self._chunks(parameters)) as chunks:
                async for chunk in chunks:
                    for delta in stream.add(chunk):
                        yield delta
            yield replace(stream.reply(), server=server)

    def _server(self) -> str:
        """Return what distinguishes the server from others with the same format; empty where there are none."""
        return ""

    def _parameters(self, request: Request) -> dict[str, Any]:
        """Return the parameters of the SDK's method that come from *request*."""
        form = self._format
        parameters: dict[str, Any] = form.conversation(request.turns, request.specs, instructions=request.instructions)
        if request.specs:
            parameters["tools"] = form.tools(request.specs)
            parameters |= form.tool_choice(request.choice, request.specs, parallel=request.parallel)
        return parameters

    @abstractmethod
    async def _answer(self, parameters: Mapping[str, Any]) -> Any: ...

    @abstractmethod
    def _chunks(self, parameters: Mapping[str, Any]) -> AsyncGenerator[Any]: ...

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """Raise ModelError for what the provider or its SDK raises inside."""


def server_id(base_url: object) -> str:
    """Return what distinguishes the server at *base_url*. A digest, as an address may contain a key."""
    return sha256(str(base_url).encode()).hexdigest()[:16]


def _for_server(request: Request, server: str) -> Request:
    """Return *request* without messages as other servers wrote them: they have members that only these accept."""
    turns = [
        replace(turn, native=None) if isinstance(turn, Reply) and turn.server not in ("", server) else turn
        for turn in request.turns
    ]
    return replace(request, turns=tuple(turns))


def package(module: str, extra: str) -> Any:
    """Return the module of a provider's SDK. Raises SetupError, which names the extra, where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise SetupError(
            f"Models of this provider need the package '{module}', which is missing: pip install 'toolcrib[{extra}]'"
        ) from None


class Clients(Generic[T]):
    """The clients of a model: one of each event loop.

    *client* is one that its owner closes, or a function that makes one, in place of *make*.
    """

    def __init__(
        self, client: T | Callable[[], T] | None, make: Callable[[], T], close: Callable[[T], Awaitable[object]]
    ) -> None:
        self._is_passed = client is not None and not callable(client)
        new: Any = (lambda: client) if self._is_passed else client or make
        self._clients: PerLoop[T] = PerLoop(new)
        self._close = close

    def get(self) -> T:
        """Return the running loop's client, made at the first call."""
        return self._clients.get()

    async def close(self) -> None:
        """Close the running loop's client; the next `get` makes another."""
        client = self._clients.pop()
        if client is not None and not self._is_passed:
            await self._close(client)


@contextmanager
def reading() -> Generator[None]:
    """Turn errors of the SDK's own code about a malformed answer into ValueErrors. Put nothing else inside."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"its SDK cannot read it ({type(error).__name__}: {error})") from None


def require_retries(max_retries: int) -> int:
    """Return *max_retries*, if it is a number of retries. Raises SetupError."""
    if type(max_retries) is not int or max_retries < 0:
        raise SetupError("max_retries is how often a request is made again: 0 or more.")
    return max_retries


class ProviderErrors:
    """Makes ModelErrors for the model of this *name*, with *secrets* redacted."""

    def __init__(self, name: str, secrets: Iterable[object] = ()) -> None:
        self._name = name
        self._known: set[str] = set()
        self._redactor = Redactor()
        self.add_secrets(*secrets)

    def add_secrets(self, *secrets: object) -> None:
        """Redact these from now on, too. Values that are not text, or too short for a key, are ignored."""
        for secret in secrets:
            if isinstance(secret, str) and len(secret) >= 4 and secret not in self._known:
                self._known.add(secret)
                self._redactor.add(secret)

    def from_status(
        self, status: int, message: str, *, problem: ModelProblem | None = None, retry_after_s: float | None = None
    ) -> ModelError:
        """Return the error of an answer with this HTTP status. *problem* overrides what the status stands for."""
        problem = problem or problem_of(status)
        return self._error(f"answered with status {status}", message, problem, retry_after_s)

    def redact(self, text: object) -> str:
        """Return *text* without known secrets."""
        return self._redactor.redact(str(text))

    def no_connection(self, message: object) -> ModelError:
        """Return the error of an answer that did not come, or broke off."""
        return self._error("could not be reached, or its answer broke off", str(message), "unavailable", None)

    def bad_answer(self, message: object) -> ModelError:
        """Return the error of an answer that is not in the provider's own format."""
        return self._error("gave an answer that cannot be used", str(message), "failed", None)

    def missing_key(self, remedy: str, *, in_program: str) -> ModelError:
        """Return the error of a request that was not made, because no key was found.

        *remedy* is for the person who runs the program. *in_program* is what its author can do: a note of the
        error, which a traceback shows and a command does not.
        """
        error = ModelError(f"Model '{self._name}' was not asked, as no key was found. {remedy}", "unauthorized")
        error.add_note(in_program)
        return error

    def _error(self, what: str, message: str, problem: ModelProblem, retry_after_s: float | None) -> ModelError:
        message = self._redactor.redact(" ".join(message.split()) or "no message")
        message = message if len(message) <= _MESSAGE_CHARS else f"{message[:_MESSAGE_CHARS]}…"
        wait = f" It asks to wait {retry_after_s:g} s." if retry_after_s is not None else ""
        text = f"Model '{self._name}' {what}: {message.rstrip('. ')}.{wait} {_REMEDIES[problem]}"
        return ModelError(text, problem, retry_after_s=retry_after_s)


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
    """Return seconds until the provider accepts requests again, as its headers have it; None where they do not."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if text is None or seconds is not None:
        return seconds
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
