"""The text of an OpenAPI document as JSON data: JSON, or YAML by the rules of YAML 1.2, within bounds.

What is read here is from a stranger: it is bounded in size, in depth, and in what its aliases stand for.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pydantic_core

from ...core import LoadError, SetupError

MAX_BYTES = 64 * 1024**2
MAX_VALUES = 4_000_000
"""How many values a YAML document may stand for, with its aliases written out."""
MAX_LEVELS = 150

_KEYS = ("openapi", "swagger")
_YAML_KEY = re.compile(rb"""^["']?(openapi|swagger)["']?\s*:\s*["']?\d""", re.MULTILINE)
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
_TAG = "tag:yaml.org,2002:"


def is_openapi(data: bytes) -> bool:
    """Return whether *data* is an OpenAPI or Swagger document, of whatever version, valid otherwise or not."""
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if data[:1] != b"{":
        return _YAML_KEY.search(data[:MAX_BYTES]) is not None
    if not any(f'"{key}"'.encode() in data for key in _KEYS):
        return False
    try:
        document = pydantic_core.from_json(data)
    except ValueError:
        return False
    return isinstance(document, dict) and any(isinstance(document.get(key), str) for key in _KEYS)


def read_text(data: bytes, where: str) -> Any:
    """Return the JSON value that *data* stands for. Raises LoadError, naming *where* it is from."""
    if len(data) > MAX_BYTES:
        raise LoadError(f"{where} has more than {MAX_BYTES // 1024**2} MiB. Cut it down to the operations you need.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LoadError(f"{where} is not UTF-8 text.") from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            return pydantic_core.from_json(text, allow_inf_nan=False)
        return _from_yaml(text)
    except ValueError as error:
        kind = "JSON" if text.lstrip()[:1] in ("{", "[") else "YAML"
        raise LoadError(f"{where} is not valid {kind}: {str(error)[:300]}.") from None


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read. *size* and *height* are those of what is in it, aliases written out."""

    value: list[Any] | dict[str, Any]
    anchor: str | None
    key: str | None = None
    merged: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    size: int = 1
    height: int = 1


class _Reader:
    """Makes JSON data of the events of a YAML parser. It does not recurse, and constructs nothing but JSON's types."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._values = 0
        self.result: Any = None

    def start(self, value: list[Any] | dict[str, Any], anchor: str | None) -> None:
        self._require_key()
        self._open.append(_Open(value, anchor))
        if len(self._open) > MAX_LEVELS:
            raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")

    def end(self) -> None:
        done = self._open.pop()
        value = done.value
        if done.merged and isinstance(value, dict):
            own = dict(value)
            for mapping in reversed(done.merged):
                value.update(mapping)
            value.update(own)
        self._put(value, done.anchor, done.size, done.height)

    def scalar(self, text: str, value: Any, anchor: str | None) -> None:
        holder = self._open[-1] if self._open else None
        if holder is not None and isinstance(holder.value, dict) and holder.key is None:
            holder.key = text
            if anchor is not None:
                self._anchors[anchor] = (text, 1, 0)
            return
        self._put(value, anchor, 1, 0)

    def alias(self, name: str) -> None:
        if name not in self._anchors:
            raise ValueError(f"the alias '*{name[:40]}' stands for nothing that is complete there")
        value, size, height = self._anchors[name]
        holder = self._open[-1] if self._open else None
        if holder is not None and isinstance(holder.value, dict) and holder.key is None and isinstance(value, str):
            holder.key = value
            return
        self._put(value, None, size, height)

    def _put(self, value: Any, anchor: str | None, size: int, height: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size, height)
        if not self._open:
            self.result = value
            return
        self._require_key()
        holder = self._open[-1]
        holder.size, holder.height = holder.size + size, max(holder.height, height + 1)
        if holder.size > MAX_VALUES:
            raise ValueError(f"with its aliases it stands for more than {MAX_VALUES:,} values")
        if len(self._open) + height > MAX_LEVELS:
            raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
        if isinstance(holder.value, list):
            holder.value.append(value)
            return
        key, holder.key = holder.key, None
        if key == "<<" and (isinstance(value, dict) or _are_mappings(value)):
            holder.merged += [value] if isinstance(value, dict) else value
        else:
            holder.value[str(key)] = value

    def _require_key(self) -> None:
        holder = self._open[-1] if self._open else None
        if holder is not None and isinstance(holder.value, dict) and holder.key is None:
            raise ValueError("a key is not text")


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _from_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise SetupError(
            "An OpenAPI document in YAML needs the package 'pyyaml': pip install 'toolcrib[openapi]'."
        ) from None
    reader = _Reader()
    handle: dict[type[Any], Callable[[Any], None]] = {
        yaml.MappingStartEvent: lambda event: reader.start({}, event.anchor),
        yaml.SequenceStartEvent: lambda event: reader.start([], event.anchor),
        yaml.MappingEndEvent: lambda _: reader.end(),
        yaml.SequenceEndEvent: lambda _: reader.end(),
        yaml.ScalarEvent: lambda event: reader.scalar(event.value, _scalar(event), event.anchor),
        yaml.AliasEvent: lambda event: reader.alias(event.anchor),
    }
    documents = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise ValueError("there is more than one document in it")
            if (handler := handle.get(type(event))) is not None:
                handler(event)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{at}{getattr(error, 'problem', None) or type(error).__name__}") from None
    return reader.result


def _scalar(event: Any) -> Any:
    """Return the value of a scalar, by the core schema of YAML 1.2: dates, `yes` and `no` are text."""
    text: str = event.value
    tag = str(event.tag or "")
    if tag == f"{_TAG}str" or (event.style not in (None, "") and not tag.startswith(_TAG)):
        return text
    if text.lower() in _WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) and not text.endswith("..") else text
