"""AutoGen's Image: a Pillow image in RGB, written as PNG. Pillow is imported when the first image is read."""

from __future__ import annotations

import base64
import re
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from ...core import SetupError
from ...machinery import raise_missing_extra

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

_URI = re.compile(r"data:image/(?:png|jpeg);base64,")


class Image:
    """An image. *image* is a Pillow image of any mode; `.image` is the same in RGB."""

    def __init__(self, image: PILImage) -> None:
        self.image: PILImage = image.convert("RGB")

    @classmethod
    def from_pil(cls, pil_image: PILImage) -> Image:
        return cls(pil_image)

    @classmethod
    def from_uri(cls, uri: str) -> Image:
        """Return the image in a `data:` URI. Raises ValueError for anything but PNG and JPEG in base64."""
        begins = _URI.match(uri)
        if begins is None:
            raise ValueError("Invalid URI format. It should be a base64 encoded image URI.")
        return cls.from_base64(uri[begins.end() :])

    @classmethod
    def from_base64(cls, base64_str: str) -> Image:
        """Return the image in *base64_str*, in any format that Pillow reads. Raises Pillow's error for others."""
        return cls(_read(BytesIO(base64.b64decode(base64_str))))

    @classmethod
    def from_file(cls, file_path: Path) -> Image:
        return cls(_read(file_path))

    def to_base64(self) -> str:
        """Return the bytes of a PNG file, in base64."""
        file = BytesIO()
        self.image.save(file, format="PNG")
        return base64.b64encode(file.getvalue()).decode("ascii")

    @property
    def data_uri(self) -> str:
        return f"data:image/png;base64,{self.to_base64()}"

    def to_openai_format(self, detail: Literal["auto", "low", "high"] = "auto") -> dict[str, Any]:
        """Return a content part of a message for OpenAI's chat completions."""
        return {"type": "image_url", "image_url": {"url": self.data_uri, "detail": detail}}

    def _repr_html_(self) -> str:
        return f'<img src="{self.data_uri}"/>'

    @classmethod
    def __get_pydantic_core_schema__(cls, source_type: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def validate(value: Any) -> Image:
            if isinstance(value, cls):
                return value
            if not isinstance(value, dict):
                raise TypeError(f"Expected dict or {cls.__name__} instance, got {type(value)}")
            if value.get("data") is None:
                raise ValueError("Expected 'data' key in the dictionary")
            try:
                return cls.from_base64(value["data"])
            except SetupError:
                raise
            except Exception as error:  # pydantic makes ValidationErrors of ValueErrors only
                raise ValueError("'data' is not a readable image in base64") from error

        def serialize(value: Image) -> dict[str, str]:
            return {"data": value.to_base64()}

        return core_schema.no_info_after_validator_function(
            validate,
            core_schema.any_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(serialize),
        )


def _read(file: Path | BytesIO) -> PILImage:
    try:
        from PIL.Image import open as open_image
    except ModuleNotFoundError as error:
        raise_missing_extra(error, "Reading images needs", "models")
    with open_image(file) as image:
        return image.copy()
