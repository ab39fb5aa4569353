"""The document of accepted arguments, where their defaults have values that no JSON document has the whole of."""

from typing import Any

import pytest
from pydantic import AliasPath, BaseModel, Field

from toolcrib import Tool
from toolcrib.schema import document_of


class Inside(BaseModel):
    first: int = Field(default=3, validation_alias=AliasPath("of", 0))


class Key: ...


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (Inside(), {"first": 3}),
        ({1: "a", "1": "b"}, [["1", "a"], ["1", "b"]]),
        ({Key(): 1}, {"<Key>": 1}),
        ({Key(): 1, "a": [Inside()]}, {"<Key>": 1, "a": [{"first": 3}]}),
    ],
    ids=["read from inside another", "one name twice", "no name", "together"],
)
@pytest.mark.parametrize("made", [False, True], ids=["default", "factory"])
def test_a_default_without_a_json_form_is_a_part_of_the_document(default: Any, shown: Any, made: bool) -> None:
    def use(x: Any = Field(default_factory=lambda: default) if made else default) -> None: ...

    tool = Tool(use)
    document = document_of(tool.check, "{}", tool.check("{}", True)[0])
    assert document.values == {"x": shown}
