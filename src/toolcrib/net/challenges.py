"""What a server says that a request lacks: the header `WWW-Authenticate` (RFC 6750, 3; RFC 9728, 5.1). No I/O."""

import re
from typing import Any

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MAX_SCOPES = 50


def challenge_of(header: str) -> dict[str, str]:
    """Return the parameters of a challenge of the scheme Bearer."""
    return {name.lower(): in_quotes or plain for name, in_quotes, plain in _PARAMETER.findall(header[:4000])}


def scopes_in(text: Any) -> tuple[str, ...]:
    """Return the scopes in *text*, or in a list, as a server has written them: those that can be sent."""
    words = text.split() if isinstance(text, str) else text if isinstance(text, list) else []
    return tuple(word for word in words if isinstance(word, str) and _SCOPE.fullmatch(word))[:_MAX_SCOPES]
