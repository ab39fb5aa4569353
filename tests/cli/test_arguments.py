"""How the words after a command become sources, the tool's name and the arguments of the call."""

import io
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Base64Bytes, Base64UrlBytes, BaseModel, Field

from toolcrib import Tool
from toolcrib.cli.arguments import (
    Words,
    choices_of,
    read_arguments,
    read_words,
    require_tool,
    to_json,
)
from toolcrib.cli.terminal import UsageError
from toolcrib.core import LoadError
from toolcrib.schema import SchemaView


@pytest.mark.parametrize(
    ("words", "tool", "expected"),
    [
        ([], None, Words((), None, ())),
        (["add"], None, Words((), "add", ())),
        (["a.py", "b/", "c:d", "add", "a=1", "b.c=2"], None, Words(("a.py", "b/", "c:d"), "add", ("a=1", "b.c=2"))),
        (["a.py"], None, Words(("a.py",), None, ())),
        (["a.py", "a=./b"], "add", Words(("a.py",), "add", ("a=./b",))),
        (["a.py", "@file.json"], "add", Words(("a.py",), "add", ("@file.json",))),
        (["a.py", '{"a": "b.c"}'], "add", Words(("a.py",), "add", ('{"a": "b.c"}',))),
        (["a.py", "-"], "add", Words(("a.py",), "add", ("-",))),
    ],
)
def test_words_with_a_mark_are_sources_until_the_name_of_the_tool(
    words: list[str], tool: str | None, expected: Words
) -> None:
    assert read_words(words, tool) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing argument 'TOOL'. Try: toolcrib call --help"),
        (
            ["x.py"],
            "The name of the tool is missing after x.py. Write: toolcrib call x.py TOOL. To see the tools: toolcrib "
            "list x.py",
        ),
        (
            ["x.py:add", "a=1"],
            "The name of the tool is missing after x.py:add. Write: toolcrib call x.py:add TOOL. To see the tools: "
            "toolcrib list x.py:add. If 'x.py:add' is a tool: --tool x.py:add",
        ),
        (
            ["a/", "issues.list"],
            "The name of the tool is missing after issues.list. Write: toolcrib call a/ issues.list TOOL. To see the "
            "tools: toolcrib list a/ issues.list. If 'issues.list' is a tool: --tool issues.list",
        ),
    ],
)
def test_without_the_name_of_a_tool_the_error_shows_what_to_write(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_tool(read_words(words), "call")
    assert str(refused.value) == message
    assert require_tool(read_words([*[word for word in words if "=" not in word], "add"]), "call") == "add"


class Address(BaseModel):
    street: str
    number: int | None = Field(None, alias="no")
    tags: list[str] = []
    inner: "Address | None" = None


def tool(
    text: str,
    number: int = 0,
    ratio: float = 0.5,
    on: bool = False,
    maybe: int | None = None,
    texts: list[str] | None = None,
    numbers: list[int] | None = None,
    pair: tuple[int, str] | None = None,
    mode: Literal["soft", 1] = "soft",
    either: int | str = 1,
    address: Address | None = None,
    free: dict[str, Any] | None = None,
    anything: Any = None,
    nested: list[list[int]] | None = None,
) -> None:
    """Take it."""


SCHEMA = Tool(tool).spec.input_schema


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("text=5", {"text": "5"}),
        ("text=a=b", {"text": "a=b"}),
        ("number=5", {"number": 5}),
        ("ratio=2.5", {"ratio": 2.5}),
        ("on=true", {"on": True}),
        ("on=yes", {"on": "yes"}),
        ("texts=a,b", {"texts": ["a,b"]}),
        ("texts=a texts=b", {"texts": ["a", "b"]}),
        ('texts=["a","b"]', {"texts": ["a", "b"]}),
        ("numbers=1,2", {"numbers": [1, 2]}),
        ("numbers=1,x", {"numbers": ["1,x"]}),
        ("numbers=1 numbers=2", {"numbers": [1, 2]}),
        ("pair=1,a", {"pair": [1, "a"]}),
        ("nested=[[1]]", {"nested": [[1]]}),
        ("mode=1", {"mode": 1}),
        ("mode=2", {"mode": "2"}),
        ("either=5", {"either": "5"}),
        ("address.street=5", {"address": {"street": "5"}}),
        ("address.no=5", {"address": {"no": 5}}),
        ("address.street=a address.tags=b address.tags=c", {"address": {"street": "a", "tags": ["b", "c"]}}),
        ("address.inner.street=5 address.street=6", {"address": {"inner": {"street": "5"}, "street": "6"}}),
        ("free.a=5", {"free": {"a": "5"}}),
        ("unknown=5", {"unknown": "5"}),
        ("unknown.part=5", {"unknown.part": "5"}),
        ('address={"street":"a"}', {"address": {"street": "a"}}),
        ("", {}),
    ],
)
def test_texts_are_read_as_the_schema_has_them(words: str, expected: dict[str, Any]) -> None:
    assert to_json(read_arguments(words.split(), tool="add"), SCHEMA) == expected


def test_a_text_is_one_also_where_it_has_not_the_format_of_the_schema() -> None:
    schema = {"properties": {"at": {"type": ["string", "integer"], "format": "date"}}}
    assert to_json(read_arguments(["at=2026"], tool="add"), schema) == {"at": "2026"}


