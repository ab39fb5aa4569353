"""Replaces known secrets in text: as they are, and as JSON, URLs, HTML, base64 and hex write them.

Known by value, not by shape: what was never registered cannot be redacted. Escapes are decoded before secrets are
looked for, since each character can be written in several ways; base64 and hex are looked for as they are written.
Whatever any occurrence of a secret covers is redacted, so the result does not depend on where a text was cut.
"""

import re
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import byteorder, maxsize

from ..core import SetupError
from .views import ESCAPES, FORM, Escapes, View, views

MARK = "[secret]"
_SHORTEST = 4
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

_FEW = 1000
"""Up to so many, it is quicker to look at one after the other."""
_RECENT, _RECENT_CHARS = 5_000, 4 * 1024 * 1024

# One for all redactors: a secret is seldom added, and a redactor can be copied.
_adding = threading.Lock()


class Redactor:
    """Redacts the secrets it was given. They stay out of its repr.

    Raises SetupError for a secret under 4 characters: redacting it would garble ordinary text.
    """

    __slots__ = ("__weakref__", "_lasting", "_layers", "_shortest", "_version")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._use(_Known(), ())
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Redact *secret* too, from now on. Where it is known, that costs a look-up."""
        _require_secret(secret)
        with _adding:
            if secret not in self._lasting.secrets:
                if self._lasting.is_shared:
                    self._use(_Known(self._lasting.secrets), self._layers[1:])
                self._put(self._lasting, secret)

    def add_recent(self, secret: str) -> None:
        """Redact *secret* too, at least until 5,000 others or 4 million characters of others were added so after it."""
        recent = self._layers[-1]
        if isinstance(secret, str) and secret in recent.secrets:
            return
        _require_secret(secret)
        with _adding:
            if secret in self._lasting.secrets:
                return
            recent = self._layers[-1]
            if recent is self._lasting or len(recent.secrets) >= _RECENT or recent.chars >= _RECENT_CHARS:
                # The layer before it is forgotten: nothing is ever taken out of one.
                self._use(self._lasting, (*self._layers[1:][-1:], recent := _Known()))
            self._put(recent, secret)

    def copy(self) -> "Redactor":
        """A redactor of the same secrets, but the recent ones, to which others can be added."""
        made = Redactor()
        with _adding:
            self._lasting.is_shared = True
            made._use(self._lasting, ())
        return made

    @property
    def version(self) -> object:
        """Another object with each secret that is added."""
        return self._version

    def redact(self, text: str, /) -> str:
        """*text* with every known secret replaced by `[secret]`."""
        return text if len(text) < self._shortest else _redacted(text, self._layers)

    def split(self, text: str, /) -> tuple[str, str]:
        """Text that goes out in pieces: its end, if that may be the beginning of a secret, and the rest, redacted.

        Hold the end back and put it before the next piece: so a secret in two pieces is redacted too. At the end of the
        text, redact what is held.
        """
        if self._shortest == maxsize:
            return "", text
        layers = self._layers
        data = text.encode(errors="surrogatepass")
        spans = _spans(layers, data)
        cut = _cut(layers, data, spans)
        tail = data[cut:].decode(errors="surrogatepass")
        return tail, _replaced(data[:cut], [span for span in spans if span[1] <= cut])

    def _use(self, lasting: "_Known", recent: "tuple[_Known, ...]") -> None:
        self._lasting = lasting
        self._layers = (lasting, *recent)
        self._shortest = min(layer.shortest for layer in self._layers)
        self._version = object()

    def _put(self, layer: "_Known", secret: str) -> None:
        layer.add(secret)
        self._shortest = min(self._shortest, len(secret))
        self._version = object()

    def __repr__(self) -> str:
        return "<Redactor>"


def redacted_by(redactors: Iterable[Redactor], text: str) -> str:
    """*text* without the secrets of all *redactors*: of those that overlap, the longest is redacted whole."""
    layers = (layer for each in redactors for layer in each._layers)  # pyright: ignore[reportPrivateUsage] - a friend
    return _redacted(text, tuple(dict.fromkeys(layers)))


def _redacted(text: str, layers: "Sequence[_Known]") -> str:
    data = text.encode(errors="surrogatepass")
    spans = _spans(layers, data)
    return _replaced(data, spans) if spans else text


def _require_secret(secret: object) -> None:
    if not isinstance(secret, str) or len(secret) < _SHORTEST:
        raise SetupError(
            f"A secret to redact is text of at least {_SHORTEST} characters: a shorter one would be found in "
            "ordinary words. Leave it out, or use a longer one."
        )


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
    step: int
    """The least distance of two occurrences: less than its length where it begins as it ends."""
    more: re.Pattern[bytes] | None
    before: bytes = b""
    after: bytes = b""

    @classmethod
    def of(cls, data: bytes, before: bytes = b"", after: bytes = b"") -> "_Needle":
        period = _period(data)
        more = re.compile(b"(?:" + re.escape(data[-period:]) + b")*+") if 0 < period <= len(data) // 2 else None
        return cls(data, period or 1, more, before, after)

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


def _period(data: bytes) -> int:
    """The least number of bytes after which *data* goes on as it began; 0 where that would take long to find out."""
    step, begin = 1, data[:_SHORTEST]
    for _ in range(_FEW):
        if data.startswith(data[step:]):
            return step
        step += 1
        again = data.find(begin, step)
        step = again if again >= 0 else max(step, len(data) - _SHORTEST + 1)
    return 0


class _Text:
    """A text in which needles are looked for, and all four bytes in a row that it has."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def grams(self) -> set[int]:
        found: set[int] = set()
        for shift in range(min(_SHORTEST, len(self.data))):
            size = (len(self.data) - shift) // _SHORTEST * _SHORTEST
            found.update(memoryview(self.data)[shift : shift + size].cast("I"))
        return found


