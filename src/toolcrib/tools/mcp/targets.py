"""How an MCP server is reached, and what of that is secret: by the names of headers, variables and options.

This file does no I/O and needs no SDK. A key in the path of a URL, or in a plain word, is not recognized.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

_SECRET = re.compile(r"key|token|secret|passw|auth(?!or(?!iz))|credential|cookie|bearer", re.IGNORECASE)
_NAMED = re.compile(r"(-*[\w.-]+)(=|:\s*)(.+)", re.DOTALL)
_USER = re.compile(r"(?<=//)[^/\s]*@")
MAX_BYTES = 16 * 1024**2
"""How large one message, one response, or all pages of a list may be."""
MIN_SECRET = 6
"""Shorter values are no secrets, and are words of other texts."""


@dataclass(frozen=True, slots=True)
class Command:
    """A *command* that speaks MCP over its standard input and output. It gets *env*, and little of ours."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    folder: str | None = None

    @property
    def secrets(self) -> Sequence[str]:
        """What is not shown of it, and goes to no model."""
        words = [secret for _, secrets in map(_read, self.command, ["", *self.command]) for secret in secrets]
        return [*words, *_in_table(self.env)]

    def __str__(self) -> str:
        return shown_words(self.command)


@dataclass(frozen=True, slots=True)
class Address:
    """A *url* of Streamable HTTP, the *headers* of each request, and what may be reached besides public addresses."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    allow: Sequence[str] = ()

    @property
    def has_credentials(self) -> bool:
        """Whether its headers say who asks: then it is the same for all callers."""
        return any(name.lower() == "authorization" for name in self.headers)

    @property
    def secrets(self) -> Sequence[str]:
        """What is not shown of it, and goes to no model."""
        return [*_in_url(self.url), *_in_table(self.headers)]

    def __str__(self) -> str:
        return shown_url(self.url)


def shown_url(url: str) -> str:
    """Return *url* without its query, in which many servers take a key, and without a name and password."""
    return _USER.sub("", url.partition("?")[0])


def shown_words(words: Sequence[str]) -> str:
    """Return a command without its secrets."""
    return " ".join(label for label, _ in map(_read, words, ["", *words]))


def _in_table(table: Mapping[str, str]) -> list[str]:
    """Return the secrets in headers or variables: each value, and what follows a scheme such as Bearer."""
    values = [value for name, value in table.items() if _SECRET.search(name)]
    secrets = dict.fromkeys([*values, *(value.rpartition(" ")[2] for value in values)])
    return [secret for secret in secrets if len(secret) >= MIN_SECRET]


def _in_url(url: str) -> list[str]:
    return _in_table(dict(parse_qsl(urlsplit(url).query)))


def _read(word: str, before: str) -> tuple[str, list[str]]:
    """Return *word* of a command, which comes after the word *before*, as it is shown, and the secrets in it.

    `--key=V`, `--key V`, `KEY=V`, `Authorization: Bearer V`, and the query of a URL.
    """
    if "://" in word:
        return shown_url(word), _in_url(word)
    if (match := _NAMED.fullmatch(word)) is not None and _SECRET.search(match[1]):
        return f"{match[1]}{match[2]}…", _in_table({match[1]: match[3]})
    if before.startswith("-") and "=" not in before and _SECRET.search(before) and not word.startswith("-"):
        return "…", _in_table({before: word})
    return word, []
