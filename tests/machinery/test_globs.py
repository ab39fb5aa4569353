"""Patterns of names."""

from typing import Any

import pytest

from toolcrib import SetupError
from toolcrib.machinery import compile_globs


@pytest.mark.parametrize(
    ("patterns", "names", "others"),
    [
        ("add", ["add"], ["adds", "ad"]),
        ("*", ["", "any", "two\nlines"], []),
        ("db_*", ["db_", "db_drop"], ["db", "a_db_x"]),
        ("*_x", ["_x", "a_x", "a_x_x"], ["a_x_"]),
        ("a*b*c", ["abc", "a1b2c", "aabbc"], ["acb", "ab"]),
        ("a?c", ["abc", "a\nc"], ["ac", "abbc"]),
        ("db.drop", ["db.drop", "db_drop", "db-drop", "db/drop"], ["dbxdrop"]),
        (["a", "b"], ["a", "b"], ["ab", ""]),
        ("a+b[c]", ["a+b[c]"], ["aab[c]", "a+bc"]),
    ],
)
def test_a_pattern_matches_whole_names(patterns: Any, names: list[str], others: list[str]) -> None:
    pattern = compile_globs(patterns)
    assert [name for name in names + others if pattern.fullmatch(name)] == names


@pytest.mark.parametrize("patterns", ["", [], [""], 7, None, ["a", 7]])
def test_what_is_no_pattern_is_refused(patterns: Any) -> None:
    with pytest.raises(SetupError, match=r"^tools is a pattern of names, or a list of them"):
        compile_globs(patterns)


def test_stars_in_a_long_name_take_no_time() -> None:
    assert compile_globs("*a*a*a*a*a*a*b").fullmatch("a" * 5_000) is None
