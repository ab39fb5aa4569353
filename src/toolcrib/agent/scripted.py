"""A model that replies from a script: for tests, examples and trying out tools without a provider."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any, get_args

from ..core import Call, LoadError, SetupError
from ..formats import Reply, Stop, TextDelta, Usage
from ..schema.toml import parse_toml
from .model import ModelError, ModelProblem, Request

Script = Iterable[Any] | Callable[[Request], Any | Awaitable[Any]]

_TURN = ("text", "calls", "stop", "usage", "error", "message", "retry_after_s")
_CALL = ("tool", "arguments", "id")


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
            if others := sorted(data.keys() - {"turns"}):
                raise LoadError(f"{file}: a script has no member {others[0][:64]!r}, only `turns`.")
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
                return self._turn_from_dict(dict(turn), place)
            case _:
                raise SetupError(
                    f"{place}: a turn is text, an object with `text` and `calls`, a Reply or an exception, not a "
                    f"{type(turn).__name__}."
                )

    def _turn_from_dict(self, turn: dict[str, Any], place: str) -> Reply | BaseException:
        _require_known(turn, _TURN, place)
        if "error" in turn:
            problem = turn["error"]
            if problem not in get_args(ModelProblem):
                raise SetupError(f"{place}.error must be one of: {', '.join(get_args(ModelProblem))}.")
            message = _text(turn, "message", place) or f"The script fails here ({problem})."
            return ModelError(message, problem, retry_after_s=turn.get("retry_after_s"))
        items = turn.get("calls", [])
        if not isinstance(items, list | tuple):
            raise SetupError(f"{place}.calls must be a list of calls.")
        calls = tuple(self._call(call, f"{place}.calls[{number}]") for number, call in enumerate(items))
        stop: Stop = turn.get("stop", "calls" if calls else "end")
        if stop not in get_args(Stop):
            raise SetupError(f"{place}.stop must be one of: {', '.join(get_args(Stop))}.")
        return Reply(_text(turn, "text", place), calls, stop, _usage(turn.get("usage", {}), f"{place}.usage"))

    def _call(self, call: Any, place: str) -> Call:
        match call:
            case Call():
                return call
            case [str(tool), arguments]:
                call = {"tool": tool, "arguments": arguments}
            case Mapping():
                call = dict(call)
            case _:
                raise SetupError(f'{place}: a call is {{"tool": "add", "arguments": {{...}}}}, or ["add", {{...}}].')
        _require_known(call, _CALL, place)
        if not isinstance(call.get("tool"), str):
            raise SetupError(f"{place}.tool must be the name of a tool.")
        arguments = call.get("arguments")
        if not (arguments is None or isinstance(arguments, str | Mapping)):
            # A model may write any JSON.
            arguments = json.dumps(arguments)
        self._calls += 1
        id = call.get("id", f"call_{self._calls}")  # noqa: A001
        if not isinstance(id, str):
            raise SetupError(f"{place}.id must be text.")
        return Call(call["tool"], arguments, id)


def _read(file: Path) -> Any:
    match file.suffix.lower():
        case ".json":
            return json.loads(file.read_text(encoding="utf-8"))
        case ".toml":
            return parse_toml(file.read_text(encoding="utf-8"))
        case _:
            raise LoadError(f"{file}: a script must be a .json or a .toml file.")


def _require_known(data: Mapping[str, Any], names: Iterable[str], place: str) -> None:
    for name in data:
        if name not in names:
            from ..schema import closest_match, did_you_mean, display_name

            hint = did_you_mean(closest_match(str(name), names))
            raise SetupError(f"{place} has no member '{display_name(str(name))}'.{hint} It takes: {', '.join(names)}.")


def _text(turn: Mapping[str, Any], name: str, place: str) -> str:
    text = turn.get(name, "")
    if not isinstance(text, str):
        raise SetupError(f"{place}.{name} must be text, not a {type(text).__name__}.")
    return text


def _usage(data: Any, place: str) -> Usage:
    if not isinstance(data, Mapping):
        raise SetupError(f"{place} must be an object of numbers: {', '.join(Usage.__slots__)}.")
    _require_known(data, Usage.__slots__, place)
    for name, value in data.items():
        if type(value) is not int:
            raise SetupError(f"{place}.{name} must be an integer.")
    return Usage(**data)
