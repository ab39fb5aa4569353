"""The readings of a text in which secrets are looked for: as it is, with escapes decoded, and without line breaks.

A view knows where each of its bytes stands in the text. All of this is linear in the size of the text, whatever is in
it, and in bytes of UTF-8: what percent signs and base64 encode is bytes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_PERCENT = rb"%[0-9A-Fa-f]{2}"
_BACKSLASH = (
    rb"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}"
    rb"|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[0-3][0-7]{2}|[bfnrt]|[^0-9A-Za-z\x80-\xff])"
)
_ENTITY = rb"&(?:#[xX]0*+[0-9A-Fa-f]{0,6}|#0*+[0-9]{0,7}|[A-Za-z][0-9A-Za-z]{1,31});?"
_POINTER = rb"~[01]"

# What more text could make another escape of, at the end of a piece.
_PERCENT_OPEN = rb"%[0-9A-Fa-f]?"
_BACKSLASH_OPEN = (
    rb"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD]?[c-fC-F]?[0-9A-Fa-f]?|u[dD][89abAB][0-9A-Fa-f]{2}\\?|u[0-9A-Fa-f]{0,3}"
    rb"|u\{[0-9A-Fa-f]{0,6}|U[0-9A-Fa-f]{0,7}|x[0-9A-Fa-f]?|[0-3][0-7]?)?"
)
_ENTITY_OPEN = rb"&(?:#(?:[xX][0-9A-Fa-f]*|[0-9]*)|[A-Za-z][0-9A-Za-z]{0,31})?"
_POINTER_OPEN = rb"~"
_OPEN_BYTES = 100
"""How long an escape at the end of a piece may be that the next piece goes on with."""

_LETTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


@dataclass(frozen=True)
class Escapes:
    """A kind of escape: the byte that each contains, and patterns of an escape, and of one that may go on."""

    sign: bytes
    pattern: re.Pattern[bytes]
    open: re.Pattern[bytes]

    @classmethod
    def of(cls, sign: bytes, pattern: bytes, beginning: bytes) -> "Escapes":
        return cls(sign, re.compile(b"(" + pattern + b")", re.DOTALL), re.compile(rb"(?:" + beginning + rb")\Z"))


ESCAPES: Sequence[Escapes] = (
    Escapes.of(b"%", _PERCENT, _PERCENT_OPEN),
    Escapes.of(b"\\", _BACKSLASH, _BACKSLASH_OPEN),
    Escapes.of(b"&", _ENTITY, _ENTITY_OPEN),
    Escapes.of(b"~", _POINTER, _POINTER_OPEN),
)
"""URLs; JSON, JavaScript and Python; HTML; JSON pointers."""
FORM = Escapes.of(b"+", rb"%[0-9A-Fa-f]{2}|\+", _PERCENT_OPEN)
"""URLs in which a plus sign is a space."""
_MORE = 4
"""How many times more than twice one kind is decoded. Without an end, `%252525...` would take quadratic time."""
_BREAKS = re.compile(rb"[ \t\r\n]+")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class View:
    """A reading of *parent*, with what *pattern* matches there decoded. *new* are the bytes that this has brought."""

    def __init__(self, parent: "View | None" = None, pattern: re.Pattern[bytes] | None = None) -> None:
        self.parent = parent
        self.new: frozenset[int] = frozenset()
        self.open_at: int | None = None
        """Where in *parent* something begins that its next piece may go on with; then this view ends there."""
        self._pattern = pattern
        self._decoded = _Decoded()

    @classmethod
    def of(cls, data: bytes) -> "View":
        """The view of a text as it is."""
        view = cls()
        view.data = data
        return view

    def decoded(self, kind: Escapes, *, is_piece: bool) -> "View":
        """This view with the escapes of *kind* decoded; where it *is_piece*, up to one that may go on."""
        view = View(self, kind.pattern)
        if is_piece and (match := kind.open.search(self.data, max(0, len(self.data) - _OPEN_BYTES))) is not None:
            view.open_at = match.start()
        known = {escape: view._decoded[escape] for escape in set(kind.pattern.findall(self.data))}
        view.new = frozenset(b"".join(decoded for escape, decoded in known.items() if decoded != escape))
        return view

    @cached_property
    def data(self) -> bytes:
        """What this view reads."""
        assert self.parent is not None
        assert self._pattern is not None
        parts = self._pattern.split(self.parent.data[: self.open_at])  # every second one is an escape
        parts[1::2] = map(self._decoded.__getitem__, parts[1::2])
        return b"".join(parts)

    def joined(self) -> "View":
        """This view without blanks and line breaks, in the one alphabet of base64."""
        view = View(self, _BREAKS)
        view.data = self.data.translate(_URL_SAFE, b" \t\r\n")
        return view

    def start(self, place: int) -> int:
        """Where in the text that begins which the byte at *place* comes from."""
        return place if self.parent is None else self.parent.start(self._origin(place)[0])

    def end(self, place: int) -> int:
        """Where in the text that ends which the byte before *place* comes from."""
        return place if self.parent is None else self.parent.end(self._origin(place - 1)[1])

    def boundary(self, place: int) -> int:
        """*place* in the text, or the beginning of the escape that it is in the middle of."""
        starts, ends = self._in_text
        index = bisect_right(starts, place) - 1
        return starts[index] if index >= 0 and place < ends[index] else place

    def _origin(self, place: int) -> tuple[int, int]:
        """What of the parent the byte at *place* comes from."""
        here, there, ends, lengths = self._places
        index = bisect_right(here, place) - 1
        if index < 0:
            return place, place + 1
        beyond = place - here[index] - lengths[index]
        if beyond < 0:
            return there[index], ends[index]
        return ends[index] + beyond, ends[index] + beyond + 1

    @cached_property
    def _in_text(self) -> tuple[list[int], list[int]]:
        """Where in the text the escapes begin, and where they end."""
        if self.parent is None:
            return [], []
        _, there, ends, _ = self._places
        return [*map(self.parent.start, there)], [*map(self.parent.end, ends)]

    @cached_property
    def _places(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Of each escape: where it is here, its start and end in the parent, and its length here."""
        assert self.parent is not None
        assert self._pattern is not None
        here: list[int] = []
        there: list[int] = []
        ends: list[int] = []
        lengths: list[int] = []
        saved, joins, known = 0, self._pattern is _BREAKS, self._decoded
        for match in self._pattern.finditer(self.parent.data):
            start, end = match.span()
            decoded = b"" if joins else known[match[0]]
            if decoded == match[0]:
                continue
            length = len(decoded)
            here.append(start - saved)
            there.append(start)
            ends.append(end)
            lengths.append(length)
            saved += end - start - length
        return here, there, ends, lengths


