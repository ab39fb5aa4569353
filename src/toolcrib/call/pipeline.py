"""Every call, in the order in which it runs: resolve, check, approve, authorize, execute, normalize, record."""

import logging
from collections.abc import Awaitable
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import Any

from ..core import (
    Ask,
    Call,
    Content,
    Data,
    Deadline,
    Decision,
    Deny,
    Next,
    PendingKind,
    Policy,
    Redaction,
    Repair,
    Result,
    ResultHandles,
    Text,
    Tool,
    ToolError,
    content_of,
    current_deadline,
    has_parts,
    log_failure,
    moment,
    redacted_content,
)
from .accepted import CheckedArguments
from .approve import approve
from .authorize import NO_CREDENTIALS, authorize
from .events import EventStream
from .execute import execute
from .outcome import failed
from .pending import Questions
from .record import Seen, record_finished, record_started
from .retry import retry
from .runtime import Runtime

_log = logging.getLogger("toolcrib")

_ANSWERS = {do: Decision(do) for do in ("allow", "deny", "ask")}


async def run(
    call: Call,
    runtime: Runtime,
    events: EventStream | None = None,
    *,
    tool: Tool | None = None,
    seen: Seen | None = None,
) -> Result[Any]:
    """Return the result of *call*. Whatever happens in the tool, there is one; only the caller's own giving up raises.

    Middleware wraps all that follows once the tool is resolved, and goes on by coming back here with the *tool*. What
    runs is added to *seen*.
    """
    started_at, sent, is_outermost, seen = moment(), call, tool is None, Seen() if seen is None else seen
    repairs: tuple[Repair, ...] = ()
    limit: Token[Deadline | None] | None = None
    decision: Decision | None = None
    asked: list[Questions] = []
    failures: list[dict[str, Any]] = []
    try:
        tool = tool or runtime.ready.get(call.tool) or await runtime.resolve(call)
        limit = _set_deadline(tool, call, runtime) if is_outermost else None
        if is_outermost and (runtime.wraps_all or tool.lock is not None):
            result = _require(await _through(runtime, tool, call, events, seen))
        else:
            if runtime.handles is not None and (tool.handles is not None or runtime.handles.issued):
                call, repairs = await _with_values(runtime.handles, tool, call, runtime)
            arguments, found = tool.check(call.arguments, runtime.repair)
            repairs = repairs + found if repairs else found
            looks = runtime.policy is not None or runtime.records_content
            checked = _checked(arguments, tool, call, sent, seen) if looks else None
            if runtime.policy is not None and checked is not None:
                decision = await _decide(runtime.policy, checked, runtime)
                decision = await approve(decision, checked, runtime, asked) if decision.do != "allow" else decision
            credentials = NO_CREDENTIALS if tool.spec.auth is None else await authorize(tool, call, runtime)
            if runtime.start_recorders:
                await record_started(sent, tool, runtime, started_at, decision, seen)
            perform = execute if tool.retries is None and runtime.retries is None else partial(retry, failures)
            value = await perform(tool, arguments, call, runtime, events, credentials, asked)
            content = _normalize(tool, value, runtime.redaction)
            value = value.value if type(value) is Result else value  # it came with its own content
            result = Result(value, content, None, repairs, started_at, moment(), call.id, call.tool)
            if runtime.handles is not None and not _is_short(content, runtime.handles.limit_chars):
                await runtime.handles.bound(result, tool.spec.name)
    except BaseException as raised:
        result = await failed(raised, sent if is_outermost else None, call, runtime, repairs, started_at, asked, seen)
    finally:
        reset(current_deadline, limit)
    if decision is not None or failures or result.repairs:
        _add_metadata(result, decision, failures, runtime.redaction)
    if is_outermost and runtime.recorders:
        await record_finished(sent, runtime, started_at, result, seen)
    return result


async def check(call: Call, runtime: Runtime, seen: Seen | None = None) -> Result[dict[str, Any]]:
    """Do the same as `run` as far as the check: the value is the arguments by name, ready for the work.

    They are added to *seen*.
    """
    started_at, sent = moment(), call
    repairs: tuple[Repair, ...] = ()
    try:
        tool = runtime.ready.get(call.tool) or await runtime.resolve(call)
        if runtime.handles is not None:
            call, repairs = await _with_values(runtime.handles, tool, call, runtime)
        arguments, found = tool.check(call.arguments, runtime.repair)
    except BaseException as raised:
        return await failed(raised, None, sent, runtime, repairs, started_at, [], Seen())
    if seen is not None:
        _checked(arguments, tool, call, call, seen)
    if runtime.redaction is not None:
        repairs, found = _redacted_repairs(repairs, runtime.redaction), _redacted_repairs(found, runtime.redaction)
    return Result(arguments, (), None, repairs + found, started_at, moment(), call.id, call.tool)


