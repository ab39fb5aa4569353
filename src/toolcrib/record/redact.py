"""Replaces known secrets in text: as they are, and as JSON, URLs, HTML, base64 and hex write them.

Known by value, not by shape: what was never registered cannot be redacted.
"""

import json
from collections.abc import Iterable

from ..core import SetupError

MARK = "[secret]"
_SHORTEST = 4
_URL_SAFE = str.maketrans("+/", "-_")


class Redactor:
    """Redacts the secrets it was given. They stay out of its repr.

    Raises SetupError for a secret under 4 characters: redacting it would garble ordinary text.
    """

    __slots__ = ("__weakref__", "_spellings")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._spellings: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Redact *secret* too, from now on."""
        if not isinstance(secret, str) or len(secret) < _SHORTEST:
            raise SetupError(
                f"A secret to redact is text of at least {_SHORTEST} characters: a shorter one would be found in "
                "ordinary words. Leave it out, or use a longer one."
            )
        # The longest first: a shorter one inside it would leave its ends behind.
        known = {*self._spellings, *_spellings(secret)}
        self._spellings = tuple(sorted(known, key=lambda spelling: (-len(spelling), spelling)))

    def copy(self) -> "Redactor":
        """A redactor of the same secrets, to which others can be added."""
        made = Redactor()
        made._spellings = self._spellings
        return made

    def redact(self, text: str, /) -> str:
        """*text* with every known secret replaced by `[secret]`."""
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, MARK)
        return text

    def split(self, text: str, /) -> tuple[str, str]:
        """Text that goes out in pieces: its end, if that may be the beginning of a secret, and the rest, redacted.

        Hold the end back and put it before the next piece: so a secret in two pieces is redacted too.
        """
        text = self.redact(text)
        longest = max((len(spelling) for spelling in self._spellings), default=1) - 1
        for start in range(max(0, len(text) - longest), len(text)):
            end = text[start:]
            if any(spelling.startswith(end) for spelling in self._spellings):
                return end, text[:start]
        return "", text

    def __repr__(self) -> str:
        return "<Redactor>"


def _spellings(secret: str) -> set[str]:
    # Imported with the first secret, not with the package.
    import base64
    import html
    from urllib.parse import quote, quote_plus

    data = secret.encode(errors="surrogatepass")
    found = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(data, safe=""),
        quote_plus(data),
        html.escape(secret),
        data.hex(),
    }
    # Inside longer base64 a secret shows in one of three forms, by where it starts; their outer characters carry its
    # neighbours' bits too. So each form is known without them, and with the last one as it is where the text ends.
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + data).decode().rstrip("=")[(0, 2, 3)[shift] :]
        inner = encoded[: len(encoded) - (1 if (shift + len(data)) % 3 else 0)]
        if len(inner) >= _SHORTEST * 2 or shift == 0:
            found |= {form.translate(alphabet) for form in (encoded, inner) for alphabet in ({}, _URL_SAFE)}
    return {spelling for spelling in found if len(spelling) >= _SHORTEST}
