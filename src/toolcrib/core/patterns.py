"""Which tools or people are meant: patterns over names, `*` for any text and `?` for one character.

For a tool's name `.` stands for whatever separates a prefix from the rest, so `db.*` means `db_drop` and `db-drop` too.
"""

import re
from collections.abc import Sequence
from typing import Any

from .errors import SetupError

Patterns = str | Sequence[str]
"""One pattern or several: a name is meant that fits any of them."""


def matching(patterns: Any, *, of: str = "tools") -> re.Pattern[str]:
    """What `fullmatch`es the names that *patterns* mean. Raises SetupError, naming the option *of* which they are."""
    listed: list[Any] = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(one, str) and one for one in listed):
        raise SetupError(f'{of} is a pattern of names, or a list of them: "db_*" or ["db_read", "mail_*"].')
    return re.compile("|".join(f"(?:{translated(one)})" for one in listed), re.DOTALL)


def translated(pattern: str, *, tool: bool = True) -> str:
    """*pattern* as a regular expression to `fullmatch`, under `re.DOTALL`."""
    special = {"?": "."} | ({".": "[._/-]"} if tool else {})
    first, *rest = ("".join(special.get(c) or re.escape(c) for c in part) for part in pattern.split("*"))
    if not rest:
        return first
    *middle, last = rest
    # Atomic: the first place that fits is as good as any, and looking for others would take a long text for ever.
    return first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last
