"""Known secrets are redacted however they are written."""

import base64
import html
import json
import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import SetupError
from toolcrib.record import Redactor, redact

from .. import fuzz
from .encodings import ENCODINGS, ESCAPES, check_at_random, some_secrets, some_text

secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40).filter(
    lambda s: "[secret]" not in s and s not in "[secret]"
)


@pytest.mark.parametrize("secret", ["a\nb\nprivate", 'pass"word', "pass\\word", "pässword", "🎉🎉🎉🎉"])
@pytest.mark.parametrize("depth", range(1, 7))
def test_a_secret_is_redacted_in_json_in_json(secret: str, depth: int) -> None:
    text, redactor = secret, Redactor([secret])
    for _ in range(depth):
        text = json.dumps({"body": text})
    shown = redactor.redact(text)
    for _ in range(depth):
        shown = json.loads(shown)["body"]
    assert shown == "[secret]"
    held, sent = "", ""
    for character in text:
        held, redacted = redactor.split(held + character)
        sent += redacted
    assert sent + redactor.redact(held) == redactor.redact(text)


# Not after half of an escape, with which it would be another text: `\000` is a NUL, and not the beginning of a secret.
unescaped = st.text(max_size=20).filter(lambda text: not re.search(r"[\\%&~][^;]*$", text))


@given(secret=secrets, before=unescaped, after=st.text(max_size=20))
def test_a_secret_is_redacted_in_every_spelling(secret: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    for spell in (
        str,
        lambda s: json.dumps(s)[1:-1],
        lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
        lambda s: quote(s, safe=""),
        quote_plus,
        html.escape,
        lambda s: base64.b64encode(s.encode()).decode(),
        lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
        lambda s: s.encode().hex(),
    ):
        spelled = spell(secret)
        assert spelled not in redactor.redact(f"{before}{spelled}{after}")


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "user:"])
@pytest.mark.parametrize("after", ["", "x", "xy", ":more"])
def test_a_secret_inside_longer_base64_does_not_survive(before: str, after: str) -> None:
    secret = "hunter2-and-some-more"
    encoded = base64.b64encode(f"{before}{secret}{after}".encode()).decode()
    redacted = Redactor([secret]).redact(f"Authorization: Basic {encoded}")
    assert "[secret]" in redacted
    assert not any(encoded[start : start + 12] in redacted for start in range(len(encoded) - 11))


def test_the_longest_secret_goes_first_and_text_without_secrets_is_the_same_object() -> None:
    redactor = Redactor(["token", "token-extended"])
    assert redactor.redact("a token-extended b token c") == "a [secret] b [secret] c"
    text = "nothing here"
    assert redactor.redact(text) is text


def test_secrets_show_in_no_repr_and_short_ones_are_refused() -> None:
    assert "hunter2" not in repr(Redactor(["hunter2"]))
    for short in ("", "abc"):
        with pytest.raises(SetupError, match="at least 4 characters"):
            Redactor([short])


def test_base64_of_a_secret_alone_is_redacted_whole() -> None:
    for length in range(6, 15):
        secret = "hush!me-and-more"[:length]
        encoded = base64.b64encode(secret.encode()).decode()
        assert Redactor([secret]).redact(encoded).strip("=") == "[secret]"


SECRETS = (
    "hunter2!/<&>'\"\\ +%é",
    "plain-token_1234",
    "first\u00ffand\u0100last",
    "日本語の秘密",
    "🎉🎉🎉🎉",
    "a\nb\tc\x00d",
    "1234",
    "%41&amp;\\n~1",
)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_redacted_in_each_encoding(name: str, secret: str) -> None:
    redactor, rnd = Redactor([secret]), random.Random(1)
    for _ in range(20):
        encoded = ENCODINGS[name](secret, rnd)
        shown = redactor.redact(f"(|{encoded}|)")
        assert "[secret]" in shown
        if name in ESCAPES:
            assert shown == "(|[secret]|)"


