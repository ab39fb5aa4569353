"""Calls that wait for a person: the questions of a call, and where they are stored and answered.

An answer is taken from the store before it is used, so no two calls use the same one, and given back only when the
call ends waiting for something else. Whatever goes wrong in between, an answer is lost rather than used twice.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core import (
    Answer,
    AnswerError,
    Approve,
    Approvers,
    Call,
    Caller,
    Decision,
    Deny,
    Grant,
    Input,
    Pending,
    PendingKind,
    Redaction,
    Tool,
    ToolError,
)
from ..machinery import (
    Asker,
    MayAnswer,
    PendingStore,
    Shares,
    StillPending,
    StoredPending,
    Suspended,
    call_digest,
    compile_globs,
    current_client,
    current_deadline,
    escaped,
    in_thread_if_long,
    leaves,
    log_failure,
    named_approvers,
    redacted,
    redacted_data,
    redacted_json,
)
from .arguments import CheckedArguments
from .grants import Grants

if TYPE_CHECKING:
    from ..schema import Elicitation
    from ..store import DatabasePendings

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger("toolcrib")

MAX_TRIES = 3
"""How often a person is asked at once for an input, when what they give is not what was asked for; and how often people
may change the arguments of one call."""
MAX_MESSAGE_CHARS = 10_000
"""How much of a question a person is shown, and a model told."""
MAX_LOOKED_AT = 1000
"""How many of all callers' questions are read for one page of those that a caller may answer."""
_AT_ONCE = 200
MASKS = ("**********", "[secret]")
"""What is shown in place of a value of a secret type, and of a known secret."""
MAX_REMEMBERED = 1000
"""How many questions, and calls that wait, are known here beside the store, of all callers."""