class _Needles:
    """What to look for in one kind of view, all at once. What is added is not taken away."""

    def __init__(self) -> None:
        self.longest = 0
        self._needles: list[_Needle] = []
        self._begin: dict[bytes, list[_Needle]] = {}
        # By their end, too: tokens of one kind begin alike.
        self._end: dict[int, list[_Needle]] = {}
        self._short: set[bytes] = set()
        self._before: set[int] = set()
        self._letters: set[int] = set()

    def add(self, needle: _Needle) -> None:
        data = needle.data
        self.longest = max(self.longest, len(data))
        self._needles.append(needle)
        self._begin.setdefault(data[:_SHORTEST], []).append(needle)
        self._end.setdefault(int.from_bytes(data[-_SHORTEST:], byteorder), []).append(needle)
        self._short.update(data[:size] for size in range(1, _SHORTEST))
        self._before.update(needle.before)
        self._letters.update(data)

    def spans(self, view: View, text: _Text) -> list[tuple[int, int]]:
        """Where in the text the needles are that *text*, which stands in *view*, has."""
        found = [span for needle in self._in(text) for span in needle.spans(text.data)]
        return [(view.start(start), view.end(end)) for start, end in found]

    def may_be_new(self, new: frozenset[int]) -> bool:
        """Whether one may be found where *new* bytes are."""
        return not self._letters.isdisjoint(new)

    def beginning(self, data: bytes) -> int:
        """Where the longest end of *data* begins that a needle may begin with; its size where there is none."""
        size = len(data)
        for start in range(max(0, size - self.longest), size):
            begin = data[start : start + _SHORTEST]
            if begin in self._short if size - start < _SHORTEST else self._goes_on(begin, data, start):
                return start - 1 if self._before and start else start
        return size - 1 if size and data[-1] in self._before else size

    def _in(self, text: _Text) -> Sequence[_Needle]:
        if len(self._needles) <= min(len(text.data), _FEW):
            return [needle for needle in self._needles if needle.data in text.data]
        return [needle for end in self._end.keys() & text.grams for needle in self._end[end]]

    def _goes_on(self, begin: bytes, data: bytes, start: int) -> bool:
        if (needles := self._begin.get(begin)) is None:
            return False
        end = data[start:]
        # Of base64, the character after it counts too.
        return any(len(end) < len(one.data) + bool(one.after) and one.data.startswith(end) for one in needles)


class _Known:
    """What a set of secrets looks like. Where it *is_shared*, nothing is added."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.is_shared = False
        self.secrets: dict[str, None] = {}
        self.chars = 0
        self.shortest = maxsize
        self.has_blanks = False
        self.plain, self.base64, self.hex = _Needles(), _Needles(), _Needles()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        self.chars += len(secret)
        self.shortest = min(self.shortest, len(secret))
        self.has_blanks = self.has_blanks or " " in secret
        written = _bytes_of(secret)
        # A mark in the text is none of the secrets that it happens to contain.
        marks = {MARK.encode()} if any(form in MARK.encode() for form in written) else set()
        for form in written | marks:
            self.plain.add(_Needle.of(form))
        for form in written | _as_json(secret):
            for needle in _base64_needles(form):
                self.base64.add(needle)
            self.hex.add(_Needle.of(form.hex().encode()))
        self.secrets[secret] = None


def _kinds(layers: Sequence[_Known]) -> Sequence[Escapes]:
    return (*ESCAPES, FORM) if any(layer.has_blanks for layer in layers) else ESCAPES


def _spans(layers: Sequence[_Known], data: bytes) -> list[tuple[int, int]]:
    """Where the secrets of *layers* are in *data*, in order, the longest first; they may overlap."""
    found: list[tuple[int, int]] = []
    for view in views(data, _kinds(layers)):
        is_text = view.parent is None
        text = _Text(view.data)
        for known in layers:
            if is_text or known.plain.may_be_new(view.new):
                found += known.plain.spans(view, text)
        if is_text or not _ENCODING.isdisjoint(view.new):
            joined = view.joined()
            text, lowered = _Text(joined.data), _Text(joined.data.lower())
            for known in layers:
                found += known.base64.spans(joined, text)
                found += known.hex.spans(joined, lowered)
    return sorted((_characters(data, *span) for span in found), key=lambda span: (span[0], -span[1]))


def _cut(layers: Sequence[_Known], data: bytes, spans: Sequence[tuple[int, int]]) -> int:
    """Where *data* can be cut: what follows may be the beginning of a secret, and what precedes is none."""
    cuts = [len(data)]
    all_views = list(views(data, _kinds(layers), is_piece=True))
    for view in all_views:
        if view.parent is not None and view.open_at is not None:
            cuts.append(view.parent.start(view.open_at))
        joined = view.joined()
        lowered = joined.data.lower()
        for known in layers:
            for needles, reading, text in (
                (known.plain, view, view.data),
                (known.base64, joined, joined.data),
                (known.hex, joined, lowered),
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
    longest = max(known.plain.longest for known in layers)
    return _character(data, max(cut, len(data) - max(4096, 32 * longest)))


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