def views(data: bytes, kinds: Sequence[Escapes], *, is_piece: bool = False) -> Iterator[View]:
    """The text itself, then with one kind of escape decoded, then with a second kind in that.

    One by one, since a secret may look like an escape of another kind. One kind is decoded more often: JSON is in JSON
    as often as there are services between.
    """
    text = View.of(data)
    yield text
    for number, outer in enumerate(kinds):
        if outer.sign not in data:
            continue
        once = text.decoded(outer, is_piece=is_piece)
        if not (once.new or is_piece):
            continue
        yield once
        for other, inner in enumerate(kinds):
            # Two kinds that have nothing to do with each other come to the same in either order.
            is_inside = (inner.sign in data and other > number) or inner.sign[0] in once.new
            if inner.sign in once.data if is_piece else is_inside:
                twice = once.decoded(inner, is_piece=is_piece)
                if twice.new or is_piece:
                    yield twice
                for _ in range(_MORE if outer is inner else 0):
                    if inner.sign[0] not in twice.new:
                        break
                    twice = twice.decoded(inner, is_piece=is_piece)
                    yield twice


class _Decoded(dict[bytes, bytes]):
    """What each escape of a text stands for, found out once."""

    def __missing__(self, escape: bytes) -> bytes:
        decoded = self[escape] = _decoded(escape)
        return decoded


def _decoded(escape: bytes) -> bytes:
    """The bytes that *escape* stands for, and *escape* itself where it is none."""
    sign = escape[:1]
    if sign == b"%":
        return bytes((int(escape[1:], 16),))
    if sign == b"\\":
        letter = escape[1:2]
        if letter in _LETTERS:
            return _LETTERS[letter]
        if letter in (b"u", b"U"):
            if len(escape) == 12:
                return _utf8(0x10000 + ((int(escape[2:6], 16) - 0xD800) << 10) + int(escape[8:], 16) - 0xDC00) or escape
            return _utf8(int(escape[2:].strip(b"{}"), 16)) or escape
        if letter == b"x":
            return bytes((int(escape[2:], 16),))
        return bytes((int(escape[1:], 8),)) if letter.isdigit() else letter
    if sign == b"&":
        return _entity(escape)
    if sign == b"~":
        return b"~" if escape == b"~0" else b"/"
    return b" "  # a plus sign


def _entity(escape: bytes) -> bytes:
    # Imported with the first secret in HTML, not with the package.
    from html.entities import html5

    name = escape[1:].rstrip(b";")
    if not name.startswith(b"#"):
        text = name.decode()
        found = html5.get(f"{text};") or html5.get(text)
        return escape if found is None else found.encode()
    digits, base = (name[2:], 16) if name[1:2] in (b"x", b"X") else (name[1:], 10)
    return (_utf8(int(digits.lstrip(b"0") or b"0", base)) if digits else None) or escape


def _utf8(code: int) -> bytes | None:
    return chr(code).encode(errors="surrogatepass") if code <= 0x10FFFF else None
