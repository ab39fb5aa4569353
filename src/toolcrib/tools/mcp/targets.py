"""How an MCP server is reached, and what of that is secret: by the names of headers, variables and options.

This file does no I/O and needs no SDK. A key in the path of a URL, or in a plain word, is not recognized.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import PurePath
from urllib.parse import parse_qsl, urlsplit

from ...core import LoadError
from ...schema import display_name

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET = re.compile(r"key|token|secret|passw|auth(?!or(?!iz))|credential|cookie|bearer", re.IGNORECASE)
_NAMED = re.compile(r"(-*[\w.-]+)(=|:\s*)(.+)", re.DOTALL)
_USER = re.compile(r"(?<=//)[^/\s]*@")
MAX_BYTES = 16 * 1024**2
"""How large one message, one response, or all pages of a list may be."""
MIN_SECRET = 6
"""Shorter values are no secrets, and are words of other texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An MCP server that is reached by a *command* or a *url*: see `MCPSource`."""

    name: str = ""
    command: Sequence[str] = ()
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    folder: str | None = None
    allow: Sequence[str] = ()
    required: bool = False
    sampling: bool = False
    roots: bool = False

    @property
    def shown_name(self) -> str:
        """How it is called before models and people: its name, else its host, else its program."""
        return self.name or (urlsplit(self.url).hostname if self.url else None) or PurePath(self.command[0]).name

    @property
    def label(self) -> str:
        """What it is reached by, without the secrets that are recognized: for the log of the operator."""
        return shown_url(self.url) if self.url else shown_words(self.command)

    @property
    def secrets(self) -> Sequence[str]:
        """What is not shown of it, and goes to no model."""
        words = [secret for _, secrets in map(_read, self.command, ["", *self.command]) for secret in secrets]
        return [*words, *_in_table(self.env), *_in_url(self.url), *_in_table(self.headers)]

    @property
    def has_credentials(self) -> bool:
        """Whether its headers say who asks: then it is the same for all callers."""
        return any(name.lower() == "authorization" for name in self.headers)

    def require(self) -> None:
        """Raise LoadError for what cannot be reached: neither a command nor the URL of a server."""
        if bool(self.url) == bool(self.command) or isinstance(self.command, str):
            raise LoadError(
                "An MCP server is MCPSource(command=['npx', '-y', 'server']) or MCPSource(url='https://...')."
            )
        if self.url:
            self._require_url()
        elif not self.command[0] or not all(isinstance(word, str) and "\0" not in word for word in self.command):
            raise LoadError("A command is a list of words, the first of them the program: ['npx', '-y', 'server'].")

    def _require_url(self) -> None:
        """Raise LoadError for what is not the URL of a server, and for http to another computer."""
        label = display_name(self.label)
        try:
            scheme, host = _scheme_and_host(self.url)
        except ValueError:
            raise LoadError(f"'{label}' is not the URL of a server. It has no name or password in it.") from None
        if scheme == "http" and not (_is_private(host) or host in self.allow):
            raise LoadError(
                f"'{label}': over http it could be read and changed on the way. Use https; for a host of "
                f'your own network, allow it in the settings: [net] allow = ["{host}"].'
            )
        for key, value in self.headers.items():
            if not (_HEADER.fullmatch(key) and value.isascii() and value.isprintable()):
                raise LoadError(f"'{label}': '{display_name(key)}' is not a header that can be sent.")


def _scheme_and_host(url: str) -> tuple[str, str]:
    """Return them, in lower case. Raises ValueError where *url* is not that of a server, or says who asks."""
    parts = urlsplit(url)
    if not parts.hostname or not url.isprintable() or " " in url or parts.username or parts.password:
        raise ValueError
    return parts.scheme, parts.hostname


def _is_private(host: str) -> bool:
    try:
        return ip_address(host).is_private
    except ValueError:
        return host == "localhost"


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
