"""A model that replies from a script: for tests, examples and trying out tools without a provider."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

from ..core import Call, LoadError, SetupError
from ..formats import Reply, Stop, TextDelta, Usage
from ..schema.declared import require_values
from ..schema.toml import parse_toml
from .model import ModelError, ModelProblem, Request

Script = Iterable[Any] | Callable[[Request], Any | Awaitable[Any]]

D = TypeVar("D")


class ScriptedModel:
    """A model with scripted turns, as data or from a function of the Request. `requests` has every Request so far.

    A turn is text; `{"text": ..., "calls": [...], "stop": ..., "usage": {"input": ..., "output": ...}}`, of which each
    member is optional; a Reply; an exception, to be raised; or a ModelError as data,
    `{"error": "unavailable", "message": ...}`. A call is `{"tool": "add", "arguments": {...}}` or `("add", {...})`;
    arguments that are text are sent unchanged, valid or not. Calls without an `id` are `call_1`, `call_2`, ... over the
    whole script. A function, sync or async, returns one turn each time.

    Raises SetupError, with the place, for invalid turns, and ModelError when the script has no more turns.
    """

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[Request] = []
        self._calls = 0
        self._function: Callable[[Request], Any] | None = None
        self._turns: list[Reply | BaseException] = []
        source: Any = script
        if callable(source):
            self._function = source
        elif isinstance(source, str | Mapping) or not isinstance(source, Iterable):
            raise SetupError('A script is a list of turns, or a function: ScriptedModel(["Hello"]).')
        else:
            self._turns = [self._turn(turn, f"turns[{number}]") for number, turn in enumerate(source)]

    @classmethod
    def from_file(cls, path: str | Path) -> "ScriptedModel":
        """Return the turns in a JSON or TOML file, under `turns`; a JSON file may be the list itself.

        Raises LoadError.
        """
        file = Path(path)
        try:
            data: Any = _read(file)
        except OSError as error:
            raise LoadError(f"{file}: the script cannot be read: {error.strerror or error}.") from None
        except ValueError as error:
            raise LoadError(f"{file}: the script is not valid {file.suffix[1:].upper()}: {error}.") from None
        if isinstance(data, dict):
            if unknown := sorted(data.keys() - {"turns"}):
                raise LoadError(f"{file}: a script has no member {unknown[0][:64]!r}, only `turns`.")
            data = data.get("turns")
        if not isinstance(data, list):
            raise LoadError(f"{file}: a script must have a list of turns under `turns`.")
        try:
            return cls(data, name=f"scripted:{file}")
        except SetupError as error:
            raise LoadError(f"{file}: {error}") from None

    async def reply(self, request: Request, /) -> Reply:
        self.requests.append(request)
        if self._function is not None:
            value = self._function(request)
            if isawaitable(value):
                value = await value
            turn = value if type(value) is Reply else self._turn(value, "the function's return value")
        else:
            number = len(self.requests)
            if number > len(self._turns):
                turns = f"{len(self._turns)} turn{'s' * (len(self._turns) != 1)}"
                raise ModelError(
                    f"{self.name} has {turns}, and turn {number} was requested. Add a turn to the script, or see "
                    "`requests` for why the model was asked again.",
                    "failed",
                )
            turn = self._turns[number - 1]
        if isinstance(turn, BaseException):
            raise turn
        return turn

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        """Yield the text word by word, then the reply."""
        reply = await self.reply(request)
        for word in re.findall(r"\S+\s*|^\s+", reply.text):
            yield TextDelta(word)
        yield reply

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name!r}, asked {len(self.requests)} times>"

    # Turns from data

    def _turn(self, turn: Any, place: str) -> Reply | BaseException:
        match turn:
            case str():
                return Reply(turn)
            case Reply() | BaseException():
                return turn
            case Mapping():
                members = {name: [*value] if isinstance(value, tuple) else value for name, value in turn.items()}
                return self._turn_from_data(_checked(_Turn, members, place), place)
            case _:
                raise SetupError(
                    f"{place}: a turn is text, an object with `text` and `calls`, a Reply or an exception, not a "
                    f"{type(turn).__name__}."
                )

    def _turn_from_data(self, turn: "_Turn", place: str) -> Reply | BaseException:
        if turn.error is not None:
            message = turn.message or f"The script fails here ({turn.error})."
            return ModelError(message, turn.error, retry_after_s=turn.retry_after_s)
        calls = tuple(self._call(call, f"{place}.calls[{number}]") for number, call in enumerate(turn.calls))
        usage = _checked(Usage, turn.usage, f"{place}.usage")
        return Reply(turn.text, calls, turn.stop or ("calls" if calls else "end"), usage)

    def _call(self, call: Any, place: str) -> Call:
        match call:
            case Call():
                return call
            case [tool, arguments]:
                data = _checked(_Call, {"tool": tool, "arguments": arguments}, place)
            case Mapping():
                data = _checked(_Call, call, place)
            case _:
                raise SetupError(f'{place}: a call is {{"tool": "add", "arguments": {{...}}}}, or ["add", {{...}}].')
        arguments = data.arguments
        if not (arguments is None or isinstance(arguments, str | Mapping)):
            arguments = json.dumps(arguments)  # a model may write any JSON
        self._calls += 1
        return Call(data.tool, arguments, f"call_{self._calls}" if data.id is None else data.id)


@dataclass
class _Turn:
    """A turn as data."""

    text: str = ""
    calls: list[Any] = field(default_factory=list[Any])
    stop: Stop | None = None
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    error: ModelProblem | None = None
    message: str = ""
    retry_after_s: float | None = None


@dataclass
class _Call:
    """A call as data."""

    tool: str
    arguments: Any = None
    id: str | None = None


def _checked(kind: type[D], members: Mapping[str, Any], place: str) -> D:
    """Return *members* as a *kind*. Raises SetupError that names *place* and the member."""
    require_values(kind, members, of=place)
    return kind(**members)


def _read(file: Path) -> Any:
    parsers: Mapping[str, Callable[[str], Any]] = {".json": json.loads, ".toml": parse_toml}
    parse = parsers.get(file.suffix.lower())
    if parse is None:
        raise LoadError(f"{file}: a script must be a .json or a .toml file.")
    return parse(file.read_text(encoding="utf-8"))
