"""How people enter: by a link at their own computer, by a key, or by the identity that the host gives their browser."""

from starlette.responses import Response

from ...core import Caller, SetupError
from ..authentication import Authenticator
from ..callers import AuthenticationError, Identify, identified, local_caller
from ..throttle import Throttle
from ..wire import encoded_path
from .sessions import SESSION_AGE, THREAD, Session, Sessions
from .visit import Answer, Problem, Visit, redirect, render

_MAX_KEY_CHARS = 200


class Login:
    """The ways into the console of a server whose callers *identify* knows."""

    def __init__(self, identify: Identify, sessions: Sessions) -> None:
        self._identify = identify
        self._sessions = sessions
        self._throttle = Throttle()
        self._keys = identify.keys if isinstance(identify, Authenticator) else None

    async def session(self, visit: Visit) -> Session | None:
        """Return the session of the browser; None where it has none. Raises AuthenticationError and StoreError."""
        session = await self._sessions.find(visit.cookie, visit.base_url) if visit.cookie else None
        if self._identify is local_caller:
            return session
        if not isinstance(self._identify, Authenticator):
            caller = await _at_browser(self._identify, visit)
            # A host that knows its browsers needs no login here; the session is what its forms are of.
            return session if session is not None and session.caller == caller else None
        if session is None or session.key_id is None:
            return session
        key = None if self._keys is None else await self._keys.get(session.key_id)
        return None if key is None or key.principal != session.caller.principal else session

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
        link = visit.request.query_params.get("link")
        if visit.request.method == "POST":
            return await self._enter_by_key(visit)
        if link is None or self._identify is not local_caller:
            return self.page(visit) if await self.session(visit) is None else redirect(visit, "/")
        session = await self._sessions.follow_link(link, visit.base_url)
        if session is None:
            raise Problem(410, "This link was used, or is too old", "Make a new one: toolcrib console")
        return await self._begin(visit, session.caller, None)

    def page(self, visit: Visit) -> Response:
        """Return the page that asks who is there."""
        return render(visit, "login.html", 401, by_key=self._keys is not None, is_local=self._identify is local_caller)

    async def end(self, visit: Visit) -> Response:
        await self._sessions.end(visit.cookie)
        answer = redirect(visit, "/login")
        answer.delete_cookie(visit.cookie_name, path="/", secure=visit.origin.startswith("https:"), httponly=True)
        return answer

    async def _enter_by_key(self, visit: Visit) -> Response:
        await visit.read_form()
        text = visit.form.get("key")
        if self._keys is None:
            raise Problem(404, "Not found", "This server is not entered by a key.")
        if not isinstance(text, str) or not 0 < len(text := text.strip()) <= _MAX_KEY_CHARS:
            return self._refused(visit, "Enter a key: toolcrib_...")
        address = (visit.request.scope.get("client") or ("",))[0]
        try:
            async with self._throttle.trying(address):
                key = await self._keys.find(text)
                if key is None:
                    raise AuthenticationError("There is no such key, or it has expired or was revoked.")
        except AuthenticationError as refused:
            return self._refused(visit, str(refused))
        return await self._begin(visit, key.caller, key.id)

    def _refused(self, visit: Visit, message: str) -> Response:
        return render(visit, "login.html", 401, by_key=True, is_local=False, message=message)

    async def _begin(self, visit: Visit, caller: Caller, key_id: str | None, to: str = "/") -> Response:
        """Return the answer that makes this browser the one of *caller*, at an address without a secret."""
        if visit.cookie:
            await self._sessions.end(visit.cookie)
        token = await self._sessions.begin(caller, visit.base_url, key_id=key_id)
        answer = redirect(visit, to)
        answer.set_cookie(
            visit.cookie_name,
            token,
            max_age=int(SESSION_AGE.total_seconds()),
            path="/",
            secure=visit.origin.startswith("https:"),
            httponly=True,
            samesite="lax",
        )
        return answer


async def _at_browser(identify: Identify, visit: Visit) -> Caller:
    """Return the caller that the host knows to be at the browser."""
    try:
        caller = await identified(identify, visit.request.headers.items())
    except (AuthenticationError, SetupError):
        raise
    except Exception as error:
        raise AuthenticationError("The host does not know who is at this browser. Log in there.") from error
    return Caller(caller.principal, caller.profile, THREAD, caller.groups, caller.claims)
