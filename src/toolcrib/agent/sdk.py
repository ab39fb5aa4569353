"""What the clients over providers' own SDKs have in common: the package, a client for each event loop, errors."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from ..core import SetupError
from ..record import Redactor
from .model import ModelError, ModelProblem

T = TypeVar("T")

_WORDS = 600
"""How many characters of a provider's own words an error shows."""

_WAYS_OUT: Mapping[ModelProblem, str] = {
    "unauthorized": "Check the key, and what it is allowed to use.",
    "limited": "Ask later, or less.",
    "refused": "Change the request.",
    "unavailable": "Ask again later.",
    "failed": "Look at the provider's words.",
}


def package(module: str, extra: str) -> Any:
    """The module of a provider's SDK. Raises SetupError, which names the extra, where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise SetupError(
            f"Models of this provider need the package '{module}', which is missing: pip install 'toolcrib[{extra}]'"
        ) from None


class PerLoop(Generic[T]):
    """One client for each event loop that asks: its connections belong to that loop and break in another."""

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> None:
        self._make = make
        self._close = close
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    @classmethod
    def over(
        cls, given: T | Callable[[], T] | None, make: Callable[[], T], close: Callable[[T], Awaitable[object]]
    ) -> "PerLoop[T]":
        """What *given* says in place of *make*: a client, which stays its owner's to close, or what makes one."""
        if given is None or callable(given):
            makes: Any = given or make
            return cls(makes, close)
        return cls(lambda: given, _leave_open)

    def get(self) -> T:
        """The running loop's client, made at the first call."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._make()
        return self._clients[loop]

    async def close(self) -> None:
        """Close the running loop's client; the next `get` makes another."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await self._close(client)


async def _leave_open(_: object) -> None:
    pass


@contextmanager
def reading() -> Generator[None]:
    """Around nothing but an SDK's own code. What it trips over in an answer of a strange shape becomes a ValueError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"its SDK cannot read it ({type(error).__name__}: {error})") from None


def require_retries(max_retries: int) -> int:
    """*max_retries*, if it is how often a request may be made again. Raises SetupError."""
    if type(max_retries) is not int or max_retries < 0:
        raise SetupError("max_retries is how often a request is made again: 0 or more.")
    return max_retries


class Troubles:
    """Makes a ModelError of whatever went wrong with the model of this *name*; *secrets* never show in one."""

    def __init__(self, name: str, secrets: Iterable[object] = ()) -> None:
        self._name = name
        self._known: set[str] = set()
        self._redactor = Redactor()
        self.know(*secrets)

    def know(self, *secrets: object) -> None:
        """From now on, these show in no error either. What is no key, or too short for one, is passed over."""
        for secret in secrets:
            if isinstance(secret, str) and len(secret) >= 4 and secret not in self._known:
                self._known.add(secret)
                self._redactor.add(secret)

    def status(
        self, status: int, words: str, *, problem: ModelProblem | None = None, retry_after_s: float | None = None
    ) -> ModelError:
        """The provider answered with this HTTP status. *problem* is what it stands for, where *status* does not say."""
        problem = problem or of_status(status)
        return self._error(f"answered with status {status}", words, problem, retry_after_s)

    def broken_line(self, words: object) -> ModelError:
        """There was no answer, or it broke off."""
        return self._error("could not be reached, or its answer broke off", str(words), "unavailable", None)

    def broken_answer(self, words: object) -> ModelError:
        """There was an answer, and it has not the provider's own form."""
        return self._error("gave an answer that cannot be used", str(words), "failed", None)

    def no_key(self, way_out: str) -> ModelError:
        """Nothing was asked, for want of a key."""
        return ModelError(f"Model '{self._name}' was not asked, as no key was found. {way_out}", "unauthorized")

    def _error(self, what: str, words: str, problem: ModelProblem, retry_after_s: float | None) -> ModelError:
        words = self._redactor.strike(" ".join(words.split()) or "no words")
        words = words if len(words) <= _WORDS else f"{words[:_WORDS]}…"
        wait = f" It asks for a pause of {retry_after_s:g} s." if retry_after_s is not None else ""
        message = f"Model '{self._name}' {what}: {words.rstrip('. ')}.{wait} {_WAYS_OUT[problem]}"
        return ModelError(message, problem, retry_after_s=retry_after_s)


def of_status(status: int) -> ModelProblem:
    """What an HTTP status of a provider stands for."""
    if status in (401, 403):
        return "unauthorized"
    if status == 429:
        return "limited"
    if status in (408, 409, 425) or status >= 500:
        return "unavailable"
    return "refused" if 400 <= status < 500 and status != 402 else "failed"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until the provider wants to be asked again, as its headers say; None where they do not."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = _number(said)
    if said is None or seconds is not None:
        return seconds
    try:
        at = parsedate_to_datetime(said)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None
