"""Verify events: those of a store, or the lines of a file that `export` has written, which need no store.

Whatever is in a row, it raises nothing here: it is a problem, which is named.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..core import ToolcribError
from .events import CHECKPOINTS, hash_of, is_signed, signed_part
from .tables import encode_time

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .database import Database

_COLUMNS = ("chain", "position", "at", "principal", "fields", "hash", "stub", "signature")
_VERSION = 1
_MAX_PROBLEMS = 1_000
"""So many problems are named; more are counted."""


class NotAnExport(ToolcribError):
    """A file that is not an export of events, or not of the store whose key was named."""


@dataclass(slots=True)
class Audit:
    """What was verified: how many `events` are as they were written, how many `left_out` have only a stub, how many are
    `unsigned`, since no checkpoint has them. `keys` are the fingerprints of the keys that may sign. All is well where
    there are no `problems`.
    """

    keys: Sequence[str]
    events: int = 0
    left_out: int = 0
    unsigned: int = 0
    chains: int = 0
    checkpoints: int = 0
    problem_count: int = 0
    problems: list[str] = field(default_factory=list[str])

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def fingerprint(public_key: bytes) -> str:
    """Return what names *public_key*: 128 bits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:32]


@dataclass(slots=True)
class _State:
    """How far a chain was read: its last position, and the hashes that the next event may follow."""

    position: int = 0
    hashes: Sequence[str] = ("",)
    left_out: int = 0
    """The last position of a stub."""
    left_out_at: int = 0
    end: int = 0
    """The last position that a checkpoint has."""


class Verifier:
    """Verifies rows of events, in the order in which they were written, with the *public_keys* that may sign.

    *of_file*: those of a file, in which stubs may be of what was before it.
    """

    def __init__(self, public_keys: Sequence[bytes], *, of_file: bool = False) -> None:
        self._keys, self._of_file = public_keys, of_file
        self._chains: dict[str, _State] = {}
        self.audit = Audit([fingerprint(key) for key in public_keys])

    def add(self, row: Mapping[Any, Any]) -> None:
        """Verify *row*, the next one."""
        try:
            chain, position = row["chain"], row["position"]
            if not (isinstance(chain, str) and isinstance(position, int) and isinstance(row["at"], int)):
                raise TypeError
            if not isinstance(row["hash"], str) or not isinstance(row["stub"], int | None):
                raise TypeError
            self._add(row, self._chains.setdefault(chain, _State()))
        except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
            self.problem(f"{_name(row)} is damaged")

    def finished(self) -> Audit:
        """Return what was found, after the last row."""
        states = {name: state for name, state in self._chains.items() if name != CHECKPOINTS}
        self.audit.chains = len(states)
        self.audit.unsigned = sum(state.position - state.end for state in states.values())
        return self.audit

    def _add(self, row: Mapping[Any, Any], state: _State) -> None:
        position, count = row["position"], row["stub"] or 1
        first, hashes = position - count + 1, state.hashes
        if position <= state.position or first <= state.left_out or not 0 < count <= position:
            self.problem(f"{_name(row)} was moved or copied: it is not in its place")
            return
        if first <= state.position:
            self.problem(f"{_name(row)} was moved or copied: it is a stub of events that are there")
        elif first > state.position + 1:
            self._missing(row["chain"], state.position + 1, first - 1)
            hashes = ()
        state.position = position
        if row["stub"] is None:
            self._add_event(row, state, hashes)
        else:
            self._add_stub(row, state, count)

    def _add_stub(self, row: Mapping[Any, Any], state: _State, count: int) -> None:
        state.hashes, state.left_out, state.left_out_at = (row["hash"],), row["position"], row["at"]
        self.audit.left_out += count if row["chain"] != CHECKPOINTS else 0
        if row["fields"] is not None or row["principal"] is not None or not self._is_signed(row):
            self.problem(f"{_name(row)} was changed: its signature is not of it")
        elif row["chain"] != CHECKPOINTS:
            state.end = max(state.end, row["position"])

    def _add_event(self, row: Mapping[Any, Any], state: _State, hashes: Sequence[str]) -> None:
        """Verify that *row* follows one of *hashes*; none where what it follows is not known."""
        expected = [hash_of(previous, row) for previous in hashes]
        state.hashes = (row["hash"], *(value for value in expected if value != row["hash"]))
        is_sound = not hashes or row["hash"] in expected
        if row["chain"] != CHECKPOINTS:
            is_sound = is_sound and row["signature"] is None
            self.audit.events += is_sound
        if not is_sound:
            self.problem(f"{_name(row)} was changed")
        if row["chain"] == CHECKPOINTS:
            self._add_checkpoint(row)

    def _add_checkpoint(self, row: Mapping[Any, Any]) -> None:
        self.audit.checkpoints += 1
        if not self._is_signed(row):
            self.problem(f"{_name(row)} is not signed by a key of this store")
            return
        fields = json.loads(row["fields"])
        chain, position = fields["chain"], int(fields["position"])
        state = self._chains.setdefault(chain, _State())
        if position > state.position:
            self._missing(chain, state.position + 1, position)
            state.position, state.hashes = position, (fields["head"],)
        elif position == state.position and fields["head"] not in state.hashes:
            places = f"Events {state.end + 1} to {position} of the chain {_short(chain)}"
            self.problem(f"{places} were written anew: {_name(row)} has another hash of the last one")
        elif state.left_out < position < state.position:
            self.problem(f"{_name(row)} was moved: the chain {chain} is further already")
        elif position < state.left_out and row["at"] > state.left_out_at:
            self.problem(f"Event {position} of the chain {_short(chain)} was left out: by {_name(row)} it is newer")
        state.end = max(state.end, position)

    def _is_signed(self, row: Mapping[Any, Any]) -> bool:
        parts = (signed_part(row, of_file=of_file) for of_file in {False, self._of_file})
        return any(is_signed(part, row["signature"], self._keys) for part in parts)

    def _missing(self, chain: str, first: int, last: int) -> None:
        noun, where = ("Checkpoint", "") if chain == CHECKPOINTS else ("Event", f" of the chain {_short(chain)}")
        places = f"{noun}s {first} to {last}{where} are" if first < last else f"{noun} {first}{where} is"
        self.problem(f"{places} missing")

    def problem(self, text: str) -> None:
        self.audit.problem_count += 1
        if len(self.audit.problems) < _MAX_PROBLEMS:
            self.audit.problems.append(f"{text}.")


