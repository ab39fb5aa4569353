"""Every call, in the order in which it runs: resolve, check, approve, authorize, execute, normalize, record."""

import asyncio
import decimal
import logging
import threading
from collections.abc import Awaitable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import replace
from datetime import datetime
from functools import partial
from inspect import isawaitable
from itertools import takewhile
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
    Grant,
    Pending,
    PendingKind,
    Policy,
    Redaction,
    Repair,
    Result,
    StoreError,
    Text,
    Tool,
    ToolAuth,
    ToolError,
    content_of,
    has_parts,
    moment,
)
from ..machinery import (
    LONG_CHARS,
    Deadline,
    Next,
    StoredPending,
    Suspended,
    current_deadline,
    in_thread,
    in_thread_if_long,
    is_long,
    log_failure,
    raw_id,
    redacted,
    redacted_content,
    redacted_json,
    to_tool_error,
)
from .arguments import CheckedArguments
from .events import EventStream
from .execute import ENDED, Bounded, cancelled, dog, execute, in_own_task, keep, leave_value, may_be_repeated, retry
from .grants import bound_rule
from .labels import add_labels, counted, recalled, remembered
from .once import Claim, Recalled
from .pending import MAX_TRIES, denied, pending_message, pending_of
from .record import record_finished, record_started
from .runtime import Runtime, Trail, current_trail
from .task import Submission, TaskRun

_log = logging.getLogger("toolcrib")

NO_CREDENTIALS: Mapping[str, Credential] = MappingProxyType({})
MAX_EDIT_CHARS = 2_000
"""How much a model is shown of arguments that a person has changed."""
_ANSWERS = {do: Decision(do) for do in ("allow", "deny", "ask")}
_UNCERTAIN = frozenset({"timeout", "cancelled", "failed", "lost"})
"""How work ends that may have had its effect."""


async def run(
    call: Call, runtime: Runtime, events: EventStream | None = None, task: TaskRun | None = None
) -> Result[Any]:
    """Return the result of *call*. Whatever happens in the tool, there is one; only the caller's own giving up raises.

    One bound is around all steps once the tool is resolved, which run in a context of their own. Recording the end has
    its own. Middleware wraps all steps.
    """
    started_at, trail, deadline, remembers = moment(), Trail(), None, False
    trail.task = task  # which this is a run of
    try:
        tool = runtime.ready.get(call.tool) or await resolved(call, runtime)
        context, limit_s, trail.labels = copy_context(), tool.spec.timeout_s, tool.spec.labels
        if not (current_deadline.get() is None and limit_s is call.timeout_s is runtime.timeout_s is None):
            deadline = _deadline(limit_s, call, runtime)
            context.run(current_deadline.set, deadline)
        if _DECIMALS in context:
            context.run(_copy_decimals)
        if runtime.wraps_all or tool.lock is not None:
            work = _through_middleware(tool, call, runtime, events, trail)
        else:
            work = _steps(tool, call, runtime, events, started_at, trail, trail)
        if call.cancellation is not None or events is not None:
            result = await in_own_task(Bounded(work, tool.spec.name, deadline, call.cancellation, trail, context))
        else:
            if deadline is not None:
                dog.watch(deadline, work, tool.spec.name)
            waiting = context.run(next, work.__await__(), ENDED)
            if waiting is ENDED:  # as most do
                result = trail.value
            else:
                result = await Bounded(work, tool.spec.name, deadline, None, trail, context).resumed(waiting)
    except BaseException as raised:
        try:
            result = await _end(raised, call, runtime, started_at, trail, trail)
        except BaseException as given_up:
            await _record_given_up(given_up, call, runtime, started_at, trail)
            raise
    finally:
        if deadline is not None:
            dog.watched.pop(deadline, None)
    if trail.labels or trail.decision is not None or trail.failures or result.repairs:
        remembers = _noted(result, trail, runtime)
    if runtime.ledger is not None and trail.claim is not None:
        result = await trail.claim.finish(result)
    if runtime.recorders:
        await record_finished(call, runtime, started_at, result, trail)
    return await remembered(result, call, runtime, trail) if remembers else result


