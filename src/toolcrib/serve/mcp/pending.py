"""Calls that wait, for an MCP client: its person is asked by elicitation where it can, and told what to do where not.

An authorization is a URL; an approval and an input are forms. In the older era they are requests to the client. In that
of 2026-07-28 the call ends with them, and the client makes it again with the answers and a `requestState`, in which is
what was asked: sealed, for this principal and this request, for a while. A client that shows an old one is asked again,
since an answer counts once.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from ...core import Answer, AnswerError, Approve, Caller, Deny, Input, Pending, Result
from ...machinery import Asker, current_client, escaped, named_approvers
from ...schema.json_text import parse_exact, write_json
from ...workbench import Crib
from .client import form_schema
from .request import ClientRequest, current_request

_GRANT_S = 50.0
"""How long a call waits for the person who has opened the page: less than most clients wait for a call."""
_MAX_ROUNDS = 20
_MAX_STATE_CHARS = 64 * 1024
_APPROVE = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Approve", "description": "Let this call run, once."},
        "reason": {"type": "string", "title": "Reason", "description": "Why not, for the model."},
    },
    "required": ["approve"],
}
_RESPONSES: TypeAdapter[dict[str, wire.InputResponse]] = TypeAdapter(dict[str, wire.InputResponse])

_log = logging.getLogger("toolcrib")


@dataclass(slots=True)
class State:
    """What a `requestState` has: whose it is, the ids of what is *pending* by its name, and *answers* so far."""

    who: tuple[str, str, str]
    pending: dict[str, str] = field(default_factory=dict[str, str])
    answers: dict[str, wire.InputResponse] = field(default_factory=dict[str, wire.InputResponse])
    task: str = ""
    """The id of the task that the call has become."""

    def write(self) -> str:
        answers = json.loads(_RESPONSES.dump_json(self.answers, by_alias=True, exclude_none=True))
        text = json.dumps({"who": self.who, "pending": self.pending, "answers": answers, "task": self.task})
        if len(text) > _MAX_STATE_CHARS:
            raise MCPError(wire.INVALID_PARAMS, "The answers are too large to be carried from one round to the next.")
        return text

    @classmethod
    def read(cls, text: str | None, caller: Caller) -> "State":
        """Return the state in *text*, which is genuine. Raises MCPError where it is another caller's."""
        identity = (caller.principal, caller.profile, caller.thread)
        if text is None:
            return cls(identity)
        try:
            data = json.loads(text)
            if tuple(data["who"]) != identity:
                raise ValueError
            answers = _RESPONSES.validate_python(data["answers"])
            return cls(identity, data["pending"], answers, data.get("task", ""))
        except (ValueError, KeyError, TypeError, ValidationError):
            # The same words as the SDK's for one that is not genuine: they tell nothing.
            data = {"reason": "invalid_request_state"}
            raise MCPError(wire.INVALID_PARAMS, "Invalid or expired requestState", data) from None


def asking(crib: Crib) -> Asker:
    """Return the `ask` of the workbenches of a server: of the person at the MCP client, elsewhere that of *crib*."""
    asker: Asker | None = crib.options["ask"]

    async def ask(pending: Pending) -> Answer | None:
        if current_client.get() is None:
            return None if asker is None else await asker(pending)
        request = current_request()
        return None if request is None else await _ask_person(pending, request)

    return ask


async def _ask_person(pending: Pending, request: ClientRequest) -> Answer | None:
    """Ask at once the person at the client that is answered now."""
    question = question_of(pending, request)
    if question is None or pending.kind == "authorization":
        return None
    if request.is_modern:
        # What was asked before is answered in the store. This is for a tool's own questions, answered in advance.
        response = request.responses.get(_name(pending)) if pending.kind == "input" else None
    else:
        response = await _ask_now(question, request, pending)
        request.was_dismissed = request.was_dismissed or response is None or response.action == "cancel"
    return answer_of(pending, response)


