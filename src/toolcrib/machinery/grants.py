"""What all stores of grants have in common."""

from ..core import AnswerError, Grant

MAX_GRANTS = 1000
"""How many grants a principal has at a time."""


def require_grants_room(count: int) -> None:
    """Raise AnswerError where a principal with *count* grants gets no more."""
    if count >= MAX_GRANTS:
        raise AnswerError("This caller has too many grants. Revoke some, or approve this call alone.", "invalid")


def is_grant_of(grant: Grant, principal: str | None) -> bool:
    """Return whether *principal* has *grant*, or has given it; None is everybody."""
    return principal in (None, grant.principal, grant.given_by)
