"""Known secrets are struck out however they are written."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import SetupError
from toolcrib.record import Redactor

secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40).filter(
    lambda s: "[secret]" not in s and s not in "[secret]"
)


@given(secret=secrets, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_secret_is_struck_out_in_every_spelling(secret: str, before: str, after: str) -> None:
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
    struck = Redactor([secret]).redact(f"Authorization: Basic {encoded}")
    assert "[secret]" in struck
    assert not any(encoded[start : start + 12] in struck for start in range(len(encoded) - 11))


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


def test_base64_of_a_secret_alone_is_struck_out_whole() -> None:
    for length in range(6, 15):
        secret = "hush!me-and-more"[:length]
        encoded = base64.b64encode(secret.encode()).decode()
        assert Redactor([secret]).redact(encoded).strip("=") == "[secret]"