async def _steps(
    tool: Tool,
    call: Call,
    runtime: Runtime,
    events: EventStream | None,
    started_at: datetime,
    trail: Trail,
    outer: Trail,
) -> Result[Any]:
    """Check, approve, authorize, execute and normalize *call*. Return its result.

    *outer* is the trail of the whole call, of which this may be one of several runs.
    """
    request = call
    try:
        try:
            if runtime.handles is not None and (tool.handles is not None or runtime.handles.issued):
                call = await _with_values(tool, call, runtime, trail, outer)
            raw = call.arguments  # below, `in_thread_if_long` without its coroutine: every call comes here
            if len(raw) > LONG_CHARS if type(raw) is str else is_long(raw):
                arguments, repairs = await in_thread(partial(tool.check, raw, runtime.repair))
            else:
                arguments, repairs = tool.check(raw, runtime.repair)
        except ToolError:
            await _require_visible(tool, runtime, trail)
            raise
        if repairs:
            trail.repairs += repairs
        has_claim, to_count = call.idempotency_key is not None or tool.is_task, None
        if has_claim or runtime.policy is not None or runtime.records_content:
            document = CheckedArguments(tool, call, arguments)
            if call is request:
                outer.arguments = document
            if runtime.policy is not None:
                decision = _ask_policy(runtime.policy, tool, document, runtime)
                trail.decision = decision if isinstance(decision, Decision) else await decision
            if has_claim:
                trail.lookup = await _recalled(document, runtime, trail, outer)
            if trail.decision is not None:
                if trail.decision.do != "allow":
                    await _settle(trail.decision, document, runtime, trail, outer)
                to_count = None if trail.decision.at_most is None else document
        credentials = NO_CREDENTIALS if tool.spec.auth is None else await _authorize(tool, call, runtime)
        if has_claim and trail.lookup is not None:
            await trail.lookup.make(trail.decision, partial(_verify, tool, call, runtime, credentials, trail, outer))
            outer.claim = trail.lookup
        if to_count is not None:
            await _count(to_count, runtime, trail, outer)
        if runtime.start_recorders:
            await record_started(request, tool, runtime, started_at, trail, outer)
        if outer.error is not None:  # a policy that swallows its cancellation must not let the work begin
            raise outer.error
        outer.begun = tool
        if tool.retries is not None or runtime.retries is not None:
            value = await retry(tool, arguments, call, runtime, events, credentials, trail, outer)
        elif tool.needs_context:
            value = await execute(tool, arguments, call, runtime, events, credentials, trail, outer)
        else:
            value = await tool.work(arguments, runtime)
        if outer.error is not None:
            raise outer.error
        if hasattr(value, "__next__"):
            value = await _listed(value)
        headers = None
        if type(value) is Result:
            if value.labels:
                outer.labels = outer.labels | value.labels
            if not value.content:  # else it came with its own content
                headers, value = value.metadata.get("headers"), value.unwrap()
        content, text = _normalize(tool, value)
        if (redaction := runtime.redaction) is not None:
            if text is None or len(text) > LONG_CHARS:
                texts = [part.text for part in content[:LONG_CHARS]]
                content, text = await in_thread_if_long(partial(_redacted, content, redaction), texts), None
            elif redaction.redact(text) is not text:
                content, text = _redacted(content, redaction), None
        if type(value) is Result:
            value = value.value
        result = Result(value, content, None, trail.repairs, started_at, moment(), raw_id(call), call.tool)
        if runtime.handles is not None and (text is None or len(text) > runtime.handles.limit_chars):
            await runtime.handles.bound(result, tool.spec.name, outer.labels)
        if headers:  # after the bound: they are shown beside a preview, too
            _add_headers(result, headers, runtime.redaction)
    except BaseException as raised:
        result = await _end(raised, request, runtime, started_at, trail, outer)
    if trail.questions is not None:
        outer.digest = trail.questions.digest
    outer.value = result
    return result


async def check(call: Call, runtime: Runtime) -> Result[dict[str, Any]]:
    """Do the same as `run` as far as the check: the value is the arguments by name, ready for the work."""
    return await _check_only(call, runtime, Trail())


async def dry_run(call: Call, runtime: Runtime) -> Result[dict[str, Any]]:
    """Do the same as `check`, and note in the metadata what the policy decides."""
    trail = Trail()
    result = await _check_only(call, runtime, trail, asks=True)
    if result.error is None and trail.decision is not None and trail.decision.do == "ask":
        assert trail.arguments is not None
        if (grant := await _granted(trail.decision, trail.arguments, runtime)) is not None:
            trail.decision = replace(trail.decision, do="allow", grant=grant.id)
    _add_metadata(result, trail, runtime.redaction)
    if trail.decision is not None and trail.decision.do == "deny" and trail.arguments is not None:
        result.metadata["decision"]["message"] = _denied_by(trail.decision, trail.arguments.tool).message
    return result


