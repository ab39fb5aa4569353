"""What people look after, over HTTP: their logins at providers, the sources of a server, and keys of clients."""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...core import LoadError, SetupError, ToolAuth, ToolcribError, ToolError
from ...machinery import redacted_data
from ...tools.lock import DefinitionChange, NotAccepted
from ...workbench import Crib, Right, Workbench
from ...workbench.lifespan import name_of
from ..access.authentication import Authenticator
from ..access.callers import Callers
from ..problems import Refused
from .calls import bench_for, json_answer, json_object
from .tasks import invalid, page_of

if TYPE_CHECKING:
    from ...auth import CredentialBroker, Grant, Owner
    from ..access.keys import AccessKeys

_log = logging.getLogger("toolcrib.serve")


def admin_routes(callers: Callers) -> Sequence[BaseRoute]:
    """Return `/api/connections`, `/api/sources` and `/api/keys`."""
    api = _Admin(callers)
    return [
        Route("/api/connections", api.connections, methods=["GET", "POST"]),
        Route("/api/connections/{provider}/{handler}/{profile}", api.disconnect, methods=["DELETE"]),
        Route("/api/sources", api.sources),
        Route("/api/sources/changes", api.changes),
        Route("/api/sources/changes/{digest}", api.change),
        Route("/api/sources/changes/{digest}/accept", api.accept, methods=["POST"]),
        Route("/api/limits", api.limits),
        Route("/api/workers", api.workers),
        Route("/api/keys", api.keys, methods=["GET", "POST"]),
        Route("/api/keys/{id}", api.revoke_key, methods=["DELETE"]),
    ]


