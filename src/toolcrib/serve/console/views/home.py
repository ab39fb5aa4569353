"""`/`: what waits for this person, and what happened last."""

from ..visit import Answer, Page, Problem, Visit, render


async def show(visit: Visit) -> Answer:
    pendings = (await visit.get("/api/pending", limit=5))["pending"]
    calls = await _calls(visit)
    return render(visit, "home.html", pendings=pendings, calls=calls)


async def _calls(visit: Visit) -> list[object]:
    try:
        return list((await visit.get("/api/calls", limit=10))["calls"])
    except Problem as problem:  # a server that records no calls
        if problem.status != 404:
            raise
        return []


PAGES = (Page("/", show),)