async def needs_approval(call: Call, runtime: Runtime) -> PendingKind | None:
    """Return what `run` would ask a person for before the work, by the policy.

    None also for what would not get so far, as where the policy does not answer in time.
    """
    trail = Trail()
    result = await _check_only(call, runtime, trail, asks=True)
    if result.error is not None or (decision := trail.decision) is None or decision.do != "ask":
        return None
    assert trail.arguments is not None
    return None if await _granted(decision, trail.arguments, runtime) else "approval"


async def _check_only(call: Call, runtime: Runtime, trail: Trail, *, asks: bool = False) -> Result[dict[str, Any]]:
    """Check *call*, and with *asks* ask the policy, within the bound of the call, or that of a pending one."""
    started_at = moment()
    try:
        tool = runtime.ready.get(call.tool) or await resolved(call, runtime)
        steps = _check_steps(tool, call, runtime, started_at, trail, asks=asks)
        if runtime.policy is None:
            return await steps
        limit = _deadline(tool.spec.timeout_s, call, runtime) or Deadline(runtime.pending.within.total_seconds())
        result: Result[Any] = await Bounded(steps, tool.spec.name, limit, None, trail, copy_context())
    except BaseException as raised:
        return await _end(raised, call, runtime, started_at, trail, trail)
    return result


async def _check_steps(
    tool: Tool, call: Call, runtime: Runtime, started_at: datetime, trail: Trail, *, asks: bool
) -> Result[dict[str, Any]]:
    await _require_visible(tool, runtime, trail)
    if runtime.handles is not None:
        call = await _with_values(tool, call, runtime, trail, trail)
    check_arguments = partial(tool.check, call.arguments, runtime.repair)
    arguments, repairs = await in_thread_if_long(check_arguments, call.arguments)
    trail.repairs += repairs
    trail.arguments = CheckedArguments(tool, call, arguments)
    if asks and runtime.policy is not None:
        decision = _ask_policy(runtime.policy, tool, trail.arguments, runtime)
        trail.decision = decision if isinstance(decision, Decision) else await decision
    if runtime.redaction is not None:
        trail.repairs = _redacted_repairs(trail.repairs, runtime.redaction)
    result = trail.value = Result(arguments, (), None, trail.repairs, started_at, moment(), call.id, call.tool)
    return result


# Resolve


async def resolved(call: Call, runtime: Runtime) -> Tool:
    """Return the tool of *call*. Starting what it needs comes before its deadline, and has as many seconds."""
    deadline = _deadline(None, call, runtime)
    if deadline is None and call.cancellation is None:
        return await runtime.resolve(call)
    trail = Trail()
    steps = leave_value(trail, partial(runtime.resolve, call))
    bound = Bounded(steps, call.tool, deadline, call.cancellation, trail, copy_context())
    tool: Tool = await (bound if call.cancellation is None else in_own_task(bound))
    return tool


def _deadline(limit_s: float | None, call: Call, runtime: Runtime) -> Deadline | None:
    """Begin the deadline of *call*, within that of the call that it is a part of; None where it has none.

    It is the least of *limit_s*, the tool's, and those of the call and the runtime.
    """
    outer, of_runtime, of_call = current_deadline.get(), runtime.timeout_s, call.timeout_s
    if of_runtime is not None and (limit_s is None or of_runtime < limit_s):
        limit_s = of_runtime
    if of_call is not None and (limit_s is None or of_call < limit_s):
        limit_s = of_call
    return None if limit_s is None and outer is None else Deadline(limit_s, outer)


def _variable_of_decimals() -> ContextVar[Any]:
    context, before = copy_context(), copy_context()
    context.run(decimal.setcontext, decimal.Context())
    return next(variable for variable in context if context[variable] is not before.get(variable))


_DECIMALS = _variable_of_decimals()


def _copy_decimals() -> None:
    """Have the precision of decimals, an object that contexts share, for this context alone."""
    decimal.setcontext(decimal.getcontext().copy())


