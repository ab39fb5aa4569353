"""Secrets in JSON: what is redacted stays valid. Text from outside: what people see of it."""

import json
import sys
import unicodedata
from typing import Any

import pytest

from toolcrib import File, Image, Text
from toolcrib.core import Audio, Data
from toolcrib.machinery import escaped, one_line, redacted, redacted_content, redacted_data, redacted_json
from toolcrib.record import Redactor

redactor = Redactor(["hunter2", "12345", '"a":1,', "\u00e4\u00e4\u00e4\u00e4"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": "x hunter2"}', '{"a": "x [secret]"}'),
        ('{"a": 12345, "b": 123}', '{"a": "[secret]", "b": 123}'),
        ('{"hunter2": 1, "a": [true, null]}', '{"[secret]": 1, "a": [true, null]}'),
        ('{"hunter2" : 1, "12345": 2}', '{"[secret]" : 1, "[secret]": 2}'),
        ('{"a": "\\u00e4\\u00e4\\u00e4\\u00e4 \\u00fc"}', '{"a": "[secret] \\u00fc"}'),
        ('{"a": "\\u00e4\\u00e4\\u00e4\\u00e4 ü"}', '{"a": "[secret] \\u00fc"}'),
        ('{"a": "hunter2 ü"}', '{"a": "[secret] ü"}'),
        ('{"a":1,"b":2}', json.dumps('{[secret]"b":2}')),
        ('{"a": "hunter2\n"}', '{"a": "[secret]\\n"}'),
        ("no JSON hunter2", 'no JSON "[secret]"'),
        ('{"a": "hunter2', '{"a": "\\"[secret]"'),
    ],
)
def test_json_is_redacted_value_by_value(text: str, shown: str) -> None:
    found = redacted_json(text, redactor)
    assert found == shown
    assert redacted_json(text, redactor.redact) == found


def test_where_there_is_no_secret_the_same_object_is_returned() -> None:
    text = '{"a": 1}'
    assert redacted_json(text, redactor) is text
    assert redacted_json("hunter2", None) == redacted("hunter2", None) == "hunter2"
    data: dict[str, Any] = {"a": [1]}
    assert redacted_data(data, redactor) is data
    assert redacted_data({"a": ["hunter2"]}, redactor) == {"a": ["[secret]"]}
    assert redacted_data({"a": ["hunter2"]}, None) == {"a": ["hunter2"]}
    for part in (Text("a"), Data("1"), File(b"hunter2", "text/plain", "a"), File(b""), Image(b"hunter2"), Audio(b"")):
        assert redacted_content(part, redactor) is part


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (Text("a hunter2"), Text("a [secret]")),
        (Data('["hunter2"]'), Data('["[secret]"]')),
        (File(b"hunter2", "hunter2", "a"), File(b"hunter2", "[secret]", "a")),
        (File(b"", "text/plain", "hunter2"), File(b"", "text/plain", "[secret]")),
        (Image(b"", "hunter2"), Image(b"", "[secret]")),
        (Audio(b"", "hunter2"), Audio(b"", "[secret]")),
    ],
)
def test_of_content_all_but_the_bytes_is_redacted(part: Any, shown: Any) -> None:
    assert redacted_content(part, redactor) == shown
    assert redacted_content(part, None) is part


@pytest.mark.parametrize(
    "unit", ["\\\\", '\\"', '"a",', "1,", "x "], ids=["backslashes", "quotes", "strings", "numbers", "words"]
)
def test_one_secret_in_a_long_text_costs_no_look_at_each_of_its_values(unit: str) -> None:
    """A model sends megabytes of backslashes beside a secret that it was shown (second case: of short strings)."""
    looks: list[int] = []

    def redact(text: str) -> str:
        looks.append(len(text))
        return text.replace("hunter2", "[secret]")

    body = unit * (400_000 // len(unit))
    text = f'["{body}", "hunter2"]' if "\\" in unit else f'[{body}"hunter2"]'
    assert redacted_json(text, redact) == text.replace("hunter2", "[secret]")
    assert len(looks) < 3_000
    assert sum(looks) < 7 * len(text)


SHOWN = "Zażółć 北京 نص 👍\tab\n"
UNSEEN = "\u200b\u3164\u115f\u2800\ufe0f\U000e0041\u00ad"


def test_what_is_seen_stays_and_controls_and_marks_of_direction_are_escaped() -> None:
    assert escaped(SHOWN) == escaped(SHOWN, invisible=True) == SHOWN
    assert escaped("a\r\nb\rc\x1b[0m\u202e\x9b") == "a\nb\\rc\\x1b[0m\\u202e\\x9b"
    assert escaped(UNSEEN) == UNSEEN
    assert escaped(UNSEEN, invisible=True) == "\\u200b\\u3164\\u115f\\u2800\\ufe0f\\U000e0041\\xad"
    assert one_line("a\n\n ERROR\u2028b\x00") == "a ERROR b\\x00"


def test_every_format_and_control_character_is_escaped_and_json_keeps_its_value() -> None:
    """The tables of this Python's Unicode decide; variation selectors and the fillers of Hangul have other classes."""
    unseen = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf")]
    unseen = [char for char in unseen if char not in "\t\n"] + [*UNSEEN, "\uffa0", "\u034f", "\U000e01ef", "\u180b"]
    assert [char for char in unseen if escaped(char, invisible=True) == char] == []
    value = {"".join(unseen): ["".join(unseen), SHOWN]}
    text = escaped(json.dumps(value, ensure_ascii=False), invisible=True, as_json=True)
    assert json.loads(text) == value
    assert [char for char in unseen if char in text] == []


@pytest.mark.parametrize("category", ["L", "N", "P"])
def test_no_letter_number_or_mark_of_punctuation_is_escaped_but_fillers(category: str) -> None:
    codes = (chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(category))
    found = "".join(char for char in codes if escaped(char, invisible=True) != char)
    assert found == ("\u115f\u1160\u3164\uffa0" if category == "L" else "")