async def needs_approval(call: Call, runtime: Runtime) -> PendingKind | None:
    """Return what `run` would ask a person for before the work, by the policy.

    None also for what would not get so far.
    """
    seen = Seen()
    result = await check(call, runtime, seen)
    if result.error is not None or runtime.policy is None:
        return None
    return "approval" if (await _decide(runtime.policy, seen[0], runtime)).do == "ask" else None


def _checked(arguments: dict[str, Any], tool: Tool, call: Call, sent: Call, seen: Seen) -> CheckedArguments:
    """Return *arguments*, for a policy or a recorder to look at; noted in *seen* as they were *sent*."""
    checked = CheckedArguments(arguments)
    checked.arguments, checked.tool, checked.call = arguments, tool, call
    if call is sent:  # and not what a handle stands for
        seen.append(checked)
    return checked


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


def _through(
    runtime: Runtime, tool: Tool, call: Call, events: EventStream | None, seen: Seen
) -> Awaitable[Result[Any]]:
    """Return the result of *call*, wrapped in the middleware of *runtime*, the first outermost."""
    go_on: Next = partial(run, call, runtime, events, tool=tool, seen=seen)
    for wrap in reversed(runtime.middleware):
        go_on = partial(wrap, tool, call, runtime.caller, go_on)
    return go_on()


def _require(result: Any) -> Result[Any]:
    """Return *result* of middleware. Raises TypeError where it is none."""
    if not isinstance(result, Result):
        raise TypeError(f"middleware returned {type(result).__name__}, not a Result")
    return result


async def _with_values(
    handles: ResultHandles, tool: Tool, call: Call, runtime: Runtime
) -> tuple[Call, tuple[Repair, ...]]:
    """Return *call* with the values of its handles: so everybody who looks at it sees what will run."""
    arguments, repairs = await handles.follow(tool, call.arguments, runtime.repair)
    return call if arguments is call.arguments else replace(call, arguments=arguments), repairs


async def _decide(policy: Policy, arguments: CheckedArguments, runtime: Runtime) -> Decision:
    """Return the decision of *policy*. Where it raises, or returns nothing or something else: deny."""
    spec = arguments.tool.spec
    try:
        answer: Any = policy(spec, arguments, runtime.caller)
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


def _redacted_repairs(repairs: tuple[Repair, ...], redaction: Redaction) -> tuple[Repair, ...]:
    return tuple(replace(repair, path=_redacted_path(repair.path, redaction)) for repair in repairs)


def _redacted_path(path: str, redaction: Redaction) -> str:
    """Return the JSON pointer *path* with the secrets redacted in its names, which have `/` and `~` escaped in it."""
    names = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
    return "/".join(redaction.redact(name).replace("~", "~0").replace("/", "~1") for name in names)


def _add_metadata(
    result: Result[Any], decision: Decision | None, failures: list[dict[str, Any]], redaction: Redaction | None
) -> None:
    """Note what the policy decided, which attempts failed, and where was repaired, secrets redacted."""
    if result.repairs and redaction is not None:
        result.repairs = _redacted_repairs(result.repairs, redaction)
    if decision is not None:
        is_plain = decision.rule is None and decision.by is None and result.error is None
        result.metadata["decision"] = {"do": decision.do} if is_plain else _decision_data(decision, result.error)
    if failures:
        result.metadata["retries"] = failures


def _decision_data(decision: Decision, error: ToolError | None) -> dict[str, str]:
    """Return the decision as JSON data.

    `do`, and where there are, the `rule` and `by` whom it was approved or denied.
    """
    data: dict[str, str] = {"do": decision.do}
    if decision.rule is not None:
        data["rule"] = decision.rule
    # Without an approval nothing ran, so the error is that of whoever denied.
    by = decision.by or (error.details.get("by") if error is not None and decision.do == "ask" else None)
    if by is not None:
        data["by"] = by
    return data


def _is_short(content: tuple[Content, ...], limit_chars: int) -> bool:
    """Return whether *content* is clearly small enough to be shown whole."""
    if len(content) != 1:
        return False
    part = content[0]
    text = part.text if type(part) is Text else part.json if type(part) is Data else None
    return text is not None and len(text) <= limit_chars
