"""What of a server's command, URL, headers and variables is secret, by its name, and how they are shown without it.

This file does no I/O. A key in the path of a URL, or in a plain word, is not recognized.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlsplit

_SECRET = re.compile(r"key|token|secret|passw|auth(?!or(?!iz))|credential|cookie|bearer", re.IGNORECASE)
_NAMED = re.compile(r"(-*[\w.-]+)(=|:\s*)(.+)", re.DOTALL)
_USER = re.compile(r"(?<=//)[^/\s]*@")
_LEAST = 6
"""Shorter values are no secrets, and are words of other texts."""


def in_table(table: Mapping[str, str]) -> list[str]:
    """The secrets in headers or variables, by their names: each value, and what follows a scheme such as Bearer."""
    found = [value for name, value in table.items() if _SECRET.search(name)]
    return _long_enough([*found, *(value.rpartition(" ")[2] for value in found)])


def in_url(url: str) -> list[str]:
    return in_table(dict(parse_qsl(urlsplit(url).query)))


def shown_url(url: str) -> str:
    """*url* without its query, in which many servers take a key, and without a name and password."""
    return _USER.sub("", url.partition("?")[0])


def in_words(words: Sequence[str]) -> list[str]:
    """The secrets in a command: `--key=V`, `--key V`, `KEY=V`, `Authorization: Bearer V`, and in the query of a URL."""
    return [secret for _, secrets in map(_read, words, ["", *words]) for secret in secrets]


def shown_words(words: Sequence[str]) -> str:
    """A command without its secrets."""
    return " ".join(shown for shown, _ in map(_read, words, ["", *words]))


def _read(word: str, before: str) -> tuple[str, list[str]]:
    """*word*, which comes after the word *before*, as it is shown, and the secrets in it."""
    if "://" in word:
        return shown_url(word), in_url(word)
    if (named := _NAMED.fullmatch(word)) is not None and _SECRET.search(named[1]):
        return f"{named[1]}{named[2]}…", in_table({named[1]: named[3]})
    if before.startswith("-") and "=" not in before and _SECRET.search(before) and not word.startswith("-"):
        return "…", in_table({before: word})
    return word, []


def _long_enough(found: Sequence[str]) -> list[str]:
    return [each for each in dict.fromkeys(found) if len(each) >= _LEAST]
