"""What a provider answered, read with care: an SDK's objects become data, a broken shape an error with its place."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from math import isfinite
from random import getrandbits
from typing import Any, Protocol, TypeVar, cast

from ..core import SetupError, ToolSpec
from ..schema import nearest
from .turns import Reply, Stop, Written

T = TypeVar("T")

_DEEPEST = 200
"""How deep an answer may be nested. Python's own JSON gives up at a depth that changes with the stack."""

_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a whole number",
    bool: "true or false",
}


class BrokenOff(ValueError):
    """An answer that the provider did not bring to its end. *code* is the provider's own; "cut" where it said none."""

    def __init__(self, message: str, code: str = "cut") -> None:
        super().__init__(message)
        self.code = code


def data(answer: Any, where: str) -> dict[str, Any]:
    """*answer* as a dictionary: it is one, or an SDK's object that can say itself as one.

    Raises ValueError for anything else.
    """
    if isinstance(answer, Mapping):
        return dict(answer)
    if hasattr(answer, "model_dump"):
        # By the names of the wire, and without the many fields that an SDK knows and the provider did not send.
        return cast(dict[str, Any], answer.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False))
    for way in ("to_dict", "to_json_dict"):
        if hasattr(answer, way):
            return data(getattr(answer, way)(), where)
    raise ValueError(f"{where} has to be an object (a dictionary, or an SDK's answer), and it is {kind(answer)}.")


def streamed(answer: Any) -> Iterable[Any] | None:
    """The pieces of *answer*, or None where it is whole."""
    if isinstance(answer, (Mapping, str, bytes)) or not isinstance(answer, Iterable):
        return None
    # A pydantic model can be iterated over too, but it is one answer.
    return None if hasattr(answer, "model_dump") else answer


def plain(value: Any, where: str) -> Any:
    """*value* as JSON data, all of it new, which can be kept, sent and written.

    Bytes are in base64, and numbers that JSON has not are text ("NaN"). Letters that were streamed in halves are whole
    again. Raises ValueError for what is no JSON, and for what is nested too deep.
    """
    return _plain(value, where, _DEEPEST)


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth < 0:
        raise ValueError(f"{where} is nested deeper than {_DEEPEST}.")
    match value:
        case None | bool() | int():
            return value
        case str():
            return whole_letters(value)
        case float():
            return value if isfinite(value) else json.dumps(value)
        case Mapping():
            return {whole_letters(str(key)): _plain(inner, where, depth - 1) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, where, depth - 1) for inner in value]
        case bytes():
            return b64encode(value).decode()
        case _:
            raise ValueError(f"{where} is broken: a value in it is {kind(value)}, which is no JSON.")


def whole_letters(text: str) -> str:
    """*text* without halves of letters (surrogates): joined where both are there, else a mark. UTF-8 has no halves."""
    if text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def at(of: Mapping[str, Any], key: str, kind_of: type[T], where: str) -> T:
    """`of[key]`, which is of this kind. Raises ValueError, with the place, where it is not, or is not there."""
    found = of.get(key)
    if not isinstance(found, kind_of):
        what = kind(found) if key in of else "missing"
        raise ValueError(f"{where} is broken: '{key}' has to be {_KINDS[kind_of]}, and it is {what}.")
    return found


def or_none(of: Mapping[str, Any], key: str, kind_of: type[T], where: str) -> T | None:
    """The same, where the provider may leave it out, or say null."""
    return None if of.get(key) is None else at(of, key, kind_of, where)


def objects(of: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """`of[key]`, which is a list of objects; none where it is left out."""
    listed = or_none(of, key, list, where) or []
    for number, item in enumerate(listed):
        if not isinstance(item, dict):
            raise ValueError(f"{where} is broken: '{key}[{number}]' has to be an object, and it is {kind(item)}.")
    return listed


def count(of: Mapping[str, Any], key: str) -> int:
    """A number of tokens; 0 where the provider does not say, or says it badly: nobody loses an answer for a count."""
    found = of.get(key)
    return found if type(found) is int and found > 0 else 0


def stop(said: Any, stops: Mapping[str, Stop]) -> Stop:
    """Why the model stopped, by the provider's own word for it."""
    return stops.get(said, "other") if isinstance(said, str) else "other"


def written(text: Any) -> list[Written]:
    """The words that a piece of an answer adds, where it has any."""
    return [Written(whole_letters(text))] if isinstance(text, str) and text else []


def own_id(given: str | None, taken: set[str]) -> str:
    """The id of a call: as it was *given*, or a new one where it has none, or that of another call.

    A new one is nine letters or digits, which every server takes, also Mistral. It is *taken* then.
    """
    while not given or given in taken:
        given = f"{getrandbits(36):09x}"
    taken.add(given)
    return given


class Pieces(Protocol):
    """A reply in pieces."""

    def add(self, chunk: Any) -> list[Written]: ...

    def reply(self) -> Reply: ...


def gathered(stream: Pieces, pieces: Iterable[Any]) -> Reply:
    """The whole of *pieces*."""
    for piece in pieces:
        stream.add(piece)
    return stream.reply()


def kind(value: Any) -> str:
    """What *value* is, in JSON's words where it has any. The value itself is not quoted."""
    if value is None:
        return "null"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def chosen(choice: str, specs: Iterable[ToolSpec]) -> str:
    """The name of the one tool that *choice* wants. Raises SetupError, naming the nearest, where there is none."""
    names = [spec.name for spec in specs]
    if choice in names:
        return choice
    meant = nearest(choice, names)
    hint = f" Did you mean '{meant}'?" if meant else f" There are: {', '.join(sorted(names)) or 'none'}."
    raise SetupError(
        f"The tool choice '{choice}' is neither 'auto', 'any' nor 'none', and no tool has this name.{hint}"
    )
