"""What people see of text from outside."""

import json
import sys
import unicodedata

import pytest

from toolcrib.machinery import escaped, one_line

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
