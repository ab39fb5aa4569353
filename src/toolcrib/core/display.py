"""Text from outside as people may see it: what moves the cursor, forges lines, turns text around or is unseen."""

import json
import re

# Control characters except tab and line feed; marks that change the direction of text.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
# The category Cf, fillers and blanks that are letters, variation selectors, tags, and what is ignored by default.
_UNSEEN = (
    "\u00ad\u034f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(f"[{_CONTROLS}]")
_INVISIBLE = re.compile(f"[{_CONTROLS}{_UNSEEN}]")


def escaped(text: str, *, invisible: bool = False, as_json: bool = False) -> str:
    """Return *text* with control characters escaped, as in `\\x1b`; with *invisible*, also others that are not seen.

    JSON text remains JSON, of the same value, with *as_json*. Tabs and line feeds stay.
    """
    pattern = _INVISIBLE if invisible else _UNSAFE
    if as_json:
        return pattern.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return pattern.sub(lambda match: match[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


def one_line(text: str, *, invisible: bool = False) -> str:
    """Return *text*, escaped, on one line."""
    return escaped(" ".join(text.split()), invisible=invisible)
