"""One request, and who makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import getrandbits
from typing import Any

from .cancel import CancellationToken
from .errors import SetupError


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls (principal), as which of their identities (profile), in which conversation (thread).

    *groups* and *claims*, pairs of a name and one value as text, are what rules can ask for beside the principal. Two
    callers that differ in them are two: so nothing that is other in each token, such as its expiry, belongs there.

    The host sets this, never a model.
    """

    principal: str = "local"
    profile: str = "default"
    thread: str = "default"
    groups: frozenset[str] = frozenset()
    claims: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        if type(self.groups) is not frozenset or type(self.claims) is not frozenset:
            raise SetupError('The groups and claims of a Caller are frozensets, as in groups=frozenset({"staff"}).')


# Ids name calls in logs and pair them with answers; they protect nothing, so they need not be secret.
# An iterator that never ends, since one is made for every call, and this takes half of a function's time.
_new_id = map("call_{}".format, iter(partial(getrandbits, 63), None)).__next__


@dataclass(slots=True)
class Call:
    """One request: which tool, with which arguments as they were written, under which id.

    *arguments* is JSON text or a mapping of JSON values; None means no arguments. *timeout_s* is the longest it may
    take, in seconds, in addition to the limits of the tool and the workbench. *cancellation* cancels it, from anywhere.
    *data* is the host's, for this one call: a tool finds it in `Context.call.data`; no model sees or sets it.
    *traceparent* (W3C Trace Context) is the trace that the call is a part of.
    Treat it as a value. (Not frozen: one is made for every call, and freezing makes that three times as slow.)
    """

    tool: str
    arguments: str | bytes | Mapping[str, Any] | None = None
    id: str = field(default_factory=_new_id)
    timeout_s: float | None = None
    cancellation: CancellationToken | None = None
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    traceparent: str | None = None
