"""What a grant needs before it can be used, and what is done about it. This file does no I/O and keeps no clock."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from .vault import StoredGrant

_NEARLY = timedelta(seconds=60)
"""How long before its end a token counts as expired."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

GrantState = Literal["none", "needs_scopes", "needs_refresh", "expired", "ready"]
Step = Literal["ask", "refresh", "give"]

STEPS: Mapping[GrantState, Step] = {
    "none": "ask",
    "needs_scopes": "ask",
    "expired": "ask",
    "needs_refresh": "refresh",
    "ready": "give",
}
"""What is done about a grant in each state. Where somebody has been asked already, `ask` gives the same pending."""


def state_of(stored: StoredGrant | None, scopes: Sequence[str], now: datetime) -> GrantState:
    """What the grant needs before it can be used for *scopes*."""
    if stored is None:
        return "none"
    grant = stored.grant
    if not covers(grant.scopes, scopes):
        return "needs_scopes"
    until = ready_until(stored)
    if until is None or until > now:
        return "ready"
    return "needs_refresh" if grant.refresh_token else "expired" if is_over(stored, now) else "ready"


def ready_until(stored: StoredGrant) -> datetime | None:
    """How long the grant is surely ready; None for ever."""
    ends = stored.grant.expires_at
    return None if ends is None else max(ends, _FIRST) - _NEARLY


def covers(granted: Sequence[str], wanted: Sequence[str]) -> bool:
    return not wanted or set(wanted) <= set(granted)


def is_over(stored: StoredGrant, now: datetime) -> bool:
    grant = stored.grant
    return grant.expires_at is not None and grant.expires_at <= now
