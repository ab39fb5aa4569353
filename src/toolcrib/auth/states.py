"""What a grant needs before it can be used, and what is done about it. This file does no I/O and keeps no clock."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from .vault import StoredGrant

_NEARLY = timedelta(seconds=60)
"""How long before its end a token counts as expired."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

GrantState = Literal["no_session", "pending", "resolved", "needs_scopes", "needs_refresh", "ready"]
Step = Literal["ask", "wait", "refresh", "give"]

STEPS: Mapping[GrantState, Step] = {
    "no_session": "ask",
    "pending": "wait",
    "resolved": "give",
    "needs_scopes": "ask",
    "needs_refresh": "refresh",
    "ready": "give",
}
"""What is done about a grant in each state.

Nothing is granted, or no longer (`no_session`); a person has been asked for what is missing, and `wait` gives the same
pending (`pending`); what was granted works, ends within a minute, and nothing newer is to be had (`resolved`).
"""


def state_of(
    stored: StoredGrant | None,
    scopes: Sequence[str],
    now: datetime,
    *,
    is_refreshed: bool = False,
    is_asked: bool = False,
) -> GrantState:
    """Return what the grant needs before it can be used for *scopes*.

    It *is_refreshed* where that was tried just now; the owner *is_asked* where an authorization for all of this waits.
    """
    if stored is None or not covers(stored.grant.scopes, scopes):
        return "pending" if is_asked else "no_session" if stored is None else "needs_scopes"
    until = ready_until(stored)
    if until is None or until > now:
        return "ready"
    if stored.grant.refresh_token and not is_refreshed:
        return "needs_refresh"
    if not is_over(stored, now):
        return "resolved"
    return "pending" if is_asked else "no_session"


def ready_until(stored: StoredGrant) -> datetime | None:
    """Return how long the grant is surely ready; None for ever."""
    ends = stored.grant.expires_at
    return None if ends is None else max(ends, _FIRST) - _NEARLY


def covers(granted: Sequence[str], wanted: Sequence[str]) -> bool:
    return not wanted or set(wanted) <= set(granted)


def is_over(stored: StoredGrant, now: datetime) -> bool:
    grant = stored.grant
    return grant.expires_at is not None and grant.expires_at <= now
