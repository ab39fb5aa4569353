"""What was called: `/calls`, the log, which goes on by itself; `/stats`, its figures; `/tasks`, what runs as tasks."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from ..visit import Answer, Page, Visit, filters_of, redirect, render

_FILTERS = ("tool", "principal", "status", "rule", "since", "until")
_STATUSES = ("started", "success", "error", "pending", "lost")
_TASK_STATES = ("queued", "running", "waiting", "ended", "lost")
_GOOD = ("success", "started", "pending")
_AGES = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30)}


async def show_list(visit: Visit) -> Answer:
    filters, address = filters_of(visit, _FILTERS)
    before = visit.request.query_params.get("before")
    page = await visit.get("/api/calls", **filters, before=before, limit=50)
    lists: dict[str, Any] = {"calls": page["calls"], "following": page["next"], "before": before, "statuses": _STATUSES}
    return render(visit, "calls.html", **lists, filters=filters, address=address, sees_all=visit.may("calls:all"))


async def show_call(visit: Visit, id: str) -> Answer:  # noqa: A002
    call = await visit.get(f"/api/calls/{id}")
    related = []
    if call["traceparent"]:
        began = datetime.fromisoformat(call["started_at"])
        near = {"since": (began - _AGES["hour"]).isoformat(), "until": (began + _AGES["hour"]).isoformat()}
        page = await visit.get("/api/calls", **near, principal=call["principal"], limit=200)
        trace = call["traceparent"].split("-")[1]
        related = [row for row in page["calls"] if trace in (row["traceparent"] or "")]
        related.sort(key=lambda row: row["started_at"])
    curl = visit.curl(call["tool"], call["arguments"] or "{}")
    return render(visit, "call.html", call=call, bars=_bars(related), curl=curl, test=_test(call))


async def call_again(visit: Visit, id: str) -> Answer:  # noqa: A002
    """Make a recorded call once more, and show the new one."""
    call = await visit.get(f"/api/calls/{id}")
    result = await visit.post(f"/api/tools/{call['tool']}/call", json.loads(call["arguments"] or "{}"))
    page = await visit.get("/api/calls", tool=call["tool"], limit=20)
    own = next((row["id"] for row in page["calls"] if row["call_id"] == result.get("call_id")), id)
    return redirect(visit, f"/calls/{own}")


async def show_statistics(visit: Visit) -> Answer:
    filters, address = filters_of(visit, ["age"])
    age = filters.get("age", "day")
    until = datetime.now(UTC)
    since = until - _AGES.get(age, _AGES["day"])
    figures = await visit.get("/api/stats", since=since.isoformat(), until=until.isoformat())
    about: dict[str, Any] = {"columns": _columns(figures["parts"])}
    about["limits"] = (await visit.get("/api/limits"))["limits"]
    about["workers"] = await visit.get("/api/workers") if visit.may("tasks") else None
    return render(visit, "stats.html", figures=figures, **about, ages=_AGES, age=age, address=address)


def _bars(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *calls* with where each begins and how wide it is, in percent of the time that all of them took."""
    times = [(datetime.fromisoformat(call["started_at"]).timestamp(), call["duration_s"] or 0.0) for call in calls]
    first_s = min((at_s for at_s, _ in times), default=0.0)
    percent = 100 / max(1e-6, *(at_s + duration_s - first_s for at_s, duration_s in times), 0.0)
    return [
        {**call, "left": round((at_s - first_s) * percent, 2), "width": round(max(0.5, duration_s * percent), 2)}
        for call, (at_s, duration_s) in zip(calls, times, strict=True)
    ]


def _columns(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns of a chart of calls over time: how many there were, and how many of them failed."""
    counts = [Counter(part["calls"]) for part in parts]
    return [
        {"since": part["since"], "calls": count.total(), "failed": count.total() - sum(count[name] for name in _GOOD)}
        for part, count in zip(parts, counts, strict=True)
    ]


def _test(call: dict[str, Any]) -> str:
    """Return a test that makes this call, and expects that it ends as it did."""
    arguments = json.dumps(json.loads(call["arguments"])) if call.get("arguments") else "{}"
    return (
        f"async def test_{call['tool'].replace('-', '_')}(bench):\n"
        f"    result = await bench.call({call['tool']!r}, {arguments!r})\n"
        f"    assert result.status == {call['status']!r}\n"
    )


# Tasks


async def show_tasks(visit: Visit) -> Answer:
    filters, address = filters_of(visit, ["of", "state"])
    after, sees_all = visit.request.query_params.get("after"), visit.may("tasks")
    query = {"of": "all" if sees_all else "me", **filters}
    page = await visit.get("/api/tasks", **query, after=after, limit=50)
    lists: dict[str, Any] = {"tasks": page["tasks"], "following": page["next"], "after": after, "states": _TASK_STATES}
    return render(visit, "tasks.html", **lists, filters=filters, address=address, sees_all=sees_all)


async def show_task(visit: Visit, id: str) -> Answer:  # noqa: A002
    return render(visit, "task.html", task=await visit.get(f"/api/tasks/{id}"))


async def cancel(visit: Visit, id: str) -> Answer:  # noqa: A002
    await visit.post(f"/api/tasks/{id}/cancel")
    return redirect(visit, f"/tasks/{id}")


async def settle(visit: Visit, id: str) -> Answer:  # noqa: A002
    """Say whether a lost task took effect."""
    await visit.post(f"/api/calls/{id}/settle", {"done": visit.form.get("done") == "yes"})
    return redirect(visit, f"/tasks/{id}")


PAGES = (
    Page("/calls", show_list, api="/api/calls"),
    Page("/calls/*", show_call, api="/api/calls/{}"),
    Page("/calls/*/again", call_again, method="POST"),
    Page("/stats", show_statistics, api="/api/stats"),
    Page("/tasks", show_tasks, api="/api/tasks"),
    Page("/tasks/*", show_task, api="/api/tasks/{}"),
    Page("/tasks/*/cancel", cancel, method="POST"),
    Page("/tasks/*/settle", settle, method="POST"),
)