def test_a_dot_in_the_name_of_an_argument_is_a_part_of_it() -> None:
    schema = {"type": "object", "properties": {"a.b": {"type": "integer"}, "a": {"type": "object"}}}
    assert to_json(read_arguments(["a.b=5"], tool="add"), schema) == {"a.b": 5}


def test_a_member_that_is_not_listed_has_the_type_of_the_others() -> None:
    def count(counts: dict[str, int], lists: dict[str, list[str]]) -> None: ...

    words = ["counts.a=5", "counts.b=x", "lists.c=d"]
    assert to_json(read_arguments(words, tool="count"), Tool(count).spec.input_schema) == {
        "counts": {"a": 5, "b": "x"},
        "lists": {"c": ["d"]},
    }


@pytest.mark.parametrize("whole", ["address=null", 'address={"no":2}', "address=[]"])
def test_an_object_is_written_as_a_whole_or_by_its_members(whole: str) -> None:
    for words in ([whole, "address.no=1"], ["address.no=1", whole]):
        with pytest.raises(UsageError) as refused:
            to_json(read_arguments(words, tool="add"), SCHEMA)
        assert str(refused.value) == "'address' is given as a whole and by its members. Give it one way."


def test_the_whole_is_one_json_text_a_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 2}')))
    for word, expected in [('{"a": 0}', '{"a": 0}'), (f"@{file}", '{"a": 1}'), ("-", '{"a": 2}')]:
        assert to_json(read_arguments([word], tool="add"), SCHEMA) == expected
    assert to_json(read_arguments([f"text=@{file}", "number=1"], tool="add"), SCHEMA) == {
        "text": '{"a": 1}',
        "number": 1,
    }
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(LoadError, match="standard input cannot be read: it is closed"):
        read_arguments(["-"], tool="add")
    with pytest.raises(LoadError) as missing:
        read_arguments([f"text=@{tmp_path}/nowhere"], tool="add")
    assert str(missing.value) == (
        f"'{tmp_path}/nowhere' cannot be read: No such file or directory. To send text that begins with @, write the "
        'arguments as JSON: \'{"text": "@..."}\'.'
    )
    with pytest.raises(LoadError) as missing:
        read_arguments([f"@{tmp_path}/nowhere"], tool="add")
    assert str(missing.value) == f"'{tmp_path}/nowhere' cannot be read: No such file or directory."
    file.write_bytes(b"ab\xff")
    with pytest.raises(LoadError, match=r"is not UTF-8 text \(at byte 3\), so it cannot be sent"):
        read_arguments([f"@{file}"], tool="add")


def test_a_file_is_encoded_where_the_tool_takes_base64(tmp_path: Path) -> None:
    def take(plain: bytes, whole: Base64Bytes, url: Base64UrlBytes | None, many: list[Base64Bytes]) -> None: ...

    schema = Tool(take).spec.input_schema
    upload = {"type": "string", "contentEncoding": "base64"}  # as of OpenAPI documents and MCP servers
    schema = {**schema, "properties": {**schema["properties"], "upload": upload}}
    text, image = tmp_path / "a.txt", tmp_path / "a.png"
    text.write_bytes(b"text")
    image.write_bytes(b"\xff\xef")
    words = [f"plain=@{text}", f"whole=@{text}", f"url=@{image}", f"many=@{image}", f"upload=@{image}"]
    assert to_json(read_arguments(words, tool="take"), schema) == {
        "plain": "text",
        "whole": "dGV4dA==",
        "url": "_-8=",
        "many": ["/+8="],
        "upload": "/+8=",
    }
    message = r"a.png' is not UTF-8 text \(at byte 1\), so it cannot be sent\. .* with pydantic\.Base64Bytes\."
    with pytest.raises(LoadError, match=message):
        to_json(read_arguments([f"plain=@{image}"], tool="take"), schema)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (['{"a": 1}', "b=2"], "gives all arguments at once, so nothing can be beside it"),
        (["-", "b=2"], "'-' gives all arguments at once"),
        (["five"], r"'five' is not an argument. Write key=value, .*\. If 'add' is a source, write: -s add$"),
        (["x.py"], r"'x.py' is not an argument\. .* A source goes before the tool: x.py add$"),
        (["a=1", "five"], r"'five' is not an argument\. Write .* or - for standard input\.$"),
        (["=5"], "'=5' is not an argument"),
        (["[1]=5", "b=1"], r"'\[1\]=5' is not an argument"),
        (["a=1", "@x=5"], "'@x=5' is not an argument"),
        (["a=\udcff"], r"is not UTF-8 text\. Put it into a file and write key=@file"),
    ],
)
def test_words_of_another_form_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_arguments(words, tool="add")


def test_what_may_be_typed_is_what_the_schema_lists() -> None:
    members = SchemaView(SCHEMA).members
    choices = {name: choices_of(members[name]) for name in ("on", "mode", "text", "maybe")}
    assert choices == {"on": ["true", "false"], "mode": ["soft", "1"], "text": [], "maybe": []}
    assert "boolean" in members["anything"].admitted_kinds
    assert members["ratio"].admitted_kinds == {"number", "integer"}
