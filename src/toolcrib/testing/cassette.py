"""Calls recorded to a file, and replayed from it: the services behind the tools are not needed when the tests run.

A cassette is middleware around a call. A call that the check refuses never reaches a tool, so it is neither recorded
nor replayed. Others are recorded with their checked arguments, so a repaired call is the same call. The file is JSON,
readable, in an order that concurrency does not change.
"""

import base64
import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from ..core import (
    Call,
    Caller,
    Content,
    Data,
    Next,
    Repair,
    Result,
    SetupError,
    Text,
    Tool,
    ToolcribError,
    ToolError,
    ToolSpec,
    canonical,
    content_from_dict,
    content_to_dict,
    redacted_data,
    redacted_json,
)
from ..record import Redactor

if TYPE_CHECKING:
    from ..schema import SchemaView

VERSION = 1
HIDDEN = "[secret]"
MIN_SECRET_CHARS = 4
"""How long a text is that a Redactor takes."""

Record = Literal["once", "always", "never"]
"""Record if there is no file yet; record always; only replay."""


class TapeError(ValueError):
    """A file that is not a cassette: what is wrong with it, and where."""


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
        """Return what identifies the call: the same call made twice has the same key."""
        return self.tool, canonical(self.arguments), self.caller

    def with_result(self, result: Result[Any], redact: Callable[[str], str]) -> "RecordedCall":
        """Return the same call with *result*, in which *redact* is applied to each text."""
        content = tuple(_redacted_content(part, redact) for part in result.content)
        error = None if result.error is None else _error(redacted_data(result.error.to_dict(), redact))
        return replace(self, content=content, error=error)

    def result(self, call: Call, repairs: tuple[Repair, ...]) -> Result[Any]:
        """Return the result, as that of *call*."""
        now = datetime.now(UTC)
        value = _value(self.content) if self.error is None else None
        return Result(value, self.content, self.error, repairs, now, now, call.id, call.tool)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "RecordedCall":
        """Return the call that `to_dict` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        made = cls(str(data["tool"]), data["arguments"], str(data.get("caller", "")))
        if "error" in data:
            error = _error(data["error"])
            return replace(made, content=(Text(error.message),), error=error)
        return replace(made, content=tuple(map(content_from_dict, data["content"])))

    def to_dict(self) -> dict[str, Any]:
        """Return the call as JSON data."""
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
        """Return the tape in the file at *path*. Raises TapeError."""
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
        beside.replace(path)  # so that no reader meets half of a file


def schemas_of(spec: ToolSpec) -> dict[str, Any]:
    """Return what of *spec* a recording depends on, as JSON data."""
    data = {"input": spec.input_schema, "output": spec.output_schema}
    made: dict[str, Any] = json.loads(json.dumps({name: schema for name, schema in data.items() if schema is not None}))
    return made


def difference(one: Any, other: Any, place: str = "") -> str | None:
    """Return where two JSON values are not the same, as a JSON pointer; None where they are."""
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
            shown = {name: redact(of) if name in _FILE_TEXTS and of else of for name, of in data.items()}
            written = data.get("data")
            if isinstance(written, str) and redact(written) != written:
                # Inside the bytes, so that what is left of them is base64.
                inside = redact(base64.b64decode(written).decode("latin-1")).encode("latin-1")
                shown["data"] = base64.b64encode(inside).decode()
            return part if shown == data else content_from_dict(shown)


_FILE_TEXTS = ("name", "media_type")


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


class CassetteError(ToolcribError):
    """Calls were made that are not in a cassette. The message names the nearest ones, and how to record again."""


class Cassette:
    """The calls of a workbench, recorded in a JSON file or replayed from it.

        with Cassette("calls.json") as tape:
            bench = Workbench([search], middleware=[tape])

    Without the file, calls are made and recorded; with it, they are answered from it: no tool runs, no policy is asked
    and nothing is approved. The same call made twice has two results, in their order. A call that is not in the file,
    or of a tool whose schema has changed, is an error for its caller, and leaving the `with` block raises
    CassetteError. The file is written when the block ends, unless it ends with an exception.

    - *record*: `"once"`, as above; `"always"`, which replaces the file; `"never"`, which requires it.
    - *secrets*: text that is redacted in arguments and results. Arguments of secret types are always masked, and so
      are results that repeat them.

    On replay a result's `value` is the JSON value of its content. Calls that end pending are not recorded.

    Raises SetupError for a file that is not a cassette.
    """

    def __init__(self, path: str | Path, *, record: Record = "once", secrets: Iterable[str] = ()) -> None:
        if record not in get_args(Record):
            raise SetupError(f"record is one of {', '.join(get_args(Record))}, not {record!r}.")
        self.path = Path(path)
        self._redactor = Redactor(secrets)
        self.problems: list[str] = []
        is_there = self.path.is_file()
        if record == "never" and not is_there:
            raise SetupError(f"There is no cassette {self.path}. Record it: Cassette({str(path)!r}).")
        self.records = record == "always" or not is_there
        """Whether calls are made and recorded, and not replayed."""
        try:
            self._tape = Tape() if self.records else Tape.read(self.path)
        except TapeError as error:
            raise SetupError(f"{self.path} is not a cassette: {error}. {self._remedy}") from None
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._recorded: dict[tuple[str, str, str], list[RecordedCall]] = defaultdict(list)
        for recorded in self._tape.calls:
            self._recorded[recorded.key].append(recorded)

    def hide(self, *secrets: str) -> Self:
        """Redact *secrets* too, from now on."""
        for secret in secrets:
            self._redactor.add(secret)
        return self

    async def __call__(self, tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
        repairs: tuple[Repair, ...] = ()
        try:
            checked, repairs = tool.check(call.arguments, True)
            arguments: Any = self._plain(tool, checked)
        except ToolError:
            if tool.handles is None:
                return await go_on()  # where it is refused again
            arguments = self._as_written(call)
        made = RecordedCall(tool.spec.name, arguments, "" if caller.principal == "local" else caller.principal)
        number = self._counts[made.key]
        self._counts[made.key] += 1
        if not self.records:
            return self._find(replace(made, number=number), tool.spec).result(call, repairs)
        result = await go_on()
        if result.pending is None and (result.error is None or result.error.code != "cancelled"):
            self._tape.schemas[made.tool] = schemas_of(tool.spec)
            self._tape.calls.append(replace(made, number=number).with_result(result, self._redactor.redact))
        return result

    def _find(self, made: RecordedCall, spec: ToolSpec) -> RecordedCall:
        """Return the recording of the call *made*. Raises ToolError if there is none, or if the schema has changed."""
        schemas = self._tape.schemas.get(made.tool)
        if schemas is not None and (where := difference(schemas, schemas_of(spec))) is not None:
            raise self._problem(
                f"The schema of '{made.tool}' is not the one that {self.path} was recorded with: {where} differs."
            )
        recorded = self._recorded.get(made.key, ())
        if made.number < len(recorded):
            return recorded[made.number]
        if recorded:
            times = "once" if len(recorded) == 1 else f"{len(recorded)} times"
            raise self._problem(f"{self.path} has {made} {times}, and it was made once more.")
        near = self._nearest(made)
        hint = f"The nearest that it has is {near}." if near else "It has no calls."
        raise self._problem(f"{self.path} has no call {made}. {hint}")

    def _nearest(self, made: RecordedCall) -> str | None:
        same = [str(recorded) for recorded in self._tape.calls if recorded.tool == made.tool]
        texts = same or [str(recorded) for recorded in self._tape.calls]
        return next(iter(difflib.get_close_matches(str(made), texts, n=1, cutoff=0.0)), None)

    def _problem(self, message: str) -> ToolError:
        self.problems.append(f"{message} {self._remedy}")
        return ToolError(self.problems[-1], "unavailable", retry="never")

    @property
    def _remedy(self) -> str:
        return f'To record it again: Cassette({str(self.path)!r}, record="always"), or delete the file.'

    def _plain(self, tool: Tool, checked: Mapping[str, Any]) -> Any:
        from ..schema import SchemaView, display_arguments, to_json_values

        values = {name: _ordered(value) for name, value in checked.items()}
        view = SchemaView(tool.spec.input_schema)
        secrets: set[str] = set()
        _masked(
            to_json_values(values, lambda _: None), [view], secrets
        )  # as they are: what is displayed has no secrets
        written = _masked(json.loads(display_arguments(values)), [view], set())
        for secret in secrets:
            self._redactor.add(secret)  # results may repeat it
        return redacted_data(written, self._redactor)

    def _as_written(self, call: Call) -> Any:
        written = call.arguments
        text = written if isinstance(written, str | bytes) else json.dumps(dict(written or {}), default=str)
        return redacted_data(json.loads(text), self._redactor)

    def finish(self) -> None:
        """Write what was recorded. Raises CassetteError if calls were not in the file."""
        if self.records:
            self._tape.write(self.path)
        if self.problems:
            raise CassetteError("\n".join(self.problems))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
        elif self.problems:
            error.add_note("\n".join(self.problems))

    def __repr__(self) -> str:
        return f"<Cassette {self.path}, {'recording' if self.records else 'replaying'}>"


def _ordered(value: Any) -> Any:
    """Return *value* with sorted sets, whose order differs from process to process."""
    match value:
        case Set():
            return sorted(value, key=repr)
        case dict():
            return {name: _ordered(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_ordered(inner) for inner in value]
        case _:
            return value


def _masked(value: Any, views: "Iterable[SchemaView]", secrets: set[str]) -> Any:
    """Return *value* without what its schemas, *views*, mark as secret. The texts of that are added to *secrets*."""
    places: dict[SchemaView, None] = {}
    waiting = list(views)
    while waiting:
        view = waiting.pop()
        if view not in places:
            places[view] = None
            waiting += [] if view.target is None else [view.target]
            waiting += [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in view.branches(keyword)]
    if any(view.schema.get("format") == "password" or view.schema.get("writeOnly") is True for view in places):
        if value is not None and value != HIDDEN:
            secrets.update(_texts(value))
        return value if value is None else HIDDEN
    if isinstance(value, dict):
        return {
            name: _masked(inner, [member for view in places for member in view.member(name)], secrets)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_masked(inner, [view.item(index) for view in places], secrets) for index, inner in enumerate(value)]
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a masked value that are long enough to be found again."""
    match value:
        case str():
            texts = [value]
            with suppress(ValueError):  # bytes are in hex here, and a result may have them as text
                texts.append(bytes.fromhex(value).decode())
            yield from (text for text in texts if len(text) >= MIN_SECRET_CHARS)
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
        case _:
            pass
