"""Calls recorded once, to a file, and replayed from it: what a tool reaches need not be there when the tests run.

A cassette stands around a call. What the check refuses never reaches a tool, so it is neither recorded nor replayed;
all else has its arguments as the check leaves them, so a repaired call is the same call.
"""

import difflib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Literal, Self, get_args

from ..core import Call, Caller, Next, Repair, Result, SetupError, Tool, ToolcribError, ToolError, canonical
from ..record import Redactor
from .tape import HIDDEN, Recorded, Tape, TapeError, difference, schemas_of

Record = Literal["once", "anew", "never"]
"""Record where there is no file yet; record in any case; only replay."""

_NOT_KEPT = ("cancelled",)
_Key = tuple[str, str, str]


class CassetteError(ToolcribError):
    """Calls were made that a cassette does not have. Its message names the nearest ones, and how to record anew."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call as a cassette knows it."""

    tool: Tool
    arguments: Any
    caller: str
    repairs: tuple[Repair, ...]

    @property
    def key(self) -> _Key:
        return self.tool.spec.name, canonical(self.arguments), self.caller

    def __str__(self) -> str:
        by = f" by '{self.caller}'" if self.caller else ""
        return f"{self.tool.spec.name} {json.dumps(self.arguments, ensure_ascii=False)}{by}"


class Cassette:
    """The calls of a workbench, recorded in a JSON file or replayed from it.

        with Cassette("calls.json") as tape:
            bench = Workbench([search], around=[tape])

    Without the file, calls are made and recorded; with it, they are answered from it, and no tool runs, no policy is
    asked and nothing is approved. The same call made twice has two results, in their order. A call that is not in it
    is an error for whoever makes it, and leaving the `with` block raises CassetteError; so is one of a tool whose
    schema has changed. The file is written when the block ends, unless it ends with an exception.

    - *record*: `"once"`, as above; `"anew"`: whatever the file has; `"never"`: the file has to be there.
    - *secrets*: text that is struck out of arguments and results. Arguments of secret types are masked anyway.

    On replay a result's `value` is the JSON value of its content. Calls that end pending are not recorded.

    Raises SetupError for a file that is none of a cassette.
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
        self.records = record == "anew" or not is_there
        """Whether calls are made and recorded, and not replayed."""
        try:
            self._tape = Tape() if self.records else Tape.read(self.path)
        except TapeError as error:
            raise SetupError(f"{self.path} is no cassette: {error}. {self._way_out}") from None
        self._begun: Counter[_Key] = Counter()
        self._replayed: Counter[_Key] = Counter()
        self._known: dict[_Key, list[Recorded]] = defaultdict(list)
        for recorded in self._tape.calls:
            self._known[recorded.key].append(recorded)

    def hide(self, *secrets: str) -> Self:
        """Strike these out too, from now on."""
        for secret in secrets:
            self._redactor.add(secret)
        return self

    async def __call__(self, tool: Tool, call: Call, caller: Caller, go_on: Next, /) -> Result[Any]:
        try:
            checked, repairs = tool.check(call.arguments, True)
            arguments: Any = self._plain(tool, checked)
        except ToolError:
            if tool.handles is None:
                return await go_on()  # where it is refused again
            arguments, repairs = self._as_written(call), ()
        asked = _Asked(tool, arguments, "" if caller.principal == "local" else caller.principal, repairs)
        return await self._recorded(asked, go_on) if self.records else self._replay(asked, call)

    async def _recorded(self, asked: _Asked, go_on: Next) -> Result[Any]:
        number = self._begun[asked.key]
        self._begun[asked.key] += 1
        result = await go_on()
        if result.pending is None and (result.error is None or result.error.code not in _NOT_KEPT):
            name = asked.tool.spec.name
            self._tape.schemas[name] = schemas_of(asked.tool.spec)
            recorded = Recorded.of(name, asked.arguments, asked.caller, number, result, self._redactor.strike)
            self._tape.calls.append(recorded)
        return result

    def _replay(self, asked: _Asked, call: Call) -> Result[Any]:
        name = asked.tool.spec.name
        known, now = self._tape.schemas.get(name), schemas_of(asked.tool.spec)
        if known is not None and (where := difference(known, now)) is not None:
            self._miss(f"The schema of '{name}' is not the one that {self.path} was recorded with: {where} differs.")
        every = self._known.get(asked.key, ())
        number = self._replayed[asked.key]
        if number >= len(every):
            self._miss(self._missing(asked, len(every)))
        self._replayed[asked.key] += 1
        return every[number].result(call, asked.repairs, time())

    def _missing(self, asked: _Asked, times: int) -> str:
        if times:
            many = "once" if times == 1 else f"{times} times"
            return f"{self.path} has {asked} {many}, and it was made once more."
        near = self._nearest(asked)
        hint = f" The nearest that it has is {near}." if near else " It has no call at all."
        return f"{self.path} has no call {asked}.{hint}"

    def _nearest(self, asked: _Asked) -> str | None:
        said = {str(recorded): recorded for recorded in self._tape.calls}
        same = [text for text, recorded in said.items() if recorded.tool == asked.tool.spec.name]
        return next(iter(difflib.get_close_matches(str(asked), same or said, n=1, cutoff=0.0)), None)

    def _miss(self, message: str) -> None:
        said = f"{message} {self._way_out}"
        self.problems.append(said)
        raise ToolError(said, "unavailable", retry="never")

    @property
    def _way_out(self) -> str:
        return f'To record anew: Cassette({str(self.path)!r}, record="anew"), or delete the file.'

    def _plain(self, tool: Tool, checked: Mapping[str, Any]) -> Any:
        from ..schema import shown

        written = shown({name: _ordered(value) for name, value in checked.items()})
        return _masked(json.loads(self._redactor.strike(written)), tool.spec.input_schema)

    def _as_written(self, call: Call) -> Any:
        given = call.arguments
        text = given if isinstance(given, str | bytes) else json.dumps(dict(given or {}), default=str)
        return json.loads(self._redactor.strike(text.decode() if isinstance(text, bytes) else text))

    # Life

    def finish(self, *, save: bool = True) -> None:
        """Write what was recorded, if *save*. Raises CassetteError where calls were not in the file."""
        if self.records and save:
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
        return f"<Cassette {self.path}, which {'records' if self.records else 'replays'}>"


def _ordered(value: Any) -> Any:
    """*value*, sets in it sorted: each process has them in another order."""
    match value:
        case Set():
            return sorted(value, key=repr)
        case dict():
            return {name: _ordered(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_ordered(inner) for inner in value]
        case _:
            return value


def _masked(value: Any, schema: Any) -> Any:
    """*value* without what *schema* says is secret."""
    if not isinstance(schema, Mapping):
        return value
    if schema.get("format") == "password" or schema.get("writeOnly") is True:
        return HIDDEN
    properties = schema.get("properties")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        return {name: _masked(inner, properties.get(name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, schema.get("items")) for inner in value]
    return value
