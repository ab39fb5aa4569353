"""The picture in an image of a result, for frameworks whose results have Pillow's pictures."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MOST_PIXELS = 50_000_000
"""Larger pictures are not decoded: a file of a few kilobytes can stand for gigabytes. 8K has 33 million."""


def decoded(data: bytes) -> Picture:
    """The picture in *data*. Raises Pillow's error for what it does not read, and ValueError for too many pixels."""
    from PIL.Image import open as open_picture

    with open_picture(BytesIO(data)) as picture:
        if picture.width * picture.height > MOST_PIXELS:
            raise ValueError(f"the picture has {picture.width} x {picture.height} pixels, of at most {MOST_PIXELS}")
        return picture.copy()
