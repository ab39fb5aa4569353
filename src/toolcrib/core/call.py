"""One request, and who makes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from random import getrandbits
from typing import Any, cast

from .cancel import CancellationToken
from .errors import SetupError

UNNAMED_THREAD = "default"
"""The thread of callers without one: what it remembers is of all that they do at the time."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls (principal), as which of their identities (profile), in which conversation (thread).

    *groups* and *claims*, pairs of a name and one value as text, are what rules can ask for beside the principal. Two
    callers that differ in them are two: so nothing that is other in each token, such as its expiry, belongs there.

    The host sets this, never a model.
    """

    principal: str = "local"
    profile: str = "default"
    thread: str = UNNAMED_THREAD
    groups: frozenset[str] = frozenset()
    claims: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        if type(self.groups) is not frozenset or type(self.claims) is not frozenset:
            raise SetupError('The groups and claims of a Caller are frozensets, as in groups=frozenset({"staff"}).')


def convert_when_read(kind: type[Any], name: str, convert: Callable[[Any], Any]) -> None:
    """Let the field *name* of a dataclass with slots hold what `convert` makes of its value when it is first read."""
    slot: Any = getattr(kind, name)

    def read(owner: Any) -> Any:
        value = slot.__get__(owner)
        value_read = convert(value)
        if value_read is not value:
            slot.__set__(owner, value_read)
        return value_read

    setattr(kind, name, property(read, slot.__set__))
    # The constructor writes to the slot itself, by another name: by the property it would take twice as long.
    setattr(kind, f"_{name}", slot)
    init: Any = kind.__init__
    names = tuple(f"_{name}" if code_name == name else code_name for code_name in init.__code__.co_names)
    init.__code__ = init.__code__.replace(co_names=names)


# Ids name calls in logs and pair them with answers; they protect nothing, so they need not be secret.
# One is made for every call, so it is a number until it is read.
_new_id = cast("Callable[[], str]", partial(getrandbits, 63))


def id_of_call(number: Any) -> str:
    return f"call_{number}" if type(number) is int else number


@dataclass(slots=True)
class Call:
    """One request: which tool, with which arguments as they were written, under which id.

    *arguments* is JSON text or a mapping of JSON values; None means no arguments. *timeout_s* is the longest it may
    take, in seconds, in addition to the limits of the tool and the workbench. *cancellation* cancels it, from anywhere.
    *data* is the host's, for this one call: a tool finds it in `Context.call.data`; no model sees or sets it.
    *traceparent* (W3C Trace Context) is the trace that the call is a part of. Of the calls of one principal with the
    same *idempotency_key* (1 to 255 printable characters of ASCII) one is made; the others get its result.
    Treat it as a value. (Not frozen: one is made for every call, and freezing makes that three times as slow.)
    """

    tool: str
    arguments: str | bytes | Mapping[str, Any] | None = None
    id: str = field(default_factory=_new_id)
    timeout_s: float | None = None
    cancellation: CancellationToken | None = None
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    traceparent: str | None = None
    idempotency_key: str | None = None


convert_when_read(Call, "id", id_of_call)
raw_id: Callable[[Call], str] = attrgetter("_id")
"""Return the id of a call as it is held: a Result or a CallRecord that takes it converts it in the same way."""