def question_of(pending: Pending, request: ClientRequest) -> wire.ElicitRequest | None:
    """Return what the client shows for *pending*.

    None where it can show nothing, or another person has to answer.
    """
    if not request.can_be_asked or pending.others_only:
        return None
    if pending.kind == "authorization" or pending.url is not None:
        return _url_question(pending, request)
    if not request.shows_forms or pending.kind == "task":
        return None
    if pending.kind == "approval":
        return _approval_question(pending, request)
    form = form_schema(pending.schema or {})
    return None if form is None else _form_question(pending.message, form[0])


def _url_question(pending: Pending, request: ClientRequest) -> wire.ElicitRequest | None:
    if pending.url is None or not request.opens_urls:
        return None
    # There is no id in the newer era.
    own = None if request.is_modern else pending.id or pending.digest
    params = wire.ElicitRequestURLParams(message=pending.message, url=pending.url, elicitation_id=own)
    return wire.ElicitRequest(params=params)


def _approval_question(pending: Pending, request: ClientRequest) -> wire.ElicitRequest:
    message = pending.message
    if pending.arguments != "{}" or pending.tool not in message:
        message = f"{message}\n{escaped(pending.tool, invisible=True)}: {pending.arguments}"
    return _form_question(message, _approval_form(pending, request))


def _form_question(message: str, form: dict[str, Any]) -> wire.ElicitRequest:
    return wire.ElicitRequest(params=wire.ElicitRequestFormParams(message=message, requested_schema=form))


def _approval_form(pending: Pending, request: ClientRequest) -> dict[str, Any]:
    """Return the form of an approval: with the arguments to change, where each is a field that a form has."""
    tool, arguments = request.bench.registry.find(pending.tool), json.loads(pending.arguments)
    form = None if tool is None else form_schema(tool.spec.input_schema)
    fields: dict[str, Any] = {} if form is None or form[1] else form[0]["properties"]
    own: dict[str, Any] = _APPROVE["properties"]  # type: ignore[assignment]
    if not own.keys().isdisjoint(fields) or not arguments.keys() <= fields.keys():
        return _APPROVE
    defaults = {
        name: {**field, "default": arguments[name]} for name, field in fields.items() if arguments.get(name) is not None
    }
    return {**_APPROVE, "properties": {**own, **fields, **defaults}}


def _edited(pending: Pending, content: Mapping[str, Any]) -> str | None:
    """Return the arguments in an accepted form; None where they are as they were shown."""
    arguments = json.loads(pending.arguments)
    own: dict[str, Any] = _APPROVE["properties"]  # type: ignore[assignment]
    # What was left out may come as an empty text.
    fields = {
        name: value for name, value in content.items() if name not in own and (value != "" or arguments.get(name))
    }
    changed = {name: value for name, value in fields.items() if name not in arguments or value != arguments[name]}
    return write_json({**parse_exact(pending.arguments), **changed}) if changed else None


def answer_of(pending: Pending, response: object) -> Answer | None:
    """Return the answer in a client's *response*; None where there is none, as when a person dismisses the question."""
    match response:
        case wire.ElicitResult(action="decline"):
            return Deny(_reason(response.content))
        case wire.ElicitResult(action="accept", content=content) if pending.kind == "approval":
            return _approval(pending, content or {})
        case wire.ElicitResult(action="accept", content=content) if pending.kind == "input":
            form = form_schema(pending.schema or {})
            value: Any = content or {}
            return Input(value.get("value") if form is not None and form[1] else value)
        case _:
            return None


def _approval(pending: Pending, content: Mapping[str, Any]) -> Answer | None:
    match content.get("approve"):
        case True:
            return Approve(_edited(pending, content))
        case False:
            return Deny(_reason(content))
        case _:
            return None