@dataclass(slots=True, kw_only=True)
class PendingCalls:
    """Where the calls of a workbench wait, and are answered. *within* is how long, on *clock*.

    *tool* finds the tool that is to take other arguments.
    """

    store: PendingStore
    tool: Callable[[str], Tool | None]
    within: timedelta
    grants: Grants
    clock: Callable[[], datetime]
    ask: Asker | None = None
    may_answer: MayAnswer | None = None
    redaction: Redaction | None = None
    opened: Callable[[Pending], object] = lambda _: None
    """Takes note that a call of this process waits from now on."""
    # The questions of this process: the JSON Schema of a stored one may express less.
    _questions: "Shares[str, Elicitation]" = field(default_factory=Shares)
    _of_calls: Shares[tuple[Caller, str], str] = field(default_factory=Shares)

    def id_for(self, call_id: str, caller: Caller) -> str:
        """Return the pending of the last call of *caller* with *call_id* that had to wait here. Raises AnswerError."""
        pending_id = self._of_calls.get((caller, call_id))
        if pending_id is None:
            raise AnswerError(
                f"No call '{str(call_id)[:100]}' of this workbench waits; answer the id of what is pending.", "unknown"
            )
        return pending_id

    def remember_call(self, call_id: str, caller: Caller, id: str) -> None:  # noqa: A002
        _remember(self._of_calls, (caller, call_id), id, caller.principal)

    async def answer(
        self,
        id: str,  # noqa: A002
        answer: Answer,
        *,
        by: Caller | str,
        is_preview: bool = False,
    ) -> tuple[Pending, Grant | None]:
        """Store *answer* to what is pending under *id*, given *by* a person: by name, or with groups.

        Returns what was answered, and granted: for a *preview*, what would be. Raises AnswerError.
        """
        person = by if isinstance(by, Caller) else Caller(by)
        by = person.principal
        if not isinstance(by, str) or not by:
            raise AnswerError('An answer needs a name: answer(id, Approve(), by="alice").', "foreign")
        entry = await self._still_open(id, answer, by)
        pending = entry.pending
        if not await self.allows(pending, person):
            raise AnswerError(
                f"'{by}' may not answer '{pending.id}'. {_refusal(pending, person)} Let a person answer who is allowed "
                "to.",
                "foreign",
            )
        if (problem := await self._problem(pending, answer)) is not None:
            raise AnswerError(f"'{pending.id}' does not take this answer. {problem}", "invalid")
        grant = self.grants.proposed(pending, answer, by)
        if is_preview:
            return pending, grant
        with_grant = {} if grant is None else {"grant": grant}
        if not await self.store.answer(pending.id, answer, by=by, now=self.clock(), **with_grant):
            self._require_open(await self.store.get(id) or entry)
            raise AnswerError(f"'{pending.id}' was answered at the same moment; that answer counts.", "replayed")
        return pending, grant

    async def _still_open(self, pending_id: str, answer: Answer, by: str) -> StoredPending:
        """Return what waits under *pending_id*. Raises AnswerError; the store sees it where that has just expired."""
        entry = await self.store.get(pending_id)
        if entry is None:
            raise AnswerError(
                f"Nothing waits under '{str(pending_id)[:100]}'. It may have expired long ago; `pendings()` lists what "
                "waits.",
                "unknown",
            )
        if entry.state == "open" and (now := self.clock()) >= entry.pending.expires_at:
            await self.store.answer(entry.pending.id, answer, by=by, now=now)  # refused, and seen to be expired
            entry = replace(entry, state="expired")
        self._require_open(entry)
        return entry

    async def ask_now(self, pending: Pending) -> StoredPending | None:
        """Return the answer of a caller who may give one, asked by the host; None where the host cannot ask."""
        if self.ask is None:
            return None
        again = pending
        for _ in range(MAX_TRIES):
            try:
                answer = await self.ask(again)
            except (Exception, SystemExit) as error:
                log_failure(f"Asking failed whether '{pending.tool}' may run; the call waits", error, self.redaction)
                return None
            if answer is None:
                return None
            problem = await self._problem(pending, answer)
            if self.clock() >= pending.expires_at:
                return None
            if problem is None:
                problem = await self._grant_now(pending, answer)
            if problem is None:
                return StoredPending(pending, "taken", answer, pending.principal)
            again = replace(pending, message=f"{problem}\n{pending.message}")
        _log.warning("The answers to '%s' are not what was asked for; the call waits", pending.tool)
        return None

    def remember(self, pending: Pending, question: "Elicitation | None") -> None:
        if question is not None:
            _remember(self._questions, pending.id, question, pending.principal)

    async def allows(self, pending: Pending, by: Caller | str) -> bool:
        """Return whether *by* may answer *pending*. One who is known by name alone is in no group."""
        person = by if isinstance(by, Caller) else Caller(by)
        if pending.others_only and person.principal == pending.principal:
            return False
        by = person.principal
        try:
            if not is_approver(person, pending.approvers):
                return False
            if self.may_answer is None:
                return True
            verdict = self.may_answer(pending, by)
            return (await verdict if isawaitable(verdict) else verdict) is True
        except Exception as error:
            log_failure(f"Whether '{by}' may answer could not be decided, so they may not", error, self.redaction)
            return False

    async def _grant_now(self, pending: Pending, answer: Answer) -> str | None:
        """Store what *answer* of the caller grants. Returns why it does not."""
        try:
            grant, store = self.grants.proposed(pending, answer, pending.principal), self.grants.store
            if grant is not None and store is not None:
                await store.add(grant, now=self.clock())
        except AnswerError as error:
            return str(error)
        return None

    async def visible(
        self, caller: Caller, after: str, limit: int, *, of_others: bool
    ) -> tuple[list[Pending], str | None]:
        """Return at most *limit* of what *caller* waits for, and with *of_others* may answer, after the place *after*:
        the oldest first, and the place of the last where there may be more.

        At most `MAX_LOOKED_AT` are read at a time: a page may have fewer, and be followed by another.
        """
        page, principal = getattr(self.store, "page", self._page), None if of_others else caller.principal
        visible: list[Pending] = []
        count = _AT_ONCE if of_others else min(limit, _AT_ONCE)  # their own, they all see
        for _ in range(0, MAX_LOOKED_AT, _AT_ONCE):
            entries = await page(after, count, now=self.clock(), principal=principal)
            if not entries:
                return visible, None
            for place, pending in entries:
                after = place
                if await self.may_see(pending, caller):
                    visible.append(pending)
                if len(visible) == limit:
                    return visible, after
        return visible, after

    async def _page(
        self, after: str, limit: int, *, now: datetime, principal: str | None
    ) -> Sequence[tuple[str, Pending]]:
        """Return all that waits as one page, of a store that has none."""
        return [] if after else [("all", pending) for pending in await self.store.waiting(now=now, principal=principal)]

    async def may_see(self, pending: Pending, caller: Caller) -> bool:
        """Return whether *caller* made the call that waits, or is one of those who are named to answer it."""
        if caller.principal == pending.principal:
            return True
        is_for_others = pending.approvers is not None or self.may_answer is not None
        return is_for_others and await self.allows(pending, caller)

    def _require_open(self, entry: StoredPending) -> None:
        pending = entry.pending
        if entry.state in ("answered", "taken"):
            was = "answered" if entry.state == "answered" else "answered and used"
            raise AnswerError(
                f"'{pending.id}' is {was} already, by '{entry.by}'. An answer counts once: call again, and answer "
                "what is then asked.",
                "replayed",
            )
        if entry.state == "expired" or self.clock() >= pending.expires_at:
            raise AnswerError(
                f"'{pending.id}' has expired: it was open until {pending.expires_at:%Y-%m-%d %H:%M:%S} UTC, or until "
                "its task ended. Call again to be asked again.",
                "expired",
            )

    async def _problem(self, pending: Pending, answer: Any) -> str | None:
        match pending.kind, answer:
            case ("approval" | "input", Deny()) | ("approval", Approve(arguments=None)):
                return None
            case "approval", Approve(arguments=edited):
                return await in_thread_if_long(partial(self._refused, pending, edited), edited)
            case "approval", _:
                return 'It is an approval: answer Approve() or Deny("why").'
            case "input", Input(value):
                from ..schema import Elicitation

                question = self._questions.get(pending.id) or Elicitation(pending.schema or {})
                return question.problems(value)
            case "input", _:
                return 'It asks for an input: answer Input(...) or Deny("why").'
            case kind, _:
                return f"It is a{'n' if kind == 'authorization' else ''} {kind}, which is not answered here."

    def _refused(self, pending: Pending, arguments: Any) -> str | None:
        """Return why the tool of *pending* does not take *arguments*; None where it does."""
        from ..schema import parse_exact

        tool = self.tool(pending.tool)
        if tool is None:
            return f"'{pending.tool}' is not among the tools here, so other arguments cannot be checked: Approve()."
        try:
            written = arguments if isinstance(arguments, str) else json.dumps(dict(arguments))
            if not isinstance(values := parse_exact(written), dict):
                raise TypeError
            if (mask := _stray_mask(values, pending.arguments)) is not None:
                return (
                    f"'{mask}' stands for a value that is not shown, and only where it was shown: leave it, with what "
                    "is beside it in a list, or give the value."
                )
            tool.check(written, False)
        except ToolError as error:
            return redacted(error.message, self.redaction)
        except (TypeError, ValueError, RecursionError):
            return "Arguments are JSON data: an object of the names that the tool takes."
        return None