async def _through_middleware(
    tool: Tool, call: Call, runtime: Runtime, events: EventStream | None, trail: Trail
) -> Result[Any]:
    """Return the result of *call*, wrapped in the middleware of *runtime*, the first outermost."""
    current_trail.set(trail)
    go_on: Next = partial(_within_middleware, tool, call, runtime, events, trail)
    for wrap in reversed(runtime.middleware):
        go_on = partial(wrap, tool, call, runtime.caller, go_on)
    result: Any = await go_on()
    if not isinstance(result, Result):
        raise TypeError(f"middleware returned {type(result).__name__}, not a Result")
    trail.value = result
    return result


async def _within_middleware(
    tool: Tool, call: Call, runtime: Runtime, events: EventStream | None, outer: Trail
) -> Result[Any]:
    """Return the result of *call* for middleware, which may go on several times."""
    trail = Trail()
    result = await _steps(tool, call, runtime, events, moment(), trail, outer)
    _add_metadata(result, trail, runtime.redaction)
    if outer.labels:
        add_labels(result, outer)
    return result


# Check


async def _with_values(tool: Tool, call: Call, runtime: Runtime, trail: Trail, outer: Trail) -> Call:
    """Return *call* with the values of its handles: so everybody who looks at it sees what will run.

    What is made of them has their labels, too.
    """
    assert runtime.handles is not None
    labels = set[str]()
    try:
        arguments, trail.repairs = await runtime.handles.follow(tool, call.arguments, runtime.repair, labels)
    finally:
        if labels:
            outer.labels = outer.labels | labels
    return call if arguments is call.arguments else replace(call, arguments=arguments)


# Approve


async def _settle(decision: Decision, checked: CheckedArguments, runtime: Runtime, trail: Trail, outer: Trail) -> None:
    """Let a person decide where the policy asks one, and none has decided yet.

    Raises ToolError `denied`, and Suspended where a person has not answered yet.
    """
    if decision.do == "deny":
        raise _denied_by(decision, checked.tool)
    if trail.lookup is not None and (approved := trail.lookup.approved) is not None:
        is_own = decision.others_only and approved.approved_by == runtime.caller.principal
        if not is_own and approved.approvers == decision.approvers:  # else the policy asks others by now
            edited = (approved.call or {}).get("edited") or ""  # of a task, before it ran
            trail.decision = replace(decision, by=approved.approved_by, grant=approved.grant, edited=edited)
            return
    trail.decision = await _approve(decision, checked, runtime, trail, outer)


async def _require_visible(tool: Tool, runtime: Runtime, trail: Trail) -> None:
    """Raise ToolError `denied` where the policy denies the caller *tool*, whatever the arguments.

    A caller from whom a tool is hidden does not learn what it takes.
    """
    hides = getattr(runtime.policy, "hides", None)
    if runtime.policy is not None and hides is not None and hides(tool.spec, runtime.caller):
        decision = _ask_policy(runtime.policy, tool, {}, runtime)
        trail.decision = decision if isinstance(decision, Decision) else await decision
        raise _denied_by(trail.decision, tool)


def _denied_by(decision: Decision, tool: Tool) -> ToolError:
    reason = decision.message or "a policy denies it."
    return ToolError(f"Tool '{tool.spec.name}' is not allowed to run with these arguments: {reason}", "denied")


def _ask_policy(
    policy: Policy, tool: Tool, arguments: Mapping[str, Any], runtime: Runtime
) -> Decision | Awaitable[Decision]:
    """Return the decision of *policy*, or what to await for it. Where it raises, or returns no decision: deny."""
    if runtime.remembers:
        return _ask_with_memory(policy, tool, arguments, runtime)
    try:
        answer: Any = policy(tool.spec, arguments, runtime.caller)
    except Exception as error:
        return _denied_for_failure(error, tool, runtime)
    if type(answer) is str and (decision := _ANSWERS.get(answer)) is not None:
        return decision
    return _await_policy(answer, tool, runtime) if isawaitable(answer) else _decision_of(answer, tool)


async def _ask_with_memory(policy: Any, tool: Tool, arguments: Mapping[str, Any], runtime: Runtime) -> Decision:
    """Return the decision of rules that ask what came before: read now, so that nothing earlier is missed."""
    facts = await recalled(policy.asked(tool.spec, runtime.caller), tool, runtime)
    try:
        return _decision_of(policy(tool.spec, arguments, runtime.caller, facts), tool)
    except Exception as error:
        return _denied_for_failure(error, tool, runtime)


