"""A raw JSON Schema is validated offline: whatever its references name, nothing is fetched."""

import contextlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toolcrib import Tool, Workbench
from toolcrib.core import DefinitionError, ToolError
from toolcrib.schema.view import MAX_LOOKED_AROUND_CHARS, validator

from ..held import seconds_of


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A web server that would answer with a schema, its address and the paths that were asked for."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = b'{"type": "integer", "$defs": {"a": {"type": "integer"}}}'
            self.send_response(200)
            self.send_header("Content-Type", "application/schema+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", asked
        http.shutdown()
        thread.join()


def use(a: Any) -> Any:
    return a


def remote(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """*schema* at every place of a schema that may hold one."""
    return [
        {"properties": {"a": {"anyOf": [{"type": "string"}, schema]}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"], "$defs": {"x": schema}},
        {"properties": {"a": True}, "required": ["a"], "if": schema, "then": True},
    ]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_remote_reference_is_refused_and_never_fetched(
    server: tuple[str, list[str]], keyword: str, place: int
) -> None:
    address, asked = server
    for target in (f"{address}/a.json", f"{address}/a.json#/$defs/a"):
        with pytest.raises(DefinitionError, match=r"A \$ref may only lead to a place in the schema itself"):
            Tool(use, parameters=remote({keyword: target})[place])
    assert asked == []


async def test_the_version_that_a_schema_names_is_never_fetched(server: tuple[str, list[str]]) -> None:
    address, asked = server
    schema = {"$schema": f"{address}/own.json", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    made = Tool(use, parameters=schema)
    assert "$schema" not in made.spec.input_schema
    async with Workbench([made]) as bench:
        assert (await bench.call("use", {"a": 1})).value == 1
        assert (await bench.call("use", {"a": "x"})).error is not None
    inner = {"properties": {"a": {"$schema": f"{address}/own.json", "type": "integer"}}, "required": ["a"]}
    with contextlib.suppress(DefinitionError):
        Tool(use, parameters=inner).check('{"a": 1}', True)
    assert asked == []


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", "type": "integer"}}},
        {"properties": {"a": {"$ref": "d"}}, "$id": "https://a.b/c", "$defs": {"d": {"$id": "d", "type": "integer"}}},
        {"properties": {"a": {"$dynamicRef": "#n"}}, "$defs": {"n": {"$dynamicAnchor": "n", "type": "integer"}}},
    ],
    ids=["anchor", "inner-id", "dynamic"],
)
def test_a_reference_that_is_no_place_is_refused(schema: Any) -> None:
    with pytest.raises(DefinitionError, match="Refer by place"):
        Tool(use, parameters={**schema, "required": ["a"]})


@pytest.mark.parametrize("target", ["file://{}", "{}#/$defs/a"])
def test_a_reference_to_a_file_is_refused(tmp_path: Path, target: str) -> None:
    file = tmp_path / "secret.json"
    file.write_text('{"type": "integer", "$defs": {"a": {"type": "integer"}}}')
    with pytest.raises(DefinitionError, match=r"A \$ref may only lead to a place in the schema itself"):
        Tool(use, parameters={"properties": {"a": {"$ref": target.format(file)}}, "required": ["a"]})


@pytest.mark.parametrize(
    ("format", "right", "wrong"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("email", "a@b.example", "a"),
    ],
)
async def test_formats_are_checked(format: str, right: str, wrong: str) -> None:
    schema = {"properties": {"a": {"type": "string", "format": format}}, "required": ["a"]}
    async with Workbench([Tool(use, parameters=schema)]) as bench:
        assert (await bench.call("use", {"a": right})).value == right
        error = (await bench.call("use", {"a": wrong})).error
    assert error is not None
    assert error.code == "invalid_arguments"


@pytest.mark.parametrize("pattern", [r"(?!x)a+b", r"(?=.*[a-z])(?=.*[A-Z]).{8,}", r"(a+)\1b"])
def test_a_pattern_that_looks_around_holds_nobody_however_long_the_text_is(pattern: str) -> None:
    """APIs have such patterns for passwords and names; a model sends a long text, and no thread runs meanwhile."""
    for in_name, schema in (
        (False, {"pattern": pattern}),
        (False, {"$ref": "#/$defs/a"}),
        (True, {"propertyNames": {"pattern": pattern}}),
        (True, {"patternProperties": {pattern: False}, "additionalProperties": False}),
    ):
        parameters = {"type": "object", "properties": {"x": schema}, "$defs": {"a": {"pattern": pattern}}}
        tool = Tool(lambda **_: 1, name="take", parameters=parameters)

        def seconds(size: int, tool: Any = tool, in_name: bool = in_name) -> float:
            def check() -> None:
                with pytest.raises(ToolError):
                    tool.check({"x": {"a" * size: 1} if in_name else "a" * size}, False)

            return min(seconds_of(check) for _ in range(2))

        assert seconds(24_000) < 9 * seconds(6_000) + 0.05  # by pairs, 16 times


def test_a_pattern_is_bounded_only_where_it_looks_around_from_every_place() -> None:
    """The first is what APIs have for text that is not blank; a long description fits it."""
    long = "a" * (MAX_LOOKED_AROUND_CHARS + 1)
    for pattern, is_bounded in ((r"^(?!\s*$).+", False), ("a+$", False), (r"(?!^\s*$)", True), ("(a)\\1", True)):
        judge = validator({"pattern": pattern, "const": long, "enum": [long]}, formats=False)
        assert judge.is_valid(long) is not is_bounded, pattern
        assert validator({"pattern": pattern}, formats=False).is_valid(long[1:])


def test_a_bounded_pattern_judges_short_texts_as_it_stands() -> None:
    generator = random.Random(11)
    parts = ["a", "b", ".", "[^a]", "\\w", "$", "^", "(?=a)", "(?!b)", "(?<=a)", "(?<!b)", "(a|b)", "a+", "b*", "\\1"]
    count = 0
    while count < 700:
        pattern = "".join(generator.choices(parts, k=4)) + generator.choice(["", "", "|a", "|$"])
        try:
            plain = jsonschema_rs.Draft202012Validator({"pattern": pattern})
        except (jsonschema_rs.ValidationError, ValueError):
            continue
        text = "".join(generator.choices("ab1\n ", k=generator.randint(0, 7)))
        count += 1
        assert validator({"pattern": pattern}, formats=False).is_valid(text) == plain.is_valid(text), (pattern, text)
