"""How people enter: by a link at their own computer, a key, an issuer, or as the host knows their browser.

At an issuer that is the authorization code flow of OpenID Connect (Core 1.0, 3.1), with PKCE. What a login is about is
sealed in a cookie of the browser that has begun it: what comes back counts only there, once.
"""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from starlette.responses import RedirectResponse, Response

from ...core import Caller, SetupError
from ...machinery import defer_package
from ..access.authentication import Authenticator
from ..access.callers import AuthenticationError, Identify, identified, local_caller, single_headers
from ..access.keys import AccessKey
from ..access.throttle import Throttle
from ..wire import encoded_path
from .sessions import FLOW_AGE, SESSION_AGE, THREAD, Session, Sessions
from .visit import Answer, Problem, Visit, redirect, render, set_cookie

if TYPE_CHECKING:
    from ... import auth
    from ..access.tokens import AccessTokens
else:
    auth = defer_package("toolcrib.auth")  # most people enter by a link or a key

CALLBACK = "/console/callback"
_CODE = re.compile("[a-z_]{1,40}")
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
        caller = await _at_browser(self._identify, visit)
        return await self._begin(visit, caller, None, encoded_path(visit.request.scope))

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


# At an issuer


class Issuers:
    """The issuers at which people log in: those of *tokens* that know this server as a client."""

    def __init__(self, tokens: "Iterable[AccessTokens]", sessions: Sessions) -> None:
        self._tokens = {issuer.issuer: issuer for issuer in tokens if issuer.client is not None}
        self._sessions = sessions

    def __contains__(self, issuer: object) -> bool:
        return issuer in self._tokens

    def links(self, to: str) -> Sequence[tuple[str, str]]:
        """Return the host of each, and the query of `/login` that begins a login there which leads to *to*."""
        return [(urlsplit(issuer).netloc, urlencode({"issuer": issuer, "to": to})) for issuer in self._tokens]

    async def begin(self, visit: Visit, issuer: str, to: str) -> Response:
        """Return the answer that sends the browser to *issuer*, and later to *to*. Raises AuthenticationError."""
        if (tokens := self._tokens.get(issuer)) is None:
            raise AuthenticationError("This server has no login there.", status=404)
        state, nonce, verifier = (token_urlsafe(32) for _ in range(3))
        login = {"issuer": issuer, "state": state, "nonce": nonce, "verifier": verifier, "to": to}
        flow, scopes = await _flow(tokens, nonce, [])
        try:
            url = await flow.authorization_url(
                redirect_uri=f"{visit.base_url}{CALLBACK}", scopes=scopes, state=state, verifier=verifier
            )
        except auth.FlowError as error:
            raise _refusal(error) from None
        answer = RedirectResponse(url, 303)
        set_cookie(visit, answer, _cookie(visit), self._sessions.sealed(login, visit.base_url), FLOW_AGE)
        return answer

    async def finish(self, visit: Visit) -> tuple[Caller, str, str]:
        """Return who comes back from an issuer, from which, and where they wanted to go. Raises AuthenticationError."""
        query = visit.request.query_params
        login, tokens = await self._begun(visit)
        answers: list[Mapping[str, Any]] = []
        flow, scopes = await _flow(tokens, login["nonce"], answers)
        try:
            await flow.require_issuer(query.get("iss"))
            if (code := query.get("error")) is not None:
                reason = f": {code}" if _CODE.fullmatch(code) else ""
                raise AuthenticationError(f"{flow.name} did not let you in{reason}. Log in again.", status=403)
            parameters = {"redirect_uri": f"{visit.base_url}{CALLBACK}", "verifier": login["verifier"]}
            grant = await flow.exchange_code(query.get("code", ""), **parameters, scopes=scopes)
        except auth.FlowError as error:
            raise _refusal(error) from None
        if absent := [scope for scope in tokens.scopes if scope not in grant.scopes]:
            message = f"{flow.name} did not grant what this server asks of everybody: {' '.join(absent)}."
            raise AuthenticationError(f"{message} Ask the operator.", status=403)
        try:
            return await tokens.person(str(answers[0].get("id_token")), login["nonce"]), tokens.issuer, login["to"]
        except AuthenticationError as refused:
            if refused.status == 503:
                raise
            message = f"The ID token of {flow.name} is not of this login, or not for 'client_id' of [server]."
            raise AuthenticationError(f"{message} Log in again.") from None

    async def _begun(self, visit: Visit) -> tuple[Mapping[str, str], "AccessTokens"]:
        """Return the login that this browser has begun and nothing has ended yet, and whose tokens it brings."""
        login = self._sessions.unsealed(visit.request.cookies.get(_cookie(visit), ""), visit.base_url) or {}
        tokens, state = self._tokens.get(login.get("issuer", "")), visit.request.query_params.get("state", "")
        is_its = hmac.compare_digest(state.encode(errors="replace"), login.get("state", "").encode())
        if tokens is None or not is_its or not await self._sessions.use(state):
            message = "This login is of another browser, was used, or is over ten minutes old. Log in again."
            raise AuthenticationError(message, status=400)
        return login, tokens

    def forget(self, visit: Visit, answer: Response) -> None:
        """Have the browser forget the login that is over."""
        set_cookie(visit, answer, _cookie(visit), "", FLOW_AGE * 0)


async def _flow(
    tokens: "AccessTokens", nonce: str, answers: list[Mapping[str, Any]]
) -> tuple["auth.Flow", Sequence[str]]:
    """Return the requests of a login with *nonce*, whose answers go to *answers*, and the scopes to ask for.

    Scopes that are required are those of a token for this server, as clients of MCP ask for it (RFC 8707).
    """
    document, host = await tokens.metadata(), urlsplit(tokens.issuer).netloc
    is_resource = tokens.scopes and urlsplit(tokens.audience).scheme in ("https", "http")
    table = auth.OAuth2(
        issuer=tokens.issuer, parameters={"nonce": nonce}, resource=tokens.audience if is_resource else None
    )
    try:
        table = auth.catalogue.with_document(table, document, tokens.issuer)
    except ValueError:  # that of pydantic would quote the document
        raise AuthenticationError(f"{host} publishes no endpoints for logins (RFC 8414).", status=502) from None
    assert tokens.client is not None
    flow = auth.Flow(host, table, tokens.client, tokens.http, on_answer=answers.append)
    return flow, tokens.login_scopes(document.get("scopes_supported"))


def _refusal(error: "auth.FlowError") -> AuthenticationError:
    is_wrong = error.error in ("invalid_grant", "foreign")
    advice = "Log in again." if is_wrong else "Try again later, or ask the operator."
    return AuthenticationError(f"{error} {advice}", status=401 if is_wrong else 502)


def _cookie(visit: Visit) -> str:
    return f"{visit.cookie_name}-login"
