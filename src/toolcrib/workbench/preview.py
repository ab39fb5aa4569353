"""What is shown in the place of a result that is too large: its size, its shape, its head and its tail, and how to read
the rest. Never longer than it may be. This file does no I/O.
"""

from typing import Any

from ..core import ToolError
from ..schema import spoken
from .reading import View, kind_of, written

LEAST_CHARS = 1000
"""The least room in which a preview can say what it has to."""

_LOOKED_AT = 100
_KEYS = 30
_PARSED_CHARS = 32 * 1024 * 1024


def preview(view: View, *, room: int, handle: str | None, reader: str | None, beside: bool = False) -> str:
    """The preview, of at most *room* characters. *reader* is the tool by which *handle* is read; None without one.

    *beside* where images and files are shown beside it.
    """
    text, value = view.text, _value(view)
    data = 0 if beside else view.data_bytes
    intro = _intro(text, data, value, handle, reader, room // 3)
    left = room - len(intro) - 1
    body = _items(value, left) if isinstance(value, list) else None
    return f"{intro}\n{body or _ends(text, left)}"[:room]


def shortened(message: str, room: int) -> str:
    """The beginning and the end of a message of an error."""
    return _ends(message, room)[:room]


def _intro(text: str, data_bytes: int, value: Any, handle: str | None, reader: str | None, room: int) -> str:
    lines = text.count("\n") + 1
    size = f"{len(text)} characters" + (f" in {lines} lines" if lines > 1 else "")
    if data_bytes:
        size += f" and {data_bytes} bytes of images and files"
    said = f"[This result is too large to be shown whole: {size}{_shape(value, room)}."
    if handle is None:
        return f"{said} The rest could not be kept: ask for less.]"
    if reader is not None:
        said += (
            f' The whole is kept under the handle "{handle}": read on with {reader}, by offset and limit, a JSON '
            "pointer, or a search."
        )
    return f'{said} Arguments that take a handle take {{"handle": "{handle}"}}.]'


def _value(view: View) -> Any:
    if not view.looks_like_json() or len(view.text) > _PARSED_CHARS:
        return None
    try:
        return view.value()
    except ToolError:
        return None


def _shape(value: Any, room: int) -> str:
    match value:
        case list():
            said = f", a JSON list of {len(value)} items{_of(value)}"
        case dict():
            keys = [f"{spoken(key)} ({kind_of(member)})" for key, member in list(value.items())[:_KEYS]]
            said = f", a JSON object with {len(value)} keys: {', '.join(keys)}{', …' if len(value) > _KEYS else ''}"
        case str():
            said = ", a JSON string"
        case _:
            said = ""
    return said if len(said) <= room else said[: room - 1] + "…"


def _of(items: list[Any]) -> str:
    looked_at = items[:_LOOKED_AT]
    if looked_at and all(isinstance(item, dict) for item in looked_at):
        keys = list(dict.fromkeys(key for item in looked_at for key in item))
        return f", objects with {', '.join(map(spoken, keys[:_KEYS]))}{', …' if len(keys) > _KEYS else ''}"
    kinds = dict.fromkeys(_KINDS.get(type(item), "null") for item in looked_at)
    return f": {', '.join(kinds)}" if kinds else ""


_KINDS = {
    dict: "objects",
    list: "lists",
    str: "strings",
    bool: "booleans",
    int: "numbers",
    float: "numbers",
}


def _items(items: list[Any], room: int) -> str | None:
    """Whole items from both ends of a list; None where they are too large for that."""
    room -= 120  # for the words between
    head = _some(items, range(len(items)), room * 2 // 3)
    tail = _some(items, range(len(items) - 1, len(head) - 1, -1), room - sum(len(item) + 2 for item in head))[::-1]
    if not head or not tail:
        return None
    left_out = len(items) - len(head) - len(tail)
    between = f"… {left_out} items left out, {len(head)} to {len(items) - len(tail) - 1} …"
    return "\n".join(["[" + ",\n".join(head) + ",", between, ",\n".join(tail) + "]"])


def _some(items: list[Any], order: range, room: int) -> list[str]:
    shown: list[str] = []
    for index in order:
        item = written(items, None, index)
        room -= len(item) + 2
        if room < 0:
            break
        shown.append(item)
    return shown


def _ends(text: str, room: int) -> str:
    """Both ends of a text, cut where a line, a word or a JSON value ends, if there is such a place near."""
    if len(text) <= room:
        return text
    room = max(room - 60, 0)  # for the words between
    head = _cut(text[: room * 2 // 3])
    end = text[len(text) - (room - len(head)) :] if room > len(head) else ""
    tail = end[_first_cut(end) :]
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"


def _cut(text: str) -> str:
    least = len(text) * 3 // 4
    for mark in ("\n", ",", " "):
        at = text.rfind(mark, least)
        if at >= 0:
            return text[: at + 1].rstrip("\n")
    return text


def _first_cut(text: str) -> int:
    most = len(text) // 4
    for mark in ("\n", ",", " "):
        at = text.find(mark, 0, most)
        if at >= 0:
            return at + 1
    return 0
