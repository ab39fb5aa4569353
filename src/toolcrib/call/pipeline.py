"""Every call, in the order in which it runs: resolve, check, approve, authorize, execute, normalize, record."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar, Token
from dataclasses import replace
from datetime import datetime
from functools import partial
from inspect import isawaitable
from types import MappingProxyType
from typing import Any

from ..core import (
    Ask,
    Call,
    Content,
    Credential,
    Data,
    Decision,
    Deny,
    Pending,
    PendingKind,
    Policy,
    Redaction,
    Repair,
    Result,
    Text,
    Tool,
    ToolAuth,
    ToolError,
    content_of,
    has_parts,
    moment,
)
from ..machinery import (
    Deadline,
    Next,
    StoredPending,
    Suspended,
    current_deadline,
    log_failure,
    redacted,
    redacted_content,
    to_tool_error,
)
from .arguments import CheckedArguments
from .events import EventStream
from .execute import Bounded, execute, retry
from .pending import denied, pending_message, pending_of
from .record import record_finished, record_started
from .runtime import Runtime, Trail

_log = logging.getLogger("toolcrib")

NO_CREDENTIALS: Mapping[str, Credential] = MappingProxyType({})
_ANSWERS = {do: Decision(do) for do in ("allow", "deny", "ask")}


async def run(call: Call, runtime: Runtime, events: EventStream | None = None) -> Result[Any]:
    """Return the result of *call*. Whatever happens in the tool, there is one; only the caller's own giving up raises.

    Middleware wraps all that follows once the tool is resolved.
    """
    started_at, trail = moment(), Trail()
    limit: Token[Deadline | None] | None = None
    try:
        tool = runtime.ready.get(call.tool) or await runtime.resolve(call)
        limit = _set_deadline(tool, call, runtime)
        if runtime.wraps_all or tool.lock is not None:
            result = await _through_middleware(tool, call, runtime, events, trail)
        else:
            result = await _steps(tool, call, runtime, events, started_at, trail, trail)
    except BaseException as raised:
        result = await _end(raised, call, call, runtime, started_at, trail)
    finally:
        if limit is not None:
            reset(current_deadline, limit)
    if trail.decision is not None or trail.failures or result.repairs:
        _add_metadata(result, trail, runtime.redaction)
    if runtime.recorders:
        await record_finished(call, runtime, started_at, result, trail)
    return result


async def _steps(
    tool: Tool,
    call: Call,
    runtime: Runtime,
    events: EventStream | None,
    started_at: datetime,
    trail: Trail,
    outer: Trail,
) -> Result[Any]:
    """Check, approve, authorize, execute and normalize *call*. Return its result, or raise how it failed.

    *outer* is the trail of the whole call, of which this may be one of several runs.
    """
    request = call
    if runtime.handles is not None and (tool.handles is not None or runtime.handles.issued):
        call = await _with_values(tool, call, runtime, trail)
    arguments, repairs = tool.check(call.arguments, runtime.repair)
    if repairs:
        trail.repairs += repairs
    if runtime.policy is not None or runtime.records_content:
        await _decide(CheckedArguments(tool, call, arguments), request, runtime, trail, outer)
    credentials = NO_CREDENTIALS if tool.spec.auth is None else await _authorize(tool, call, runtime)
    if runtime.start_recorders:
        await record_started(request, tool, runtime, started_at, trail, outer)
    work = execute if tool.retries is None and runtime.retries is None else retry
    value = await work(tool, arguments, call, runtime, events, credentials, trail)
    content = _normalize(tool, value, runtime.redaction)
    value = value.value if type(value) is Result else value  # it came with its own content
    result = Result(value, content, None, trail.repairs, started_at, moment(), call.id, call.tool)
    if runtime.handles is not None and not _is_short(content, runtime.handles.limit_chars):
        await runtime.handles.bound(result, tool.spec.name)
    return result


async def check(call: Call, runtime: Runtime) -> Result[dict[str, Any]]:
    """Do the same as `run` as far as the check: the value is the arguments by name, ready for the work."""
    return await _check_only(call, runtime, Trail())


async def needs_approval(call: Call, runtime: Runtime) -> PendingKind | None:
    """Return what `run` would ask a person for before the work, by the policy.

    None also for what would not get so far.
    """
    trail = Trail()
    result = await _check_only(call, runtime, trail)
    if result.error is not None or runtime.policy is None or trail.arguments is None:
        return None
    return "approval" if (await _ask_policy(runtime.policy, trail.arguments, runtime)).do == "ask" else None


async def _check_only(call: Call, runtime: Runtime, trail: Trail) -> Result[dict[str, Any]]:
    started_at, request = moment(), call
    try:
        tool = runtime.ready.get(call.tool) or await runtime.resolve(call)
        if runtime.handles is not None:
            call = await _with_values(tool, call, runtime, trail)
        arguments, repairs = tool.check(call.arguments, runtime.repair)
    except BaseException as raised:
        return await _end(raised, None, request, runtime, started_at, trail)
    trail.repairs += repairs
    trail.arguments = CheckedArguments(tool, call, arguments)
    if runtime.redaction is not None:
        trail.repairs = _redacted_repairs(trail.repairs, runtime.redaction)
    return Result(arguments, (), None, trail.repairs, started_at, moment(), call.id, call.tool)


# Resolve


def _set_deadline(tool: Tool, call: Call, runtime: Runtime) -> Token[Deadline | None] | None:
    """Begin the deadline of *call*, within that of the call that it is a part of; None where it has none."""
    outer, of_tool, of_runtime, of_call = current_deadline.get(), tool.spec.timeout_s, runtime.timeout_s, call.timeout_s
    limit_s = of_tool
    if of_runtime is not None and (limit_s is None or of_runtime < limit_s):
        limit_s = of_runtime
    if of_call is not None and (limit_s is None or of_call < limit_s):
        limit_s = of_call
    return None if limit_s is None and outer is None else current_deadline.set(Deadline(limit_s, outer))


def reset(variable: ContextVar[Any], token: Token[Any] | None) -> None:
    """Reset *variable*. An abandoned call is closed in a context that is not its own, where nothing is to be reset."""
    if token is None:
        return
    try:  # noqa: SIM105 - each call with a deadline comes here, and `suppress` takes as long as the rest
        variable.reset(token)
    except ValueError:
        pass


async def _through_middleware(
    tool: Tool, call: Call, runtime: Runtime, events: EventStream | None, trail: Trail
) -> Result[Any]:
    """Return the result of *call*, wrapped in the middleware of *runtime*, the first outermost."""
    go_on: Next = partial(_within_middleware, tool, call, runtime, events, trail)
    for wrap in reversed(runtime.middleware):
        go_on = partial(wrap, tool, call, runtime.caller, go_on)
    result: Any = await go_on()
    if not isinstance(result, Result):
        raise TypeError(f"middleware returned {type(result).__name__}, not a Result")
    return result


async def _within_middleware(
    tool: Tool, call: Call, runtime: Runtime, events: EventStream | None, outer: Trail
) -> Result[Any]:
    """Return the result of *call* for middleware, which may go on several times."""
    started_at, trail = moment(), Trail()
    try:
        result = await _steps(tool, call, runtime, events, started_at, trail, outer)
    except BaseException as raised:
        result = await _end(raised, None, call, runtime, started_at, trail)
    _add_metadata(result, trail, runtime.redaction)
    return result


# Check


async def _with_values(tool: Tool, call: Call, runtime: Runtime, trail: Trail) -> Call:
    """Return *call* with the values of its handles: so everybody who looks at it sees what will run."""
    assert runtime.handles is not None
    arguments, trail.repairs = await runtime.handles.follow(tool, call.arguments, runtime.repair)
    return call if arguments is call.arguments else replace(call, arguments=arguments)


# Approve


async def _decide(checked: CheckedArguments, sent: Call, runtime: Runtime, trail: Trail, outer: Trail) -> None:
    """Note what is to run, and let the policy, and where it asks a person, decide on it.

    Raises ToolError `denied`, and Suspended where a person has not answered yet.
    """
    if checked.call is sent:
        outer.arguments = checked
    if runtime.policy is not None:
        trail.decision = await _ask_policy(runtime.policy, checked, runtime)
        if trail.decision.do != "allow":
            trail.decision = await _approve(trail.decision, checked, runtime, trail)


async def _ask_policy(policy: Policy, checked: CheckedArguments, runtime: Runtime) -> Decision:
    """Return the decision of *policy*. Where it raises, or returns nothing or something else: deny."""
    spec = checked.tool.spec
    try:
        answer: Any = policy(spec, checked, runtime.caller)
        if type(answer) is not str and isawaitable(answer):
            answer = await answer
    except ToolError:
        raise
    except Exception as error:
        log_failure(f"The policy failed for '{spec.name}'", error, runtime.redaction)
        return Decision("deny", message="the policy failed. The detail is in the log.")
    match answer:
        case Decision():
            return answer
        case "allow" | "deny" | "ask":
            return _ANSWERS[answer]
        case Ask():
            return Decision("ask", message=answer.message, others_only=answer.others_only)
        case Deny():
            return Decision("deny", message=answer.reason)
        case _:
            pass
    _log.error('The policy returned %s for \'%s\', not "allow", "deny" or "ask"', type(answer).__name__, spec.name)
    return Decision("deny", message="the policy gave no decision. The detail is in the log.")


async def _approve(decision: Decision, checked: CheckedArguments, runtime: Runtime, trail: Trail) -> Decision:
    """Return *decision*, with who approved; *checked* become the arguments that were shown.

    The deadline of the call stands still while a person thinks. Raises as `_decide` does.
    """
    name, deadline = checked.tool.spec.name, current_deadline.get()
    if decision.do != "ask":
        reason = decision.message or "a policy denies it."
        raise ToolError(f"Tool '{name}' is not allowed to run with these arguments: {reason}", "denied")
    questions = trail.questions = runtime.questions(checked.tool, checked.call)
    questions.bind(checked)
    message = decision.message or f"May '{name}' run with these arguments?"
    answer: Any = questions.ask("approval", "", message, others_only=decision.others_only)
    if checked.call.cancellation is not None:
        answer = Bounded(answer, name, None, checked.call.cancellation)
    with nullcontext() if deadline is None else deadline.paused():
        entry: StoredPending = await answer
    if isinstance(entry.answer, Deny):
        trail.decision = replace(decision, by=entry.by)
        raise denied(name, entry.answer, entry.by)
    if questions.approved_arguments is not None:
        checked.become(questions.approved_arguments)
    return replace(decision, by=entry.by)


# Authorize


async def _authorize(tool: Tool, call: Call, runtime: Runtime) -> Mapping[str, Credential]:
    """Return the credentials that *tool* requires, by provider; their secrets are redacted for this caller from now on.

    Raises ToolError `unauthorized` where there are none, and Suspended where a person has to be asked.
    """
    requirements = tool.spec.requirements
    if runtime.broker is None:
        needs = ", ".join(f"'{need.provider if isinstance(need, ToolAuth) else need.name}'" for need in requirements)
        raise ToolError(
            f"Tool '{tool.spec.name}' needs credentials for {needs}, and no provider of credentials is "
            "configured here.",
            "unauthorized",
        )
    answer: Any = runtime.broker.authorize(requirements, runtime.caller, call)
    deadline = current_deadline.get()
    if deadline is not None or call.cancellation is not None:
        answer = Bounded(answer, tool.spec.name, deadline, call.cancellation)
    answer = await answer
    if isinstance(answer, Pending):
        # Without a digest nothing says what it is about, so it is not put beside others.
        store, now = runtime.pending.store, runtime.pending.clock()
        raise Suspended(await store.open(answer, now=now) if answer.digest else answer)
    for credential in answer:
        runtime.redact_also(credential.secrets)
    return {credential.provider: credential for credential in answer}


# Normalize


def _normalize(tool: Tool, value: Any, redaction: Redaction | None) -> tuple[Content, ...]:
    """Return the result *value* of a tool as content.

    Raises ToolError `invalid_result` for what is not as expected or has no JSON form, and the error of a failed Result.
    """
    expected = tool.spec.output_schema
    if expected is None or (type(value) in (list, tuple) and has_parts(value)):
        content = content_of(value, tool.encode)
    elif type(value) is str:
        if expected.get("type") != "string":
            tool.encode(value)  # raises where no text was expected
        content = (Text(value),)
    else:
        content = (Data(tool.encode(value)),)
    return content if redaction is None else tuple(_redacted(part, redaction) for part in content)


def _redacted(part: Content, redaction: Redaction) -> Content:
    text = part.json if type(part) is Data else part.text
    return part if redaction.redact(text) is text else redacted_content(part, redaction)


def _is_short(content: tuple[Content, ...], limit_chars: int) -> bool:
    """Return whether *content* is clearly small enough to be shown whole."""
    if len(content) != 1:
        return False
    part = content[0]
    text = part.text if type(part) is Text else part.json if type(part) is Data else None
    return text is not None and len(text) <= limit_chars


def _add_metadata(result: Result[Any], trail: Trail, redaction: Redaction | None) -> None:
    """Note what the policy decided, which attempts failed, and where was repaired, secrets redacted."""
    if result.repairs and redaction is not None:
        result.repairs = _redacted_repairs(result.repairs, redaction)
    if (decision := trail.decision) is not None:
        members = {"do": decision.do, "rule": decision.rule, "by": decision.by}
        result.metadata["decision"] = {name: value for name, value in members.items() if value is not None}
    if trail.failures:
        result.metadata["retries"] = list(trail.failures)


def _redacted_repairs(repairs: tuple[Repair, ...], redaction: Redaction) -> tuple[Repair, ...]:
    return tuple(replace(repair, path=_redacted_path(repair.path, redaction)) for repair in repairs)


def _redacted_path(path: str, redaction: Redaction) -> str:
    """Return the JSON pointer *path* with the secrets redacted in its names, which have `/` and `~` escaped in it."""
    names = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
    return "/".join(redaction.redact(name).replace("~", "~0").replace("/", "~1") for name in names)


# The one place where an exception becomes a result


async def _end(
    raised: BaseException, sent: Call | None, call: Call, runtime: Runtime, started_at: datetime, trail: Trail
) -> Result[Any]:
    """Return the result of a call that ended with *raised*. Raises it where it is the caller who gave up.

    *sent* is the call to be recorded then.
    """
    redaction = runtime.redaction
    if (pending := pending_of(raised)) is not None:
        pending = replace(
            pending, message=redacted(pending.message, redaction), url=pending.url and redacted(pending.url, redaction)
        )
        runtime.pending.remember_call(call.id, runtime.caller, pending.id)
        if trail.questions is not None:
            await _give_back(trail, call, redaction)
        message = redacted(pending_message(call.tool, pending), redaction)
        return Result(None, (Text(message),), None, trail.repairs, started_at, moment(), call.id, call.tool, pending)
    try:
        error = to_tool_error(raised, call.tool, show=runtime.show_errors, redaction=redaction)
    except asyncio.CancelledError:
        if sent is not None and runtime.recorders:
            error = ToolError(f"The caller of '{call.tool}' has given up.", "cancelled")
            await record_finished(
                sent, runtime, started_at, error_result(sent, error, started_at, trail.repairs), trail
            )
        raise
    if runtime.error_message is not None:
        error = _reworded(error, raised, call, runtime)
    if runtime.handles is not None:
        error = runtime.handles.shorten(error)
    if error.code == "unknown_tool":  # a name that the model made up
        call = replace(call, tool=redacted(call.tool, redaction))
    return error_result(call, error, started_at, trail.repairs)


def error_result(call: Call, error: ToolError, started_at: datetime, repairs: tuple[Repair, ...] = ()) -> Result[Any]:
    return Result(None, (Text(error.message),), error, repairs, started_at, moment(), call.id, call.tool)


async def _give_back(trail: Trail, call: Call, redaction: Redaction | None) -> None:
    """Store the answers that a call has taken which ends waiting, for when it is made again."""
    assert trail.questions is not None
    try:
        await trail.questions.give_back()
    except Exception as error:
        log_text = f"The approval of a call of '{call.tool}' could not be stored; it will be asked for again"
        log_failure(log_text, error, redaction)


def _reworded(error: ToolError, raised: BaseException, call: Call, runtime: Runtime) -> ToolError:
    assert runtime.error_message is not None
    try:
        message = runtime.error_message(error, raised, call)
        if not isinstance(message, str):
            raise TypeError(f"error_message returned {type(message).__name__}, not text")
    except Exception as failure:
        log_text = f"error_message failed for a call of '{call.tool}'; the message stays as it is"
        log_failure(log_text, failure, runtime.redaction)
        return error
    return ToolError(redacted(message, runtime.redaction), error.code, retry=error.retry, details=error.details)
