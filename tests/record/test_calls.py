"""Calls as lines for people and as data for programs, and the log in memory."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from toolcrib import Caller
from toolcrib.core import CallRecord
from toolcrib.record import CallLog
from toolcrib.record.calls import CallLines, JsonFormatter, call_data, line_of

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
DONE = CallRecord("c1", "add", Caller("ann"), NOON, "success", duration_s=0.0125, id="run_1")
FULL = replace(
    DONE,
    caller=Caller("ann", "work", "t1"),
    status="error",
    code="conflict",
    repairs=2,
    decision="ask",
    rule="careful",
    answered_by="bob",
    duration_s=1.0,
    read_only=True,
    arguments_bytes=9,
    result_bytes=3,
    traceparent="00-a-b-01",
    arguments="{}",
    result="no",
)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (DONE, "run_1  add  success  12.5 ms  by ann"),
        (
            FULL,
            "run_1  add  error (conflict)  1.00 s  by ann/work  2 repaired, ask by 'careful', answered by bob",
        ),
        (
            replace(DONE, status="pending", pending="approval", decision="ask"),
            "run_1  add  pending (approval)  12.5 ms  by ann  ask",
        ),
        (replace(DONE, status="started"), "run_1  add  started  by ann"),
        (replace(DONE, status="lost"), "run_1  add  lost  by ann"),
        (
            replace(DONE, tool="x\nrun_2  pay  success", caller=Caller("eve\u2028\x1b[2J")),
            "run_1  x run_2 pay success  success  12.5 ms  by eve \\x1b[2J",
        ),
    ],
)
def test_a_call_is_one_line(record: CallRecord, line: str) -> None:
    assert line_of(record) == line


def test_a_call_is_data_in_which_what_is_not_known_is_null() -> None:
    plain = {
        "id": "run_1",
        "call_id": "c1",
        "tool": "add",
        "principal": "ann",
        "profile": "default",
        "thread": "default",
        "started_at": "2040-01-01T12:00:00+00:00",
        "duration_s": 0.0125,
        "status": "success",
        "code": None,
        "repairs": 0,
        "pending": None,
        "decision": None,
        "rule": None,
        "answered_by": None,
        "read_only": False,
        "arguments_bytes": None,
        "result_bytes": None,
        "repeated": False,
        "traceparent": None,
    }
    assert call_data(DONE) == {**plain, "thread": DONE.caller.thread}
    for status in ("started", "lost"):
        assert call_data(replace(DONE, status=status))["duration_s"] is None
    assert call_data(replace(DONE, duration_s=1 / 3))["duration_s"] == 0.333333
    full = call_data(FULL, with_content=True)
    assert {name for name, value in full.items() if value is None} == {"pending"}
    assert (full["arguments"], full["result"]) == ("{}", "no")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the log of calls has, as lines of JSON."""
    stream, log = io.StringIO(), logging.getLogger("toolcrib.calls")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    before = log.level
    yield stream
    log.setLevel(before)
    log.removeHandler(handler)


async def test_a_call_is_logged_once_where_somebody_listens(written: io.StringIO) -> None:
    log = logging.getLogger("toolcrib.calls")
    for level in (logging.WARNING, logging.INFO):
        log.setLevel(level)
        await CallLines().finished(FULL)
    (line,) = written.getvalue().splitlines()
    shown = json.loads(line)
    assert datetime.fromisoformat(shown.pop("at")).tzinfo is not None
    assert shown == {"level": "info", "logger": "toolcrib.calls", "message": line_of(FULL), "call": call_data(FULL)}


def test_a_line_of_json_has_the_reference_and_the_exception_that_there_are(written: io.StringIO) -> None:
    log = logging.getLogger("toolcrib.calls")
    try:
        raise ValueError("bad ü")
    except ValueError:
        log.error("It failed: %s", "ü", exc_info=True, extra={"reference": "ref_1"})
        error = sys.exc_info()
    record = log.makeRecord("toolcrib.calls", logging.ERROR, "", 0, "again", (), error)
    record.exc_text = "Traceback, redacted"
    log.handle(record)
    text = written.getvalue()
    assert text.isascii()
    first, second = map(json.loads, text.splitlines())
    assert (first["message"], first["reference"], first["level"]) == ("It failed: ü", "ref_1", "error")
    assert first["exception"].startswith("Traceback")
    assert first["exception"].endswith("ValueError: bad ü")
    assert second["exception"] == "Traceback, redacted"
    assert "reference" not in second


async def test_the_log_in_memory_has_the_last_calls_and_content_where_it_is_asked_for() -> None:
    log = CallLog(2)
    for number in range(3):
        await log.finished(replace(DONE, call_id=f"c{number}"))
    assert ([one.call_id for one in log], len(log), log.with_content) == (["c1", "c2"], 2, False)
    assert CallLog(with_content=True).with_content is True
    many = CallLog()
    for _ in range(1001):
        await many.finished(DONE)
    assert len(many) == 1000


async def test_calls_that_never_ran_push_none_that_had_an_effect_out_of_the_log_in_memory() -> None:
    """The case of unknown tools, and a second one: who has the most pays, also with calls that ran."""
    log = CallLog(10)

    async def note(call_id: str, principal: str, **changed: Any) -> None:
        await log.finished(replace(DONE, call_id=call_id, caller=Caller(principal), **changed))

    await note("wipe", "alice", code=None, pending=None)
    await note("refused", "alice", code="denied")
    for number in range(20):
        await note(f"u{number}", "eve", code="unknown_tool")
        await note(f"r{number}", "eve", code=None, read_only=True)
    assert [record.call_id for record in log][:2] == ["wipe", "refused"]
    for number in range(20):
        await note(f"e{number}", "eve", code=None, pending=None)
    assert [record.call_id for record in log] == ["wipe", *(f"e{number}" for number in range(11, 20))]


async def test_with_many_principals_the_log_in_memory_drops_the_oldest_of_those_who_have_the_most() -> None:
    log = CallLog(100)
    for number in range(1000):
        principal = "eve" if number % 2 else f"p{number}"
        await log.finished(replace(DONE, call_id=f"c{number}", caller=Caller(principal), code=None, pending=None))
        assert len(log) == min(number + 1, 100)
    callers = [record.caller.principal for record in log]
    assert (len(callers), callers.count("eve")) == (100, 1)
    numbers = [int(record.call_id[1:]) for record in log]
    assert numbers == sorted(numbers)