class _Admin:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    # Logins at providers

    async def connections(self, request: Request) -> Response:
        """Return the grants of the caller, without secrets, and the providers that they can log in to."""
        bench = await bench_for(self._callers, request.scope)
        if request.method == "POST":
            return await self._connect(bench, request)
        broker = _broker(bench)
        owned = [] if broker is None else await broker.vault.owned_by(bench.caller.principal)
        providers = [] if broker is None else [
            {"name": name, "title": provider.title}
            for name, provider in sorted(broker.providers.items())
            if not broker.missing(name)
        ]  # fmt: skip
        grants = [_grant_data(owner, grant) for owner, grant in owned if owner.handler != "secret"]
        return json_answer({"connections": grants, "providers": providers})

    async def _connect(self, bench: Workbench, request: Request) -> Response:
        """Begin a login: what it waits for is answered in a browser, at the URL of the pending."""
        data = await json_object(request)
        if not isinstance(provider := data.get("provider"), str) or data.keys() - {"provider", "scopes"}:
            raise Refused(422, "Invalid connection", 'A login begins with {"provider": "github"}, and "scopes" or not.')
        scopes = data.get("scopes", [])
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
            raise Refused(422, "Invalid connection", "'scopes' is a list of texts.")
        try:
            if (broker := _broker(bench)) is None or broker.missing(provider):
                raise SetupError(f"The settings have no client for '{provider[:100]}': [auth.NAME].")
            (pending,) = await bench.crib.credentials.ask_for([ToolAuth(provider, None, scopes)], bench.caller)
        except (ToolError, ToolcribError, ValueError) as error:
            raise Refused(422, "Cannot connect", str(error)) from None
        return json_answer({"pending": pending.to_dict()})

    async def disconnect(self, request: Request) -> Response:
        bench = await bench_for(self._callers, request.scope)
        broker = _broker(bench)
        parts = tuple(request.path_params[name] for name in ("provider", "handler", "profile"))
        owned = [] if broker is None else await broker.vault.owned_by(bench.caller.principal)
        for owner, grant in owned:
            if broker is not None and (owner.provider, owner.handler, owner.profile) == parts:
                await broker.revoke(owner)
                return json_answer(_grant_data(owner, grant))
        raise Refused(404, "Unknown connection", "You have no such login.")

    # Sources

    async def sources(self, request: Request) -> Response:
        """Return the sources, whether they run, and for who may see them, why not."""
        bench = await bench_for(self._callers, request.scope)
        crib, may = bench.crib, self._callers.may(bench.caller, "sources")
        tools = [crib.registry[spec.name] for spec in bench.specs(deferred=True) if spec.name in crib.registry]
        counts = Counter(name_of(tool.source) for tool in tools if tool.source is not None)
        states = source_states(crib)
        names = sorted(counts.keys() - {state["name"] for state in states})
        states += [{"name": name, "state": "loaded", "reason": None} for name in names]
        rows = [{**of, "reason": of["reason"] if may else None, "tools": counts[of["name"] or ""]} for of in states]
        return self._redacted({"sources": rows})

    async def changes(self, request: Request) -> Response:
        """Return the tools that are left out because they are not as they were accepted."""
        rows = [_change_data(change) for change in await self._changes(request)]
        return self._redacted(_page(request, "changes", rows, "digest"))

    async def change(self, request: Request) -> Response:
        digest = request.path_params["digest"]
        change = next((change for change in await self._changes(request) if change.digest == digest), None)
        if change is None:
            raise Refused(404, "Unknown change", "There is no such change, or it has changed meanwhile.")
        return self._redacted({**_change_data(change), "diff": change.diff, "old": change.old, "new": change.new})

    async def accept(self, request: Request) -> Response:
        """Accept the change with exactly the digest that was shown."""
        bench = await self._require(request, "sources")
        try:
            change = await bench.crib.accept_change(request.path_params["digest"])
        except LoadError as error:
            raise Refused(409, "Cannot be accepted", str(error)) from None
        if change is None:
            detail = "The tool is not what was shown any more, or it was accepted meanwhile. Look at it again."
            raise Refused(409, "Changed meanwhile", detail, reason="changed")
        _log.info("%s accepted '%s' of %s: %s", bench.caller.principal, change.name, change.where, change.digest)
        return self._redacted(_change_data(change))

    async def _changes(self, request: Request) -> Sequence[DefinitionChange]:
        bench = await self._require(request, "sources")
        try:
            return await bench.crib.lock_changes()
        except LoadError as error:
            raise Refused(409, "The lock cannot be used", str(error)) from None

    def _redacted(self, data: Any) -> Response:
        return json_answer(redacted_data(data, self._callers.crib.redaction))

    # What calls and tasks take

    async def limits(self, request: Request) -> Response:
        """Return the budgets that count calls of the caller, and what is left of each."""
        bench = await bench_for(self._callers, request.scope)
        crib, specs = bench.crib, bench.specs(deferred=True)
        rows = await crib.limiter.budgets(specs, bench.caller, getattr(crib.store, "limits", None))
        return json_answer(_page(request, "limits", rows, "id"))

    async def workers(self, request: Request) -> Response:
        """Return the processes that run tasks, and what waits for one."""
        crib = (await self._require(request, "tasks")).crib
        after, limit = page_of(request)
        if crib.database is None:
            return json_answer({"workers": [], "next": None, "tasks": {}, "oldest_due_s": 0.0, "unclaimed": []})
        rows = await crib.database.ledger.processes(after or "", limit + 1)
        counts, due_s = await crib.database.ledger.counts()
        page = {
            "workers": [{"process": process, "tasks": number} for process, number in rows[:limit]],
            "next": rows[limit - 1][0] if len(rows) > limit else None,
        }
        return json_answer({**page, "tasks": counts, "oldest_due_s": due_s, "unclaimed": [*crib.unclaimed_tasks]})

    # Keys

    async def keys(self, request: Request) -> Response:
        keys = await self._keys(request)
        if request.method == "POST":
            return await self._add_key(keys, request)
        return json_answer({"keys": [key.to_dict() for key in await keys.all()]})

    async def _add_key(self, keys: "AccessKeys", request: Request) -> Response:
        """Make a key. Its text is in this answer, and nowhere else."""
        data = await json_object(request)
        groups, expires_at = data.get("groups", []), data.get("expires_at")
        if data.keys() - {"name", "groups", "expires_at"} or not isinstance(groups, list):
            raise Refused(422, "Invalid key", 'A key is {"name": "ann", "groups": [], "expires_at": null}.')
        try:
            moment = None if expires_at is None else datetime.fromisoformat(expires_at)
            if moment is not None and moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            text, key = await keys.add(data.get("name", ""), groups=groups, expires_at=moment)
        except (SetupError, ValueError, TypeError) as error:
            raise Refused(422, "Invalid key", str(error)) from None
        return json_answer({**key.to_dict(), "key": text})

    async def revoke_key(self, request: Request) -> Response:
        keys = await self._keys(request)
        if not await keys.revoke(request.path_params["id"]):
            raise Refused(404, "Unknown key", "There is no such key.")
        return json_answer({"id": request.path_params["id"]})

    async def _keys(self, request: Request) -> "AccessKeys":
        await self._require(request, "keys")
        identify = self._callers.identify
        if not isinstance(identify, Authenticator) or identify.keys is None:
            raise Refused(404, "No keys", "Clients do not enter this server with keys: 'keys = true' in [server].")
        return identify.keys

    async def _require(self, request: Request, right: Right) -> Workbench:
        bench = await bench_for(self._callers, request.scope)
        if not self._callers.may(bench.caller, right):
            detail = f"This is for the members of a [[role]] that may '{right}', as the settings have it."
            raise Refused(403, "Not for you", detail)
        return bench


def source_states(crib: Crib) -> list[dict[str, Any]]:
    """Return the sources that are not available, with the reason, and those that run."""
    running = [{"name": life.name, "state": "running", "reason": None} for life in crib.lifespan.lives]
    missing = [
        {"name": problem.place, "state": "unavailable", "reason": problem.reason}
        for problem in crib.problems
        if not isinstance(problem, NotAccepted)
    ]
    return [*missing, *running]


def _broker(bench: Workbench) -> "CredentialBroker | None":
    try:
        return bench.crib.credentials.broker
    except SetupError:
        return None


def _grant_data(owner: "Owner", grant: "Grant | None") -> dict[str, Any]:
    from ...auth.grant import grant_data

    return {**grant_data(owner, grant), "is_damaged": grant is None}


def _page(request: Request, name: str, rows: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """Return the page of *request*, of *rows* which differ by their *key*, as *name*. Raises Refused."""
    after, limit = page_of(request)
    start = next((number for number, row in enumerate(rows, 1) if row[key] == after), 0)
    if after is not None and not start:
        raise invalid("'after' is `next` of the page before.")
    page = rows[start : start + limit]
    return {name: page, "next": page[-1][key] if len(rows) > start + limit else None}


def _change_data(change: DefinitionChange) -> dict[str, Any]:
    return {"source": change.where, "tool": change.name, "kind": change.kind, "digest": change.digest}