@pytest.mark.parametrize("size", [21, 22, 23])
def test_in_base64_the_characters_with_bits_of_a_secret_are_redacted_and_no_others(size: int) -> None:
    secret = b"hunter2-and-some-more!!"[:size]
    redactor = Redactor([secret.decode()])
    for before in (b"", b"x", b"xy", b"xyz", b"\0", b"\xff\xff"):
        for after in (b"", b"x", b"xy", b"xyz", b"\0", b"\xff\xff"):
            encoded = base64.b64encode(before + secret + after).decode()
            start, end = len(before) * 8 // 6, -(-len(before + secret) * 8 // 6)
            shown = f"Basic {encoded[:start]}[secret]{encoded[end:]}"
            assert redactor.redact(f"Basic {encoded}") == shown
            for cut in range(6, len(encoded) + 6) if after == b"xy" else ():
                tail, ready = redactor.split(f"Basic {encoded}"[:cut])
                assert ready + redactor.redact(tail + f"Basic {encoded}"[cut:]) == shown
            bits = [1 << bit for bit in range(8)]
            others = [bytes((secret[0] ^ bit,)) + secret[1:] for bit in bits]
            for other in (*others, *(secret[:-1] + bytes((secret[-1] ^ bit,)) for bit in bits)):
                encoded = base64.b64encode(before + other + after).decode()
                assert redactor.redact(encoded) == encoded


def test_1050_random_cuts_of_overlapping_secrets_equal_the_whole() -> None:
    redactor, rnd = Redactor(["pass", "password123", "word12"]), random.Random(7)
    parts = (
        "pass",
        "password123",
        "word12",
        "passwor",
        " ",
        "d123",
        "cGFzc3dvcmQxMjM=",
        "%70ass",
        "\\u0070ass",
        "70617373",
    )
    assert redactor.redact("password123") == "[secret]"
    for _ in range(1050):
        text = "".join(rnd.choices(parts, k=6))
        cuts = sorted(rnd.randint(0, len(text)) for _ in range(rnd.randint(1, 12)))
        tail = shown = ""
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            tail, ready = redactor.split(tail + text[start:end])
            shown += ready
        assert shown + redactor.redact(tail) == redactor.redact(text), (text, cuts)


def test_a_secret_of_single_bytes_is_redacted_with_the_characters_that_it_ends_in_the_middle_of() -> None:
    for byte in range(0x80, 0xC0):
        for lead in (0xC3, 0xE3):  # characters of two and of three bytes
            more = bytes((byte,)) + b"\x81" * (lead == 0xE3)
            text = (b"in abcd" + bytes((lead,)) + more + b"efgh out").decode()
            assert Redactor([f"abcd{chr(lead)}"]).redact(text) == "in [secret]efgh out"
            assert Redactor([f"{chr(more[-1])}efgh"]).redact(text) == "in abcd[secret] out"


def test_a_secret_is_redacted_where_two_kinds_of_escapes_are_in_it() -> None:
    kinds = ("%2F", "\\u002f", "&#47;", "~1", "+")
    for one in kinds:
        for other in kinds:
            secret = f"ab{' ' if one == '+' else '/'}cd{' ' if other == '+' else '/'}ef"
            if {one, other} & {"+"} and not {one, other} <= {"+", "%2F"}:
                continue  # a plus sign is a space in forms, which have percent signs only
            text = f"(|ab{one}cd{other}ef|)"
            assert Redactor([secret]).redact(text) == "(|[secret]|)", text
            for cut in range(len(text)):
                redactor = Redactor([secret])
                tail, ready = redactor.split(text[:cut])
                assert ready + redactor.redact(tail + text[cut:]) == "(|[secret]|)", (text, cut)


def test_what_is_added_to_a_copy_is_not_in_the_other() -> None:
    one = Redactor(["shared-secret"])
    other = one.copy()
    one.add("secret-of-one")
    other.add("secret-of-other")
    text = "shared-secret secret-of-one secret-of-other"
    assert one.redact(text) == "[secret] [secret] secret-of-other"
    assert other.redact(text) == "[secret] secret-of-one [secret]"
    assert one.copy().redact(text) == one.redact(text)


def test_what_overlaps_is_redacted_whole() -> None:
    redactor = Redactor(["abcd", "cdef", "aaaa"])
    assert redactor.redact("xabcdefx aaaaaax") == "x[secret]x [secret]x"


def test_text_is_held_back_where_secrets_that_overlap_go_on_and_no_more_of_it() -> None:
    redactor = Redactor(["abcd", "cdef", "fghi"])
    assert redactor.split("a word.") == ("", "a word.")
    assert redactor.split("a word, ab") == ("ab", "a word, ")
    for text in ("xabcdef y", "xabcdefghi y", "xabcdef"):
        for cut in range(len(text) + 1):
            tail, ready = redactor.split(text[:cut])
            assert ready + redactor.redact(tail + text[cut:]) == redactor.redact(text), (text, cut)


