"""How a call ended, and what is recorded of it.

Both are made for every call. So their moments are taken as seconds, which become a datetime when they are read.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from time import time
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from .call import Caller, convert_when_read, id_of_call
from .content import Audio, Content, Data, File, Image, Text, content_to_dict
from .errors import ToolError
from .pending import Pending, StillPending

T_co = TypeVar("T_co", covariant=True)

Status = Literal["success", "error", "pending"]

EPOCH = datetime.fromtimestamp(0, UTC)

moment = cast("Callable[[], datetime]", time)
"""Now, for a field of `keep_as_moments`: really a float. A datetime takes four times as long to make."""


def keep_as_moments(kind: type[Any], *names: str) -> None:
    """Let the fields *names* of a dataclass with slots take what `moment` gives, and be read as aware datetimes."""
    for name in names:
        convert_when_read(
            kind, name, lambda value: datetime.fromtimestamp(value, UTC) if type(value) is float else value
        )


@dataclass(frozen=True, slots=True)
class Repair:
    """One change made to what a model sent, where its schema left only one reading.

    *path* is a JSON pointer (RFC 6901) into the arguments as they were written; kinds are JSON's (`string`, `number`,
    `integer`, `boolean`, `null`, `array`, `object`) or, for a name, `key`.
    """

    path: str
    from_kind: str
    to_kind: str


class Shown(NamedTuple):
    """A result as one *text*, the *media* beside it, whether it *is_error*, and the *code* of the error.

    A call that waits is an error with the code `pending`: nothing has run.
    """

    text: str
    media: tuple[Image | Audio | File, ...]
    is_error: bool
    code: str | None


_no_metadata: Callable[[], dict[str, Any]] = dict  # calling `dict[str, Any]` takes five times as long


@dataclass(slots=True)
class Result(Generic[T_co]):
    """How a call ended. Treat it as a value.

    `content` is what may be shown, to a model or a log, with known secrets redacted. `value` is what the tool returned,
    for the program: it is not redacted, and not in the repr. `tool` is the name that was called. Times are in UTC.
    (Not frozen: one is made for every call, and freezing makes that five times as slow.)
    """

    value: T_co = field(repr=False)
    content: tuple[Content, ...]
    error: ToolError | None = None
    repairs: tuple[Repair, ...] = ()
    started_at: datetime = EPOCH
    finished_at: datetime = EPOCH
    call_id: str = ""
    tool: str = ""
    pending: Pending | None = None
    metadata: dict[str, Any] = field(default_factory=_no_metadata)

    @property
    def duration_s(self) -> float:
        """How long the call took, in seconds."""
        return (self.finished_at - self.started_at).total_seconds()

    @property
    def status(self) -> Status:
        if self.error is not None:
            return "error"
        return "success" if self.pending is None else "pending"

    @property
    def labels(self) -> frozenset[str]:
        """Where what it shows comes from, as tools and sources say: see `docs/labels.md`."""
        return frozenset(self.metadata.get("labels", ()))

    @property
    def text(self) -> str:
        """The content as text: text as it is, structured values as JSON, other parts by kind and size."""
        content = self.content
        return content[0].text if len(content) == 1 else "\n".join(part.text for part in content)

    def shown(self) -> "Shown":
        """Return the result in the parts that most hosts have.

        One text, media beside it, and whether it is an error.
        """
        media = tuple(part for part in self.content if isinstance(part, Image | Audio | File))
        text = "\n".join(part.text for part in self.content if not isinstance(part, Image | Audio | File))
        code = "pending" if self.pending is not None else self.error.code if self.error is not None else None
        return Shown(text, media, code is not None, code)

    def unwrap(self) -> T_co:
        """Return the value of a call that succeeded.

        Raises its ToolError otherwise; `unavailable` for a call that is pending.
        """
        if self.error is not None:
            raise self.error
        if self.pending is not None:
            raise StillPending(self.pending)
        return self.value

    def to_dict(self, *, with_content: bool = True) -> dict[str, Any]:
        """Return the result as JSON data: what may be shown, without `value`."""
        data: dict[str, Any] = {
            "status": self.status,
            "call_id": self.call_id,
            "tool": self.tool,
            "content": [content_to_dict(part) for part in self.content] if with_content else None,
            "error": self.error and self.error.to_dict(),
            "pending": self.pending and self.pending.to_dict(),
            "repairs": [{"path": r.path, "from": r.from_kind, "to": r.to_kind} for r in self.repairs] or None,
            "started_at": self.started_at.isoformat(),
            "finished_at": self.finished_at.isoformat(),
            "metadata": self.metadata or None,
        }
        return {name: value for name, value in data.items() if value is not None}


keep_as_moments(Result, "started_at", "finished_at")
convert_when_read(Result, "call_id", id_of_call)


_READY = (Text, Data, Image, Audio, File)
_READY_SET = frozenset(_READY)
_BYTES = (bytes, bytearray)


def content_of(value: Any, encode: Callable[[Any], str]) -> tuple[Content, ...]:
    """Return *value* as content: text as it is, bytes as a file, a list with content in it part by part.

    The rest is as *encode* writes it.
    """
    if isinstance(value, str):
        return (Text(value),)
    if isinstance(value, _BYTES):
        return (File(bytes(value)),)
    if isinstance(value, Result):
        value.unwrap()
        return value.content
    if isinstance(value, _READY):
        return (value,)
    if type(value) in (list, tuple) and has_parts(value):
        if _READY_SET.issuperset(map(type, value)):
            return tuple(value)
        return tuple(inner for part in value for inner in content_of(part, encode))
    return (Data(encode(value)),)


def has_parts(value: Iterable[Any]) -> bool:
    """Return whether the list *value* has content in it."""
    return not _READY_SET.isdisjoint(map(type, value))


# Records

# A store keeps one row for each id: so they are random whatever a program has seeded, and in processes that it forks.
# They begin with the time, as a UUID of version 7 does (RFC 9562): its index keeps those of a moment together.
_random = Random()  # noqa: S311 - unique, and nothing to guess
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


@dataclass(slots=True)
class CallRecord:
    """One call: who called what, when, and how it ended. Known secrets are redacted in it.

    `status` is `started` until it has ended, then that of its Result; `code` is the error's. `pending` is the kind of
    what the call waits for. `decision` is the policy's (`allow`, `deny`, `ask`), `rule` the rule it followed,
    `answered_by` the person who approved or denied, `grant` the id of the standing grant that they gave. `arguments`
    and `result` are text, bounded, and None unless the recorder asks for them; so is `sent`, what the arguments were
    before a person changed them. The sizes of both are in bytes, as far as they are known: of the arguments as sent.
    `repaired` has the name of each argument that was repaired (`address.city`; `*` for a part that may be a caller's),
    and from which kind to which.
    `repeated`: the tool did not run, for an earlier call with its idempotency key had this result.

    `id` is that of one time that the call was made, which `call_id`, chosen by the caller, need not be.
    The record of the start and of the end of a call have the same. `traceparent` (W3C Trace Context) is whose part
    the call is. `run` counts the runs of a task, whose id is `call_id`; it is None for other calls.

    `digest` is what an approval of the call is bound to, where a person was asked. `arguments_digest` and
    `result_digest` are of the texts, with known secrets redacted, where a recorder has a `digest`.
    """

    call_id: str
    tool: str
    caller: Caller
    started_at: datetime
    status: str = "started"
    duration_s: float = 0.0
    code: str | None = None
    repairs: int = 0
    pending: str | None = None
    decision: str | None = None
    rule: str | None = None
    answered_by: str | None = None
    grant: str | None = None
    arguments: str | None = None
    result: str | None = None
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    read_only: bool = False
    repeated: bool = False
    traceparent: str | None = None
    run: int | None = None
    digest: str | None = None
    arguments_digest: str | None = None
    result_digest: str | None = None
    id: str = ""
    sent: str | None = None
    repaired: tuple[tuple[str, str, str], ...] = ()


keep_as_moments(CallRecord, "started_at")
convert_when_read(CallRecord, "call_id", id_of_call)
convert_when_read(CallRecord, "id", lambda value: value or f"run_{int(time() * 1000):x}{_random.getrandbits(48):012x}")
