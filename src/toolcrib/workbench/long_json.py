"""Long JSON text as a list or an object of which only those members are parsed that are looked at.

Where members begin is found in small steps, so that in a thread this leaves the others their turn: one call of a parser
would hold them up for a second, and its value takes ten times the memory of the text. What was not looked at is not
known to be JSON.
"""

import re
from array import array
from collections.abc import Iterator
from itertools import pairwise
from json import JSONDecoder
from typing import Any

from pydantic_core import from_json

_AT_ONCE_CHARS = 64 * 1024
_decode = JSONDecoder().raw_decode
_SPACE = " \t\n\r"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def parse(text: str) -> Any:
    """The value of *text*: of long text, its members are parsed when they are looked at. Raises ValueError."""
    text = text.strip(_SPACE)
    if len(text) > _AT_ONCE_CHARS and text[0] in "[{":
        return LongList(text) if text[0] == "[" else LongObject(text)
    return from_json(text)


class LongList(list[Any]):
    """A list whose items are in its `json`."""

    def __init__(self, text: str) -> None:
        self.json = text
        self._starts = _starts(text)
        if len(self):
            _ = self[0], self[-1]  # raises where this was not JSON, such as a log that begins with [INFO]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return parse(self.json[self._starts[at] : self._starts[at + 1] - 1])

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))


class LongObject(dict[str, Any]):
    """An object whose values are in its `json`."""

    def __init__(self, text: str) -> None:
        self.json = text
        starts = _starts(text)
        for start, after in pairwise(starts):
            name, end = _decode(text, text.index('"', start, after))
            self[name] = (text.index(":", end, after) + 1, after - 1)

    def __getitem__(self, name: str) -> Any:
        start, end = super().__getitem__(name)
        return parse(self.json[start:end])

    def items(self) -> Any:
        return ((name, self[name]) for name in self)


def _starts(text: str) -> "array[int]":
    """Where the members of the container begin that *text* is, and where one more would."""
    starts = array("Q", [1])
    depth = 0
    for found in _TOKEN.finditer(text):
        match text[found.start()]:
            case '"':
                pass
            case ",":
                if depth == 1:
                    starts.append(found.end())
            case "[" | "{":
                depth += 1
            case _:
                depth -= 1
                if depth == 0:
                    if found.end() < len(text):
                        raise ValueError("something follows the value")
                    if text[starts[-1] : found.start()].strip(_SPACE):
                        starts.append(found.end())
                    return starts
    raise ValueError("the text ends too early")
