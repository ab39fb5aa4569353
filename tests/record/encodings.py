"""How programs write a text: the encodings in which a secret is looked for."""

import base64
import html
import json
import random
import urllib.parse
from collections.abc import Callable

from toolcrib.record import Redactor

MARK = "[secret]"

Encoding = Callable[[str, random.Random], str]


def of_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def lower_escapes(text: str) -> str:
    return "".join(part.lower() if part.startswith("%") else part for part in _split_escapes(text))


def _split_escapes(text: str) -> list[str]:
    parts: list[str] = []
    while text:
        size = 3 if text.startswith("%") else 1
        parts.append(text[:size])
        text = text[size:]
    return parts


def neighbours(rnd: random.Random, most: int) -> bytes:
    return bytes(rnd.choices(range(256), k=rnd.randint(0, most)))


def in_base64(text: str, rnd: random.Random, encode: Callable[[bytes], bytes] = base64.b64encode, most: int = 6) -> str:
    return encode(neighbours(rnd, most) + text.encode() + neighbours(rnd, most)).decode()


def alone(encode: Callable[[str], str]) -> Encoding:
    return lambda text, _: encode(text)


ENCODINGS: dict[str, Encoding] = {
    "as it is": alone(str),
    "JSON": alone(of_json),
    "JSON in UTF-8": alone(lambda text: json.dumps(text, ensure_ascii=False)[1:-1]),
    "JSON with \\/": alone(lambda text: of_json(text).replace("/", "\\/")),
    "JSON for HTML": alone(
        lambda text: of_json(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    ),
    "quote": alone(urllib.parse.quote),
    "quote of all": alone(lambda text: urllib.parse.quote(text, safe="")),
    "quote in lower case": alone(lambda text: lower_escapes(urllib.parse.quote(text, safe=""))),
    "quote_plus": alone(urllib.parse.quote_plus),
    "encodeURIComponent": alone(lambda text: urllib.parse.quote(text, safe="!~*'()")),
    "encodeURI": alone(lambda text: urllib.parse.quote(text, safe=";/?:@&=+$,#!~*'()")),
    "html.escape": alone(html.escape),
    "html.escape but quotes": alone(lambda text: html.escape(text, quote=False)),
    "hex": alone(lambda text: text.encode().hex()),
    "upper-case hex": alone(lambda text: text.encode().hex().upper()),
    "base64": in_base64,
    "base64 for URLs": lambda text, rnd: in_base64(text, rnd, base64.urlsafe_b64encode),
    "base64 without padding": lambda text, rnd: in_base64(text, rnd).rstrip("="),
    "base64 in a URL": lambda text, rnd: urllib.parse.quote(in_base64(text, rnd), safe=""),
    "base64 of JSON": lambda text, rnd: in_base64(of_json(text), rnd),
    "repr": alone(lambda text: repr(text)[1:-1]),
    "ascii": alone(lambda text: ascii(text)[1:-1]),
    "repr of bytes": alone(lambda text: repr(text.encode())[2:-1]),
    "JSON in JSON": alone(lambda text: of_json(of_json(text))),
    "JSON in a URL": alone(lambda text: urllib.parse.quote(of_json(text))),
    "HTML in JSON": alone(lambda text: of_json(html.escape(text)).replace("&", "\\u0026")),
}
ESCAPES = [name for name in ENCODINGS if "base64" not in name]

_ALPHABETS = (
    "abcdefgh0123",
    "\"\\'/<>&%+ ~#;=-_",
    "éßüñ©",
    "日本語Жλ",
    "😀🎉𐍈",
    "\n\t\r\x00\x7f\x1b",
    "[]secrt",
    "0123456789",
    "aab",
)


def some_text(rnd: random.Random, least: int, most: int) -> str:
    alphabets = rnd.sample(_ALPHABETS, rnd.randint(1, 4))
    return "".join(rnd.choice(rnd.choice(alphabets)) for _ in range(rnd.randint(least, most)))


def some_secrets(rnd: random.Random) -> list[str]:
    """Secrets of 1 to 200 characters (those under 4 are made longer), some inside of others or overlapping them."""
    secrets = [some_text(rnd, 4, rnd.choice((5, 8, 20, 200))) for _ in range(rnd.randint(1, 5))]
    if rnd.random() < 0.5:
        secrets.append(secrets[0][: rnd.randint(4, len(secrets[0]))])
    if rnd.random() < 0.3:
        secrets.append(secrets[0][-4:] + some_text(rnd, 0, 6))
    if rnd.random() < 0.2:
        secrets.append(rnd.choice(("1234", "aaaa", "secret", "[secret]", "abab")))
    return secrets


def check_at_random(rnd: random.Random, seed: int) -> None:
    """Look for a secret in an encoding, both at random, and in a text that is cut at random."""
    secrets = some_secrets(rnd)
    redactor = Redactor(secrets)
    secret, name = rnd.choice(secrets), rnd.choice(list(ENCODINGS))
    encoded = ENCODINGS[name](secret, rnd)
    shown = redactor.redact(f"(|{encoded}|)")
    why = (seed, name, secret, secrets, encoded, shown)
    assert MARK in shown, why
    if name in ESCAPES and not any(each in MARK for each in secrets):
        assert set(shown.replace(MARK, "")) <= set("(|)"), why
    text = "".join(
        rnd.choice(
            (
                some_text(rnd, 0, 10),
                ENCODINGS[rnd.choice(list(ENCODINGS))](rnd.choice(secrets), rnd),
                rnd.choice(secrets)[: rnd.randint(0, 6)],
                rnd.choice(secrets),
            )
        )
        for _ in range(rnd.randint(1, 5))
    )
    whole = redactor.redact(text)
    for _ in range(3):
        cuts = sorted(rnd.randint(0, len(text)) for _ in range(rnd.choice((1, 2, 5, len(text)))))
        assert _redacted_in_pieces(redactor, text, cuts) == whole, (seed, secrets, text, cuts)


def _redacted_in_pieces(redactor: Redactor, text: str, cuts: list[int]) -> str:
    tail = shown = ""
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        tail, ready = redactor.split(tail + text[start:end])
        shown += ready
    return shown + redactor.redact(tail)
