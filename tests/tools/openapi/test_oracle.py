"""Parameters as npm's `swagger-client` writes them: a second implementation, over generated cases."""

import itertools
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from toolcrib.tools.openapi.operations import STYLES, Parameter
from toolcrib.tools.openapi.request import header_text, path_text, query_pairs

from ...npm import modules, node

pytestmark = pytest.mark.full

PACKAGE = "swagger-client@3.38.4"
SCRIPT = """
const {buildRequest} = require(process.argv[2]);
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(({spec, value}) => {
  const made = buildRequest({spec, operationId: "it", parameters: {color: value}, baseURL: "https://x.example.com"});
  return {url: made.url, headers: made.headers};
})));
"""
TEXTS = ["blue", "a b", "a&b=c", "ä/ö?#", "100%", "x+y", "it's", "a;b", "[x]"]
VALUES: list[Any] = [
    *TEXTS,
    7,
    1.5,
    True,
    ["blue", "black"],
    ["one"],
    [1, 2, 3],
    ["a&b", "c=d"],
    ["ä", "b c"],
    {"R": 100, "G": 200},
    {"a": "x&y"},
    {"only": "one two"},
]


@pytest.fixture(scope="module")
def swagger_client() -> Path:
    return modules(PACKAGE, PACKAGE) / "swagger-client"


def kind(value: Any) -> str:
    return "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "string"


def cases() -> list[tuple[Parameter, Any]]:
    made: list[tuple[Parameter, Any]] = []
    for place, explode, value in itertools.product(("path", "query", "header"), (False, True), VALUES):
        for style in STYLES[place]:
            # Of these, the specification says nothing.
            if style == "deepObject" and not (explode and isinstance(value, dict)):
                continue
            # Since 3.0.4 the specification has commas here; before, it had dots, which is what this client writes.
            if (
                style == "label"
                and not explode
                and isinstance(value, list | dict)
                and len(value) + isinstance(value, dict) > 1
            ):
                continue
            if style in ("spaceDelimited", "pipeDelimited") and (explode or not isinstance(value, list)):
                continue
            if place == "header" and not json.dumps(value, ensure_ascii=False).isascii():
                continue
            made.append((Parameter("color", place, "color", style, explode, place == "path"), value))  # type: ignore[arg-type]
    return made


def spec_of(parameter: Parameter, value: Any) -> dict[str, Any]:
    path = "/a/{color}" if parameter.place == "path" else "/a"
    written = {
        "name": "color",
        "in": parameter.place,
        "required": parameter.required,
        "style": parameter.style,
        "explode": parameter.explode,
        "schema": {"type": kind(value)},
    }
    operation = {"operationId": "it", "parameters": [written], "responses": {}}
    return {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": {path: {"get": operation}}}


def ours(parameter: Parameter, value: Any) -> Any:
    if parameter.place == "path":
        return path_text(parameter, value)
    if parameter.place == "header":
        return header_text(parameter, value)
    return [f"{name}={text}" for name, text in query_pairs(parameter, value)]


def theirs(parameter: Parameter, made: dict[str, Any]) -> Any:
    url = made["url"].removeprefix("https://x.example.com")
    if parameter.place == "path":
        return url.removeprefix("/a/")
    if parameter.place == "header":
        return made["headers"]["color"]
    return url.partition("?")[2].split("&")


def decoded(written: Any) -> Any:
    """*written*, after the separators between its parts were found: which characters are encoded may differ."""
    return [unquote(part) for part in written] if isinstance(written, list) else unquote(written)


def test_parameters_are_written_as_another_implementation_writes_them(swagger_client: Path, tmp_path: Path) -> None:
    every = cases()
    script = tmp_path / "build.js"
    script.write_text(SCRIPT)
    data = json.dumps([{"spec": spec_of(parameter, value), "value": value} for parameter, value in every])
    done = node(str(script), str(swagger_client), stdin=data)
    assert done.returncode == 0, done.stderr
    different = [
        (parameter.place, parameter.style, parameter.explode, value, ours(parameter, value), theirs(parameter, made))
        for (parameter, value), made in zip(every, json.loads(done.stdout), strict=True)
        if decoded(ours(parameter, value)) != decoded(theirs(parameter, made))
    ]
    assert len(every) > 200
    assert different == []
