"""The styles of parameters, as the tables of the specification have them, and what an argument cannot do."""

from typing import Any

import pytest

from toolcrib import ToolError
from toolcrib.tools.openapi.operations import Parameter
from toolcrib.tools.openapi.request import header_text, path_text, query_pairs

EMPTY, TEXT = "", "blue"
LIST: Any = ["blue", "black", "brown"]
OBJECT: Any = {"R": 100, "G": 200, "B": 150}


def query(style: str, explode: bool, value: Any, **more: Any) -> str:
    return "&".join(
        f"{name}={text}"
        for name, text in query_pairs(Parameter("color", "query", "color", style, explode, **more), value)
    )


def path(style: str, explode: bool, value: Any, **more: Any) -> str:
    return path_text(Parameter("color", "path", "color", style, explode, **more), value)


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("matrix", False, EMPTY, ";color"),
        ("matrix", False, TEXT, ";color=blue"),
        ("matrix", False, LIST, ";color=blue,black,brown"),
        ("matrix", True, LIST, ";color=blue;color=black;color=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
        ("label", False, LIST, ".blue,black,brown"),
        ("label", True, LIST, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("simple", False, LIST, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("simple", False, 1.5, "1.5"),
        ("simple", False, "a/b?c#d %2F é", "a%2Fb%3Fc%23d%20%252F%20%C3%A9"),
    ],
)
def test_a_path_parameter_is_written_in_its_style(style: str, explode: bool, value: Any, written: str) -> None:
    assert path(style, explode, value) == written


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("form", False, EMPTY, "color="),
        ("form", False, LIST, "color=blue,black,brown"),
        ("form", False, OBJECT, "color=R,100,G,200,B,150"),
        ("form", True, LIST, "color=blue&color=black&color=brown"),
        ("form", True, OBJECT, "R=100&G=200&B=150"),
        ("form", False, [], ""),
        ("spaceDelimited", False, LIST, "color=blue%20black%20brown"),
        ("pipeDelimited", False, LIST, "color=blue%7Cblack%7Cbrown"),
        ("deepObject", True, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("deepObject", True, {"a": {"b": [1, 2]}}, "color%5Ba%5D%5Bb%5D%5B0%5D=1&color%5Ba%5D%5Bb%5D%5B1%5D=2"),
    ],
)
def test_a_query_parameter_is_written_in_its_style(style: str, explode: bool, value: Any, written: str) -> None:
    assert query(style, explode, value) == written


def test_a_value_cannot_add_to_the_query() -> None:
    value = "1&admin=true#x +%26"
    assert query("form", True, value) == "color=1%26admin%3Dtrue%23x%20%2B%2526"
    assert query("form", True, {"a&b=c": "d"}) == "a%26b%3Dc=d"
    assert query("form", False, ["a,b"]) == "color=a%2Cb"


def test_reserved_characters_stay_where_they_may_and_still_add_nothing() -> None:
    assert query("form", True, "a/b:c?d&e=f#g%20h%", allow_reserved=True) == "color=a/b:c?d%26e%3Df%23g%20h%25"
    assert path("simple", False, "a/b:c;d", allow_reserved=True) == "a%2Fb:c;d"


def test_content_is_json_whatever_the_style() -> None:
    assert query("", False, {"a": [1, "x&y"]}, media_type="application/json") == (
        "color=%7B%22a%22%3A%5B1%2C%22x%26y%22%5D%7D"
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        ".",
        "..",
        "../admin",
        "a/../b",
        "..\\b",
        "a/..",
        "%2e%2e",
        "%2E%2E/x",
        "%252e%252e",
        "..;",
        "..;a=b/c",
        "a\nb",
        "\x00",
        [],
        [".."],
    ],
)
def test_a_value_cannot_leave_its_part_of_the_path(value: Any) -> None:
    with pytest.raises(ToolError) as refused:
        path("simple", False, value)
    assert refused.value.code == "invalid_arguments"
    assert "'color'" in str(refused.value)


@pytest.mark.parametrize("value", ["..hidden", "a..b", "v1.0", "...x", "a/b", ".git"])
def test_dots_in_a_value_are_no_steps(value: str) -> None:
    assert path("simple", False, value) == value.replace("/", "%2F")


def test_headers_are_written_plainly_and_take_no_line_breaks() -> None:
    header = Parameter("X-Color", "header", "color", "simple", False)
    assert header_text(header, LIST) == "blue,black,brown"
    assert header_text(header, OBJECT) == "R,100,G,200,B,150"
    assert header_text(Parameter("X-Color", "header", "color", "simple", True), OBJECT) == "R=100,G=200,B=150"
    assert header_text(header, "a%20b; c") == "a%20b; c"
    for value in ("a\r\nHost: evil", "a\nb", "\x00", "é", " a", ["a\r\nb"]):
        with pytest.raises(ToolError) as refused:
            header_text(header, value)
        assert refused.value.code == "invalid_arguments"


def test_cookies_take_no_further_cookies() -> None:
    form = Parameter("color", "cookie", "color", "form", True)
    assert list(query_pairs(form, "a; admin=1")) == [("color", "a%3B%20admin%3D1")]
    assert list(query_pairs(form, ["a", "b"])) == [("color", "a"), ("color", "b")]
