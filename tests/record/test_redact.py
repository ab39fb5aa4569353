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
@pytest.mark.parametrize("depth", (1, 2))
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


def test_secrets_show_in_no_repr_and_short_ones_are_refused() -> None:
    assert "hunter2" not in repr(Redactor(["hunter2"]))
    for short in ("", "abc"):
        with pytest.raises(SetupError, match="at least 4 characters"):
            Redactor([short])


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


def test_what_is_added_to_a_copy_is_not_in_the_other() -> None:
    one = Redactor(["shared-secret"])
    other = one.copy()
    one.add("secret-of-one")
    other.add("secret-of-other")
    text = "shared-secret secret-of-one secret-of-other"
    assert one.redact(text) == "[secret] [secret] secret-of-other"
    assert other.redact(text) == "[secret] secret-of-one [secret]"
    assert one.copy().redact(text) == one.redact(text)


def test_text_that_is_no_secret_stays_as_it_is() -> None:
    rnd = random.Random(3)
    for _ in range(200):
        redactor = Redactor([f"never-{rnd.random()}" for _ in range(rnd.choice((1, 30)))])
        text = some_text(rnd, 0, 200) + rnd.choice(some_secrets(rnd))
        assert redactor.redact(text) is text
        tail, ready = redactor.split(text)
        assert ready + tail == text


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


def test_of_recent_secrets_the_last_so_many_or_so_many_characters_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "MAX_RECENT", 100)
    monkeypatch.setattr(redact, "MAX_RECENT_CHARS", 10_000)
    redactor = Redactor(["lasting-secret"])
    for number in range(101):
        redactor.add_recent(f"recent-{number:03}")
    assert redactor.redact("recent-000 recent-001 recent-100") == "recent-000 [secret] [secret]"
    versions = {redactor.version}
    for letter in "abc":
        redactor.add_recent(letter * 6_000)
        versions.add(redactor.version)
    assert redactor.redact("recent-001 recent-100 lasting-secret") == "recent-001 recent-100 [secret]"
    assert redactor.redact("b" * 6_000 + " " + "c" * 6_000) == "[secret] [secret]"
    assert len(versions) == 4
    redactor.add("another-lasting-one")
    assert redactor.copy().redact("another-lasting-one " + "c" * 6_000) == "[secret] " + "c" * 6_000


@pytest.mark.full
def test_random_secrets_are_found_in_each_encoding_and_cuts_change_nothing() -> None:
    for seed in fuzz.seeds(60):
        check_at_random(random.Random(seed), seed)