@dataclass(slots=True, kw_only=True)
class Questions:
    """The questions of one call, and the answers it has taken. *client* is the one that the call is for."""

    pendings: PendingCalls
    tool: Tool
    call: Call
    caller: Caller
    repair: bool
    redaction: Redaction | None
    client: Any
    task_id: str = ""
    approved_arguments: CheckedArguments | None = None
    """The arguments that a person was shown, validated from the bytes of their document."""
    _digest: str = ""
    _arguments: str = ""
    _document: str = ""
    _entries: dict[tuple[str, str, str], StoredPending] = field(
        default_factory=dict[tuple[str, str, str], StoredPending]
    )
    _keys: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def digest(self) -> str:
        """What the answers are bound to; empty before `bind`."""
        return self._digest

    def bind(self, arguments: CheckedArguments | None = None) -> None:
        """Bind the answers to *arguments*, with the defaults that were made for this call.

        Without them, bind the questions of a tool that runs: to what was sent, whatever it has done to its arguments.
        """
        if arguments is None:
            arguments = CheckedArguments.read(self.tool, self.call, repair=self.repair)
            identity = arguments.forms.identity_as_sent
        else:
            self.approved_arguments, identity = arguments.settled()
            self._document = arguments.forms.bytes if self.approved_arguments and arguments.forms.has_made else ""
            arguments = self.approved_arguments or arguments
        self._digest = call_digest(self.caller, self.tool, f"{identity}{self.task_id}")
        self._arguments = self._text(arguments)

    async def ask(
        self,
        kind: PendingKind,
        key: str,
        message: str,
        question: "Elicitation | None" = None,
        *,
        others_only: bool = False,
        approvers: Approvers | None = None,
        rule: str = "",
        granted: Callable[[], Awaitable[Grant | None]] | None = None,
        is_pause: bool = False,
        is_kept: bool = False,
        url: str | None = None,
    ) -> StoredPending:
        """Return an answer, which is this call's alone. Raises Suspended where there is none yet.

        *is_pause*: the deadline of the call stands still while the host asks a person. *is_kept*: the answer stays
        where it is until `take`, since the call has to store it first. *granted* finds a grant where there is no
        answer.
        """
        key = self._redacted_key(key)
        if not self._digest:
            await in_thread_if_long(self.bind, self.call.arguments)
        now = self.pendings.clock()
        entry, arguments = await self._answered(kind, key, now, is_kept=is_kept)
        problem = _problem_with(entry, question)
        if problem and is_kept:
            await self.take(kind, key)
        if entry is None or problem or self._asks_others(entry, others_only, approvers):
            about = Pending(
                id=f"pending_{token_urlsafe(16)}",
                kind=kind,
                message=self._shown(f"{problem}\n{message}" if problem else message),
                digest=self._digest,
                tool=redacted(self.tool.spec.name, self.redaction),
                principal=self.caller.principal,
                thread=self.caller.thread,
                expires_at=now,
                arguments=self._arguments,
                key=key,
                schema=None if question is None else redacted_data(question.schema, self.redaction),
                others_only=others_only,
                approvers=approvers,
                rule=rule,
                url=url,
            )
            if granted is not None and (grant := await granted()) is not None:
                return StoredPending(about, "taken", Approve(), grant.given_by, grant=grant.id)
            entry, arguments = await self._ask_again(about, question, is_pause=is_pause), None
        self.approved_arguments = arguments or self.approved_arguments
        if not is_kept:
            self._entries[self._digest, kind, key] = entry
        return entry

    async def _answered(
        self, kind: PendingKind, key: str, now: datetime, *, is_kept: bool
    ) -> tuple[StoredPending | None, CheckedArguments | None]:
        """Return the answer that is there, and the arguments that it approves, where they were made for this call."""
        store, entry = self.pendings.store, self._entries.get((self._digest, kind, key))
        if entry is None:
            take = cast("DatabasePendings", store).answered if is_kept else store.take
            entry = await take(self._digest, kind, key, now=now)
        if entry is None or not entry.made:
            return entry, None
        arguments = await in_thread_if_long(partial(self._as_shown, entry), entry.made)
        return (None if arguments is None else entry), arguments  # else what would run is not what was shown

    def _asks_others(self, entry: StoredPending, others_only: bool, approvers: Approvers | None) -> bool:
        """Return whether the policy asks others by now than the one who gave *entry*."""
        return (others_only and entry.by == self.caller.principal) or entry.pending.approvers != approvers

    def _shown(self, message: str) -> str:
        message = redacted(message, self.redaction).strip()
        return message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]} …"

    async def take(self, kind: PendingKind, key: str) -> None:
        """Use an answer up that was kept."""
        await self.pendings.store.take(self._digest, kind, self._redacted_key(key), now=self.pendings.clock())

    async def give_back(self) -> None:
        """Store the answers that a call has taken which ends waiting, for when it is made again."""
        while self._entries:
            _, entry = self._entries.popitem()
            await self.pendings.store.give_back(replace(entry, state="answered"))

    def edited(self, entry: StoredPending, checked: CheckedArguments) -> CheckedArguments:
        """Return the arguments that a person gave in *entry* in place of *checked*.

        Raises ToolError where the tool does not take them.
        """
        from ..schema import parse_exact, parse_json, write_json

        assert isinstance(entry.answer, Approve)
        arguments: Any = entry.answer.arguments
        read = parse_exact if isinstance(arguments, str) else parse_json
        values = read(arguments) if isinstance(arguments, str) else arguments
        values = _unmasked(values, read(entry.pending.arguments), checked.document)
        call = replace(checked.call, arguments=write_json(dict(values)))
        return CheckedArguments.read(self.tool, call, repair=False)

    async def is_answered_by(self, entry: StoredPending, decision: Decision) -> bool:
        """Return whether the one who gave *entry* may also answer what *decision* asks about the arguments bound."""
        own = entry.by == self.caller.principal
        about = replace(
            entry.pending,
            message=decision.message,
            digest=self._digest,
            arguments=self._arguments,
            others_only=decision.others_only,
            # Whether they are one of the same approvers, was seen when they answered: with their groups.
            approvers=None if decision.approvers == entry.pending.approvers else decision.approvers,
        )
        return await self.pendings.allows(about, self.caller if own else entry.by or "")

    async def _ask_again(self, pending: Pending, question: "Elicitation | None", *, is_pause: bool) -> StoredPending:
        pendings, caller, message = self.pendings, self.caller, pending.message
        if caller.profile != Caller().profile:  # a model may have chosen it
            message = f"{message}\nFor the profile '{caller.profile}'."
        message, expires_at = escaped(message, invisible=True), pendings.clock() + pendings.within
        pending = replace(pending, message=message, expires_at=expires_at)
        if pendings.ask is not None and await pendings.allows(pending, caller):
            context = copy_context()
            context.run(current_client.set, self.client)
            task, deadline = asyncio.create_task(pendings.ask_now(pending), context=context), current_deadline.get()
            try:
                with deadline.paused() if is_pause and deadline is not None else nullcontext():
                    await asyncio.wait({task}, timeout=pendings.within.total_seconds())
            finally:
                task.cancel()
            if task.done() and (reply := task.result()) is not None:
                return replace(reply, made=self._document)
        now = pendings.clock()
        pending = replace(pending, expires_at=now + pendings.within)
        defaults = {"made": self._document} if self._document else {}
        entry = await pendings.store.open(pending, now=now, **defaults)
        pendings.remember(entry, question)
        if entry.id == pending.id:  # and not one that waited already
            pendings.opened(entry)
        raise Suspended(entry)

    def _redacted_key(self, key: str) -> str:
        """Return *key* without secrets: two that differ in these are numbered, in the order in which they are asked."""
        text = redacted(key, self.redaction)
        return key if text == key else f"{text} {self._keys.setdefault(key, len(self._keys) + 1)}"

    def _as_shown(self, entry: StoredPending) -> CheckedArguments | None:
        """Return the arguments that *entry* has the bytes of; None where they are not those that were shown."""
        arguments = CheckedArguments.read_bytes(self.tool, self.call, entry.made)
        return arguments if arguments is not None and self._text(arguments) == entry.pending.arguments else None

    def _text(self, arguments: CheckedArguments) -> str:
        """Return *arguments* for a person, who sees all of them: as JSON of the same value."""
        return escaped(redacted_json(arguments.forms.text, self.redaction), invisible=True, as_json=True)


