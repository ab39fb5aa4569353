"""Replaces known secrets in text: as they are, and as JSON, URLs, HTML, base64 and hex write them.

Known by value, not by shape: what was never registered cannot be redacted. Escapes are decoded before secrets are
looked for, since each character can be written in several ways; base64 and hex are looked for as they are written.
Whatever any occurrence of a secret covers is redacted, so the result does not depend on where a text was cut.
"""

import re
import threading
from base64 import b64encode
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize

from ..core import SetupError
from .views import ESCAPES, FORM, View, views

MARK = "[secret]"
_SHORTEST = 4
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

# One for all redactors: a secret is seldom added, and a redactor can be copied.
_adding = threading.Lock()


class Redactor:
    """Redacts the secrets it was given. They stay out of its repr.

    Raises SetupError for a secret under 4 characters: redacting it would garble ordinary text.
    """

    __slots__ = ("__weakref__", "_known")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = _Known({})
        self._add(secrets)

    def add(self, secret: str) -> None:
        """Redact *secret* too, from now on. Where it is known, that costs a look-up."""
        if not (isinstance(secret, str) and secret in self._known.secrets):
            self._add((secret,))

    def remove(self, secrets: Container[str]) -> None:
        """Redact *secrets* no more."""
        with _adding:
            self._known = _Known({each: None for each in self._known.secrets if each not in secrets})

    def copy(self, also: Iterable[str] = ()) -> "Redactor":
        """A redactor of the same secrets and of *also*, to which others can be added."""
        made = Redactor()
        made._known = self._known
        made._add(also)
        return made

    @property
    def version(self) -> object:
        """Another object with each secret that is added."""
        return self._known

    def redact(self, text: str, /) -> str:
        """*text* with every known secret replaced by `[secret]`."""
        known = self._known
        if len(text) < known.shortest:
            return text
        data = text.encode(errors="surrogatepass")
        spans = known.spans(data)
        return _replaced(data, spans) if spans else text

    def split(self, text: str, /) -> tuple[str, str]:
        """Text that goes out in pieces: its end, if that may be the beginning of a secret, and the rest, redacted.

        Hold the end back and put it before the next piece: so a secret in two pieces is redacted too. At the end of the
        text, redact what is held.
        """
        known = self._known
        if not known.secrets:
            return "", text
        data = text.encode(errors="surrogatepass")
        spans = known.spans(data)
        cut = known.cut(data, spans)
        tail = data[cut:].decode(errors="surrogatepass")
        return tail, _replaced(data[:cut], [span for span in spans if span[1] <= cut])

    def _add(self, secrets: Iterable[str]) -> None:
        added: list[str] = []
        for secret in secrets:
            if not isinstance(secret, str) or len(secret) < _SHORTEST:
                raise SetupError(
                    f"A secret to redact is text of at least {_SHORTEST} characters: a shorter one would be found in "
                    "ordinary words. Leave it out, or use a longer one."
                )
            added.append(secret)
        if added:
            with _adding:
                self._known = _Known(dict.fromkeys((*self._known.secrets, *added)))

    def __repr__(self) -> str:
        return "<Redactor>"


def _replaced(data: bytes, spans: Iterable[tuple[int, int]]) -> str:
    """*data* with a mark for each of *spans*, and no more of what they cover where they overlap."""
    parts: list[bytes] = []
    done = marked = 0
    for start, end in spans:
        if start >= marked:
            parts += (data[done:start], MARK.encode())
            marked = end
        done = max(done, end)
    return b"".join((*parts, data[done:])).decode(errors="surrogatepass")