async def _count(checked: CheckedArguments, runtime: Runtime, trail: Trail, outer: Trail) -> None:
    """Count the call for the rule that lets so many through. Where others came first, the next rules decide."""
    if outer.task is not None and outer.task.number > 1:  # an earlier run was counted
        return
    while (decision := trail.decision) is not None and decision.at_most is not None:
        if await counted(decision, checked.tool, runtime):
            return
        trail.decision = await _ask_with_memory(runtime.policy, checked.tool, checked, runtime)
        if trail.decision.do != "allow":
            await _settle(trail.decision, checked, runtime, trail, outer)


async def _await_policy(answer: Awaitable[Any], tool: Tool, runtime: Runtime) -> Decision:
    try:
        return _decision_of(await answer, tool)
    except Exception as error:
        return _denied_for_failure(error, tool, runtime)


def _decision_of(answer: Any, tool: Tool) -> Decision:
    match answer:
        case Decision():
            return answer
        case "allow" | "deny" | "ask":
            return _ANSWERS[answer]
        case Ask():
            return Decision("ask", None, answer.message, answer.others_only, approvers=answer.approvers)
        case Deny():
            return Decision("deny", message=answer.reason)
        case _:
            pass
    name = tool.spec.name
    _log.error('The policy returned %s for \'%s\', not "allow", "deny" or "ask"', type(answer).__name__, name)
    return Decision("deny", message="the policy gave no decision. The detail is in the log.")


def _denied_for_failure(error: Exception, tool: Tool, runtime: Runtime) -> Decision:
    """Return the denial for a policy that failed. Raises *error* where it is the policy's own ToolError."""
    if isinstance(error, ToolError):
        raise error
    log_failure(f"The policy failed for '{tool.spec.name}'", error, runtime.redaction)
    return Decision("deny", message="the policy failed. The detail is in the log.")


async def _approve(
    decision: Decision, checked: CheckedArguments, runtime: Runtime, trail: Trail, outer: Trail
) -> Decision:
    """Return *decision*, with who approved; *checked* become the arguments that were shown, or given in their place.

    Raises as `_settle` does.
    """
    name = checked.tool.spec.name
    questions = trail.questions = runtime.questions(checked.tool, checked.call)
    await in_thread_if_long(partial(questions.bind, checked), checked.call.arguments)
    for _ in range(MAX_TRIES + 1):
        message = decision.message or f"May '{name}' run with these arguments?"
        if decision.edited:
            message = f"{message}\n'{decision.by}' has changed the arguments."
        limits: Any = {"others_only": decision.others_only, "approvers": decision.approvers}
        limits["rule"] = bound_rule(decision.grantable, runtime.caller)
        limits["granted"] = partial(_granted, decision, questions.approved_arguments or checked, runtime)
        entry = await questions.ask("approval", "", message, **limits, is_pause=True)
        if isinstance(entry.answer, Deny):
            trail.decision = replace(decision, by=entry.by)
            raise denied(name, entry.answer, entry.by)
        if questions.approved_arguments is not None:
            checked.become(questions.approved_arguments)
        decision = replace(decision, by=entry.by, grant=entry.grant)
        if getattr(entry.answer, "arguments", None) is None:
            return decision
        before, decision = decision, await _edit(decision, entry, checked, runtime, trail, outer)
        if decision is before or decision.do != "ask" or await questions.is_answered_by(entry, decision):
            return decision
    raise ToolError(f"Tool '{name}' was not executed: its arguments were changed over and over.", "denied")


async def _granted(decision: Decision, checked: CheckedArguments, runtime: Runtime) -> Grant | None:
    return await runtime.pending.grants.find(decision, checked, runtime.caller)


async def _edit(
    decision: Decision,
    entry: StoredPending,
    checked: CheckedArguments,
    runtime: Runtime,
    trail: Trail,
    outer: Trail,
) -> Decision:
    """Return what the policy decides about the arguments of *entry*, which *checked* become: *decision*, where they are
    the same. Raises ToolError where it denies them.
    """
    questions, tool = trail.questions, checked.tool
    assert questions is not None
    assert runtime.policy is not None
    edited = await in_thread_if_long(partial(questions.edited, entry, checked), checked.call.arguments)
    if edited.forms.text == checked.forms.text:
        return decision
    outer.sent = outer.sent or redacted_json(checked.forms.text, runtime.redaction)
    checked.become(edited)
    outer.arguments = checked
    await in_thread_if_long(partial(questions.bind, checked), checked.call.arguments)
    ruling = _ask_policy(runtime.policy, tool, checked, runtime)
    ruling = ruling if isinstance(ruling, Decision) else await ruling
    trail.decision = replace(ruling, by=entry.by, edited=redacted_json(checked.forms.text, runtime.redaction))
    if ruling.do == "deny":
        raise _denied_by(trail.decision, tool)
    return trail.decision


