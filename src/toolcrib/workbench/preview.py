"""The preview of a result that is too large: its size and shape, its beginning and end, and how to read the rest.

A preview is never longer than the room that it gets. This file does no I/O.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from ..core import ToolError
from ..schema import display_name
from .read_result import ResultContent, as_json, kind_of

_ITEMS_EXAMINED = 100
_KEYS_SHOWN = 30
_KINDS = {dict: "objects", list: "lists", str: "strings", bool: "booleans", int: "numbers", float: "numbers"}


def preview(content: ResultContent, *, room: int, handle: str | None, reader: str | None, beside: bool = False) -> str:
    """Return the preview, of at most *room* characters. *reader* is the tool that reads *handle*; None without one.

    *beside* where images and files are shown beside it.
    """
    value = _value(content)
    intro = _intro(content.text, 0 if beside else content.data_bytes, value, handle, reader, room // 3)
    room_left = room - len(intro) - 1
    body = _first_and_last_items(value, room_left) if isinstance(value, list) else None
    return f"{intro}\n{body or shortened(content.text, room_left)}"[:room]


def shortened(text: str, room: int) -> str:
    """Return both ends of a text, cut where a line, a word or a JSON value ends, if there is such a place near."""
    if len(text) <= room:
        return text
    body_room = max(room - 60, 0)  # for the words between
    head = _cut_end(text[: body_room * 2 // 3])
    end = text[len(text) - (body_room - len(head)) :] if body_room > len(head) else ""
    tail = _cut_end(end[::-1])[::-1].lstrip("\n, ")
    return f"{head}\n… {len(text) - len(head) - len(tail)} characters left out …\n{tail}"[:room]


def _intro(text: str, data_bytes: int, value: Any, handle: str | None, reader: str | None, room: int) -> str:
    lines = text.count("\n") + 1
    size = f"{len(text)} characters" + (f" in {lines} lines" if lines > 1 else "")
    if data_bytes:
        size += f" and {data_bytes} bytes of images and files"
    shape = _shape(value)
    shape = shape if len(shape) <= room else shape[: room - 1] + "…"
    intro = f"[This result is too large to be shown whole: {size}{shape}."
    if handle is None:
        return f"{intro} The rest could not be stored: ask for less.]"
    if reader is not None:
        intro += (
            f' The whole result is stored under the handle "{handle}": read on with {reader}, by offset and limit, a '
            "JSON pointer, or a search."
        )
    return f'{intro} Arguments that take a handle take {{"handle": "{handle}"}}.]'


def _value(content: ResultContent) -> Any:
    try:
        return content.value if content.looks_like_json else None
    except ToolError:  # it was not JSON after all
        return None


def _shape(value: Any) -> str:
    match value:
        case list():
            return f", a JSON list of {len(value)} items{_item_kinds(value[:_ITEMS_EXAMINED])}"
        case dict():
            keys = [
                f"{display_name(key)} ({kind_of(member)})" for key, member in islice(value.items(), _KEYS_SHOWN + 1)
            ]
            return f", a JSON object with {len(value)} keys: {_listed(keys)}"
        case str():
            return ", a JSON string"
        case _:
            return ""


def _item_kinds(items: list[Any]) -> str:
    if items and all(isinstance(item, dict) for item in items):
        keys = dict.fromkeys(key for item in items for key in item)
        return f", objects with {_listed([display_name(key) for key in keys])}"
    kinds = dict.fromkeys(_KINDS.get(type(item), "null") for item in items)
    return f": {', '.join(kinds)}" if kinds else ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_KEYS_SHOWN]) + (", …" if len(names) > _KEYS_SHOWN else "")


def _first_and_last_items(items: list[Any], room: int) -> str | None:
    """Return whole items from both ends of a list; None where they are too large for that."""
    room -= 120  # for the words between
    head = _fitting(items, room * 2 // 3)
    tail = _fitting(reversed(items[len(head) :]), room - sum(len(item) + 2 for item in head))[::-1]
    if not head or not tail:
        return None
    left_out = len(items) - len(head) - len(tail)
    between = f"… {left_out} items left out, {len(head)} to {len(items) - len(tail) - 1} …"
    return "\n".join(["[" + ",\n".join(head) + ",", between, ",\n".join(tail) + "]"])


def _fitting(items: Iterable[Any], room: int) -> list[str]:
    """Return the first of *items* as JSON, as many as have *room*."""
    shown: list[str] = []
    for item in map(as_json, items):
        room -= len(item) + 2
        if room < 0:
            break
        shown.append(item)
    return shown


def _cut_end(text: str) -> str:
    """Return *text* without what follows the last line end, comma or space in its last quarter."""
    for mark in ("\n", ",", " "):
        at = text.rfind(mark, len(text) * 3 // 4)
        if at >= 0:
            return text[: at + 1].rstrip("\n")
    return text
