"""The picture in an image of a result, for frameworks whose results have Pillow's pictures."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MAX_PIXELS = 50_000_000
"""Larger pictures are not decoded: a file of a few kilobytes can stand for gigabytes. 8K has 33 million."""


def decode_picture(data: bytes) -> Picture:
    """Return the picture in *data*. Raises what Pillow raises, and ValueError for too many pixels."""
    from PIL.Image import open as open_picture

    with open_picture(BytesIO(data)) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f"the picture has {picture.width} x {picture.height} pixels, of at most {MAX_PIXELS}")
        return picture.copy()