def _short(value: Any) -> str:
    return repr(value)[:60] if not isinstance(value, str) or not value.isalnum() else value[:60]


def _name(row: Mapping[Any, Any]) -> str:
    """Return how *row* is named: by its place, and by what it says that it is about."""
    chain, position = row.get("chain"), row.get("position")
    if chain == CHECKPOINTS:
        return f"Checkpoint {_short(position)}"
    about = ""
    try:
        fields = json.loads(row["fields"])
        about = f" ({fields['kind']} {fields['id']})"
    except (TypeError, ValueError, KeyError, RecursionError):
        pass
    return f"Event {_short(str(position))} of the chain {_short(chain)}{about[:100]}"


# A store, and files


def lines(store: "Database", connection: "Connection", since: datetime | None, *, at: datetime) -> Iterator[str]:
    """Yield the lines of a file with the events since a time, which `verify_lines` proves."""
    keys = store.keys
    head = {
        "toolcrib_events": _VERSION,
        "exported_at": at.isoformat(),
        "since": since and since.isoformat(),
        "keys": [key.hex() for key in keys.public_keys()],
    }
    digest, count = hashlib.sha256(), 0
    rows = store.events.exported(connection, None if since is None else encode_time(since))
    events = ({name: row[name] for name in _COLUMNS if row[name] is not None} for row in rows)
    for data in chain([head], events):
        line = json.dumps(data, separators=(",", ":"))
        digest.update(f"{line}\n".encode())
        count += 1
        yield line
    yield json.dumps({"lines": count, "signature": keys.sign(_of_file(digest.digest())).hex()}, separators=(",", ":"))


def verify_lines(file: Iterable[str], pinned: Sequence[str] = ()) -> Audit:
    """Verify the *file* that `lines` gave. With *pinned* fingerprints, only these keys may sign.

    Raises NotAnExport where it is something else, or no pinned key is in it.
    """
    rows = iter(file)
    line = next(rows, "")
    keys = pinned_keys(_keys_of(line), pinned)
    verifier = Verifier(keys, of_file=True)
    digest, count = hashlib.sha256(), 0
    for next_line in rows:  # the last one is not an event
        if count:
            _add_line(verifier, line, count + 1)
        digest.update(line.encode(errors="surrogateescape"))
        line, count = next_line, count + 1
    end = _json_object(line) or {}
    if not count or end.keys() != {"lines", "signature"}:
        verifier.problem("The file was cut off: its last line is not the signature of the others")
    elif end["lines"] != count or not is_signed(_of_file(digest.digest()), end["signature"], keys):
        verifier.problem("The file was changed: the signature in its last line is not of the others")
    return verifier.finished()


def pinned_keys(keys: Sequence[bytes], pinned: Sequence[str]) -> Sequence[bytes]:
    """Return those of *keys* that may sign: with *pinned* fingerprints, these alone. Raises NotAnExport."""
    signers = [key for key in keys if fingerprint(key) in pinned] if pinned else keys
    if not signers:
        names = ", ".join(map(fingerprint, keys))
        raise NotAnExport(f"The events are not signed by the key {', '.join(pinned)}, but by: {names}.")
    return signers


def _keys_of(line: str) -> list[bytes]:
    head = _json_object(line) or {}
    if head.get("toolcrib_events") != _VERSION:
        raise NotAnExport(
            "This is not a file of `toolcrib calls export`, or of a newer version: its first line has no "
            f'"toolcrib_events": {_VERSION}.'
        )
    try:
        return [bytes.fromhex(key) for key in head["keys"]]
    except (TypeError, ValueError, KeyError):
        raise NotAnExport("The first line of the file is damaged: its keys cannot be read.") from None


def _add_line(verifier: Verifier, line: str, number: int) -> None:
    row = _json_object(line)
    if row is None or not row.keys() <= {*_COLUMNS}:
        verifier.problem(f"Line {number} is damaged: it is not an event as JSON")
        return
    verifier.add({**dict.fromkeys(_COLUMNS), **row})


def _json_object(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _of_file(digest: bytes) -> bytes:
    return b"toolcrib export\0" + digest
