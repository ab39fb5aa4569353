"""Content and arguments in the forms that several providers share: text of files, base64, arguments as an object."""

import json
from base64 import b64decode
from binascii import Error as InvalidBase64
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..core import Audio, Call, Data, File, Image
from . import reading

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MAX_PIXELS = 50_000_000
"""Larger pictures are not decoded: a file of a few kilobytes can stand for gigabytes. 8K has 33 million."""


def arguments_of(call: Call) -> dict[str, Any]:
    """Return the arguments of *call* as an object, for a provider that did not write them."""
    arguments = call.arguments
    return arguments_object(arguments.decode(errors="replace") if isinstance(arguments, bytes) else arguments)


def arguments_object(arguments: Any) -> dict[str, Any]:
    """Return *arguments* as providers take them back: an object.

    Anything else is wrapped in one, as Anthropic does it.
    """
    where = "The arguments of a call"
    value = arguments
    if isinstance(arguments, str):
        try:
            value = reading.json_data(json.loads(arguments or "{}", parse_constant=_refuse_constant), where)
        except (ValueError, RecursionError):
            return {"INVALID_JSON": reading.join_surrogates(arguments)}
    if value is None:
        return {}
    data: dict[str, Any] = reading.json_data(
        value if isinstance(value, Mapping) else {"INVALID_JSON": arguments}, where
    )
    return data


def json_value(part: Data) -> Any:
    """Return the value of *part*, or its text where JSON proper has no such value (NaN, infinities) or Python reads
    none.
    """
    try:
        return json.loads(part.json, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return part.json


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)


# Reading content back


def decoded(data: Mapping[str, Any], key: str, where: str) -> bytes:
    """Return `data[key]`, which must be bytes or their base64 text. Raises ValueError, with the place."""
    value = data.get(key)
    if isinstance(value, bytes):
        return value
    text = reading.require(data, key, str, where)
    try:
        return b64decode(text.translate(_URL_SAFE), validate=True)
    except (InvalidBase64, ValueError):
        raise ValueError(f"{where} is malformed: '{key}' is not valid base64.") from None


_URL_SAFE = str.maketrans("-_", "+/")


def from_data_url(data: Mapping[str, Any], key: str, where: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of the data URL in `data[key]`. Raises ValueError for any other URL."""
    url = reading.require(data, key, str, where)
    head, comma, data_text = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64") and comma):
        raise ValueError(f"{where} is malformed: '{key}' must be a base64 data URL; other URLs are not fetched.")
    return head[5:-7], decoded({key: data_text}, key, where)


def media_content(media_type: str, data: bytes, name: str | None = None) -> Image | Audio | File:
    """Return *data* as the kind of content that its media type names."""
    kind = media_type.partition("/")[0]
    if kind == "image" and name is None:
        return Image(data, media_type)
    return Audio(data, media_type) if kind == "audio" and name is None else File(data, media_type, name)


def decode_picture(data: bytes) -> "Picture":
    """Return the picture in *data*, for frameworks whose results have Pillow's. Raises what Pillow raises, and
    ValueError for too many pixels.
    """
    from PIL.Image import open as open_picture

    with open_picture(BytesIO(data)) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f"the picture has {picture.width} x {picture.height} pixels, of at most {MAX_PIXELS}")
        return picture.copy()
