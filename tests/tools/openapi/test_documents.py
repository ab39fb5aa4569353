"""Documents as text: which bytes are one, what YAML stands for, and its bounds."""

from typing import Any

import pytest

from toolcrib.core import LoadError
from toolcrib.tools import is_openapi
from toolcrib.tools.openapi.documents import MAX_BYTES, read_text


def read(text: str) -> Any:
    return read_text(text.encode(), "api.yaml")


def test_yaml_is_read_by_its_rules_of_2009() -> None:
    text = """
    day: 2001-01-01
    moment: 2001-01-01T10:00:00Z
    words: [yes, no, on, off, y, n, True, TRUE, false, null, ~, Null, nUll]
    numbers: [1, -2, +3, 012, 0o17, 0x1F, 1.5, .5, 1e3, 1_000, 12:30, .inf, 1.2.3, 1., "1", '1', 99999999999999999999]
    tagged: [!!str 1, !!int "1", !custom x, !!binary aGk=]
    block: |
      a
      b
    folded: >-
      a
      b
    200: ok
    1.5: x
    true: t
    """
    numbers = [1, -2, 3, 12, 15, 31, 1.5, 0.5, 1000.0, "1_000", "12:30", ".inf", "1.2.3", 1.0, "1", "1", 10**20 - 1]
    assert read(text) == {
        "day": "2001-01-01",
        "moment": "2001-01-01T10:00:00Z",
        "words": ["yes", "no", "on", "off", "y", "n", True, True, False, None, None, None, "nUll"],
        "numbers": numbers,
        "tagged": ["1", 1, "x", "aGk="],
        "block": "a\nb\n",
        "folded": "a b",
        "200": "ok",
        "1.5": "x",
        "true": "t",
    }


def test_aliases_and_merges_are_followed() -> None:
    text = (
        "base: &b {a: 1, b: 2}\nlist: [&x 5, *x]\none: {<<: *b, b: 3}\ntwo: {<<: [*b, {c: 4}], d: 5}\n&k key: *b\nz: *k"
    )
    assert read(text) == {
        "base": {"a": 1, "b": 2},
        "list": [5, 5],
        "one": {"a": 1, "b": 3},
        "two": {"a": 1, "b": 2, "c": 4, "d": 5},
        "key": {"a": 1, "b": 2},
        "z": "key",
    }


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (bomb(12), "stands for more than"),
        ("a: &a [*a]", "in itself"),
        ("a: " + "[" * 500 + "]" * 500, "levels deep"),
        ("\n".join(" " * n + "a:" for n in range(300)), "levels deep"),
        ("a: &a " + "[" * 100 + "]" * 100 + "\nb: " + "[" * 100 + "*a" + "]" * 100, "levels deep"),
        ("a: {{a: 1}: b}", "key is not text"),
        ("a: 1\n---\nb: 2", "another document"),
        ("a: *b", "undefined alias"),
        ('{"a": NaN}', "not valid JSON"),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "not valid JSON"),
    ],
)
def test_what_is_too_much_or_not_valid_is_refused(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(text)


def test_bytes_that_are_no_text_or_too_many_are_refused() -> None:
    with pytest.raises(LoadError, match="UTF-8"):
        read_text(b"\xff\xfe", "x")
    with pytest.raises(LoadError, match="MiB"):
        read_text(b" " * (MAX_BYTES + 1), "x")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"openapi": "3.1.0"}', True),
        (b'\xef\xbb\xbf {"info": {}, "swagger": "2.0"}', True),
        (b"info: {}\nopenapi: 3.0.0\n", True),
        (b'{"a": {"openapi": "3.1.0"}}', False),
        (b'{"openapi": 3}', False),
        (b"a:\n  openapi: 3.0.0", False),
    ],
)
def test_which_bytes_are_a_document(data: bytes, expected: bool) -> None:
    assert is_openapi(data) is expected
