"""Redact known secrets in text, in each form in which an encoder writes them, and in the lines of our own logs.

Secrets are known by value, not by shape. The forms are computed when a secret is added (plain, JSON, URL, HTML, hex,
base64 in its three alignments), so a text is only searched and never decoded. Whatever an occurrence covers is
redacted, so the result does not depend on where a text was cut into pieces.
"""

import json
import logging
import re
import sys
import threading
import time
import traceback
import weakref
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any
from urllib.parse import quote, quote_plus

from ..core import Credential, SetupError
from ..machinery import MIN_SECRET_CHARS

MARK = "[secret]"
MAX_RECENT, MAX_RECENT_CHARS = 1_000, 4 * 1024 * 1024
MAX_REDACTORS, KEPT_S = 1_000, 24 * 3600.0

MAX_SEARCHES, MAX_LONG_SEARCHES, SHORT_CHARS = 200, 50, 1_000
"""It is quickest to look for each form where there are so many: in a text so short, and in any other."""
MIN_STRIDE, MAX_STRIDE, _GRAM, _TAIL = 4, 8, 4, 24
"""Else each eighth place is looked at; each fourth to seventh where there are forms under 11 characters."""

# One for all redactors: a secret is seldom added, and a redactor can be copied.
_adding = threading.Lock()


