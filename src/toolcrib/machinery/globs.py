"""Patterns over names of tools and people: `*` for any text and `?` for one character.

In a tool's name `.` stands for any separator of a prefix, so `db.*` matches `db_drop` and `db-drop` too.
"""

import re
from collections.abc import Sequence
from typing import Any

from ..core import SetupError

Globs = str | Sequence[str]
"""One pattern or several: a name matches that matches any of them."""


def compile_globs(patterns: Any, *, of: str = "tools", tool: bool = True) -> re.Pattern[str]:
    """Return a regular expression that `fullmatch`es the names of *patterns*.

    Raises SetupError, naming the option *of*.
    """
    globs: list[Any] = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(globs, list | tuple) or not globs or not all(isinstance(glob, str) and glob for glob in globs):
        raise SetupError(f'{of} is a pattern of names, or a list of them: "db_*" or ["db_read", "mail_*"].')
    return re.compile("|".join(f"(?:{translate_glob(glob, tool=tool)})" for glob in globs), re.DOTALL)


def translate_glob(pattern: str, *, tool: bool = True) -> str:
    """Return *pattern* as a regular expression to `fullmatch`, under `re.DOTALL`."""
    special = {"?": "."} | ({".": "[._/-]"} if tool else {})
    first, *rest = ("".join(special.get(c) or re.escape(c) for c in part) for part in pattern.split("*"))
    if not rest:
        return first
    *middle, last = rest
    # Atomic: the first place that fits is as good as any, and looking for others would take a long text for ever.
    return first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last
