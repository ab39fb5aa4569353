"""URI templates (RFC 6570), as far as resources need them: `{name}`, `{+name}` with slashes, `{?a,b}` for a query."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from ..core import DefinitionError

MAX_URI_CHARS = 8192
MAX_VARIABLES = 32
_EXPRESSION = re.compile(r"\{([+?]?)([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)\}")


class URITemplate:
    """The URIs that a template stands for. `names` are its variables. Raises DefinitionError for others than these.

    Each segment has at most one variable, and a template at most one `{+name}`: so a regular expression decides in
    linear time, also about the templates and URIs of others.
    """

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        self._query: list[str] = []
        pattern, at = "", 0
        for found in _EXPRESSION.finditer(text):
            kind, names = found[1], found[2].split(",")
            pattern += re.escape(text[at : found.start()])
            at = found.end()
            if kind == "?" and at == len(text):
                self._query = names
            elif kind == "?" or len(names) > 1:
                raise _unreadable(text)
            else:
                pattern += "([^?#]+)" if kind else "([^/?#]+)"
            self.names += names
        rest = _EXPRESSION.sub(lambda found: "" if found[1] == "?" else "\0", text)
        is_linear = all(segment.count("\0") <= 1 for segment in re.split("[/?#]", rest)) and text.count("{+") <= 1
        is_distinct = len(set(self.names)) == len(self.names) <= MAX_VARIABLES
        if len(text) > MAX_URI_CHARS or "{" in rest or "}" in rest or not is_linear or not is_distinct:
            raise _unreadable(text)
        self._pattern = re.compile(pattern + re.escape(text[at:]))

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the values of the variables in *uri*; None where it does not match.

        A value with a segment `..`, or a NUL, does not match: it may become the path of a file.
        """
        path, _, query = uri.partition("?") if self._query else (uri, "", "")
        match = self._pattern.fullmatch(path) if len(uri) <= MAX_URI_CHARS else None
        if match is None:
            return None
        values = dict(zip(self.names, map(unquote, match.groups()), strict=False))
        values |= {name: value for name, value in parse_qsl(query) if name in self._query}
        is_unsafe = any("\0" in value or ".." in re.split(r"[/\\]", value) for value in values.values())
        return None if is_unsafe else values


def _unreadable(text: str) -> DefinitionError:
    return DefinitionError(
        f"'{text[:200]}' is not a URI template that can be read. Write each variable once, {MAX_VARIABLES} at most and "
        "one in a segment, as {name}; one as {+name} for a value with slashes; or as {?a,b} at the end for a query."
    )
