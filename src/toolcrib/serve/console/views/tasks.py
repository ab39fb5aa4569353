"""`/tasks`: calls that run as tasks, and one of them."""

from typing import Any

from ..visit import Answer, Page, Visit, filters_of, redirect, render

_STATES = ("queued", "running", "waiting", "ended", "lost")


async def show_list(visit: Visit) -> Answer:
    filters, address = filters_of(visit, ["of", "state"])
    after, sees_all = visit.request.query_params.get("after"), visit.may("tasks")
    query = {"of": "all" if sees_all else "me", **filters}
    page = await visit.get("/api/tasks", **query, after=after, limit=50)
    lists: dict[str, Any] = {"tasks": page["tasks"], "following": page["next"], "after": after, "states": _STATES}
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
    Page("/tasks", show_list, api="/api/tasks"),
    Page("/tasks/*", show_task, api="/api/tasks/{}"),
    Page("/tasks/*/cancel", cancel, method="POST"),
    Page("/tasks/*/settle", settle, method="POST"),
)