def _problem_with(entry: StoredPending | None, question: "Elicitation | None") -> str:
    """Return why what *entry* has is no answer to *question*; empty where it is one."""
    if entry is None or question is None or not isinstance(entry.answer, Input):
        return ""
    # Answered where only the JSON Schema was known, or asked for something else by now.
    return question.problems(entry.answer.value) or ""


def caller_names(caller: Caller) -> tuple[str, ...]:
    """Return the names by which rules know *caller*: without the id behind that of a key, too."""
    name, separator, _ = caller.principal.partition("#")
    return (caller.principal, name) if separator and name.startswith("key:") else (caller.principal,)


def is_approver(caller: Caller, approvers: Approvers | None) -> bool:
    """Return whether *caller* is one of *approvers*, where these are named."""
    if approvers is None:
        return True
    names = {"principals": caller_names(caller), "groups": caller.groups}
    return any(
        compile_globs(globs, of=kind, tool=False).fullmatch(name)
        for kind, globs in approvers.items()
        for name in names[kind]
    )


def _refusal(pending: Pending, person: Caller) -> str:
    """Return which setting keeps *person* from answering *pending*."""
    if pending.others_only and person.principal == pending.principal:
        return "The caller may not answer it: its rule has `others_only`."
    if pending.approvers is not None:
        return f"Its rule has `approvers`: {named_approvers(pending.approvers)}."
    return "`may_answer` of the workbench does not let them."


