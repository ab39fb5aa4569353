"""`/connections`: a person's logins. `/sources` and `/keys`: what the operator looks after."""

from datetime import UTC, datetime, timedelta

from ..visit import Answer, Page, Problem, Visit, redirect, render


async def show_connections(visit: Visit) -> Answer:
    return render(visit, "connections.html", **await visit.get("/api/connections"))


async def connect(visit: Visit) -> Answer:
    """Begin a login, and show where it goes on."""
    answer = await visit.post("/api/connections", {"provider": visit.form.get("provider")})
    return render(visit, "connect.html", pending=answer["pending"])


async def disconnect(visit: Visit, provider: str, handler: str, profile: str) -> Answer:
    await visit.delete(f"/api/connections/{provider}/{handler}/{profile}")
    return redirect(visit, "/connections")


async def show_sources(visit: Visit) -> Answer:
    changes = {}
    if visit.may("sources"):
        changes = await visit.get("/api/sources/changes", after=visit.request.query_params.get("after"))
    return render(visit, "sources.html", **await visit.get("/api/sources"), **changes)


async def show_change(visit: Visit, digest: str) -> Answer:
    return render(visit, "change.html", change=await visit.get(f"/api/sources/changes/{digest}"))


async def accept(visit: Visit, digest: str) -> Answer:
    await visit.post(f"/api/sources/changes/{digest}/accept")
    return redirect(visit, "/sources")


async def show_keys(visit: Visit) -> Answer:
    return render(visit, "keys.html", **await visit.get("/api/keys"), key=None, problem=None, entered={})


async def add_key(visit: Visit) -> Answer:
    """Make a key, and show it this once."""
    texts = {name: str(visit.form.get(name, "")).strip() for name in ("name", "groups", "days")}
    groups = [group.strip() for group in texts["groups"].split(",") if group.strip()]
    key, problem, expires_at = None, None, None
    try:
        if texts["days"]:
            expires_at = (datetime.now(UTC) + timedelta(days=int(texts["days"]))).isoformat()
        key = await visit.post("/api/keys", {"name": texts["name"], "groups": groups, "expires_at": expires_at})
    except Problem as refusal:
        if refusal.status != 422:
            raise
        problem = refusal.detail
    except (ValueError, OverflowError):
        problem = "The days until it expires are a whole number."
    keys = await visit.get("/api/keys")
    status = 200 if problem is None else 422
    return render(visit, "keys.html", status, **keys, key=key, problem=problem, entered=texts if problem else {})


async def revoke_key(visit: Visit, id: str) -> Answer:  # noqa: A002
    await visit.delete(f"/api/keys/{id}")
    return redirect(visit, "/keys")


PAGES = (
    Page("/connections", show_connections, api="/api/connections"),
    Page("/connections", connect, method="POST"),
    Page("/connections/*/*/*/disconnect", disconnect, method="POST"),
    Page("/sources", show_sources, api="/api/sources"),
    Page("/sources/changes/*", show_change, api="/api/sources/changes/{}"),
    Page("/sources/changes/*/accept", accept, method="POST"),
    Page("/keys", show_keys, api="/api/keys"),
    Page("/keys", add_key, method="POST"),
    Page("/keys/*/revoke", revoke_key, method="POST"),
)
