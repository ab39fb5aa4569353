"""The call log over HTTP, and figures for Prometheus.

A caller sees their own calls, and those of others only where the host allows it: another's call is as unknown
as one that never was.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..core import Caller, SetupError, StoreError
from ..machinery import log_failure
from ..record.calls import call_data
from ..workbench import Crib, Right
from .access.callers import AuthenticationError, Identify, caller_of, local_caller, log_unidentified
from .problems import Refused, problem

if TYPE_CHECKING:
    from ..record import DatabaseCalls

_MAX_COUNT = 500
_COUNT_INTERVAL_S = 5.0
"""How often tasks are counted at most."""
_PARAMETERS = frozenset({"tool", "principal", "status", "rule", "since", "until", "before", "limit"})
_DEFAULT_AGE = timedelta(days=1)
_DEFAULT_PARTS, _MAX_PARTS = 24, 200


def call_routes(
    crib: Crib, identify: Identify = local_caller, *, sees_all: Callable[[Caller], bool] = lambda _: False
) -> list[Route]:
    """Return `GET /api/calls`, `GET /api/calls/{id}` and `GET /api/stats`, of the call log of *crib*.

    A page has `calls`, the newest first, and `next`, the `before` of the next page, or null. Figures are of the calls
    from `since` on, and before `until`, counted in so many `parts`: by default of a day, by the hour. A caller for whom
    *sees_all* holds sees all calls, and may filter by `principal`. Raises SetupError where the crib has no call log.
    """
    from ..record import DatabaseCalls

    logs = [recorder for recorder in crib.recorders if isinstance(recorder, DatabaseCalls)]
    if not logs:
        raise SetupError("This crib has no call log. Give it a store: Crib(store=...), or [store] in the settings.")
    api = _Calls(logs[0], identify, sees_all)
    return [
        Route("/api/calls", api.list_calls),
        Route("/api/calls/{id}", api.show_call),
        Route("/api/stats", api.show_statistics),
    ]


def recorded_routes(
    crib: Crib, identify: Identify, may: Callable[[Caller, Right], bool] = lambda *_: False
) -> list[Route]:
    """Return the routes for what records the calls of *crib*: of a call log, and of Metrics.

    None where it has neither.
    """
    kinds = {type(recorder).__name__ for recorder in crib.recorders}
    calls = (
        call_routes(crib, identify, sees_all=lambda caller: may(caller, "calls:all"))
        if "DatabaseCalls" in kinds
        else []
    )
    return [*calls, metrics_route(crib)] if "Metrics" in kinds else calls


def metrics_route(crib: Crib, path: str = "/metrics") -> Route:
    """Return `GET /metrics`, of the Metrics among the recorders of *crib*. Raises SetupError where there is none."""
    from ..record import Metrics
    from ..record.metrics import CONTENT_TYPE

    exporters = [recorder for recorder in crib.recorders if isinstance(recorder, Metrics)]
    if not exporters:
        raise SetupError("This crib has no Metrics: Crib(recorder=[Metrics(), ...]), or metrics = true in [calls].")

    noted_at = -inf

    async def answer(_: Request) -> Response:
        nonlocal noted_at
        if crib.database is not None and monotonic() >= noted_at + _COUNT_INTERVAL_S:
            noted_at = monotonic()
            try:
                exporters[0].note_tasks(*await crib.database.ledger.counts())
            except StoreError as error:
                log_failure("The tasks of the store could not be counted", error, crib.redaction)
        return Response(exporters[0].text(), media_type=CONTENT_TYPE)

    return Route(path, answer)


class _Calls:
    def __init__(self, log: "DatabaseCalls", identify: Identify, sees_all: Callable[[Caller], bool]) -> None:
        self._log = log
        self._identify = identify
        self._sees_all = sees_all

    async def list_calls(self, request: Request) -> Response:
        async def page(principal: str | None, query: Mapping[str, str]) -> Any:
            limit = _count("limit", query.get("limit", "100"), _MAX_COUNT)
            if principal is not None and query.get("principal", principal) != principal:
                return {"calls": [], "next": None}
            rows = await self._log.newest(
                tool=query.get("tool"),
                principal=query.get("principal") if principal is None else principal,
                status=_status(query.get("status")),
                rule=query.get("rule"),
                since=_moment("since", query),
                until=_moment("until", query),
                before=query.get("before"),
                limit=limit + 1,
            )
            return {"calls": [*map(call_data, rows[:limit])], "next": rows[limit - 1].id if len(rows) > limit else None}

        return await self._answer(request, page, _PARAMETERS)

    async def show_call(self, request: Request) -> Response:
        async def call(principal: str | None, _: Mapping[str, str]) -> Any:
            record = await self._log.find(request.path_params["id"])
            if record is None or principal not in (None, record.caller.principal):
                raise Refused(404, "Unknown call", "There is no call with this id.")
            return call_data(record, with_content=True) | {"events": await self._log.events(record)}

        return await self._answer(request, call, None)

    async def show_statistics(self, request: Request) -> Response:
        async def figures(principal: str | None, query: Mapping[str, str]) -> Any:
            until = _moment("until", query) or datetime.now(UTC)
            since = _moment("since", query) or until - _DEFAULT_AGE
            if since >= until:
                raise ValueError("since is before until.")
            count = _count("parts", query.get("parts", str(_DEFAULT_PARTS)), _MAX_PARTS)
            return await self._log.statistics(since=since, until=until, count=count, principal=principal)

        return await self._answer(request, figures, frozenset({"since", "until", "parts"}))

    async def _answer(
        self,
        request: Request,
        look: Callable[[str | None, Mapping[str, str]], Awaitable[Any]],
        parameters: frozenset[str] | None,
    ) -> Response:
        """Return what *look* finds of whose calls may be seen; None for *parameters* takes any, and reads none."""
        query = request.query_params
        try:
            principal = await self._principal(request)
            if parameters is not None and (unknown := query.keys() - parameters):
                names = ", ".join(sorted(parameters))
                raise ValueError(f"There is no parameter '{min(unknown)[:60]}'. There are: {names}.")
            return JSONResponse(await look(principal, query))
        except ValueError as error:
            return problem(400, "Invalid parameter", str(error))
        except Refused as refused:
            return refused.response
        except StoreError:
            return problem(503, "Call log unavailable", "The call log cannot be read now. The detail is in the log.")

    async def _principal(self, request: Request) -> str | None:
        """Return whose calls may be seen; None for everybody's."""
        try:
            caller = await caller_of(request, self._identify)
        except AuthenticationError as refused:
            raise Refused(refused.status, "Not let in", str(refused)) from None
        except Exception as error:
            log_unidentified(error)
            raise Refused(401, "Unauthorized", "The caller of this request could not be identified.") from None
        return None if self._sees_all(caller) else caller.principal


def _count(name: str, text: str, most: int) -> int:
    if re.fullmatch("[0-9]{1,8}", text) and 1 <= int(text) <= most:
        return int(text)
    raise ValueError(f"{name} is a number from 1 to {most}.")


def _status(text: str | None) -> str | None:
    from ..record.database import STATUSES

    if text is not None and text not in STATUSES:
        raise ValueError(f"status is one of: {', '.join(STATUSES)}.")
    return text


def _moment(name: str, query: Mapping[str, str]) -> datetime | None:
    if (text := query.get(name)) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is a time in ISO 8601, such as 2026-01-31T12:00:00Z.") from None
