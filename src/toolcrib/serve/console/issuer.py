"""How people enter by an issuer: the authorization code flow of OpenID Connect (Core 1.0, 3.1), with PKCE.

What a login is about is sealed in a cookie of the browser that has begun it: what comes back counts only there, once.
"""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from starlette.responses import RedirectResponse, Response

from ...core import Caller
from ...machinery import defer_package
from ..access.callers import AuthenticationError
from .sessions import FLOW_AGE, Sessions
from .visit import Visit, set_cookie

if TYPE_CHECKING:
    from ... import auth
    from ..access.tokens import AccessTokens
else:
    auth = defer_package("toolcrib.auth")  # most people enter by a link or a key

CALLBACK = "/console/callback"
_CODE = re.compile("[a-z_]{1,40}")


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
