"""The file of a cassette: calls with their results, as readable JSON in an order that concurrency does not change."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core import (
    Call,
    Content,
    Data,
    Repair,
    Result,
    Text,
    ToolError,
    ToolSpec,
    canonical,
    content_from_dict,
    content_to_dict,
    redacted_data,
    redacted_json,
)

VERSION = 1
HIDDEN = "[secret]"


class TapeError(ValueError):
    """What is wrong with a file, and where in it."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call: its result is *content* or *error*. *caller* is "" for the local one.

    *number* counts the calls with the same key, in the order in which they began.
    """

    tool: str
    arguments: Any
    caller: str
    number: int = 0
    content: tuple[Content, ...] = ()
    error: ToolError | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the call: the same call made twice has the same key."""
        return self.tool, canonical(self.arguments), self.caller

    def with_result(self, result: Result[Any], redact: Callable[[str], str]) -> "RecordedCall":
        """The same call with *result*, in which *redact* is applied to each text."""
        content = tuple(_redacted_content(part, redact) for part in result.content)
        error = None if result.error is None else _error(redacted_data(result.error.to_dict(), redact))
        return replace(self, content=content, error=error)

    def result(self, call: Call, repairs: tuple[Repair, ...]) -> Result[Any]:
        """The result, as that of *call*."""
        now = datetime.now(UTC)
        value = _value(self.content) if self.error is None else None
        return Result(value, self.content, self.error, repairs, now, now, call.id, call.tool)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RecordedCall":
        """The call that `to_dict` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        made = cls(str(data["tool"]), data["arguments"], str(data.get("caller", "")))
        if "error" in data:
            error = _error(data["error"])
            return replace(made, content=(Text(error.message),), error=error)
        return replace(made, content=tuple(map(content_from_dict, data["content"])))

    def to_dict(self) -> dict[str, Any]:
        """The call as JSON data."""
        return {
            "tool": self.tool,
            **({"caller": self.caller} if self.caller else {}),
            "arguments": self.arguments,
            **(
                {"error": self.error.to_dict()} if self.error else {"content": list(map(content_to_dict, self.content))}
            ),
        }

    def __str__(self) -> str:
        by = f" by '{self.caller}'" if self.caller else ""
        return f"{self.tool} {json.dumps(self.arguments, ensure_ascii=False)}{by}"


@dataclass(slots=True)
class Tape:
    """The content of the file: the calls, and the schemas of their tools at that time."""

    schemas: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])

    @classmethod
    def read(cls, path: Path) -> "Tape":
        """The tape in the file at *path*. Raises TapeError."""
        try:
            data: Any = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise TapeError(f"it cannot be read: {error.strerror or error}") from None
        except ValueError as error:
            raise TapeError(f"it is not valid JSON: {error}") from None
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise TapeError(f"its version is not {VERSION}")
        schemas, calls = data.get("tools"), data.get("calls")
        if not isinstance(schemas, dict) or not isinstance(calls, list):
            raise TapeError("it has no `tools` and `calls`")
        tape = cls(schemas)
        for number, call in enumerate(calls):
            try:
                tape.calls.append(RecordedCall.from_dict(call))
            except KeyError as error:
                raise TapeError(f"calls[{number}] has no {error}") from None
            except (TypeError, ValueError, AttributeError) as error:
                raise TapeError(f"calls[{number}]: {error}".removesuffix(".")) from None
        return tape

    def write(self, path: Path) -> None:
        """Write the file at *path*, with the calls sorted."""
        ordered = sorted(self.calls, key=lambda call: (*call.key, call.number))
        data = {
            "version": VERSION,
            "tools": {name: self.schemas[name] for name in sorted(self.schemas)},
            "calls": [call.to_dict() for call in ordered],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", "utf-8", "surrogatepass")
        beside.replace(path)  # so that nobody reads half of a file


def schemas_of(spec: ToolSpec) -> dict[str, Any]:
    """What of *spec* a recording depends on, as JSON data."""
    data = {"input": spec.input_schema, "output": spec.output_schema}
    made: dict[str, Any] = json.loads(json.dumps({name: schema for name, schema in data.items() if schema is not None}))
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


def _redacted_content(part: Content, redact: Callable[[str], str]) -> Content:
    match part:
        case Text(text):
            return Text(redact(text))
        case Data():
            return Data(redacted_json(part.json, redact))
        case _:
            data = content_to_dict(part)
            shown = {name: redact(each) if name in _OF_A_FILE and each else each for name, each in data.items()}
            written = data.get("data")
            if isinstance(written, str) and redact(written) != written:
                # Inside the bytes, so that what is left of them is base64.
                inside = redact(base64.b64decode(written).decode("latin-1")).encode("latin-1")
                shown["data"] = base64.b64encode(inside).decode()
            return part if shown == data else content_from_dict(shown)


_OF_A_FILE = ("name", "media_type")


def _error(data: Mapping[str, Any]) -> ToolError:
    return ToolError(data["message"], data["code"], retry=data["retry"], details=data.get("details"))


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