# At most once


async def _recalled(document: CheckedArguments, runtime: Runtime, trail: Trail, outer: Trail) -> Claim | None:
    """Return the claim of a call with an idempotency key, which has been looked up, unless the call is denied anyway.

    Raises Recalled where the call was made already.
    """
    if outer.claim is not None or (trail.decision is not None and trail.decision.do == "deny"):
        return None
    if runtime.ledger is None:
        need = "A task" if document.tool.is_task else "An idempotency key"
        raise ToolError(f"{need} needs a store, and this workbench has none: store=...", "unavailable")
    if outer.task is not None:
        run: TaskRun = outer.task
        return run.bind(document, runtime)
    claim = (Submission if document.tool.is_task else Claim)(document, runtime, runtime.ledger)
    await claim.recall()
    return claim


async def _verify(
    tool: Tool, call: Call, runtime: Runtime, credentials: Mapping[str, Credential], trail: Trail, outer: Trail
) -> Any:
    """Return what the `verify` of *tool* says of the key of *call*; None where it does not know."""
    assert tool.verify is not None
    return await execute(tool.verify, {"key": call.idempotency_key}, call, runtime, None, credentials, trail, outer)


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
    answer = await runtime.broker.authorize(requirements, runtime.caller, call)
    if isinstance(answer, Pending):
        # Without a digest nothing says what it is about, so it is not put beside others.
        store, now = runtime.pending.store, runtime.pending.clock()
        raise Suspended(await store.open(answer, now=now) if answer.digest else answer)
    credentials: dict[str, Credential] = {}
    for credential in answer:
        runtime.redact_also(credential)
        credentials[credential.provider] = credential
    return credentials


# Normalize


async def _listed(items: Iterator[Any]) -> list[Any]:
    """Return *items*, read in a thread: without an end, they are read until the call ends."""
    is_over = threading.Event()

    def read() -> list[Any]:
        return list(takewhile(lambda _: not is_over.is_set(), items))

    try:
        return await in_thread(read)
    finally:
        is_over.set()


def _normalize(tool: Tool, value: Any) -> tuple[tuple[Content, ...], str | None]:
    """Return the result *value* of a tool as content, and its text, where it is nothing but text.

    Raises ToolError `invalid_result` for what is not as expected or has no JSON form, and the error of a failed Result.
    """
    kind, expected = type(value), tool.spec.output_schema
    if expected is None or ((kind is list or kind is tuple) and has_parts(value)):
        content = content_of(value, tool.encode)
        part = content[0] if len(content) == 1 else None
        return content, part.text if isinstance(part, Text | Data) else None
    if kind is str:
        if expected.get("type") != "string":
            tool.encode(value)  # raises where no text was expected
        return (Text(value),), value
    text = tool.encode(value)
    return (Data(text),), text


def _add_headers(result: Result[Any], headers: Mapping[str, str], redaction: Redaction | None) -> None:
    """Show the response headers that a tool brought beside its value, secrets redacted."""
    clean = {name: redacted(text, redaction) for name, text in headers.items()}
    result.metadata["headers"] = clean
    lines = ("Response headers:", *(f"{name}: {text}" for name, text in clean.items()))
    result.content = (*result.content, Text("\n".join(lines)))


def _redacted(content: tuple[Content, ...], redaction: Redaction) -> tuple[Content, ...]:
    return tuple([redacted_content(part, redaction) for part in content])


