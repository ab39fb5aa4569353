"""Figures of the call log, in both databases."""

from datetime import UTC, datetime, timedelta

from toolcrib import Caller
from toolcrib.core import CallRecord
from toolcrib.record import DatabaseCalls
from toolcrib.store import Store

NOW = datetime(2026, 1, 2, tzinfo=UTC)


async def test_calls_are_counted_by_time_tool_and_rule(url: str) -> None:
    store = Store(url)
    log = DatabaseCalls(store, max_age_s=1e9)
    for number in range(100):
        record = CallRecord(f"c{number}", "slow" if number < 20 else "fast", Caller(f"p{number % 2}"), NOW)
        record.id, record.started_at = f"run_{number}", NOW + timedelta(minutes=number)
        record.status, record.duration_s = "success", number / 1000
        if number % 10 == 0:
            record.status, record.code = "error", "timeout"
        record.repairs, record.decision, record.rule = number % 3, "allow", "r1"
        if number % 10 == 1:
            record.repaired = (("city", "number", "string"), ("days", "string", "integer"))[: 1 + number // 50]
        await log.finished(record)
    await log.flush()
    hour = timedelta(hours=1)
    figures = await log.statistics(since=NOW, until=NOW + 2 * hour, count=2)
    assert [part["calls"] for part in figures["parts"]] == [
        {"success": 54, "timeout": 6},
        {"success": 36, "timeout": 4},
    ]
    assert figures["tools"] == [
        {"tool": "fast", "calls": 80, "errors": 8, "repaired": 53, "p50_s": 0.06, "p95_s": 0.096},
        {"tool": "slow", "calls": 20, "errors": 2, "repaired": 13, "p50_s": 0.01, "p95_s": 0.019},
    ]
    assert figures["rules"] == [{"rule": "r1", "decision": "allow", "calls": 100, "approved": 0}]
    assert figures["repairs"] == [
        {"tool": "fast", "argument": "city", "from": "number", "to": "string", "calls": 8},
        {"tool": "fast", "argument": "days", "from": "string", "to": "integer", "calls": 5},
        {"tool": "slow", "argument": "city", "from": "number", "to": "string", "calls": 2},
    ]
    own = await log.statistics(since=NOW + hour, until=NOW + 2 * hour, count=1, principal="p1")
    assert [part["calls"] for part in own["parts"]] == [{"success": 20}]
    store.close()