def instructions(pending: Pending, crib: Crib, task: str = "") -> str:
    """Return what a model reads of a call that waits, where the client cannot ask. It is for the person.

    A call that has become *task* begins another one when it is made again.
    """
    message = pending.message.strip()
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    way = "with `toolcrib pending`" if crib.database is not None else "through the operator of this server"
    match pending.kind:
        case "authorization":
            place = f"open {pending.url}" if pending.url else "grant it"
            need, how = "the user's authorization", f"Ask the user to {place} and to say when that is done."
        case "task":
            task, need, how = pending.id, "", "Tell the user that it is still running."
        case kind:
            need = "approval" if kind == "approval" else "an answer"
            how = f"{_approver(pending)} gives it {way}, under the id {pending.id}. Tell the user that."
    if task:
        waits = f", and waits for {need}. {message}" if need else "."
        return (
            f"Tool '{pending.tool}' runs as a task, under the id {task}{waits} {how} Do not call it again: that would "
            f"begin another task. The user sees the result of this one with `toolcrib tasks show {task}`."
        )
    return (
        f"Tool '{pending.tool}' has not run: it waits for {need}. {message} {how} "
        "Do not call it again before the user says so; until then, the answer is the same."
    )


def _approver(pending: Pending) -> str:
    if pending.approvers is not None:
        return f"One of {named_approvers(pending.approvers)}"
    return "Someone other than the caller" if pending.others_only else "A person"


async def settled(
    request: ClientRequest, crib: Crib, call: Callable[[], Awaitable[Result[Any]]], state: State
) -> Result[Any] | wire.InputRequiredResult:
    """Return the result of *call*, made again when the client has answered what it waits for; or what it is asked
    first.
    """
    if request.is_modern:
        await _take_answers(request, crib, state)
    result = await call()
    for _ in range(_MAX_ROUNDS):
        pending = result.pending
        if request.questions:
            return _input_required(request, state)
        if pending is None or request.was_dismissed:
            break
        question = question_of(pending, request)
        if question is None or not await may_answer(request, crib, pending):
            break
        if request.is_modern:
            request.questions[_name(pending)] = question
            return _input_required(request, state, pending)
        response = await _ask_now(question, request, pending)
        if not await _accept(request, crib, pending, response):
            break
        result = await call()
    return result


def _input_required(request: ClientRequest, state: State, pending: Pending | None = None) -> wire.InputRequiredResult:
    pending_ids = {} if pending is None else {_name(pending): pending.id}
    answers = {name: value for name, value in request.responses.items() if name not in state.pending}
    following = State(state.who, pending_ids, answers, state.task)
    return wire.InputRequiredResult(input_requests=request.questions, request_state=following.write())


async def _take_answers(request: ClientRequest, crib: Crib, state: State) -> None:
    """Store the answers to what was asked in the round before."""
    for name, pending_id in state.pending.items():
        row = await crib.pending.store.get(pending_id)
        response = request.responses.get(name)
        if row is not None and isinstance(response, wire.ElicitResult):
            await _accept(request, crib, row.pending, response)


async def _accept(request: ClientRequest, crib: Crib, pending: Pending, response: wire.ElicitResult | None) -> bool:
    """Take *response* as the answer to *pending*. Returns whether the call is worth making again."""
    if response is None or response.action == "cancel":
        request.was_dismissed = True
        return False
    if pending.kind == "authorization":
        if response.action == "decline":
            request.was_dismissed = True
            return False
        return await crib.wait_for(pending, timeout_s=_GRANT_S)
    answer = answer_of(pending, response)
    if answer is None:
        return False
    try:
        await crib.answer(pending.id, answer, by=request.bench.caller)
    except AnswerError as error:
        if error.reason != "replayed":
            _log.info("The answer of a client does not count: %s", error)
        return False
    return True


async def may_answer(request: ClientRequest, crib: Crib, pending: Pending) -> bool:
    """Return whether the caller of *request* may answer *pending*, or grants it elsewhere."""
    return pending.kind == "authorization" or await crib.pending.allows(pending, request.bench.caller)


async def _ask_now(question: wire.ElicitRequest, request: ClientRequest, pending: Pending) -> wire.ElicitResult | None:
    try:
        left_s = max(1.0, (pending.expires_at - request.bench.crib.pending.clock()).total_seconds())
        return await request.send(question, wire.ElicitResult, timeout_s=left_s)
    except (MCPError, ValidationError) as error:
        _log.info("A client could not be asked: %s", type(error).__name__)
        return None


def _name(pending: Pending) -> str:
    return pending.key or pending.kind


def _reason(content: Mapping[str, Any] | None) -> str:
    reason = (content or {}).get("reason")
    return reason if isinstance(reason, str) else ""
