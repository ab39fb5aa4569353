"""What providers take, as data: it agrees with what their own packages say."""

import re
from typing import Any

import pytest

from toolcrib.formats import accepts
from toolcrib.formats.accepts import ANTHROPIC, ANTHROPIC_STRICT, GEMINI, OPENAI, OPENAI_STRICT
from toolcrib.schema.lower import Accepts, lower

ALL = [value for value in vars(accepts).values() if isinstance(value, Accepts)]


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.name} {'strict' if one.closed else 'loose'}")
def test_each_names_its_source_and_can_be_a_key(one: Accepts) -> None:
    assert one.source
    assert {one: 1}[one] == 1
    assert re.fullmatch(one.names, "get_weather")
    assert not re.fullmatch(one.names, "a" * (one.name_length + 1))


def test_bedrocks_names_are_those_of_its_service_description() -> None:
    loaders = pytest.importorskip("botocore.loaders")
    shapes = loaders.Loader().load_service_model("bedrock-runtime", "service-2")["shapes"]
    name = shapes["ToolName"]
    assert f"{name['pattern'].removesuffix('+')}{{{name['min']},{name['max']}}}" == r"[a-zA-Z0-9_-]{1,64}"
    assert re.fullmatch(accepts.BEDROCK.names, "aZ0_-")


def test_geminis_keywords_are_those_that_its_package_lists_and_those_seen_to_be_taken() -> None:
    types = pytest.importorskip("google.genai.types")
    description = types.GenerateContentConfig.model_fields["response_json_schema"].description
    listed = set(re.findall(r"`(\w+)`", description))
    assert GEMINI.keywords is not None
    assert GEMINI.keywords - listed == {"pattern", "minLength", "maxLength", "uniqueItems", "default"}


def test_anthropics_formats_are_those_that_its_package_knows() -> None:
    transform = pytest.importorskip("anthropic.lib._parse._transform")
    assert ANTHROPIC_STRICT.formats == transform.SupportedStringFormats


def test_anthropics_package_would_change_nothing_in_a_schema_for_its_strict_mode() -> None:
    transform = pytest.importorskip("anthropic.lib._parse._transform")
    members: dict[str, Any] = {
        "a": {"type": "string", "format": "date", "description": "A day."},
        "b": {"type": "array", "items": {"type": "integer"}, "minItems": 3},
        "c": {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]},
    }
    schema = {"type": "object", "properties": members, "required": ["a"], "additionalProperties": False}
    lowered = lower(schema, ANTHROPIC, strict=True).schema
    assert lowered["properties"]["b"]["minItems"] == 1  # the most that it takes: the rest is in words
    sent = transform.transform_schema(lowered)
    assert sent == {**lowered, "properties": {**lowered["properties"], "c": sent["properties"]["c"]}}


def test_openais_package_would_change_nothing_in_a_schema_for_its_strict_mode() -> None:
    pydantic_ = pytest.importorskip("openai.lib._pydantic")
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/N", "description": "First."}, "b": {"type": "string"}},
        "required": ["a"],
        "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}}},
    }
    lowered = lower(schema, OPENAI, strict=True).schema
    before = repr(lowered)
    assert repr(pydantic_._ensure_strict_json_schema(lowered, path=(), root=lowered)) == before


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        (r"^[a-z]+$", True),
        (r"^\d{3}-\d{4}$", True),
        (r"(?:a|b)*\.", True),
        (r"(?=a)", False),
        (r"\bk", False),
        (r"(a)\1", False),
    ],
)
def test_patterns_with_what_no_grammar_has_are_not_taken(pattern: str, taken: bool) -> None:
    assert OPENAI_STRICT.patterns is not None
    assert bool(re.fullmatch(OPENAI_STRICT.patterns, pattern)) == taken
