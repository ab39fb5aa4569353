"""How people enter: by a link at their own computer, a key, an issuer, or as the host knows their browser."""

import re

from starlette.responses import Response

from ...core import Caller, SetupError
from ..access.authentication import Authenticator
from ..access.callers import AuthenticationError, Identify, identified, local_caller, single_headers
from ..access.keys import AccessKey
from ..access.throttle import Throttle
from ..wire import encoded_path
from .issuer import Issuers
from .sessions import SESSION_AGE, THREAD, Session, Sessions
from .visit import Answer, Problem, Visit, redirect, render, set_cookie

_MAX_KEY_CHARS = 200
_OWN_PATH = re.compile(r"/(?:[\w.%-][!-\[\]-~]{0,499})?", re.ASCII)
"""No address of another server, as `//` or `/\\` would begin."""


class Login:
    """The ways into the console of a server whose callers *identify* knows."""

    def __init__(self, identify: Identify, sessions: Sessions) -> None:
        self._identify = identify
        self._sessions = sessions
        self._throttle = Throttle()
        self._keys = identify.keys if isinstance(identify, Authenticator) else None
        self._issuers = Issuers(identify.issuers.values() if isinstance(identify, Authenticator) else (), sessions)

    async def session(self, visit: Visit) -> Session | None:
        """Return the session of the browser; None where it has none. Raises AuthenticationError and StoreError."""
        session = await self._sessions.find(visit.cookie, visit.base_url) if visit.cookie else None
        if self._identify is local_caller:
            return session
        if not isinstance(self._identify, Authenticator):
            caller = await _at_browser(self._identify, visit)
            # A host that knows its browsers needs no login here; the session is what its forms are of.
            return session if session is not None and session.caller == caller else None
        if session is None or session.by is None or session.by in self._issuers:
            return session
        return session if await self._is_key_of(session.caller, session.by) else None

    async def _is_key_of(self, caller: Caller, key_id: str) -> bool:
        key = None if self._keys is None else await self._keys.get(key_id)
        return key is not None and key.principal == caller.principal

    async def enter(self, visit: Visit) -> Answer:
        """Return the answer to a browser without a session: a login; or a session, where the host knows who it is."""
        if self._identify is local_caller or isinstance(self._identify, Authenticator):
            return self.page(visit)
        if visit.request.method not in ("GET", "HEAD"):
            raise Problem(403, "Not from this page", "This form is of another login. Open its page again.")
        return await self._begin(
            visit, await _at_browser(self._identify, visit), None, encoded_path(visit.request.scope)
        )

    async def answer(self, visit: Visit) -> Answer:
        """Return the answer at `/login`."""
        query = visit.request.query_params
        link, issuer = query.get("link"), query.get("issuer")
        if visit.request.method == "POST":
            return await self._enter_by_key(visit)
        if link is None or self._identify is not local_caller:
            if await self.session(visit) is not None:
                return redirect(visit, _goal(visit))
            return self.page(visit) if issuer is None else await self._issuers.begin(visit, issuer, _goal(visit))
        session = await self._sessions.follow_link(link, visit.base_url)
        if session is None:
            raise Problem(410, "This link was used, or is too old", "Make a new one: toolcrib console")
        return await self._begin(visit, session.caller, None)

    async def come_back(self, visit: Visit) -> Answer:
        """Return the answer to a browser that an issuer sends here."""
        async with self._throttle.trying(_address(visit)):
            caller, issuer, goal = await self._issuers.finish(visit)
        answer = await self._begin(visit, caller, issuer, goal)
        self._issuers.forget(visit, answer)
        return answer

    def page(self, visit: Visit, message: str | None = None) -> Response:
        """Return the page that asks who is there; *message* says what was wrong with a key."""
        goal, by_key = _goal(visit), self._keys is not None
        ways = {"is_local": self._identify is local_caller, "by_key": by_key, "issuers": self._issuers.links(goal)}
        return render(visit, "login.html", 401, **ways, goal=goal, message=message)

    async def end(self, visit: Visit) -> Response:
        await self._sessions.end(visit.cookie)
        answer = redirect(visit, "/login")
        set_cookie(visit, answer, visit.cookie_name, "", SESSION_AGE * 0)
        return answer

    async def _enter_by_key(self, visit: Visit) -> Response:
        await visit.read_form()
        text = visit.form.get("key")
        keys = self._keys
        if keys is None:
            raise Problem(404, "Not found", "This server is not entered by a key.")
        if not isinstance(text, str) or not 0 < len(text := text.strip()) <= _MAX_KEY_CHARS:
            return self.page(visit, "Enter a key: toolcrib_...")

        async def find() -> AccessKey:
            key = await keys.find(text)
            if key is None:
                raise AuthenticationError("There is no such key, or it has expired or was revoked.")
            return key

        try:
            key = await self._throttle.admit(text, _address(visit), find)
        except AuthenticationError as refused:
            return self.page(visit, str(refused))
        return await self._begin(visit, key.caller, key.id, _goal(visit))

    async def _begin(self, visit: Visit, caller: Caller, by: str | None, to: str = "/") -> Response:
        """Return the answer that makes this browser the one of *caller*, at an address without a secret."""
        if visit.cookie:
            await self._sessions.end(visit.cookie)
        token = await self._sessions.begin(caller, visit.base_url, by=by)
        answer = redirect(visit, to)
        set_cookie(visit, answer, visit.cookie_name, token, SESSION_AGE)
        return answer


def _goal(visit: Visit) -> str:
    """Return where a login leads: the page that was asked for, or that a form or link names, if it is one of ours."""
    request = visit.request
    if (path := encoded_path(request.scope)) == "/login":
        path = str(visit.form.get("to") or request.query_params.get("to"))
    elif request.method not in ("GET", "HEAD"):
        path = "/"
    elif query := request.url.query:
        path += f"?{query}"
    return path if _OWN_PATH.fullmatch(path) else "/"


def _address(visit: Visit) -> str:
    return (visit.request.scope.get("client") or ("",))[0]


async def _at_browser(identify: Identify, visit: Visit) -> Caller:
    """Return the caller that the host knows to be at the browser."""
    try:
        caller = await identified(identify, single_headers(visit.request.scope))
    except (AuthenticationError, SetupError):
        raise
    except Exception as error:
        raise AuthenticationError("The host does not know who is at this browser. Log in there.") from error
    return Caller(caller.principal, caller.profile, THREAD, caller.groups, caller.claims)