def _unmasked(value: Any, shown: Any, original: Any) -> Any:
    """Return *value*, in which what is as it was *shown* is the *original*: it may have been masked, or rounded."""
    if value == shown and type(value) is type(shown):
        return original
    match value, shown, original:
        case Mapping(), Mapping(), Mapping():
            names = shown.keys() & original.keys()
            return {
                name: _unmasked(inner, shown[name], original[name]) if name in names else inner
                for name, inner in value.items()
            }
        case list() | tuple(), list(), list():
            return _unmasked_items(value, shown, original)
        case _:
            return value


def _unmasked_items(items: Sequence[Any], shown: Sequence[Any], originals: Sequence[Any]) -> list[Any]:
    """Return *items* as `_unmasked` does: one that was shown is its original, wherever it stands now.

    One that was changed is taken for what was in its place, where it is the only change.
    """
    from ..schema.json_text import canonical_json

    places: dict[str, list[int]] = {}
    for place, item in enumerate(shown):
        places.setdefault(canonical_json(item), []).append(place)

    def place_of(number: int, item: Any) -> int | None:
        if number < len(shown) and item == shown[number]:
            return number
        matches = places.get(canonical_json(item), [])
        return matches[0] if len(matches) == 1 else None

    sources = [place_of(number, item) for number, item in enumerate(items)]
    unmasked = [item if place is None else originals[place] for item, place in zip(items, sources, strict=True)]
    changed = [number for number, place in enumerate(sources) if place != number]
    if len(items) == len(shown) and len(changed) == 1 and sources[changed[0]] is None:
        number = changed[0]
        unmasked[number] = _unmasked(items[number], shown[number], originals[number])
    return unmasked