def _add_metadata(result: Result[Any], trail: Trail, redaction: Redaction | None) -> None:
    """Note what the policy decided, which attempts failed, and where was repaired, secrets redacted.

    The model is told of arguments that a person has changed.
    """
    if result.repairs and redaction is not None:
        result.repairs = _redacted_repairs(result.repairs, redaction)
    if (decision := trail.decision) is not None:
        members = result.metadata["decision"] = {"do": decision.do}
        if decision.rule is not None:
            members["rule"] = decision.rule
        if decision.by is not None:
            members["by"] = decision.by
        if decision.grant is not None:
            members["grant"] = decision.grant
        if edited := decision.edited:
            members["edited"] = edited
            text = edited if len(edited) <= MAX_EDIT_CHARS else f"{edited[:MAX_EDIT_CHARS]}…"
            note = f"'{decision.by}' has changed the arguments of this call to: {text}"
            result.content = (*result.content, Text(note))
    if trail.failures:
        result.metadata["retries"] = list(trail.failures)


def _noted(result: Result[Any], trail: Trail, runtime: Runtime) -> bool:
    """Note in *result* what its metadata has. Return whether its thread has something to remember."""
    _add_metadata(result, trail, runtime.redaction)
    if not trail.labels and "labels" not in result.metadata:
        return runtime.remembers
    return add_labels(result, trail) or runtime.remembers


def _redacted_repairs(repairs: tuple[Repair, ...], redaction: Redaction) -> tuple[Repair, ...]:
    return tuple(replace(repair, path=_redacted_path(repair.path, redaction)) for repair in repairs)


def _redacted_path(path: str, redaction: Redaction) -> str:
    """Return the JSON pointer *path* with the secrets redacted in its names, which have `/` and `~` escaped in it."""
    names = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
    return "/".join(redaction.redact(name).replace("~", "~0").replace("/", "~1") for name in names)


# The one place where an exception becomes a result


async def _end(
    raised: BaseException, call: Call, runtime: Runtime, started_at: datetime, trail: Trail, outer: Trail
) -> Result[Any]:
    """Return the result of a call that ended with *raised*. Raises it where it is the caller who gave up."""
    redaction = runtime.redaction
    if isinstance(raised, Recalled):
        if not raised.is_own and (outer.sent is None or "decision" in raised.result.metadata):
            trail.decision = None  # the result has the first call's
        return raised.result
    if outer.error is None and (pending := pending_of(raised)) is not None:
        pending = replace(
            pending, message=redacted(pending.message, redaction), url=pending.url and redacted(pending.url, redaction)
        )
        runtime.pending.remember_call(call.id, runtime.caller, pending.id)
        if trail.questions is not None:
            await _give_back(trail, call, redaction)
        message = redacted(pending_message(call.tool, pending), redaction)
        return Result(None, (Text(message),), None, trail.repairs, started_at, moment(), call.id, call.tool, pending)
    cut_short = outer.error
    if outer.cancels_itself and isinstance(raised, asyncio.CancelledError):
        cut_short = cut_short or cancelled(call.tool)
    to_error = partial(
        to_tool_error, raised, call.tool, show=runtime.show_errors, redaction=redaction, cut_short=cut_short
    )
    error = _advised(await in_thread(to_error, is_cleanup=True) if is_long(raised.args) else to_error(), raised, outer)
    if runtime.error_message is not None:
        error = _reworded(error, raised, call, runtime)
    if runtime.handles is not None:
        error = runtime.handles.shorten(error)
    if error.code == "unknown_tool":  # a name that the model made up
        call = replace(call, tool=redacted(call.tool, redaction))
    return error_result(call, error, started_at, trail.repairs)


def _advised(error: ToolError, raised: BaseException, outer: Trail) -> ToolError:
    """Return *error*, which does not advise to repeat work that may have had its effect, and would have it again."""
    if (
        error.retry == "later"
        and (error.code in _UNCERTAIN or isinstance(raised, StoreError))
        and outer.begun is not None
        and not may_be_repeated(outer.begun.spec)
    ):
        error.retry = "never"
    return error


async def _record_given_up(
    given_up: BaseException, call: Call, runtime: Runtime, started_at: datetime, trail: Trail
) -> None:
    """Record the end of a call whose caller has given up, and does not wait for that."""
    if not isinstance(given_up, asyncio.CancelledError):
        if trail.claim is not None:
            trail.claim.give_up()
        return
    error = _advised(ToolError(f"The caller of '{call.tool}' has given up.", "cancelled"), given_up, trail)
    result = error_result(call, error, started_at, trail.repairs)
    if trail.claim is not None:
        keep(asyncio.ensure_future(trail.claim.finish(result)))
    if runtime.recorders:
        keep(asyncio.ensure_future(record_finished(call, runtime, started_at, result, trail)))
        await asyncio.sleep(0)  # most recorders end in their first step


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
