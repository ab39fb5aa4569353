"""TOML of others: what is nested too deeply is refused before it costs anything."""

import pytest

from toolcrib.schema.toml import line_at, lines_of, parse_toml

DEEP = [
    "x = " + "[" * 100_000,
    "x = " + "[" * 101 + "]" * 101,
    "x = " + '{a="#",b=' * 101 + "1" + "}" * 101,
    ".".join("a" * 200) + " = 1",
    "[" + ".".join("a" * 200) + "]",
]


@pytest.mark.parametrize("text", DEEP, ids=["open", "lists", "tables", "dotted key", "header"])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        parse_toml(text)


def test_brackets_in_text_and_comments_do_not_count() -> None:
    many = "[" * 1000
    text = f'a = """\n{many}\\""""\nb = \'\'\'{many}\'\'\'\nc = "{many}\\"" # {many}\nd = \'{many}\' # it\'s\n'
    assert set(parse_toml(text + f"e = [\n'{many}', # {many}\n]\n")) == set("abcde")


def test_tables_and_keys_have_the_line_that_they_stand_on() -> None:
    text = '# a file\nx = [\n  1,\n]\n[[a]]\ny = 1\n[[a]]\n"y z".w = 2  # it\n[a.b]\nc = {d = 1}\n[["e f".g]]\n'
    lines = lines_of(text)
    assert lines == {
        ("x",): 2,
        ("a",): 5,
        ("a", 0): 5,
        ("a", 0, "y"): 6,
        ("a", 1): 7,
        ("a", 1, "y z", "w"): 8,
        ("a", 1, "b"): 9,
        ("a", 1, "b", "c"): 10,
        ("e f",): 11,
        ("e f", "g"): 11,
        ("e f", "g", 0): 11,
    }
    assert [line_at(lines, keys) for keys in (("x", 0), ("a", 1, "b", "c", "d"), ("nothing",))] == [2, 10, 1]
