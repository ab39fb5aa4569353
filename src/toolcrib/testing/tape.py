"""The file of a cassette: calls with their results, as JSON for people to read, in one order whatever ran first."""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core import CODES, Audio, Call, Content, Data, File, Image, Repair, Result, Text, ToolError, ToolSpec, canonical

VERSION = 1
HIDDEN = "[secret]"


class TapeError(ValueError):
    """What is wrong with a file, and where in it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call and how it ended: *content* and *error* as `Result.to_dict` has them. *number* counts calls that are the
    same.
    """

    tool: str
    arguments: Any
    caller: str
    number: int
    content: list[dict[str, Any]]
    error: dict[str, Any] | None

    @classmethod
    def of(
        cls, tool: str, arguments: Any, caller: str, number: int, result: Result[Any], strike: Callable[[str], str]
    ) -> "Recorded":
        said: dict[str, Any] = result.to_dict()
        parts = [{name: value for name, value in part.items() if value is not None} for part in said["content"]]
        return cls(tool, arguments, caller, number, _struck(parts, strike), _struck(said.get("error"), strike))

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tool, canonical(self.arguments), self.caller

    def result(self, call: Call, repairs: tuple[Repair, ...], now_s: float) -> Result[Any]:
        """The result, as that of *call*."""
        content = tuple(map(_content, self.content))
        error = None
        if self.error is not None:
            error = ToolError(
                self.error["message"],
                self.error["code"],
                retry=self.error["retry"],
                details=self.error.get("details"),
            )
        value = _value(content) if error is None else None
        return Result(value, content, error, repairs, now_s, now_s, call.id, call.tool)

    def to_dict(self) -> dict[str, Any]:
        said = {"tool": self.tool, "caller": self.caller or None, "arguments": self.arguments}
        ended = {"content": self.content} if self.error is None else {"error": self.error}
        return {name: value for name, value in said.items() if value is not None} | ended

    def __str__(self) -> str:
        by = f" by '{self.caller}'" if self.caller else ""
        return f"{self.tool} {json.dumps(self.arguments, ensure_ascii=False)}{by}"


@dataclass(slots=True)
class Tape:
    """What is in the file: the calls, and the schemas of their tools as they were then."""

    schemas: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    calls: list[Recorded] = field(default_factory=list[Recorded])

    @classmethod
    def read(cls, path: Path) -> "Tape":
        """Raises TapeError."""
        try:
            data: Any = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise TapeError(f"it cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise TapeError(f"it is not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise TapeError(f"its version is not {VERSION}")
        schemas, calls = data.get("tools"), data.get("calls")
        if not isinstance(schemas, dict) or not isinstance(calls, list):
            raise TapeError("it has no `tools` and `calls`")
        read: list[Recorded] = []
        for number, call in enumerate(calls):
            try:
                recorded = Recorded(
                    str(call["tool"]),
                    call["arguments"],
                    str(call.get("caller", "")),
                    number,
                    call["content"] if "error" not in call else [{"type": "text", "text": call["error"]["message"]}],
                    call.get("error"),
                )
                if recorded.error is not None and recorded.error["code"] not in CODES:
                    raise ValueError(f"there is no error code {recorded.error['code']!r}")
                recorded.result(Call(recorded.tool), (), 0.0)
            except KeyError as error:
                raise TapeError(f"calls[{number}] has no {error}") from None
            except (TypeError, ValueError, AttributeError, Base64Error) as error:
                raise TapeError(f"calls[{number}]: {error}") from None
            read.append(recorded)
        return cls(schemas, read)

    def write(self, path: Path) -> None:
        ordered = sorted(self.calls, key=lambda call: (*call.key, call.number))
        data = {
            "version": VERSION,
            "tools": {name: self.schemas[name] for name in sorted(self.schemas)},
            "calls": [call.to_dict() for call in ordered],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", "utf-8", "surrogatepass")
        beside.replace(path)  # nobody ever reads half of one


def schemas_of(spec: ToolSpec) -> dict[str, Any]:
    """What of *spec* a recording depends on, as JSON data."""
    said = {"input": spec.input_schema, "output": spec.output_schema}
    made: dict[str, Any] = json.loads(json.dumps({name: schema for name, schema in said.items() if schema is not None}))
    return made


def difference(one: Any, other: Any, place: str = "") -> str | None:
    """Where two JSON values are not the same, as a JSON pointer; None where they are."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            inner = f"{place}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in one or name not in other:
                return inner
            if (found := difference(one[name], other[name], inner)) is not None:
                return found
        return None
    return None if canonical(one) == canonical(other) else place


def _struck(value: Any, strike: Callable[[str], str]) -> Any:
    match value:
        case str():
            return strike(value)
        case dict():
            return {strike(name): _struck(inner, strike) for name, inner in value.items()}
        case list():
            return [_struck(inner, strike) for inner in value]
        case _:
            return value


def _content(part: Mapping[str, Any]) -> Content:
    match kind := part["type"]:
        case "text":
            return Text(_text(part, "text"))
        case "data":
            return Data(json.dumps(part["data"], ensure_ascii=False, separators=(",", ":")))
        case "image":
            return Image(b64decode(_text(part, "data"), validate=True), _text(part, "media_type"))
        case "audio":
            return Audio(b64decode(_text(part, "data"), validate=True), _text(part, "media_type"))
        case "file":
            return File(b64decode(_text(part, "data"), validate=True), _text(part, "media_type"), part.get("name"))
        case _:
            raise ValueError(f"there is no content of type {kind!r}")


def _text(part: Mapping[str, Any], name: str) -> str:
    if not isinstance(part[name], str):
        raise ValueError(f"`{name}` is not text")
    text: str = part[name]
    return text


def _value(content: tuple[Content, ...]) -> Any:
    match content:
        case (Data() as data,):
            return data.value
        case (Text(text),):
            return text
        case (one,):
            return one
        case _:
            return list(content)
