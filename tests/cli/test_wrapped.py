"""A model's words are wrapped at a terminal as they come, without changing what was written before."""

import pytest

from toolcrib.cli.terminal import WrappedText

TEXT = "one two three four\n\n  five six\ta word-that-is-longer than\n日本語 日本語 z"
LINES = ["one two", "three four", "", "  five six", "a", "word-that-", "is-longer", "than", "日本語", "日本語 z"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_text_in_pieces_is_wrapped_as_the_whole_is(size: int) -> None:
    wrapped = WrappedText(10)
    written = "".join(wrapped.feed(TEXT[at : at + size]) for at in range(0, len(TEXT), size)) + wrapped.rest()
    assert [line.rstrip() for line in written.split("\n")] == LINES


def test_a_word_is_written_once_its_end_is_known_and_the_rest_begins_a_line() -> None:
    wrapped = WrappedText(10)
    assert [wrapped.feed(piece) for piece in ("on", "e t", "wo", " ", "three")] == ["", "one ", "", "two ", ""]
    assert (wrapped.rest(), wrapped.rest()) == ("\nthree", "")
    assert wrapped.feed("one two ") == "one two "


def test_without_a_width_nothing_is_wrapped_or_held_back() -> None:
    wrapped = WrappedText(0)
    assert (wrapped.feed(TEXT), wrapped.rest()) == (TEXT, "")


def test_a_tab_is_as_wide_as_a_blank() -> None:
    wrapped = WrappedText(10)
    assert wrapped.feed("ab\tcdefghi\n") + wrapped.rest() == "ab cdefghi\n"
