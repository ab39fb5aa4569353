"""Images."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autogen_core import Image
from autogen_core.tools import ImageResultContent
from PIL import Image as Pillow
from probing import add, probe
from pydantic import BaseModel
from results import picture, png


class Holder(BaseModel):
    image: Image


def size(image: Image) -> Any:
    return [image.image.size, image.image.mode]


add("image: base64", lambda: picture().to_base64())
add("image: data URI", lambda: picture().data_uri)
add("image: HTML", lambda: picture()._repr_html_())
add("image: OpenAI's format", lambda: picture().to_openai_format())
add("image: OpenAI's format in detail", lambda: picture().to_openai_format(detail="high"))
add("image: of base64", lambda: size(Image.from_base64(png())))
add("image: of bad base64", lambda: size(Image.from_base64("@@@")))
add("image: of base64 that is no image", lambda: type(Image.from_base64("aGVsbG8=")))
add("image: of a URI", lambda: size(Image.from_uri(f"data:image/png;base64,{png()}")))
add("image: of another URI", lambda: size(Image.from_uri("https://example.org/a.png")))
add("image: of a URI of another kind", lambda: size(Image.from_uri(f"data:image/gif;base64,{png()}")))
add("image: of Pillow", lambda: size(Image.from_pil(Pillow.new("RGBA", (3, 2)))))
add("image: in a model", lambda: Holder(image=picture()).model_dump())
add("image: in a model as JSON", lambda: Holder(image=picture()).model_dump_json())
add("image: in a model, of a dictionary", lambda: size(Holder.model_validate({"image": {"data": png()}}).image))
add("image: in a model, without data", lambda: Holder.model_validate({"image": {}}))
add("image: in a model, of None", lambda: Holder.model_validate({"image": {"data": None}}))
add("image: in a model, of bad data", lambda: Holder.model_validate({"image": {"data": "aGVsbG8="}}))
add("image: in a model, of a text", lambda: Holder.model_validate({"image": "text"}))
add("image: schema of a model", lambda: Holder.model_json_schema())
add("image: content", lambda: ImageResultContent(content=picture()).model_dump())


@probe
def image_of_a_file() -> Any:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "a.png"
        Pillow.new("L", (4, 1)).save(file)
        return size(Image.from_file(file))
