import base64
import sys
from pathlib import Path

import PIL.Image
import pytest
from pydantic import BaseModel, ValidationError

from toolcrib import SetupError
from toolcrib.dialects.autogen import Image


class Shown(BaseModel):
    content: Image


@pytest.fixture
def image() -> Image:
    return Image.from_pil(PIL.Image.new("RGBA", (3, 2), (1, 2, 3, 0)))


def pixels(image: Image) -> tuple[str, tuple[int, int], object]:
    return image.image.mode, image.image.size, image.image.getpixel((2, 1))


PIXELS = ("RGB", (3, 2), (1, 2, 3))


def test_an_image_goes_out_as_png_and_comes_in_again(image: Image, tmp_path: Path) -> None:
    written = image.to_base64()
    png = base64.b64decode(written)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert image.data_uri == f"data:image/png;base64,{written}"
    (tmp_path / "image.png").write_bytes(png)
    for again in (Image.from_base64(written), Image.from_uri(image.data_uri), Image.from_file(tmp_path / "image.png")):
        assert pixels(again) == PIXELS
        assert again.to_base64() == written


def test_a_model_holds_an_image_as_its_bytes(image: Image) -> None:
    data = {"content": {"data": image.to_base64()}}
    assert Shown(content=image).content is image
    assert Shown(content=image).model_dump() == data
    assert Shown(content=image).model_dump_json() == f'{{"content":{{"data":"{image.to_base64()}"}}}}'
    assert pixels(Shown.model_validate(data).content) == PIXELS
    assert pixels(Shown.model_validate_json(Shown(content=image).model_dump_json()).content) == PIXELS
    assert Shown.model_json_schema() == {
        "title": "Shown",
        "type": "object",
        "properties": {"content": {"title": "Content"}},
        "required": ["content"],
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "Expected 'data' key in the dictionary"),
        ({"data": "AAAA"}, "'data' is not a readable image in base64"),
        ({"data": 7}, "'data' is not a readable image in base64"),
    ],
)
def test_a_model_refuses_a_dictionary_without_an_image(value: object, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Shown.model_validate({"content": value})
    assert [error["msg"] for error in raised.value.errors()] == [f"Value error, {message}"]


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, image: Image) -> None:
    written = image.to_base64()
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    for read in (lambda: Image.from_base64(written), lambda: Shown.model_validate({"content": {"data": written}})):
        with pytest.raises(SetupError) as raised:
            read()
        assert str(raised.value) == (
            "Reading images needs the package 'PIL', which is missing: pip install 'toolcrib[models]'"
        )
