"""What `toolcrib show` writes of one tool: each fact by itself, and how it looks at a terminal."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Secret, Tool, ToolAuth
from toolcrib.cli.show import call_line, write_tool
from toolcrib.cli.terminal import Output
from toolcrib.core import ToolSpec
from toolcrib.tools import from_schema
from toolcrib.workbench.settings import read_settings


def shown(tool: Tool[..., Any], capsys: pytest.CaptureFixture[str], config: Path | None = None) -> str:
    write_tool(tool, read_settings(config), [], Output())
    return capsys.readouterr().out


def made(schema: Any, **spec: Any) -> Tool[..., Any]:
    return from_schema(ToolSpec("it", spec.pop("description", ""), schema, **spec), lambda _: None)


def arguments(schema: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = shown(made({"type": "object", **schema}), capsys).splitlines()
    return lines[lines.index("Arguments") + 1 : lines.index("", lines.index("Arguments"))]


def test_arguments_are_named_with_what_is_inside_them(capsys: pytest.CaptureFixture[str]) -> None:
    def inner(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]}

    assert arguments({"additionalProperties": False}, capsys) == ["  none"]
    assert arguments({"additionalProperties": True}, capsys) == ["  …  any value  under any other name"]
    assert arguments({"additionalProperties": {"type": "integer"}}, capsys) == ["  …  integer  under any other name"]
    schema = {
        "properties": {
            "plain": {"type": "string", "contentEncoding": "x", "default": "ab", "description": "Some\ntext."},
            "open": {**inner("x"), "additionalProperties": True},
            "typed": {**inner("x"), "additionalProperties": {"type": "string"}},
            "all": {"allOf": [inner("a")]},
            "list": {"type": "array", "items": inner("c")},
            "either": {"anyOf": [inner("d"), {**inner("e"), "title": "E"}, {"$ref": "#/$defs/a~1b"}]},
            "maybe": {"oneOf": [{"type": "null"}, inner("g")]},
            "self": {"$ref": "#/$defs/node"},
            "whole": {"$ref": "#"},
        },
        "required": ["open", "typed", "all", "list", "either", "maybe", "self", "whole"],
        "$defs": {
            "a/b": inner("f"),
            "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]},
        },
    }
    found = arguments(schema, capsys)
    assert found[0].rstrip().rsplit("  ", 2)[1:] == ["Some text.", '(default "ab", contentEncoding "x")']
    # Names and indents: kinds are described in tests/schema.
    assert [line[: len(line) - len(line.lstrip())] + line.split()[0] for line in found[1:]] == [
        *("  open", "    x"),
        *("  typed", "    x", "    …"),
        *("  all", "    a"),
        *("  list", "    c"),
        *("  either", "    form", "      d", "    E", "      e", "    a/b", "      f"),
        *("  maybe", "    g"),
        *("  self", "    next"),
        "  whole",
    ]
    assert found[1 + [line.split()[0] for line in found[1:]].index("form")] == "    form 1"


def test_facts_are_named_where_there_are_any(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    auth = [ToolAuth("github", "token", ["repo", "user"]), ToolAuth("slack"), Secret("KEY")]
    empty: dict[str, Any] = {"type": "object", "additionalProperties": False}
    full = made(
        empty,
        description="Do it.\nWell.",
        title="It",
        auth=tuple(auth),
        timeout_s=1.5,
        tags=frozenset({"b", "a"}),
        strict=False,
        examples=({"a": "é"}, {}),
        output_schema={"type": "object", "properties": {"out": {"type": "string"}}, "required": ["out"]},
    )
    config = tmp_path / "toolcrib.toml"
    config.write_text(
        '[[rule]]\nprincipals = "bob"\ndo = "deny"\n[[rule]]\ntools = "other"\ndo = "ask"\n'
        '[[limit]]\ntools = "other"\nconcurrency = 1\n[policy]\ndefault = "ask"\n'
    )
    assert shown(full, capsys, config).splitlines() == [
        "it  It",
        "",
        "Do it.",
        "Well.",
        "",
        "Arguments",
        "  none",
        "",
        "Returns  object",
        "  out  string",
        "",
        "Needs     credentials of github, by token, with the scopes repo user",
        "          credentials of slack",
        "          the secret KEY",
        "Timeout   1.5 s",
        "Tags      a, b",
        "Strict    no",
        'Examples  {"a": "é"}',
        "          {}",
        'Rules     deny for "bob", else ask',
        f"Defined   {Path(__file__).relative_to(Path.cwd())}:{made.__code__.co_firstlineno + 1}",
        "",
        "Call it",
        "  toolcrib call it 'a=é'",
    ]
    assert "\nStrict    yes\n" in shown(made(empty, strict=True), capsys)
    config.write_text('[[rule]]\ndo = "deny"\n[[rule]]\ndo = "ask"\n')
    assert "\nRules     deny\n" in shown(made(empty), capsys, config)


@pytest.mark.parametrize(
    ("schema", "example", "line"),
    [
        ({}, {"a": "two words", "b": "é"}, "toolcrib call it 'a=two words' 'b=é'"),
        ({}, {"a": "@file"}, """toolcrib call it '{"a": "@file"}'"""),
        ({}, {"a": "é", "b": 1}, """toolcrib call it '{"a": "é", "b": 1}'"""),
        ({}, {}, "toolcrib call it"),
        (
            {"properties": {"a": {"type": "array"}, "b": {"enum": ["x", "y"]}, "c": True}, "required": ["a", "b", "c"]},
            None,
            "toolcrib call it a=ARRAY b=CHOICE c=VALUE",
        ),
    ],
)
def test_the_line_that_calls_it_can_be_typed(schema: Any, example: Any, line: str) -> None:
    examples = () if example is None else (example, {"z": 1})
    assert call_line(ToolSpec("it", "", {"type": "object", **schema}, examples=examples), []) == line
