"""What is done about a grant before it can be used. This file does no I/O and keeps no clock."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from .vault import StoredGrant

_REFRESH_BEFORE = timedelta(seconds=60)
"""How long before its end a token counts as expired."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)

Step = Literal["ask", "refresh", "give"]


def step_for(
    stored_grant: StoredGrant | None, scopes: Sequence[str], now: datetime, *, is_refreshed: bool = False
) -> Step:
    """Return what is done about the grant that is needed for *scopes*: ask the person, refresh it, or give it.

    It *is_refreshed* where that was tried just now.
    """
    if stored_grant is None or not covers(stored_grant.grant.scopes, scopes):
        return "ask"
    until = ready_until(stored_grant)
    if until is None or until > now:
        return "give"
    if stored_grant.grant.refresh_token and not is_refreshed:
        return "refresh"
    # What ends within a minute is given where nothing newer can be had.
    return "ask" if is_over(stored_grant, now) else "give"


def ready_until(stored_grant: StoredGrant) -> datetime | None:
    """Return how long the grant is surely ready; None for ever."""
    ends = stored_grant.grant.expires_at
    return None if ends is None else max(ends, _FIRST) - _REFRESH_BEFORE


def covers(granted: Sequence[str], wanted: Sequence[str]) -> bool:
    return not wanted or set(wanted) <= set(granted)


def is_over(stored_grant: StoredGrant, now: datetime) -> bool:
    grant = stored_grant.grant
    return grant.expires_at is not None and grant.expires_at <= now
