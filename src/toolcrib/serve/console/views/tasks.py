"""`/tasks`: calls that run as tasks, and one of them."""

from ..visit import Answer, Page, Visit, redirect, render

_STATES = ("queued", "running", "waiting", "ended", "lost")


async def show_list(visit: Visit) -> Answer:
    query = visit.request.query_params
    state, after = query.get("state"), query.get("after")
    of = "all" if visit.may("tasks") and query.get("of") != "me" else "me"
    page = await visit.get("/api/tasks", of=of, state=state, after=after, limit=50)
    return render(
        visit,
        "tasks.html",
        tasks=page["tasks"],
        following=page["next"],
        state=state,
        after=after,
        of=of,
        states=_STATES,
        sees_all=visit.may("tasks"),
    )


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
