"""The HTTP API but for calls: what tools there are, what waits for an answer, what large results hold.

Everything is for the caller of the request: tools are those that they see, results are their own.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ... import formats
from ...call import MASKS, settle
from ...core import AnswerError, Call, Pending, ToolError, ToolSpec
from ...machinery import LONG_CHARS, LedgerEntry, in_thread, is_handle
from ...record.calls import call_data
from ...workbench import Rules, Workbench
from ...workbench.lifespan import name_of
from ...workbench.results import ResultContent, read_part
from ..access.callers import Callers
from ..problems import Refused
from ..wire import part_bytes, to_bytes
from .admin import admin_routes
from .calls import CallEndpoint, answer_to, bench_for, json_answer, json_object, read_arguments
from .document import document
from .tasks import invalid, page_of, task_routes

R = TypeVar("R")

_MAX_COMPARED = 50
"""In so many of the newest calls of a tool the last is looked for that was approved."""
_OF_LAST = ("id", "started_at", "answered_by", "arguments")
_MAX_PART_CHARS = 256 * 1024
"""The most that a part of a large result has."""
_WHO_MAY_ANSWER = (
    ": `approvers` of a [[rule]], or `may_answer` of the program, say who may beside its caller. The operator answers "
    "with `toolcrib pending`."
)
_REASONS = {
    "unknown": (404, "Unknown pending call"),
    "foreign": (403, "Not yours to answer"),
    "invalid": (422, "Invalid answer"),
    "expired": (410, "Expired"),
    "replayed": (409, "Answered before"),
}


def api_routes(callers: Callers) -> Sequence[BaseRoute]:
    """Return the routes under `/api`.

    Of a tool's name, the path has each character in percent-encoding that needs it.
    """
    api = _API(callers)
    return [
        Route("/api/tools/{name}/call", CallEndpoint(callers), methods=["POST"]),
        Route("/api/tools/{name}/check", api.check, methods=["POST"]),
        Route("/api/tools/{name}/formats", api.formats),
        Route("/api/tools/{name}", api.tool),
        Route("/api/tools", api.tools),
        Route("/api/pending", api.pendings),
        Route("/api/pending/{id}", api.question),
        Route("/api/pending/{id}/answer", api.answer, methods=["POST"]),
        Route("/api/pending/{id}/preview", api.preview, methods=["POST"]),
        Route("/api/grants", api.grants),
        Route("/api/grants/{id}", api.revoke, methods=["DELETE"]),
        Route("/api/calls/lost", api.lost),
        Route("/api/calls/{id}/settle", api.settle, methods=["POST"]),
        *task_routes(callers),
        *admin_routes(callers),
        Route("/api/results/{handle}", api.result),
        Route("/api/openapi.json", api.openapi),
    ]


@contextmanager
def _refusals() -> Generator[None]:
    """Refuse the request where an answer is not accepted."""
    try:
        yield
    except AnswerError as error:
        status, title = _REASONS[error.reason]
        raise Refused(status, title, str(error), reason=error.reason) from None


class _API:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def tools(self, request: Request) -> Response:
        bench, specs = await self._specs(request)
        return json_answer({"tools": [_tool_data(spec, bench) for spec in specs]})

    async def tool(self, request: Request) -> Response:
        bench, spec = await self._spec(request)
        policy = bench.crib.options["policy"]
        rules = policy if isinstance(policy, Rules) else ()
        about = [rule for rule in rules if rule.is_about(spec) and rule.is_for(bench.caller)]
        decisions = [{"do": rule.do, "always": not rule.where and not rule.remembers} for rule in about]
        return json_answer({**_tool_data(spec, bench), **({"rules": decisions} if decisions else {})})

    async def formats(self, request: Request) -> Response:
        _, spec = await self._spec(request)
        return json_answer({"formats": [_definition(spec, name) for name in formats.PROVIDERS]})

    async def check(self, request: Request) -> Response:
        bench = await self._bench(request)
        call = Call(unquote(request.path_params["name"]), await read_arguments(request.scope, request.receive))
        result = await self._counted(bench, lambda: bench.dry_run(call))
        if result.error is not None:
            return answer_to(result)
        do = result.metadata.get("decision", {}).get("do", "allow")
        repairs = result.to_dict(with_content=False).get("repairs", [])
        return json_answer({"tool": result.tool, "decision": do, "repairs": repairs})

    async def pendings(self, request: Request) -> Response:
        bench = await self._bench(request)
        after, limit = page_of(request)
        # Without a method to tell, the policy is a function, which may name any approver.
        has_approver = getattr(bench.crib.options["policy"], "has_approver", lambda _: True)
        of_others = bench.crib.options["may_answer"] is not None or has_approver(bench.caller)
        try:
            visible, following = await bench.crib.pending.visible(bench.caller, after or "", limit, of_others=of_others)
        except ValueError:
            raise invalid("'after' is `next` of the page before.") from None
        return json_answer({"pending": [pending.to_dict() for pending in visible], "next": following})

    async def question(self, request: Request) -> Response:
        """Return one pending call, who has answered it, what its tool takes, and the last call that was approved."""
        bench = await self._bench(request)
        entry = await bench.crib.pending.store.get(request.path_params["id"])
        if entry is None or not await _may_see(bench, entry.pending):
            raise Refused(404, "Unknown pending call", "Nothing waits for you under this id.", reason="unknown")
        pending, state = entry.pending, entry.state
        if state == "open" and pending.expires_at <= bench.crib.pending.clock():
            state = "expired"
        is_approval = pending.kind == "approval"
        tool = bench.crib.pending.tool(pending.tool) if is_approval else None
        data: dict[str, Any] = {
            "pending": pending.to_dict(),
            "state": state,
            "answered_by": entry.by,
            "answer": entry.answer and entry.answer.to_dict()["kind"],
            "may_answer": state == "open" and await bench.crib.pending.allows(pending, bench.caller),
            "input_schema": None if tool is None else tool.spec.input_schema,
            "last_approved": await self._last_approved(bench, pending) if is_approval else None,
        }
        return json_answer(data)

    async def _last_approved(self, bench: Workbench, pending: Pending) -> dict[str, Any] | None:
        """Return the last call like *pending* that was approved, where the log has arguments and the caller may see it:
        they made it, or approved it, or see all calls.
        """
        if (log := _detailed_log(bench)) is None:
            return None
        caller = bench.caller
        sees_all = caller.principal == pending.principal or self._callers.may(caller, "calls:all")
        for call in await log.newest(
            tool=pending.tool, principal=pending.principal, status="success", limit=_MAX_COMPARED
        ):
            if call.answered_by is not None and (sees_all or call.answered_by == caller.principal):
                data = call_data(call, with_content=True)
                return {name: data[name] for name in _OF_LAST}
        return None

    async def answer(self, request: Request) -> Response:
        bench, answer = await self._answer(request)
        await self._require_allowed(bench, request.path_params["id"], answer.get("arguments"))
        with _refusals():
            return json_answer((await bench.answer(request.path_params["id"], answer)).to_dict())

    async def preview(self, request: Request) -> Response:
        bench, answer = await self._answer(request)
        with _refusals():
            grant = await bench.crib.preview(request.path_params["id"], answer, by=bench.caller)
        return json_answer({"grant": None if grant is None else grant.to_dict()})

    async def grants(self, request: Request) -> Response:
        bench = await self._bench(request)
        after, limit = page_of(request)
        number = 0 if after is None else _number(after, "after", 1)
        page, following = await bench.crib.grants.list(principal=bench.caller.principal, after=number, limit=limit)
        return json_answer({"grants": [grant.to_dict() for grant in page], "next": following and str(following)})

    async def revoke(self, request: Request) -> Response:
        bench = await self._bench(request)
        try:
            grant = await bench.crib.grants.revoke(request.path_params["id"], principal=bench.caller.principal)
        except AnswerError as error:
            raise Refused(404, "Unknown grant", str(error), reason="unknown") from None
        return json_answer(grant.to_dict())

    async def _answer(self, request: Request) -> tuple[Workbench, dict[str, Any]]:
        """Return the workbench and the answer of a request. Raises Refused where others are to answer."""
        bench = await self._bench(request)
        answer = await json_object(request, exact="arguments")
        waits = await bench.crib.pending.store.get(request.path_params["id"])
        if waits is not None and not await _may_see(bench, waits.pending):
            status, title = _REASONS["foreign"]
            raise Refused(status, title, f"This is for others to answer{_WHO_MAY_ANSWER}", reason="foreign")
        digest = answer.pop("digest", None)
        if waits is not None and digest not in (None, waits.pending.digest):
            detail = "What waits is not what was shown: it has another `digest`. Look at it again, and answer that."
            raise Refused(409, "Changed meanwhile", detail, reason="changed")
        return bench, answer

    async def _require_allowed(self, bench: Workbench, pending_id: str, arguments: str | None) -> None:
        """Raise Refused where a rule would deny *arguments* of the caller's own call. Of others nothing is known here
        but their name, and a mask is not what a rule would see: these are denied when the call is made again.
        """
        entry = None if arguments is None else await bench.crib.pending.store.get(pending_id)
        if entry is None or entry.state != "open" or any(mask in entry.pending.arguments for mask in MASKS):
            return
        pending, caller = entry.pending, bench.caller
        if pending.principal == caller.principal:
            async with bench.crib.workbench(replace(caller, thread=pending.thread)) as own:
                result = await own.dry_run(Call(pending.tool, arguments))
            if (reason := result.metadata.get("decision", {}).get("message")) is not None:
                raise Refused(422, "Denied", reason, reason="invalid")

    async def lost(self, request: Request) -> Response:
        bench = await self._bench(request)
        store = bench.crib.database
        entries = [] if store is None else await store.ledger.lost()
        return json_answer({"lost": [entry.to_dict() for entry in entries if await _may_see(bench, _to_settle(entry))]})

    async def settle(self, request: Request) -> Response:
        bench = await self._bench(request)
        data = await json_object(request)
        if data.keys() != {"done"} or not isinstance(data["done"], bool):
            raise Refused(422, "Invalid answer", 'Whether it took effect is a JSON object: {"done": true}.')
        store, by = bench.crib.database, bench.caller.principal
        entry = None if store is None else await store.ledger.find_id(request.path_params["id"])
        if store is None or entry is None:
            raise Refused(404, "Unknown call", "There is no call with a key under this id.", reason="unknown")
        pending = _to_settle(entry)
        if not await _may_see(bench, pending) or not await bench.crib.pending.allows(pending, bench.caller):
            detail = f"This is for others to settle{_WHO_MAY_ANSWER}"
            raise Refused(403, "Not yours to settle", detail, reason="foreign")
        recorders = bench.crib.recorders
        if not await settle(store.ledger, entry, is_done=data["done"], by=by, recorders=recorders):
            raise Refused(409, "Not lost", "This call is not lost, or not any more. Make it again.", reason="replayed")
        return json_answer(entry.to_dict())

    async def result(self, request: Request) -> Response:
        """Return the whole of a result, or where the query asks for it, a part."""
        bench = await self._bench(request)
        handle = request.path_params["handle"]
        read = _part(request)
        try:
            if not is_handle(handle):
                raise ToolError(
                    "This is not the handle of a result. A large result has one in its 'metadata'.", "unavailable"
                )
            content = await bench.stored_result(handle)
        except ToolError as error:
            raise Refused(404, "Unknown result", error.message, code=error.code) from None
        size = sum(len(part.text) for part in content)

        def written() -> bytes:
            if read is None:
                return b'{"handle":%b,"content":[%b]}' % (to_bytes(handle), b",".join(map(part_bytes, content)))
            part = read(ResultContent(content, None))
            data = {"handle": handle, "unit": part.unit, "start": part.start, "end": part.end, "total": part.total}
            return to_bytes({**data, "text": part.text, **({} if part.rest is None else {"rest": part.rest})})

        try:
            body = await in_thread(written) if size > LONG_CHARS else written()
        except ToolError as error:
            raise Refused(422, "Invalid part", error.message, code=error.code) from None
        return Response(body, media_type="application/json")

    async def openapi(self, request: Request) -> Response:
        return json_answer(document(request.scope.get("root_path", "")))

    async def _spec(self, request: Request) -> tuple[Workbench, ToolSpec]:
        name = unquote(request.path_params["name"])
        bench, specs = await self._specs(request)
        match = next((spec for spec in specs if spec.name == name), None)
        if match is None:
            raise Refused(404, "Unknown tool", f"There is no tool '{name[:100]}'.", code="unknown_tool")
        return bench, match

    async def _specs(self, request: Request) -> tuple[Workbench, Sequence[ToolSpec]]:
        """Return what the caller sees, as it counts in the limits. Raises Refused."""
        bench = await self._bench(request)

        async def specs() -> Sequence[ToolSpec]:
            return bench.specs(deferred=True)

        return bench, await self._counted(bench, specs)

    async def _counted(self, bench: Workbench, work: Callable[[], Awaitable[R]]) -> R:
        """Return the value of *work*, which counts in the limits as a list of tools. Raises Refused."""
        try:
            return await bench.count("tools/list", work)
        except ToolError as error:
            raise Refused(429, "Too many calls", error.message, code=error.code, **error.details) from None

    async def _bench(self, request: Request) -> Workbench:
        return await bench_for(self._callers, request.scope)


def _tool_data(spec: ToolSpec, bench: Workbench) -> dict[str, Any]:
    """Return *spec* as JSON data, with the name of its source if it is of one."""
    source = bench.registry[spec.name].source if spec.name in bench.registry else None
    return {**spec.to_dict(), **({} if source is None else {"source": name_of(source)})}


def _definition(spec: ToolSpec, name: str) -> dict[str, Any]:
    """Return what the models of a provider get of a tool, what is lost in it, and its tokens, about."""
    form = getattr(formats, name)
    (definition,) = form.tools([spec])
    losses = [loss.to_dict() for loss in form.losses([spec]).get(spec.name, ())]
    tokens = len(to_bytes(definition).decode()) // formats.CHARS_PER_TOKEN
    return {"format": name, "definition": definition, "losses": losses, "tokens": tokens}


async def _may_see(bench: Workbench, pending: Pending) -> bool:
    return await bench.crib.pending.may_see(pending, bench.caller)


def _detailed_log(bench: Workbench) -> Any:
    """Return the call log; None where there is none with arguments."""
    log: Any = next((log for log in bench.crib.recorders if hasattr(log, "newest")), None)
    return log if log is not None and log.with_content else None


def _to_settle(entry: LedgerEntry) -> Pending:
    """Return what is asked of a lost call: who may approve it may settle it.

    What another person has approved is not for its caller to settle.
    """
    others_only = entry.approved_by not in (None, entry.principal)
    message = f"Whether this call of '{entry.tool}' took effect is unknown."
    owner, at = (entry.principal, entry.thread), datetime.max.replace(tzinfo=UTC)
    who: dict[str, Any] = {"others_only": others_only, "approvers": entry.approvers}
    return Pending(entry.id, "approval", message, "", entry.tool, *owner, at, entry.arguments, **who)


def _part(request: Request) -> Any:
    """Return what cuts the part of a result that the query asks for; None where it asks for all. Raises Refused."""
    query = request.query_params
    if unknown := [name for name in query if name not in ("pointer", "offset", "limit")]:
        raise Refused(422, "Invalid query", f"There is no parameter '{unknown[0][:40]}': pointer, offset, limit.")
    if not query:
        return None
    offset, limit = _number(query.get("offset", "0"), "offset", 0), None
    with suppress(KeyError):
        limit = _number(query["limit"], "limit", 1)
    return partial(read_part, pointer=query.get("pointer", ""), offset=offset, limit=limit, room=_MAX_PART_CHARS)


def _number(text: str, name: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16 and int(text) >= least):
        raise Refused(422, "Invalid query", f"'{name}' is a whole number from {least} on.")
    return int(text)
