"""Grants and what people are asked to grant, as they are kept: the protocol, and a vault in memory.

`DatabaseVault`, in `sealed.py`, has them in a store, sealed, for all processes that share it.
"""

import hmac
import json
import threading
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Literal, Protocol
from urllib.parse import urlencode

from ..core import Caller, Pending, ToolcribError
from ..machinery import Semaphore, text_digest
from .grant import Grant, Owner

MAX_CACHED = 10_000
"""How many credentials a process keeps as they were last opened, or given."""
_REFRESH_BEFORE = timedelta(seconds=60)
"""How long before its end a token counts as expired."""
_WITHIN = timedelta(minutes=10)
"""How long a person may take to grant something."""
_MAX_SPENDING = timedelta(seconds=30)
"""How long the outcome of a refresh may take: its request 20 seconds, and what is written again."""
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # easily told apart, and without words (RFC 8628, 6.1)

Step = Literal["ask", "refresh", "give"]


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant as it is in a vault. Each change of it has a *version* of its own."""

    grant: Grant
    version: int

    @property
    def ready_until(self) -> datetime | None:
        """How long it is surely ready; None for ever."""
        ends = self.grant.expires_at
        return None if ends is None else max(ends, _FIRST) - _REFRESH_BEFORE

    def is_spent(self, now: datetime) -> bool:
        """Return whether the refresh token was sent by a process that has stored no outcome in time."""
        since = self.grant.spending_since
        return since is not None and now - since >= _MAX_SPENDING

    def is_over(self, now: datetime) -> bool:
        return self.grant.expires_at is not None and self.grant.expires_at <= now


def version_of(stored_grant: StoredGrant | None) -> int | None:
    return None if stored_grant is None else stored_grant.version


def step_for(
    stored_grant: StoredGrant | None, scopes: Sequence[str], now: datetime, *, is_refreshed: bool = False
) -> Step:
    """Return what is done about the grant that is needed for *scopes*: ask the person, refresh it, or give it.

    It *is_refreshed* where that was tried just now.
    """
    if stored_grant is None or not covers(stored_grant.grant.scopes, scopes):
        return "ask"
    until = stored_grant.ready_until
    if until is None or until > now:
        return "give"
    if stored_grant.grant.refresh_token and not is_refreshed and not stored_grant.is_spent(now):
        return "refresh"
    # What ends within a minute is given where nothing newer can be had.
    return "ask" if stored_grant.is_over(now) else "give"


def covers(granted: Sequence[str], wanted: Sequence[str]) -> bool:
    return not wanted or set(wanted) <= set(granted)


@dataclass(frozen=True, slots=True)
class Authorization:
    """An authorization that *owner* has been asked for, until *expires_at*: what the callback needs to complete it.

    *id* is that of the pending. *state* comes back from the provider, once; a vault has its digest only.
    """

    id: str
    owner: Owner
    thread: str
    scopes: Sequence[str]
    expires_at: datetime
    url: str = field(repr=False)
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str = ""

    @property
    def code(self) -> str:
        """Return the code that the client shows and the page asks for: eight letters that are in no URL."""
        letters = "".join(_CODE_LETTERS[byte % len(_CODE_LETTERS)] for byte in self._derived("code")[:8])
        return f"{letters[:4]}-{letters[4:]}"

    @property
    def browser_mark(self) -> str:
        """Return the cookie of the browser in which the code was entered."""
        return self._derived("browser").hex()

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self.verifier.encode(), purpose.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class Completed:
    """An authorization that a person has granted. *pending_ids* are those of the calls that had waited for it."""

    pending_ids: tuple[str, ...]
    owner: Owner
    thread: str


class CallbackError(ToolcribError):
    """A callback that completes nothing. *reason* is why, for programs; the text is for the person who came back.

    *pending_id* is the pending that ends with it: the next call asks again.
    """

    def __init__(
        self, message: str, reason: Literal["unknown", "foreign", "denied", "failed"], pending_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.pending_id = pending_id


def new_authorization(
    owner: Owner, *, thread: str, scopes: Sequence[str], redirect_uri: str, form_uri: str | None, now: datetime
) -> Authorization:
    """Return an authorization that *owner* has just been asked for, at the address of the form if there is one."""
    state = token_urlsafe(32)
    return Authorization(
        id=f"pending_{token_urlsafe(16)}",
        owner=owner,
        thread=thread,
        scopes=scopes,
        expires_at=now + _WITHIN,
        url=page_url(form_uri, state),
        state=state,
        verifier=token_urlsafe(48),
        redirect_uri=redirect_uri,
    )


def page_url(form_uri: str | None, state: str) -> str:
    """Return the address of the page for *state* at *form_uri*; empty where there is none."""
    return "" if form_uri is None else f"{form_uri}?{urlencode({'state': state})}"


def pending_of(
    authorization: Authorization, *, title: str, tool: str, has_ended: bool = False, with_code: bool = False
) -> Pending:
    """Return what a person is shown of *authorization*, *with_code* where its page asks for that.

    With *has_ended*, that what they had granted before has ended.
    """
    owner = authorization.owner
    if owner.handler == "oauth2":
        message = f"Grant access to your account at {title}"
    else:
        message = f"The secret {title} is needed" if owner.handler == "secret" else f"A key for {title} is needed"
    if has_ended:
        message = f"Your grant at {title} has ended. {message}"
    if not authorization.url:
        command = "secrets set" if owner.handler == "secret" else "auth login"
        message = f"{message}: toolcrib {command} {owner.provider}"
    if owner.profile != Caller().profile:
        message = f"{message} (for the profile '{owner.profile}')"
    if with_code and authorization.url:
        message = f"{message}. The page asks for the code {authorization.code}"
    return Pending(
        id=authorization.id,
        kind="authorization",
        message=message,
        digest=text_digest(json.dumps(["authorization", authorization.id, *owner.binding])),
        tool=tool,
        principal=owner.principal,
        thread=authorization.thread,
        expires_at=authorization.expires_at,
        url=authorization.url or None,
    )


class Vault(Protocol):
    """Grants by owner, changed by compare-and-set, and open authorizations. Raises StoreError where it fails."""

    async def get(self, owner: Owner, /) -> StoredGrant | None: ...

    async def put(self, owner: Owner, grant: Grant, /, *, version: int | None) -> bool:
        """Store *grant* where the stored one has *version*, or where there is none (None). False where it differs."""
        ...

    async def remove(self, owner: Owner, /, *, version: int | None = None) -> bool:
        """Return whether there was a grant, with *version* if one is given, which is gone now."""
        ...

    async def owned_by(self, principal: str, /) -> Sequence[tuple[Owner, Grant | None]]:
        """Return the grants of all profiles of *principal*; None in place of one that does not open."""
        ...

    def alone(self, owner: Owner, /) -> AbstractAsyncContextManager[None]:
        """Admit one at a time for *owner*, over all tasks, threads and processes that share the vault."""
        ...

    async def open(self, authorization: Authorization, /, *, now: datetime) -> Authorization:
        """Store *authorization*. Where the owner has an open one for these scopes and this address: that one."""
        ...

    async def find(self, state: str, /, *, now: datetime) -> Authorization | None:
        """Return the open authorization with *state*."""
        ...

    async def close(self, authorization: Authorization, /) -> bool:
        """End *authorization*. True for exactly one of those who try."""
        ...

    async def authorizations(self, owner: Owner, /, *, now: datetime) -> Sequence[Authorization]:
        """Return the open authorizations of *owner*."""
        ...


class MemoryVault:
    """A vault in memory: what is in it is lost with the process. At most *size* authorizations are open."""

    def __init__(self, *, size: int = 10_000) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._versions = 0
        self._grants: dict[Owner, StoredGrant] = {}
        self._open: dict[str, Authorization] = {}
        self._turns: dict[Owner, Semaphore] = {}

    async def get(self, owner: Owner, /) -> StoredGrant | None:
        return self._grants.get(owner)

    async def put(self, owner: Owner, grant: Grant, /, *, version: int | None) -> bool:
        with self._lock:
            stored_grant = self._grants.get(owner)
            if version != version_of(stored_grant):
                return False
            self._versions += 1
            self._grants[owner] = StoredGrant(grant, self._versions)
            return True

    async def remove(self, owner: Owner, /, *, version: int | None = None) -> bool:
        with self._lock:
            stored_grant = self._grants.get(owner)
            if stored_grant is None or version not in (None, stored_grant.version):
                return False
            del self._grants[owner]
            return True

    async def owned_by(self, principal: str, /) -> Sequence[tuple[Owner, Grant | None]]:
        with self._lock:
            return [(owner, item.grant) for owner, item in self._grants.items() if owner.principal == principal]

    @asynccontextmanager
    async def alone(self, owner: Owner, /):  # type: ignore[no-untyped-def]
        turn = self._turns.setdefault(owner, Semaphore(1))
        permit = await turn.acquire()
        try:
            yield
        finally:
            turn.release(permit)

    async def open(self, authorization: Authorization, /, *, now: datetime) -> Authorization:
        with self._lock:
            for waiting in list(self._open.values()):
                if waiting.expires_at <= now:
                    del self._open[text_digest(waiting.state)]
                elif is_same(waiting, authorization):
                    return waiting
            while len(self._open) >= self._size:
                del self._open[next(iter(self._open))]
            self._open[text_digest(authorization.state)] = authorization
            return authorization

    async def find(self, state: str, /, *, now: datetime) -> Authorization | None:
        authorization = self._open.get(text_digest(state))
        return authorization if authorization is not None and authorization.expires_at > now else None

    async def close(self, authorization: Authorization, /) -> bool:
        with self._lock:
            return self._open.pop(text_digest(authorization.state), None) is not None

    async def authorizations(self, owner: Owner, /, *, now: datetime) -> Sequence[Authorization]:
        with self._lock:
            return [item for item in self._open.values() if item.owner == owner and item.expires_at > now]


def is_same(one: Authorization, other: Authorization) -> bool:
    """Return whether both ask the same of the same owner."""
    return (one.owner, sorted(one.scopes), one.redirect_uri) == (other.owner, sorted(other.scopes), other.redirect_uri)
