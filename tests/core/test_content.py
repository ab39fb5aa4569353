"""What results are made of."""

import json
from typing import Any

import pytest

from toolcrib import File, Image, Text, Workbench
from toolcrib.core import Audio, Content, Data, content_from_dict, content_to_dict

DATA: list[tuple[Content, dict[str, Any]]] = [
    (Text("a"), {"type": "text", "text": "a"}),
    (Data('{"a":"ü"}'), {"type": "data", "data": {"a": "ü"}}),
    (Image(b"\xff"), {"type": "image", "data": "/w==", "media_type": "image/png"}),
    (Audio(b"\xff", "audio/mp3"), {"type": "audio", "data": "/w==", "media_type": "audio/mp3"}),
    (
        File(b"", "text/plain", "a.txt"),
        {"type": "file", "data": "", "media_type": "text/plain", "name": "a.txt"},
    ),
    (File(b"x"), {"type": "file", "data": "eA==", "media_type": "application/octet-stream", "name": None}),
]


def test_data_has_the_value_that_its_json_stands_for() -> None:
    assert Data('{"a": [1, null]}').value == {"a": [1, None]}


def test_content_as_text_names_kind_and_size() -> None:
    assert [part.text for part, _ in DATA] == [
        "a",
        '{"a":"ü"}',
        "[image: image/png, 1 bytes]",
        "[audio: audio/mp3, 1 bytes]",
        "[file a.txt: text/plain, 0 bytes]",
        "[file: application/octet-stream, 1 bytes]",
    ]
    assert (Audio(b"").media_type, hash(Text("a")) == hash(Text("a"))) == ("audio/wav", True)


@pytest.mark.parametrize(("part", "data"), DATA)
def test_content_is_the_same_after_a_way_through_json(part: Content, data: dict[str, Any]) -> None:
    assert content_to_dict(part) == data
    assert content_from_dict(data) == part
    assert content_from_dict(content_to_dict(part, exact=True)) == part


def test_an_exact_value_keeps_its_text() -> None:
    assert content_to_dict(Data("1.10"), exact=True) == {"type": "data", "json": "1.10"}
    assert content_from_dict({"type": "data", "json": "1.10"}) == Data("1.10")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"type": "data"}, "Content of type 'data' has no 'data'."),
        ({"type": "image", "data": "eA=="}, "Content of type 'image': 'media_type' must be a string, not NoneType."),
        ({"type": "image", "data": "eA==!", "media_type": "a"}, "Content of type 'image': 'data' is not valid base64."),
        ({"type": "v" * 50}, f"of text, data, image, audio, file; the type is '{'v' * 40}'."),
        ([], "Content is an object with a 'type' of text, data, image, audio, file; the type is missing."),
    ],
)
def test_what_is_not_content_is_refused_with_the_reason(data: Any, error: str) -> None:
    with pytest.raises(ValueError) as refused:
        content_from_dict(data)
    assert str(refused.value).endswith(error)


@pytest.mark.parametrize("kind", [Image, Audio, File])
@pytest.mark.parametrize("data", ["iVBORw0KGgo=", None, [1, 2]])
async def test_what_is_not_bytes_is_refused_where_the_content_is_made(kind: Any, data: Any) -> None:
    with pytest.raises(TypeError, match=rf"The data of {kind.__name__} are bytes, not .*read_bytes\(\)"):
        kind(data)

    async def draw() -> Any:
        return kind(data)

    async with Workbench([draw]) as bench:
        result = await bench.call("draw")
    assert result.error is not None
    assert json.dumps(result.to_dict())
