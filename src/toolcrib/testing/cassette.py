"""Calls recorded to a file, and replayed from it: the services behind the tools are not needed when the tests run.

A cassette is middleware around a call. A call that the check refuses never reaches a tool, so it is neither recorded
nor replayed. Others are recorded with their checked arguments, so a repaired call is the same call.
"""

import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from ..core import (
    Call,
    Caller,
    Next,
    Repair,
    Result,
    SetupError,
    Tool,
    ToolcribError,
    ToolError,
    ToolSpec,
    finished,
    redacted_data,
)
from ..record import Redactor
from .tape import HIDDEN, RecordedCall, Tape, TapeError, difference, schemas_of

if TYPE_CHECKING:
    from ..schema.places import Part

_LEAST_SECRET = 4  # what a Redactor takes

Record = Literal["once", "always", "never"]
"""Record if there is no file yet; record always; only replay."""


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
            checked, repairs = finished(tool.check, call.arguments, True)
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
        """The recording of the call *made*. Raises ToolError if there is none, or if the schema has changed."""
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
        from ..schema import display_arguments, to_json_values

        values = {name: _ordered(value) for name, value in checked.items()}
        found: set[str] = set()
        _masked(to_json_values(values, lambda _: None), tool.spec.input_schema, found)
        written = _masked(json.loads(display_arguments(values)), tool.spec.input_schema, set())
        for secret in found:
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
    """*value* with sorted sets, whose order differs from process to process."""
    match value:
        case Set():
            return sorted(value, key=repr)
        case dict():
            return {name: _ordered(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_ordered(inner) for inner in value]
        case _:
            return value


def _masked(value: Any, schema: Mapping[str, Any], found: set[str]) -> Any:
    """*value* without the secrets, as *schema* marks them at any place. Their texts are added to *found*."""

    from ..schema.places import Places, below

    def at(value: Any, part: "Part", seen: "frozenset[Part]") -> Any:
        """*value* without what *part* and all that applies to the same value mark in it."""
        if part in seen or not isinstance(part.schema, Mapping):
            return value
        if part.schema.get("format") == "password" or part.schema.get("writeOnly") is True:
            if value is not None and value != HIDDEN:
                found.update(_texts(value))
            return value if value is None else HIDDEN
        target = places.target(part) if part.refers else None
        for same in [*([target] if target else ()), *(inner for word, inner in below(part) if word in _SAME_VALUE)]:
            value = at(value, same, seen | {part})
        if isinstance(value, dict):
            return {name: _each(inner, _members(part, name), at) for name, inner in value.items()}
        if isinstance(value, list):
            return [_each(inner, _items(part, index), at) for index, inner in enumerate(value)]
        return value

    places = Places(schema)
    return at(value, places.root, frozenset())


_SAME_VALUE = frozenset(("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"))


def _each(value: Any, parts: "Iterable[Part]", at: "Callable[[Any, Part, frozenset[Part]], Any]") -> Any:
    for part in parts:
        value = at(value, part, frozenset())
    return value


def _members(part: "Part", name: str) -> "list[Part]":
    named = part.schema.get("properties", {})
    if name in named:
        return [part.at("properties", name)]
    others = [part.at("patternProperties", pattern) for pattern in part.schema.get("patternProperties", {})]
    more = [part.at(word) for word in ("additionalProperties", "unevaluatedProperties") if word in part.schema]
    return [*others, *more]


def _items(part: "Part", index: int) -> "list[Part]":
    if index < len(part.schema.get("prefixItems", ())):
        return [part.at("prefixItems", index)]
    return [part.at(word) for word in ("items", "contains", "unevaluatedItems") if word in part.schema]


def _texts(value: Any) -> Iterator[str]:
    """The texts in a masked value that are long enough to be found again."""
    match value:
        case str():
            texts = [value]
            with suppress(ValueError):  # bytes are in hex here, and a result may have them as text
                texts.append(bytes.fromhex(value).decode())
            yield from (text for text in texts if len(text) >= _LEAST_SECRET)
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
        case _:
            pass
