"""Authorizations: what a person is asked to grant, what they see of it, and what comes of it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_urlsafe
from typing import Literal
from urllib.parse import urlencode

from ..core import Caller, Pending, ToolcribError
from .grant import Owner
from .vault import Authorization

_WITHIN = timedelta(minutes=10)


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
        self,
        message: str,
        reason: Literal["unknown", "foreign", "denied", "failed"],
        pending_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.pending_id = pending_id


def new_authorization(
    owner: Owner, *, thread: str, scopes: Sequence[str], redirect_uri: str, form_uri: str | None, now: datetime
) -> Authorization:
    """Return an authorization that *owner* has just been asked for; its address is that of the form, where there is
    one.
    """
    state = token_urlsafe(32)
    return Authorization(
        id=f"pending_{token_urlsafe(16)}",
        owner=owner,
        thread=thread,
        scopes=scopes,
        expires_at=now + _WITHIN,
        url="" if form_uri is None else f"{form_uri}?{urlencode({'state': state})}",
        state=state,
        verifier=token_urlsafe(48),
        redirect_uri=redirect_uri,
    )


def pending_of(authorization: Authorization, *, title: str, tool: str, has_ended: bool = False) -> Pending:
    """Return what a person is shown of *authorization*.

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
    return Pending(
        id=authorization.id,
        kind="authorization",
        message=message,
        digest=_digest(authorization),
        tool=tool,
        principal=owner.principal,
        thread=authorization.thread,
        expires_at=authorization.expires_at,
        url=authorization.url or None,
    )


def _digest(authorization: Authorization) -> str:
    about = ["authorization", authorization.id, *authorization.owner.binding]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()