def test_text_that_is_no_secret_stays_as_it_is() -> None:
    rnd = random.Random(3)
    for _ in range(200):
        redactor = Redactor([f"never-{rnd.random()}" for _ in range(rnd.choice((1, 30)))])
        text = some_text(rnd, 0, 200) + rnd.choice(some_secrets(rnd))
        assert redactor.redact(text) is text
        tail, ready = redactor.split(text)
        assert ready + tail == text


@pytest.mark.parametrize(
    "text", ["&#" + "9" * 5000, "&#x" + "f" * 5000 + ";", "\\U99999999", "\\ud800", "&nosuch;", "%zz", "\ud800", "&#;"]
)
def test_what_only_looks_like_an_escape_stays_as_it_is(text: str) -> None:
    redactor = Redactor(["hunter22"])
    assert redactor.redact(text) == text
    assert redactor.redact(f"{text}|hunter22") == f"{text}|[secret]"


def test_of_secrets_that_threads_add_at_once_none_is_lost() -> None:
    redactor, before = Redactor(), sys.getswitchinterval()
    sets = [[f"secret-{thread}-{number}-value" for number in range(15)] for thread in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda secrets: [redactor.add(secret) for secret in secrets], sets))
    finally:
        sys.setswitchinterval(before)
    assert {redactor.redact(secret) for secrets in sets for secret in secrets} == {"[secret]"}


def test_of_recent_secrets_at_least_the_last_so_many_or_so_many_characters_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (redact._RECENT, redact._RECENT_CHARS) == (5_000, 4 * 1024 * 1024)
    monkeypatch.setattr(redact, "_RECENT", 100)
    monkeypatch.setattr(redact, "_RECENT_CHARS", 10_000)
    redactor = Redactor(["lasting-secret"])
    for number in range(101):
        redactor.add_recent(f"recent-{number:03}")
    assert redactor.redact("recent-000 recent-001 recent-099 recent-100") == " ".join(["[secret]"] * 4)
    versions = {redactor.version}
    for letter in "abc":  # each as much as is kept beside the last
        redactor.add_recent(letter * 10_000)
        versions.add(redactor.version)
    assert redactor.redact("recent-001 recent-100 lasting-secret") == "recent-001 recent-100 [secret]"
    assert redactor.redact("b" * 10_000) == "[secret]"
    assert len(versions) == 4
    redactor.add_recent("recent-001")
    redactor.add("another-lasting-one")
    assert redactor.redact("recent-001, another-lasting-one") == "[secret], [secret]"
    assert redactor.copy().redact("recent-001, another-lasting-one") == "recent-001, [secret]"


def test_recent_secrets_are_found_among_thousands_in_each_encoding_and_however_it_is_cut() -> None:
    rng = random.Random(7)
    redactor, whole = Redactor(), Redactor()
    for number in range(600):
        secret = f"eyJhbGciOiJSUzI1NiJ9.{rng.randbytes(20).hex()}.{number}"
        redactor.add_recent(secret)
        if number % 100 == 0:
            whole.add(secret)
            for name, encode in ENCODINGS.items():
                text = f"before {encode(secret, rng)} after"
                assert redactor.redact(text) == whole.redact(text) != text, name
            cut = rng.randrange(len(secret))
            held, first = redactor.split(f"a {secret[:cut]}")
            assert first + redactor.redact(held + secret[cut:] + " b") == "a [secret] b"


def test_only_what_is_the_secret_is_redacted_beside_what_looks_like_an_escape() -> None:
    assert Redactor(["such"]).redact("&nosuch; &#115;") == "&no[secret]; &#115;"


@pytest.mark.parametrize("text", ["a\\", "50%", "&am", "~", ""])
def test_without_secrets_nothing_is_held_back(text: str) -> None:
    assert Redactor().split(text) == ("", text)


@pytest.mark.full
def test_random_secrets_are_found_in_each_encoding_and_cuts_change_nothing() -> None:
    for seed in fuzz.seeds(60):
        check_at_random(random.Random(seed), seed)
