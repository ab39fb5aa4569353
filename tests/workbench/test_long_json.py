"""Long JSON text of which only what is looked at is parsed."""

import json
from typing import Any

import pytest

from toolcrib.workbench.long_json import parse

ROWS = [{"a": n, "text": '"[{,:}]\\ ü'} for n in range(3000)]
LONG = " " * 70_000


def test_a_long_list_is_the_list_that_it_is() -> None:
    found = parse(json.dumps(ROWS, indent=1))
    assert type(found) is not list
    assert len(found) == 3000
    assert [*found] == ROWS
    assert (found[0], found[-1], found[5:8]) == (ROWS[0], ROWS[-1], ROWS[5:8])
    with pytest.raises(IndexError):
        found[3000]


@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : ")])
def test_a_long_object_is_the_object_that_it_is(separators: tuple[str, str]) -> None:
    value = {f'na"me:{n}': row for n, row in enumerate(ROWS)}
    found = parse(json.dumps(value, separators=separators))
    assert type(found) is not dict
    assert [*found] == [*value]
    assert dict(found.items()) == value
    assert found['na"me:7'] == ROWS[7]


@pytest.mark.parametrize("value", [[], {}, [1], {"a": 1}, [[]], {"a": {}}])
def test_white_space_is_no_member(value: Any) -> None:
    text = json.dumps(value)
    found = parse(f"{text[0]}{LONG}{text[1:]}")
    assert len(found) == len(value)
    assert ([*found] if isinstance(value, list) else dict(found.items())) == value


@pytest.mark.parametrize(
    "text",
    [
        "[INFO] it began" + LONG,
        f"[{LONG}1, 2",
        f"[{LONG}1] 2",
        f'{{{LONG}1: "a"}}',
        f"{{{LONG}a, b}}",
        f'{{{LONG}"a" 1}}',
    ],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_what_is_wrong_in_a_member_shows_when_it_is_looked_at() -> None:
    found = parse(f"[1, {LONG}nothing, [2}}, 3]")
    assert (found[0], found[-1]) == (1, 3)
    for wrong in (1, 2):
        with pytest.raises(ValueError):
            found[wrong]
