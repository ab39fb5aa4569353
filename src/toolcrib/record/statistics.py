"""Figures of the call log: what was called, how it ended, how long it took, and what rules decided."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, case, func, select

from ..store.tables import decode_name, decode_time, encode_name, encode_time
from .calls import REPAIRED

_MAX_ROWS = 50
"""The most tools, rules and repaired arguments that are listed: those with the most calls."""


def statistics(
    connection: Connection, calls: Table, *, since: datetime, until: datetime, count: int, principal: str | None = None
) -> dict[str, Any]:
    """Return the figures of those in the table *calls* that began from *since* on and before *until*, as JSON data.

    *count* is in how many equal parts of that time they are counted. Of *principal* alone, where that is given.
    Durations are in seconds: the lower bound of the slower half (`p50_s`), and of the slowest twentieth (`p95_s`).
    """
    fields, first, last = calls.c, encode_time(since), encode_time(until)
    width = max(1, (last - first) // count)
    where = [fields.started_at >= first, fields.started_at < last]
    if principal is not None:
        where.append(fields.principal == encode_name(principal))

    # Of whole numbers, as both databases divide them.
    part = (fields.started_at - first).op("/", precedence=8)(width).label("part")
    outcome = func.coalesce(fields.code, fields.status).label("outcome")
    over_time = select(part, outcome, func.count().label("calls")).where(*where).group_by(part, outcome)
    parts: list[dict[str, int]] = [{} for _ in range(count)]
    for row in connection.execute(over_time).mappings():
        at = parts[min(int(row["part"]), count - 1)]
        name = decode_name(row["outcome"])
        at[name] = at.get(name, 0) + int(row["calls"])
    return {
        "since": since.isoformat(),
        "until": until.isoformat(),
        "parts": [
            {"since": decode_time(first + number * width).isoformat(), "calls": counts}
            for number, counts in enumerate(parts)
        ],
        "tools": _tools(connection, calls, where),
        "rules": _rules(connection, calls, where),
        "repairs": _repairs(connection, calls, where),
    }


def _tools(connection: Connection, calls: Table, where: list[Any]) -> list[dict[str, Any]]:
    fields = calls.c
    errors = func.sum(case((fields.status == "error", 1), else_=0))
    repairs = func.sum(case((fields.repairs > 0, 1), else_=0))
    sums = (
        select(fields.tool, func.count().label("calls"), errors.label("errors"), repairs.label("repaired"))
        .where(*where)
        .group_by(fields.tool)
        .order_by(func.count().desc(), fields.tool)
        .limit(_MAX_ROWS)
    )
    rows = connection.execute(sums).mappings().fetchall()
    place = func.row_number().over(partition_by=fields.tool, order_by=fields.duration_us).label("place")
    size = func.count().over(partition_by=fields.tool).label("size")
    timed = (fields.duration_us.is_not(None), fields.tool.in_([row["tool"] for row in rows]))
    ranks = select(fields.tool, fields.duration_us, place, size).where(*where, *timed).subquery()
    limits = {name: (ranks.c.place * 100 > ranks.c.size * share) for name, share in (("p50_s", 50), ("p95_s", 95))}
    slower = (func.min(case((is_over, ranks.c.duration_us))).label(name) for name, is_over in limits.items())
    durations = select(ranks.c.tool, *slower).group_by(ranks.c.tool)
    times: dict[str, Mapping[Any, Any]] = {row["tool"]: row for row in connection.execute(durations).mappings()}
    tools: list[dict[str, Any]] = []
    for row in rows:
        time = times.get(row["tool"], {})
        seconds = {name: None if time.get(name) is None else int(time[name]) / 1e6 for name in limits}
        counts = {name: int(row[name]) for name in ("calls", "errors", "repaired")}
        tools.append({"tool": decode_name(row["tool"]), **counts, **seconds})
    return tools


def _repairs(connection: Connection, calls: Table, where: list[Any]) -> list[dict[str, Any]]:
    """Return how often each argument was repaired, the most often first, and from which kind to which."""
    fields, counts = calls.c, Counter[tuple[str, ...]]()
    groups = (
        select(fields.tool, fields.repaired, func.count().label("calls"))
        .where(*where, fields.repaired.is_not(None))
        .group_by(fields.tool, fields.repaired)
        .order_by(func.count().desc(), fields.tool)
        .limit(_MAX_ROWS)
    )
    for row in connection.execute(groups).mappings():
        for repair in json.loads(decode_name(row["repaired"])):
            counts[decode_name(row["tool"]), *repair] += int(row["calls"])
    return [
        {"tool": tool, **dict(zip(REPAIRED, repair, strict=True)), "calls": number}
        for (tool, *repair), number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_ROWS]
    ]


def _rules(connection: Connection, calls: Table, where: list[Any]) -> list[dict[str, Any]]:
    """Return how often each rule allowed, denied and asked, and how often a person approved what it asked."""
    fields = calls.c
    approved = func.sum(case((fields.answered_by.is_not(None) & fields.code.is_distinct_from("denied"), 1), else_=0))
    columns = (fields.rule, fields.decision, func.count().label("calls"), approved.label("approved"))
    rows = (
        select(*columns)
        .where(*where, fields.decision.is_not(None))
        .group_by(fields.rule, fields.decision)
        .order_by(func.count().desc())
        .limit(_MAX_ROWS)
    )
    return [
        {
            "rule": None if row["rule"] is None else decode_name(row["rule"]),
            "decision": row["decision"],
            "calls": int(row["calls"]),
            "approved": int(row["approved"]),
        }
        for row in connection.execute(rows).mappings()
    ]