def _covered(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """*spans*, those that overlap as one."""
    covered: list[tuple[int, int]] = []
    for start, end in spans:
        if covered and start < covered[-1][1]:
            covered[-1] = (covered[-1][0], max(end, covered[-1][1]))
        else:
            covered.append((start, end))
    return covered


@dataclass(frozen=True, slots=True)
class _Needle:
    """Bytes to look for. *before* and *after* are the characters of base64 that may stand next to them.

    Those carry bits of the secret, and bits of its neighbours.
    """

    data: bytes
    letters: frozenset[int]
    step: int
    """The least distance of two occurrences: less than its length where it begins as it ends."""
    more: re.Pattern[bytes] | None
    before: bytes = b""
    after: bytes = b""

    @classmethod
    def of(cls, data: bytes, before: bytes = b"", after: bytes = b"") -> "_Needle":
        step = next(step for step in range(1, len(data) + 1) if data.startswith(data[step:]))
        more = re.compile(b"(?:" + re.escape(data[-step:]) + b")*+") if step <= len(data) // 2 else None
        return cls(data, frozenset(data), step, more, before, after)

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Occurrences of it in *data*, which cover all that any of them covers."""
        size = len(self.data)
        start = data.find(self.data)
        while start >= 0:
            end = start + size
            if self.before or self.after:
                if (span := self._with_neighbours(data, start, end)) is not None:
                    yield span
            elif self.more is not None:
                match = self.more.match(data, end)
                assert match is not None
                end = match.end()
                yield from zip(range(start, end - size, size), range(start + size, end, size), strict=True)
                yield end - size, end
            else:
                yield start, end
            start = data.find(self.data, end - size + self.step)

    def _with_neighbours(self, data: bytes, start: int, end: int) -> tuple[int, int] | None:
        """The span with the characters that share bits with it; None where one of these has other bits."""
        before, after = data[start - 1 : start] if start else b"", data[end : end + 1]
        if self.before and before and before in _BASE64:
            if before not in self.before:
                return None
            start -= 1
        if self.after and after and after in _BASE64:
            if after not in self.after:
                return None
            end += 1
        return start, end


class _Needles:
    """What to look for in one kind of view, all at once."""

    def __init__(self, needles: Iterable[_Needle]) -> None:
        self._needles = tuple(needles)
        self.longest = max((len(needle.data) for needle in self._needles), default=0)
        self._begin: dict[bytes, list[_Needle]] = {}
        for needle in self._needles:
            self._begin.setdefault(needle.data[:_SHORTEST], []).append(needle)
        self._short = {needle.data[:size] for needle in self._needles for size in range(1, _SHORTEST)}
        self._before = b"".join({needle.before for needle in self._needles})

    def spans(self, view: View, data: bytes) -> list[tuple[int, int]]:
        """Where in the text the needles are that *data*, which stands in *view*, has."""
        found = [span for needle in self._in(data) for span in needle.spans(data)]
        return [(view.start(start), view.end(end)) for start, end in found]

    def may_be_new(self, new: frozenset[int]) -> bool:
        """Whether one may be found where *new* bytes are."""
        return any(not needle.letters.isdisjoint(new) for needle in self._needles)

    def beginning(self, data: bytes) -> int:
        """Where the longest end of *data* begins that a needle may begin with; its size where there is none."""
        size = len(data)
        for start in range(max(0, size - self.longest), size):
            end = data[start:]
            if end in self._short if size - start < _SHORTEST else self._goes_on(end):
                return start - 1 if self._before and start else start
        return size - 1 if size and data[-1] in self._before else size

    def _in(self, data: bytes) -> Iterable[_Needle]:
        if len(data) > len(self._needles):
            return [needle for needle in self._needles if needle.data in data]
        begin = self._begin
        found = begin.keys() & {data[at : at + _SHORTEST] for at in range(len(data))}
        return [needle for each in found for needle in begin[each]]

    def _goes_on(self, end: bytes) -> bool:
        # Of base64, the character after it counts too.
        return any(
            len(end) < len(needle.data) + bool(needle.after) and needle.data.startswith(end)
            for needle in self._begin.get(end[:_SHORTEST], ())
        )


class _Known:
    """What a set of secrets looks like. A value: it is made anew where a secret is added."""

    def __init__(self, secrets: Mapping[str, None]) -> None:
        self.secrets = secrets
        self.shortest = min(map(len, secrets), default=maxsize)
        written = {form for secret in secrets for form in _bytes_of(secret)}
        # A mark in the text is none of the secrets that it happens to contain.
        marks = {MARK.encode()} if any(form in MARK.encode() for form in written) else set()
        self._plain = _Needles(map(_Needle.of, written | marks))
        encoded = written | {form for secret in secrets for form in _as_json(secret)}
        self._base64 = _Needles(needle for form in encoded for needle in _base64_needles(form))
        self._hex = _Needles(_Needle.of(form.hex().encode()) for form in encoded)
        self._kinds = (*ESCAPES, FORM) if any(" " in secret for secret in secrets) else ESCAPES

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets are in *data*, in order, the longest first; they may overlap."""
        found: list[tuple[int, int]] = []
        for view in views(data, self._kinds):
            is_text = view.parent is None
            if is_text or self._plain.may_be_new(view.new):
                found += self._plain.spans(view, view.data)
            if is_text or not _ENCODING.isdisjoint(view.new):
                joined = view.joined()
                found += self._base64.spans(joined, joined.data)
                found += self._hex.spans(joined, joined.data.lower())
        return sorted((_characters(data, *span) for span in found), key=lambda span: (span[0], -span[1]))

    def cut(self, data: bytes, spans: Sequence[tuple[int, int]]) -> int:
        """Where *data* can be cut: what follows may be the beginning of a secret, and what precedes is none."""
        cuts = [len(data)]
        all_views = list(views(data, self._kinds, is_piece=True))
        for view in all_views:
            if view.parent is not None and view.open_at is not None:
                cuts.append(view.parent.start(view.open_at))
            joined = view.joined()
            for needles, reading, text in (
                (self._plain, view, view.data),
                (self._base64, joined, joined.data),
                (self._hex, joined, joined.data.lower()),
            ):
                place = needles.beginning(text)
                if place < len(text):
                    cuts.append(reading.start(place))
        covered = _covered(spans)
        cut, before = min(cuts), -1
        while cut != before:
            before = cut
            for view in all_views:
                cut = view.boundary(cut)
            cut = next((start for start, end in covered if start < cut < end), cut)
        # What never ends is not held for ever.
        return _character(data, max(cut, len(data) - max(4096, 32 * self._plain.longest)))


_ENCODING = frozenset(_BASE64 + b"-_\t\r\n")


def _characters(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The span of the characters that the bytes from *start* to *end* are in."""
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return _character(data, start), end


def _character(data: bytes, place: int) -> int:
    """Where the character begins that *place* is in."""
    while 0 < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _bytes_of(secret: str) -> set[bytes]:
    """*secret* in UTF-8, and with single bytes for what has one in Latin-1: `\\xe9` and `%E9` may be either."""
    utf8 = [character.encode(errors="surrogatepass") for character in secret]
    single = [bytes((ord(c),)) if ord(c) < 256 else data for c, data in zip(secret, utf8, strict=True)]
    return {b"".join(utf8), b"".join(single)}


def _as_json(secret: str) -> set[bytes]:
    from json import dumps

    written = {dumps(secret), dumps(secret, ensure_ascii=False)}
    return {text[1:-1].encode(errors="surrogatepass") for text in written}


def _base64_needles(data: bytes) -> Iterator[_Needle]:
    """*data* as it shows in base64, by where in a group of three bytes it begins."""
    for shift, skipped in enumerate((0, 2, 3)):
        whole = b64encode(bytes(shift) + data).rstrip(b"=")
        is_even = (shift + len(data)) % 3 == 0
        inner = whole[skipped:] if is_even else whole[skipped:-1]
        # A character next to it has some bits of the secret, and the rest are its neighbour's.
        own_before = (0, 4, 2)[shift]
        own_after = (0, 2, 4)[(shift + len(data)) % 3]
        before = bytes(c for i, c in enumerate(_BASE64) if own_before and _low(i, own_before, whole[skipped - 1]))
        after = bytes(c for i, c in enumerate(_BASE64) if own_after and _high(i, own_after, whole[-1]))
        yield _Needle.of(inner, before, after)


def _low(index: int, bits: int, sample: int) -> bool:
    return (index ^ _BASE64.index(sample)) & (1 << bits) - 1 == 0


def _high(index: int, bits: int, sample: int) -> bool:
    return (index ^ _BASE64.index(sample)) >> 6 - bits == 0