def _stray_mask(arguments: Mapping[str, Any], shown: str) -> str | None:
    """Return the mask of a value that *arguments* have elsewhere than it was *shown*; None where they have none."""
    from ..schema import parse_exact, write_json

    masks = [mask for mask in MASKS if mask in shown]
    blank = shown
    for mask in masks:
        blank = blank.replace(mask, "")
    text = write_json(_unmasked(arguments, parse_exact(shown), parse_exact(blank))) if masks else ""
    return next((mask for mask in masks if mask in text), None)


def _remember(memory: Shares[K, V], key: K, value: V, principal: str) -> None:
    memory.put(key, value, principal)
    if len(memory) > MAX_REMEMBERED:
        memory.drop()


def pending_of(raised: BaseException) -> Pending | None:
    """Return what a call that ended with *raised* waits for: also from a thread, a task group, or a call of its own."""
    return next((leaf.pending for leaf in leaves(raised) if isinstance(leaf, Suspended | StillPending)), None)


def pending_message(tool: str, pending: Pending) -> str:
    """Return what a model reads of a call that waits."""
    message = pending.message.strip()
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    need = {"approval": "approval", "input": "an answer", "authorization": "authorization"}.get(pending.kind, "a task")
    where = f" ({pending.url})" if pending.url and pending.url not in message else ""
    return (
        f"Tool '{tool}' has not run: it waits for {need}: {message}{where} "
        "Call it again with the same arguments when that is done."
    )


def denied(tool: str, answer: Deny, by: str | None) -> ToolError:
    """Return the error of a call that a person has denied."""
    reason = f": {answer.reason}" if answer.reason else "."
    return ToolError(f"Tool '{tool}' was not executed: '{by}' denied it{reason}", "denied", details={"by": by})
