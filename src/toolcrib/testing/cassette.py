"""Calls recorded to a file, and replayed from it: the services behind the tools are not needed when the tests run.

A cassette is middleware around a call. A call that the check refuses never reaches a tool, so it is neither recorded
nor replayed. Others are recorded with their checked arguments, so a repaired call is the same call. The file is JSON,
readable, in an order that concurrency does not change.
"""

import base64
import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from ..core import (
    Call,
    Caller,
    Content,
    Data,
    Repair,
    Result,
    SetupError,
    Text,
    Tool,
    ToolcribError,
    ToolError,
    ToolSpec,
    content_from_dict,
    content_to_dict,
)
from ..machinery import MIN_SECRET_CHARS, Next, canonical, redacted_data
from ..record import Redactor

VERSION = 1
HIDDEN = "[secret]"

Record = Literal["once", "always", "never"]
"""Record if there is no file yet; record always; only replay."""

_Recorded = dict[str, Any]
"""A call as it is in the file: `tool`, `arguments`, perhaps `caller`, and `content` or `error`."""


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
        self._schemas: dict[str, Any] = {}
        self._results: dict[str, list[tuple[_Recorded, Result[Any]]]] = defaultdict(list)  # by the key of the call
        self._counts: Counter[str] = Counter()
        self._new: list[tuple[str, int, _Recorded]] = []  # with the key of the call, and its number among these
        if not self.records:
            try:
                self._read()
            except ValueError as error:
                raise SetupError(f"{self.path} is not a cassette: {error}. {self._remedy}") from None

    def hide(self, *secrets: str) -> Self:
        """Redact *secrets* too, from now on."""
        for secret in secrets:
            self._redactor.add(secret)
        return self

    async def __call__(self, tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
        repairs: tuple[Repair, ...] = ()
        try:
            values, repairs = tool.check(call.arguments, True)
            arguments: Any = self._recorded(tool, values)
        except ToolError:
            if tool.handles is None:
                return await go_on()  # where it is refused again
            arguments = self._as_sent(call)
        origin = {} if caller.principal == "local" else {"caller": caller.principal}
        entry: _Recorded = {"tool": tool.spec.name, **origin, "arguments": arguments}
        key = _key(entry)
        number = self._counts[key]
        self._counts[key] += 1
        if not self.records:
            replayed = self._find(entry, number, tool.spec)
            now = datetime.now(UTC)
            outcome = Result(replayed.value, replayed.content, replayed.error, repairs, now, now, call.id, call.tool)
            outcome.metadata.update(replayed.metadata)
            return outcome
        result = await go_on()
        if result.pending is None and (result.error is None or result.error.code != "cancelled"):
            self._schemas[tool.spec.name] = _schemas_of(tool.spec)
            self._new.append((key, number, entry | self._outcome(result)))
        return result

    def _outcome(self, result: Result[Any]) -> _Recorded:
        labels = {"labels": sorted(result.labels)} if result.labels else {}
        if result.error is not None:
            return {"error": redacted_data(result.error.to_dict(), self._redactor.redact), **labels}
        return {"content": [_redacted(part, self._redactor) for part in result.content], **labels}

    def _find(self, call: _Recorded, number: int, spec: ToolSpec) -> Result[Any]:
        """Return the result of the *call*, the one of this *number*. Raises ToolError if it was not recorded."""
        schemas = self._schemas.get(spec.name)
        if schemas is not None and (where := _difference(schemas, _schemas_of(spec))) is not None:
            raise self._problem(
                f"The schema of '{spec.name}' is not the one that {self.path} was recorded with: {where} differs."
            )
        results = self._results.get(_key(call), ())
        if number < len(results):
            return results[number][1]
        if results:
            times = "once" if len(results) == 1 else f"{len(results)} times"
            raise self._problem(f"{self.path} has {_text(call)} {times}, and it was made once more.")
        raise self._problem(f"{self.path} has no call {_text(call)}. {self._nearest(call)}")

    def _nearest(self, call: _Recorded) -> str:
        calls = [entry for entries in self._results.values() for entry, _ in entries]
        texts = [_text(entry) for entry in calls if entry["tool"] == call["tool"]] or [*map(_text, calls)]
        near = next(iter(difflib.get_close_matches(_text(call), texts, n=1, cutoff=0.0)), None)
        return f"The nearest that it has is {near}." if near else "It has no calls."

    def _problem(self, message: str) -> ToolError:
        self.problems.append(f"{message} {self._remedy}")
        return ToolError(self.problems[-1], "unavailable", retry="never")

    @property
    def _remedy(self) -> str:
        return f'To record it again: Cassette({str(self.path)!r}, record="always"), or delete the file.'

    def _recorded(self, tool: Tool, values: Mapping[str, Any]) -> Any:
        """Return checked arguments as JSON data without secrets, whose texts are redacted from now on."""
        from ..schema import Document, SchemaView, written

        # Masked by their types, then by their schemas: each knows secrets that the other does not.
        by_type = written(values, mask=HIDDEN, strict=False, other=_in_base64)
        document = Document(by_type, view=SchemaView(tool.spec.input_schema))
        secrets: set[str] = set()
        masked = _masked(json.loads(document.text), written(values, strict=False, other=_in_base64), secrets)
        self.hide(*secrets)
        return redacted_data(masked, self._redactor.redact)

    def _as_sent(self, call: Call) -> Any:
        arguments = call.arguments
        text = arguments if isinstance(arguments, str | bytes) else json.dumps(dict(arguments or {}), default=str)
        return redacted_data(json.loads(text), self._redactor.redact)

    def _read(self) -> None:
        """Read the file. Raises ValueError that says where it is not a cassette."""
        data = _data_in(self.path)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        if not isinstance(data.get("tools"), dict) or not isinstance(data.get("calls"), list):
            raise ValueError("it has no `tools` and `calls`")
        self._schemas = data["tools"]
        for number, entry in enumerate(data["calls"]):
            try:
                self._results[_key(entry)].append((entry, _result(entry)))
            except KeyError as error:
                raise ValueError(f"calls[{number}] has no {error}") from None
            except (TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"calls[{number}]: {error}".removesuffix(".")) from None

    def finish(self) -> None:
        """Write what was recorded. Raises CassetteError if calls were not in the file."""
        if self.records:
            data = {
                "version": VERSION,
                "tools": dict(sorted(self._schemas.items())),
                "calls": [entry for *_, entry in sorted(self._new, key=lambda call: call[:2])],
            }
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_name(f".{self.path.name}.new")
            beside.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", "utf-8", "surrogatepass")
            beside.replace(self.path)  # so that no reader meets half of a file
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


def _data_in(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from None


def _key(call: _Recorded) -> str:
    """Return what identifies a call: the same call made twice has the same key."""
    return canonical([str(call["tool"]), call["arguments"], str(call.get("caller", ""))])


def _text(call: _Recorded) -> str:
    by = f" by '{call['caller']}'" if call.get("caller") else ""
    return f"{call['tool']} {json.dumps(call['arguments'], ensure_ascii=False)}{by}"


def _result(entry: _Recorded) -> Result[Any]:
    """Return the result in the record of a call. Raises KeyError, TypeError or ValueError for anything else."""
    metadata = {"labels": entry["labels"]} if "labels" in entry else {}
    if "error" in entry:
        data = entry["error"]
        error = ToolError(data["message"], data["code"], retry=data["retry"], details=data.get("details"))
        return Result(None, (Text(error.message),), error, metadata=metadata)
    content = tuple(map(content_from_dict, entry["content"]))
    values = [
        part.value if isinstance(part, Data) else part.text if isinstance(part, Text) else part for part in content
    ]
    return Result(values[0] if len(values) == 1 else values, content, metadata=metadata)


def _redacted(part: Content, redactor: Redactor) -> dict[str, Any]:
    """Return *part* as JSON data without secrets: those in a file are redacted in its bytes, which stay base64."""
    data = content_to_dict(part)
    if isinstance(part, Text | Data):
        clean_data: dict[str, Any] = redacted_data(data, redactor.redact)
        return clean_data
    inside = redactor.redact(part.data.decode("latin-1")).encode("latin-1")
    names = {name: redactor.redact(data[name]) for name in ("name", "media_type") if data.get(name)}
    return {**data, **names, "data": base64.b64encode(inside).decode()}


def _schemas_of(spec: ToolSpec) -> dict[str, Any]:
    """Return what of *spec* a recording depends on, as JSON data."""
    data = {"input": spec.input_schema, "output": spec.output_schema}
    schemas: dict[str, Any] = json.loads(json.dumps({name: of for name, of in data.items() if of is not None}))
    return schemas


def _difference(before: Any, now: Any, place: str = "") -> str | None:
    """Return where two JSON values are not the same, as a JSON pointer; None where they are."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return None if canonical(before) == canonical(now) else place
    for name in [*before, *(name for name in now if name not in before)]:
        inner = f"{place}/{name.replace('~', '~0').replace('/', '~1')}"
        where = _difference(before[name], now[name], inner) if name in before and name in now else inner
        if where is not None:
            return where
    return None


def _masked(shown: Any, value: Any, secrets: set[str]) -> Any:
    """Return *value* with its secrets hidden, those that are *shown* otherwise. Adds their texts to *secrets*."""
    if shown == value:
        return value
    if isinstance(shown, dict):
        return {name: _masked(inner, value[name], secrets) for name, inner in shown.items()}
    if isinstance(shown, list):
        return [_masked(inner, value[index], secrets) for index, inner in enumerate(shown)]
    secrets.update(_texts(value))
    return HIDDEN


def _in_base64(value: Any) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else None


def _texts(secret: Any) -> Iterator[str]:
    """Yield the texts in a secret value that are long enough to be found again."""
    if isinstance(secret, str):
        yield from [secret] if len(secret) >= MIN_SECRET_CHARS else []
    elif isinstance(secret, dict | list):
        for inner in secret.values() if isinstance(secret, dict) else secret:
            yield from _texts(inner)
