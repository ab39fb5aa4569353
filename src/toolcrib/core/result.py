"""How a call ended."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from .content import Audio, Content, Data, File, Image, Text
from .errors import ToolError
from .pending import Pending, StillPending

T_co = TypeVar("T_co", covariant=True)

Status = Literal["success", "error", "pending"]


@dataclass(frozen=True, slots=True)
class Repair:
    """One change made to what a model sent, where its schema left only one reading.

    *path* is a JSON pointer (RFC 6901) into the arguments as they were written; kinds are JSON's (`string`, `number`,
    `integer`, `boolean`, `null`, `array`, `object`) or, for a name, `key`.
    """

    path: str
    from_kind: str
    to_kind: str


def _no_metadata() -> dict[str, Any]:
    return {}  # a literal: calling `dict[str, Any]` takes five times as long


@dataclass(slots=True)
class Result(Generic[T_co]):
    """How a call ended. Treat it as a value.

    `content` is what may be shown, to a model or a log, known secrets struck out. `value` is what the tool returned,
    for the program: it is not struck out. `tool` is the name that was called. Times are seconds since the epoch;
    `started_at` and `finished_at` are the same as aware datetimes in UTC.
    (Not frozen: one is made for every call, and freezing makes that five times as slow.)
    """

    value: T_co
    content: tuple[Content, ...]
    error: ToolError | None = None
    repairs: tuple[Repair, ...] = ()
    started_s: float = 0.0
    finished_s: float = 0.0
    call_id: str = ""
    tool: str = ""
    pending: Pending | None = None
    metadata: dict[str, Any] = field(default_factory=_no_metadata)

    @property
    def status(self) -> Status:
        if self.error is not None:
            return "error"
        return "success" if self.pending is None else "pending"

    @property
    def text(self) -> str:
        """The content in words: text as it is, structured values as JSON, other things by kind and size."""
        content = self.content
        return content[0].text if len(content) == 1 else "\n".join(part.text for part in content)

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.started_s, UTC)

    @property
    def finished_at(self) -> datetime:
        return datetime.fromtimestamp(self.finished_s, UTC)

    def unwrap(self) -> T_co:
        """The value of a call that succeeded.

        Raises its ToolError otherwise; `unavailable` for a call that is pending.
        """
        if self.error is not None:
            raise self.error
        if self.pending is not None:
            raise StillPending(self.pending)
        return self.value

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data: what may be shown, without `value`."""
        said: dict[str, Any] = {
            "status": self.status,
            "call_id": self.call_id,
            "tool": self.tool,
            "content": [_content_dict(part) for part in self.content],
            "error": self.error and self.error.to_dict(),
            "pending": self.pending and self.pending.to_dict(),
            "repairs": [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in self.repairs] or None,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "metadata": self.metadata or None,
        }
        return {name: value for name, value in said.items() if value is not None}


def _content_dict(part: Content) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Data():
            return {"type": "data", "data": part.value}
        case File(_, media_type, name):
            return {"type": "file", "data": part.base64, "media_type": media_type, "name": name}
        case Image(_, media_type):
            return {"type": "image", "data": part.base64, "media_type": media_type}
        case Audio(_, media_type):
            return {"type": "audio", "data": part.base64, "media_type": media_type}
