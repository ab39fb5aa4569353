"""On which line of a TOML text each of its keys stands: what `tomllib` does not say.

This is no parser. It goes through a text that `tomllib` has read without complaint, so it judges nothing.
"""

import re
import tomllib
from collections import Counter

Keys = tuple[str | int, ...]
"""The way to a value: keys of tables, and indexes of lists from 0."""

_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TEXT = re.compile(
    r'"""(?:\\.|(?!""")[^\\])*"{3,5}|' + r"'''(?:(?!''').)*'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'", re.DOTALL
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\r\n]+")


def lines_of(text: str) -> dict[Keys, int]:
    """The line, from 1, of each key and list item in *text*, which is valid TOML."""
    return _Walk(text).found


class _Walk:
    def __init__(self, text: str) -> None:
        self.found: dict[Keys, int] = {}
        self._text = text
        self._at = 0
        self._counted_to = (0, 1)
        self._tables: Counter[Keys] = Counter()  # how many tables of [[a.list]] there were
        table: Keys = ()
        self._skip()
        while self._at < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> Keys:
        is_list = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if is_list else 1
        table: Keys = ()
        keys = self._keys()
        self._at += 2 if is_list else 1
        for number, key in enumerate(keys, 1):
            table = (*table, key)
            self.found.setdefault(table, line)
            if is_list and number == len(keys):
                self._tables[table] += 1
            if self._tables[table]:
                table = (*table, self._tables[table] - 1)
        self.found[table] = line
        return table

    def _pair(self, table: Keys) -> None:
        line = self._line()
        path = table
        for key in self._keys():
            path = (*path, key)
            self.found.setdefault(path, line)
        self._at += 1  # =
        self._skip()
        self._value(path)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip()
            if quoted := _TEXT.match(self._text, self._at):
                self._at = quoted.end()
                keys.append(tomllib.loads(f"key = {quoted[0]}")["key"])
            elif bare := _BARE_KEY.match(self._text, self._at):
                self._at = bare.end()
                keys.append(bare[0])
            self._skip()
            if self._at >= len(self._text) or self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self, path: Keys) -> None:
        opening = self._text[self._at : self._at + 1]
        if opening in ("[", "{"):
            self._at += 1
            self._members(path, "]" if opening == "[" else "}")
        elif found := _TEXT.match(self._text, self._at) or _BARE_VALUE.match(self._text, self._at):
            self._at = found.end()

    def _members(self, path: Keys, closing: str) -> None:
        number = 0
        while True:
            self._skip()
            if self._text[self._at : self._at + 1] in (closing, ""):
                self._at += 1
                return
            if closing == "]":
                self.found[*path, number] = self._line()
                self._value((*path, number))
                number += 1
            else:
                self._pair(path)
            self._skip()
            if self._text[self._at : self._at + 1] == ",":
                self._at += 1

    def _skip(self) -> None:
        gap = _GAP.match(self._text, self._at)
        self._at = gap.end() if gap else self._at

    def _line(self) -> int:
        start, line = self._counted_to
        self._counted_to = (self._at, line + self._text.count("\n", start, self._at))
        return self._counted_to[1]
