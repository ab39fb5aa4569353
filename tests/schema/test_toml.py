"""TOML of others: what is nested too deeply is refused before it costs anything."""

import gc
import time
import weakref

import pytest

from toolcrib.schema.toml import parse_toml

DEEP = [
    "x = " + "[" * 100_000,
    "x = " + "[" * 101 + "]" * 101,
    "x = " + '{a="#",b=' * 101 + "1" + "}" * 101,
    ".".join("a" * 200) + " = 1",
    "[" + ".".join("a" * 200) + "]",
]


@pytest.mark.parametrize("text", DEEP, ids=["open", "lists", "tables", "dotted key", "header"])
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        parse_toml(text)


@pytest.mark.parametrize(
    "text", ['"\\"' * 200_000, '"""\\' + "\\\n" * 200_000, "'''" + "''" * 200_000, "'\n" * 200_000]
)
def test_strings_that_do_not_end_are_read_once(text: str) -> None:
    # A second pass for each quote would take minutes.
    before = time.process_time()
    with pytest.raises(ValueError):
        parse_toml(f"x = {text}")
    assert time.process_time() - before < 30


def test_brackets_in_text_and_comments_do_not_count() -> None:
    many = "[" * 1000
    text = f'a = """\n{many}\\""""\nb = \'\'\'{many}\'\'\'\nc = "{many}\\"" # {many}\nd = \'{many}\' # it\'s\n'
    assert set(parse_toml(text + f"e = [\n'{many}', # {many}\n]\n")) == set("abcde")


def test_lists_up_to_the_limit_are_read() -> None:
    value = parse_toml("x = " + "[" * 99 + "]" * 99)["x"]
    for _ in range(98):
        (value,) = value
    assert value == []


def test_what_is_collected_meanwhile_is_finished() -> None:
    finished: list[int] = []

    class Part:
        pass

    def leave() -> None:
        part = Part()
        part.itself = part  # type: ignore[attr-defined]
        weakref.finalize(part, finished.append, 1)

    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for text in DEEP:
            leave()
            with pytest.raises(ValueError, match="nested"):
                parse_toml(text)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert len(finished) == len(DEEP)