class Redactor:
    """The secrets to redact. They stay out of its repr.

    Raises SetupError for a secret under 4 characters: redacting it would garble ordinary text.
    """

    __slots__ = ("__weakref__", "_forms", "_lasting", "_recent", "_version")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Each secret with its forms, in the order in which they were added.
        self._lasting: dict[str, tuple[str, ...]] = {}
        self._recent: dict[str, tuple[str, ...]] = {}
        self._update()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Redact *secret* too, from now on. Where it is known, that costs a look-up."""
        _require_secret(secret)
        with _adding:
            if secret not in self._lasting:
                self._lasting[secret] = _forms(secret)
                self._update()

    def add_recent(self, secret: str) -> None:
        """Redact *secret* too, until 1,000 others or 4 million characters of others were added so after it."""
        if isinstance(secret, str) and (secret in self._recent or secret in self._lasting):
            return
        _require_secret(secret)
        with _adding:
            self._recent[secret] = _forms(secret)
            while len(self._recent) > MAX_RECENT or sum(map(len, self._recent)) - len(secret) > MAX_RECENT_CHARS:
                del self._recent[next(iter(self._recent))]
            self._update()

    def copy(self) -> "Redactor":
        """Return a redactor of the same secrets, but the recent ones, to which others can be added."""
        copy = Redactor()
        with _adding:
            copy._lasting = dict(self._lasting)
            copy._update()
        return copy

    @property
    def version(self) -> object:
        """Another object with each secret that is added."""
        return self._version

    def redact(self, text: str, /) -> str:
        """Return *text* with every known secret replaced by `[secret]`."""
        forms = self._forms
        return text if len(text) < forms.shortest else _redacted(text, (forms,))  # as most results of quick calls

    def split(self, text: str, /) -> tuple[str, str]:
        """Split *text*, which goes out in pieces, into the end that may begin a secret, and the rest, redacted.

        Hold the end back and put it before the next piece: so a secret in two pieces is redacted too. At the end of the
        text, redact what is held.
        """
        boundary = self._forms.start_of_unfinished(text)
        spans = _spans(text, self._forms.in_text(text))
        # An occurrence that the cut goes through is held back whole.
        boundary = next((start for start, end in spans if start < boundary < end), boundary)
        return text[boundary:], _replaced(text[:boundary], [span for span in spans if span[1] <= boundary])

    def _update(self) -> None:
        forms = {form for secrets in (self._lasting, self._recent) for row in secrets.values() for form in row}
        # The mark contains no secret, whatever its letters are.
        if any(form in MARK for form in forms):
            forms.add(MARK)
        self._forms = _Forms(forms)
        self._version = object()

    def __repr__(self) -> str:
        return "<Redactor>"


class CallerRedactors:
    """The redactors of principals: each of the secrets of *shared*, and of those that the principal was given.

    A workbench and a running call hold theirs. Of other principals, those of the last 1,000 who were given a secret are
    kept, and the secrets alone of the rest: until they expire, or for a day where they name no end. They are redacted
    again when their principal comes again: a tool may still have them.
    """

    def __init__(self, shared: Redactor) -> None:
        self._shared = shared
        self._lock = threading.Lock()
        self._in_use: weakref.WeakValueDictionary[str, Redactor] = weakref.WeakValueDictionary()
        # The one that was given something last is last, with what that was.
        self._newest: dict[str, tuple[Redactor, Credential]] = {}
        self._secrets: dict[str, dict[str, float]] = {}  # by principal: each secret, and when it ends
        self._room = 2 * MAX_REDACTORS  # for so many principals, until those are looked for whose secrets have expired

    def of(self, principal: str) -> Redactor:
        with self._lock:
            redactor = self._in_use.get(principal)
            if redactor is None:
                redactor = self._in_use[principal] = self._shared.copy()
                for secret in (secrets := self._secrets.get(principal, {})):
                    redactor.add_recent(secret)
                if secrets:
                    redact_log(redactor)
            return redactor

    def give(self, principal: str, redactor: Redactor | None, credential: Credential) -> None:
        """Have *redactor*, that of *principal*, redact the secrets of *credential* too."""
        if redactor is None:
            return
        with self._lock:
            before = self._newest.pop(principal, None)
            self._newest[principal] = redactor, credential
            if before is not None and before[0] is redactor and before[1] is credential:
                return  # as most calls
        for secret in credential.secrets:
            redactor.add_recent(secret)
        now, ends_at = time.time(), credential.expires_at
        with self._lock:
            if before is None or before[0] is not redactor:
                redact_log(redactor)
            secrets = _lasting(self._secrets.get(principal, {}), now)
            secrets |= dict.fromkeys(credential.secrets, inf if ends_at is None else ends_at.timestamp())
            self._secrets[principal] = dict([*secrets.items()][-MAX_RECENT:])
            if len(self._newest) > MAX_REDACTORS:
                self._forget_oldest(now)

    def _forget_oldest(self, now: float) -> None:
        """Let go of the redactor that was given nothing for longest, and now and then of the secrets that are over."""
        principal = next(iter(self._newest))
        del self._newest[principal]
        secrets = self._secrets.get(principal, {})
        self._secrets[principal] = {
            secret: now + KEPT_S if until == inf else until for secret, until in secrets.items()
        }
        if len(self._secrets) > self._room:
            secrets_by_name = {name: _lasting(secrets, now) for name, secrets in self._secrets.items()}
            self._secrets = {name: secrets for name, secrets in secrets_by_name.items() if secrets}
            self._room = 2 * max(MAX_REDACTORS, len(self._secrets))


def _lasting(secrets: Mapping[str, float], now: float) -> dict[str, float]:
    return {secret: until for secret, until in secrets.items() if until > now}


class _Forms:
    """The forms to look for in a text. In a long one, those are looked for of which it has the last characters."""

    __slots__ = ("_by_head", "_by_tail", "_forms", "_grams", "_heads", "_longest", "_stride", "shortest")

    def __init__(self, forms: Iterable[str]) -> None:
        self._forms = tuple(forms)
        self._longest = max(map(len, self._forms), default=0)
        self.shortest = min(map(len, self._forms), default=sys.maxsize)
        self._by_head: dict[str, list[str]] = {}
        for form in self._forms:
            self._by_head.setdefault(form[:MIN_SECRET_CHARS], []).append(form)
        self._heads = {head[:size] for head in self._by_head for size in range(1, MIN_SECRET_CHARS)}
        self._stride = min(MAX_STRIDE, self.shortest - _GRAM + 1)
        self._by_tail: dict[str, set[str]] = {}
        self._grams: dict[str, set[tuple[int, int]]] = {}

    def in_text(self, text: str) -> list[str]:
        """Return the forms that *text* has."""
        is_short = len(text) < SHORT_CHARS or self._stride < MIN_STRIDE
        is_quick = len(self._forms) <= (MAX_SEARCHES if is_short else MAX_LONG_SEARCHES)
        return [form for form in (self._forms if is_quick else self._candidates(text)) if form in text]

    def _candidates(self, text: str) -> set[str]:
        """Return the forms that *text* may have: it has their last characters.

        Wherever these are, one of their first fours of characters begins at a multiple of the stride.
        """
        if not self._forms:
            return set()
        stride = self._stride
        if not self._grams:
            grams: dict[str, set[tuple[int, int]]] = {}
            for form in self._forms:
                tail = form[-_TAIL:]
                self._by_tail.setdefault(tail, set()).add(form)
                for offset in range(stride):
                    grams.setdefault(tail[offset : offset + _GRAM], set()).add((offset, len(tail)))
            self._grams = grams  # whole: other threads may look meanwhile
        grams, text = self._grams, "\0" * stride + text
        starts = range(stride, len(text) - _GRAM + 1, stride)
        surroundings = {text[at - stride : at + _TAIL] for at in starts if text[at : at + _GRAM] in grams}
        candidates: set[str] = set()
        for around in surroundings:
            for offset, size in grams[around[stride : stride + _GRAM]]:
                candidates.update(self._by_tail.get(around[stride - offset : stride - offset + size], ()))
        return candidates

    def start_of_unfinished(self, text: str) -> int:
        """Return where the longest end of *text* begins that is the beginning of a form; its size if there is none."""
        size = len(text)
        for start in range(max(0, size - self._longest + 1), size):
            head = text[start : start + MIN_SECRET_CHARS]
            if head in self._by_head:
                end = text[start:]
                if any(len(form) > len(end) and form.startswith(end) for form in self._by_head[head]):
                    return start
            elif size - start < MIN_SECRET_CHARS and head in self._heads:
                return start
        return size


def _redacted(text: str, all_forms: Iterable[_Forms]) -> str:
    present = [form for forms in all_forms for form in forms.in_text(text)]
    return _replaced(text, _spans(text, present)) if present else text


def _require_secret(secret: object) -> None:
    if not isinstance(secret, str) or len(secret) < MIN_SECRET_CHARS:
        raise SetupError(
            f"A secret to redact is text of at least {MIN_SECRET_CHARS} characters: a shorter one would be found in "
            "ordinary words. Leave it out, or use a longer one."
        )


def _forms(secret: str) -> tuple[str, ...]:
    """Return *secret* as encoders write it by default. For letters and digits most of these are the same."""
    json_texts = _json(secret)
    python_texts = {repr(secret)[1:-1], ascii(secret)[1:-1], repr(_utf8(secret))[2:-1]}
    html_texts = _html(secret)
    forms = {secret, *python_texts, *html_texts, *json_texts}
    for text in (*html_texts, json.dumps(secret)[1:-1]):
        forms |= _json(text)  # a page, or JSON, in a string of JSON
    for text in (secret, *json_texts):
        forms |= _url(text)
        forms |= {_utf8(text).hex(), _utf8(text).hex().upper()}
        for base64_text in _base64(_utf8(text)):
            forms |= {base64_text, quote(base64_text, safe="")}
    return tuple(form for form in forms if form)


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _json(text: str) -> set[str]:
    forms = {json.dumps(text, ensure_ascii=ensure_ascii)[1:-1] for ensure_ascii in (True, False)}
    forms |= {form.replace("/", "\\/") for form in forms}  # PHP
    for character in "&<>":  # Go, Rails, .NET
        forms |= {form.replace(character, f"\\u{ord(character):04x}") for form in forms}
    return forms | {re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match[0][2:].upper(), form) for form in forms}


def _url(text: str) -> set[str]:
    safe = ("", "/", "!~*'()", ";/?:@&=+$,#!~*'()")  # as in Python, encodeURIComponent, encodeURI
    forms = {quote(text, safe=characters, errors="surrogatepass") for characters in safe}
    forms.add(quote_plus(text, errors="surrogatepass"))
    return forms | {re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in forms}


def _html(text: str) -> set[str]:
    from html import escape  # 2,000 names of characters, which a program without secrets needs not have

    html = escape(text)
    return {html, escape(text, quote=False), html.replace("&#x27;", "&#39;"), html.replace("&#x27;", "'")}


def _base64(data: bytes) -> Iterator[str]:
    """Yield the characters of base64 that carry bits of *data* alone, by its place in a group of three bytes."""
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(data).decode().rstrip("=")
        for shift, offset in enumerate((0, 2, 3)):
            whole = encode(bytes(shift) + data).decode().rstrip("=")
            is_even = (shift + len(data)) % 3 == 0
            yield whole[offset:] if is_even else whole[offset:-1]


def _spans(text: str, forms: Iterable[str]) -> list[tuple[int, int]]:
    """Return where *forms* are in *text*, in order; those that overlap as one."""
    areas: list[tuple[int, int]] = []
    for start, end in sorted(span for form in forms for span in _spans_of(form, text)):
        if areas and start < areas[-1][1]:
            areas[-1] = (areas[-1][0], max(areas[-1][1], end))
        else:
            areas.append((start, end))
    return areas


def _spans_of(form: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield where *form* is in *text*, one that repeats itself as one, so that no character is compared often.

    A form can only overlap itself at a distance after which its letters come again. Where that is over half of it, the
    next one begins after the half; else (`aaaa`, `abab`) the letters are followed as far as they come again.
    """
    size = len(form)
    unit = _period(form)
    step = unit or (size + 1) // 2
    repeated = form[size - unit :]
    many = repeated * (1024 // unit) if unit else ""
    start = text.find(form)
    while start >= 0:
        end = start + size
        for letters in (many, repeated):
            while letters and text.startswith(letters, end):
                end += len(letters)
        yield start, end
        start = text.find(form, end - step + 1)


def _period(form: str) -> int:
    """Return after how many letters those of *form* come again; 0 where that is over half of it."""
    unit = form.find(form[: (len(form) + 1) // 2], 1)
    return unit if unit > 0 and form.startswith(form[unit:]) else 0


def _replaced(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += (text[done:start], MARK)
        done = end
    return "".join((*parts, text[done:]))


# Logs. In the lines of our own logs, whatever is logged there and by what it was raised; in the logs of tools
# (`context.log`), in what is logged beside the message (`extra=`, names of tasks), and in those of `asyncio`, which
# reports there exceptions that were never retrieved, as of a task that a tool has started.

# A filter concerns no logs below.
_LOGS = tuple(map(logging.getLogger, ("toolcrib", "toolcrib.watch", "toolcrib.tool", "asyncio")))
_OWN = vars(logging.makeLogRecord({})).keys() - {"stack_info", "threadName", "processName", "taskName"}
"""What every line has, and no text of a program."""

_changing = threading.Lock()
_redactors: tuple[weakref.ref[Redactor], ...] = ()


def redact_log(redactor: Redactor) -> None:
    """Redact the secrets of *redactor* in the logs of Toolcrib and asyncio as long as it is in use."""
    global _redactors
    with _changing:
        references = (reference for reference in _redactors if reference() not in (None, redactor))
        _redactors = (*references, weakref.ref(redactor))
    for log in _LOGS:
        log.addFilter(_redact_line)  # once


def _redact_line(record: logging.LogRecord) -> bool:
    redactors = [redactor for reference in _redactors if (redactor := reference()) is not None]

    def redact(text: str) -> str:
        # The secrets of all redactors at once: where some overlap, all that they cover.
        return _redacted(text, [redactor._forms for redactor in redactors])  # pyright: ignore[reportPrivateUsage] - a friend

    try:
        message = record.getMessage()
        trace = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info)).rstrip()
    except Exception:
        return True  # the handlers report it
    if (text := redact(message)) != message:
        record.msg, record.args = text, ()
    if (text := redact(trace)) != trace:
        record.exc_text, record.exc_info = text, None
    for name in vars(record).keys() - _OWN:
        setattr(record, name, _redacted_value(getattr(record, name), redact))
    return True


def _redacted_value(value: Any, redact: Callable[[str], str]) -> Any:
    """Return *value* itself where no secret shows in it; else its text, redacted."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        return value  # the handlers report it
    redacted = redact(text)
    return value if redacted == text else redacted
