"""URI templates (RFC 6570), as far as resources need them: `{name}`, `{+name}` with slashes, `{?a,b}` for a query."""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote

from ..core import DefinitionError

_EXPRESSION = re.compile(r"\{([+?]?)([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST_CHARS = 8192
_MOST_NAMES = 32


class URITemplate:
    """Which URIs a template stands for. `names` are its variables. Raises DefinitionError for what it cannot read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: list[str] = []
        self._query: list[str] = []
        self._literals: list[str] = []
        self._stops: list[str] = []
        """Of each variable, the characters that it does not have."""
        at = 0
        if len(text) > _MOST_CHARS:
            raise _unreadable(text)
        for found in _EXPRESSION.finditer(text):
            kind, names = found[1], found[2].split(",")
            if not all(map(_NAME.fullmatch, names)) or (kind != "?" and len(names) > 1):
                raise _unreadable(text)
            if kind == "?":
                if found.end() != len(text):
                    raise _unreadable(text)
                self._query = names
            else:
                self._literals.append(text[at : found.start()])
                self._stops.append("?#" if kind else "/?#")
                self.names += names
                at = found.end()
        tail = text[at:].partition("{?")[0] if self._query else text[at:]
        self._literals.append(tail)
        self.names += self._query
        if not len(set(self.names)) == len(self.names) <= _MOST_NAMES or "{" in tail or "}" in tail:
            raise _unreadable(text)

    def match(self, uri: str) -> Mapping[str, str] | None:
        """The values of the variables in *uri*; None where it does not match.

        A value with a segment `..`, or a NUL, does not match: it may become the path of a file.
        """
        if len(uri) > _MOST_CHARS:
            return None
        path, _, query = uri.partition("?") if self._query else (uri, "", "")
        found = self._found(path)
        if found is None:
            return None
        values = dict(zip(self.names, map(unquote, found), strict=False))
        values |= {name: value for name, value in parse_qsl(query) if name in self._query}
        unsafe = any("\0" in value or ".." in re.split(r"[/\\]", value) for value in values.values())
        return None if unsafe else values

    def _found(self, path: str) -> Sequence[str] | None:
        """The variables of *path*, the first as long as they can be; None where it does not match.

        In linear time: of `{year}-{month}-{day}`, a regular expression would take minutes to refuse 8,000 hyphens.
        """
        if not path.startswith(self._literals[0]):
            return None
        starts = [{len(self._literals[0])}]
        for stops, literal in zip(self._stops, self._literals[1:], strict=True):
            after: set[int] = set()
            is_open = False
            for at in range(len(path) + 1):
                if is_open and path.startswith(literal, at):
                    after.add(at + len(literal))
                is_open = (is_open or at in starts[-1]) and path[at : at + 1] not in stops
            if not after:
                return None
            starts.append(after)
        end, found = len(path), list[str]()
        if end not in starts.pop():
            return None
        for begins, literal in zip(reversed(starts), reversed(self._literals), strict=False):
            end -= len(literal)
            begin = next(at for at in range(end - 1, -1, -1) if at in begins)
            found.insert(0, path[begin:end])
            end = begin
        return found


def _unreadable(text: str) -> DefinitionError:
    return DefinitionError(
        f"'{text[:200]}' is not a URI template that can be read. Write each variable once, {_MOST_NAMES} at most, as "
        "{name}, as {+name} for a value with slashes, or as {?a,b} at the end for a query."
    )
