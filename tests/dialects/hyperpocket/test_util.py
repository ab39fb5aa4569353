"""The functions of `.util` that tools import."""

from typing import Any

import pytest

from toolcrib.dialects.hyperpocket.util.extract_func_param_desc_from_docstring import extract_param_docstring_mapping
from toolcrib.dialects.hyperpocket.util.json_schema_to_model import json_schema_to_model

STYLES = {
    "google": "Text.\n\n    Args:\n        a (int): first\n        b (dict[str, int], optional): second",
    "google without types": "Text.\n\n    Args:\n        a: first\n        b: second",
    "sphinx": "Text.\n\n    :param a: first\n    :param b: second\n    :return: nothing",
    "sphinx with types": "Text.\n\n    :param int a: first\n    :param str b: second",
    "sphinx with a colon more": "Text.\n\n    :param: a: first\n    :param: b: second",
    "javadoc": "Text.\n\n    @param a first\n    @param b second\n    @return nothing",
    "javadoc with colons": "Text.\n\n    @param: a: first\n    @param b: second",
    "arg": "Text.\n\n    :arg a: first\n    :arg b second",
    "at arg": "Text.\n\n    @arg a: first\n    @arg b(int): second",
    "numpy": "Text.\n\n    Parameters\n    ----------\n    a : int\n        first\n    b : str\n        second",
    "plain": "Text.\n\n    a: first\n    b(int): second",
    "list": "Text.\n\n    - a (int) : first\n    - b (str) : second",
    "numbers": "Text.\n\n    1. a (int) : first\n    2. b (str) : second",
    "list of arguments": "Text.\n\n    Args:\n    - a (int): first\n    - b (str): second",
}


@pytest.mark.parametrize("style", STYLES)
def test_the_descriptions_of_parameters_are_found_in_every_style(style: str):
    def fn(a: int, b: Any) -> None: ...

    fn.__doc__ = STYLES[style]
    assert extract_param_docstring_mapping(fn) == {"a": "first", "b": "second"}


def test_only_parameters_are_described_and_not_every_word_before_a_colon():
    def fn(a: int) -> None:
        """Note: see below.

        Args:
            a (int): first: with a colon,
                and a second line
            c (int): not a parameter

        Returns:
            b: something
        """

    def bare(a: int) -> None: ...

    assert extract_param_docstring_mapping(fn) == {"a": "first: with a colon, and a second line"}
    assert extract_param_docstring_mapping(bare) == {}


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "A text."},
        "number": {"type": "number", "default": 1.5},
        "kind": {"enum": ["a", "b"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "both": {"type": ["string", "integer"]},
        "items": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
        "_hidden": {"type": "string"},
        "schema": {"type": "string"},
    },
    "required": ["text"],
}


def test_a_schema_becomes_a_model_with_its_types_and_defaults():
    model = json_schema_to_model(SCHEMA, "Thing")
    made = model.model_validate({"text": "t", "items": [{"id": 1}], "counts": {"a": 1}, "schema": "s", "_hidden": "h"})
    assert model.__name__ == "Thing"
    assert made.model_dump(by_alias=True) == {
        "text": "t",
        "number": 1.5,
        "kind": None,
        "either": None,
        "both": None,
        "items": [{"id": 1}],
        "counts": {"a": 1},
        "any": None,
        "_hidden": "h",
        "schema": "s",
    }
    assert model.model_validate({"text": "t", "kind": None, "items": [{"id": None}]}).model_dump()["kind"] is None
    assert model.model_json_schema()["properties"]["text"]["description"] == "A text."
    assert json_schema_to_model(SCHEMA).__name__ == "DynamicModel"
