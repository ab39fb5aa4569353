"""What is recorded of one call."""

import os
import threading
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Any

from .call import Caller
from .moments import keep_as_moments

# A store keeps one row for each id: so they are random whatever a program has seeded, and in processes that it forks.
_random = Random()  # noqa: S311 - unique, and nothing to guess
_making = threading.Lock()


def _after_fork() -> None:
    global _making
    _making = threading.Lock()  # a thread that is not in this process may have held the other one
    _random.seed()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_new_id = map("run_%x".__mod__, iter(partial(_random.getrandbits, 64), None)).__next__


@dataclass(slots=True)
class CallRecord:
    """One call: who called what, when, and how it ended. Known secrets are redacted in it.

    `status` is `started` until it has ended, then that of its Result; `code` is the error's. `pending` is the kind of
    what the call waits for. `decision` is the policy's (`allow`, `deny`, `ask`), `rule` the rule it followed,
    `answered_by` the person who approved or denied. `arguments` and `result` are text, bounded, and None unless the
    recorder asks for them; their sizes are in bytes, as far as they are known: of the arguments as they were sent.

    `id` is that of one time that the call was made, which `call_id`, chosen by the caller, need not be.
    The record of the start and of the end of a call have the same. `traceparent` (W3C Trace Context) is whose part
    the call is.
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
    arguments: str | None = None
    result: str | None = None
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    read_only: bool = False
    traceparent: str | None = None
    id: str = ""


def _make_when_read(kind: type[Any], name: str) -> None:
    """Let the field *name* of a dataclass with slots be a new id when it is first read: in memory, few ever are."""
    slot: Any = getattr(kind, name)

    def read(record: Any) -> str:
        record_id: str = slot.__get__(record)
        if not record_id:
            with _making:  # who reads it in another thread reads the same
                record_id = slot.__get__(record) or _new_id()
                slot.__set__(record, record_id)
        return record_id

    setattr(kind, name, property(read, slot.__set__))


keep_as_moments(CallRecord, "started_at")
_make_when_read(CallRecord, "id")
