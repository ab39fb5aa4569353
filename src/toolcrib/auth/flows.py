"""The requests of OAuth 2.0, and what providers answer, with what each does differently as its table says.

Parameters are written by authlib, requests are sent by `net`. No message here quotes a token, a code or a secret.
"""

import json
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qsl

import httpx2
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc.errors import JoseError
from joserfc.jwk import import_key
from joserfc.jws import JWSRegistry, extract_compact

from ..core import ToolcribError
from ..machinery import MIN_SECRET_CHARS
from .catalogue import METHOD_NAMES, Client, OAuth2, document_urls, filled, require_endpoint, with_document
from .grant import Grant

_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ASSERTION = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name (RFC 8693)
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_KEY_KINDS: tuple[Literal["RSA", "EC", "OKP"], ...] = ("RSA", "EC", "OKP")
_CODE = re.compile(r"[A-Za-z_]{1,40}")
_MAX_LIFETIME_S = 1e9
_MAX_TOKEN_CHARS, _MAX_SCOPES_CHARS, _MAX_DETAIL_CHARS = 16 * 1024, 16 * 1024, 2000
_MIN_POLL_INTERVAL_S = 0.05


class FlowError(ToolcribError):
    """A provider refused, or did not answer as it should. *error* is its code (RFC 6749, 5.2), or one of ours.

    With `refused`, asking the same again is no use: the person has to log in again.
    """

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error

    @property
    def refused(self) -> bool:
        return self.error in ("invalid_grant", "access_denied", "expired_token", "invalid_scope")


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a person enters where (RFC 8628). Who started it polls every *interval_s*."""

    device_code: str = field(repr=False)
    user_code: str
    verification_url: str
    expires_at: datetime
    interval_s: float


@dataclass(frozen=True, slots=True)
class Flow:
    """The OAuth requests of one provider, for one client. *discovered* has the tables of issuers, by provider.

    *clock* gives the time from which what a provider grants expires.
    """

    name: str
    oauth2: OAuth2
    client: Client
    http: Callable[[], httpx2.AsyncClient] = field(repr=False)
    discovered: MutableMapping[str, OAuth2] = field(default_factory=dict[str, OAuth2], repr=False)
    on_answer: Callable[[Mapping[str, Any]], None] | None = field(default=None, repr=False)
    """Is given each answer that became a grant, as the provider wrote it: with its secrets."""
    clock: Callable[[], datetime] = field(default=partial(datetime.now, UTC), repr=False)

    async def table(self) -> OAuth2:
        """Return the provider's table. Where it has an issuer in place of endpoints, these are discovered there."""
        table = self.oauth2
        if table.token_url is not None or table.issuer is None:
            return table
        if self.name not in self.discovered:
            self.discovered[self.name] = await self._discover(self._filled(table.issuer))
        return self.discovered[self.name]

    async def require_issuer(self, iss: str | None) -> None:
        """Raise FlowError unless *iss*, of a callback, is the provider's (RFC 9207)."""
        table = await self.table()
        if table.issuer is None or (iss is None and not table.iss_required):
            return
        if iss != self._filled(table.issuer):
            raise FlowError("The answer comes from another provider than the one that was asked (RFC 9207).", "foreign")

    async def authorization_url(self, *, redirect_uri: str, scopes: Sequence[str], state: str, verifier: str) -> str:
        """Return where a person grants *scopes* (RFC 6749, 4.1.1; with PKCE, RFC 7636)."""
        table = await self.table()
        return self.url_of(table, redirect_uri=redirect_uri, scopes=scopes, state=state, verifier=verifier)

    def url_of(self, table: OAuth2, *, redirect_uri: str, scopes: Sequence[str], state: str, verifier: str) -> str:
        """Return the same as `authorization_url` for a *table* that has its endpoints."""
        if table.authorize_url is None:
            raise FlowError(f"'{self.name}' has no authorization endpoint.", "unsupported")
        parameters = dict(table.parameters)
        if table.pkce:
            challenge: str = create_s256_code_challenge(verifier)  # type: ignore[no-untyped-call]
            parameters |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        if table.scoped and scopes:
            parameters[table.scope_parameter] = table.scope_separator.join(scopes)
        parameters |= {"redirect_uri": redirect_uri, "state": state, **_resource(table)}
        try:
            url: str = prepare_grant_uri(self._filled(table.authorize_url), self.client.id, "code", **parameters)
        except UnicodeEncodeError:
            raise FlowError(f"What is asked of '{self.name}' is not text that can be sent.", "malformed") from None
        return url

    async def exchange_code(self, code: str, *, redirect_uri: str, verifier: str, scopes: Sequence[str]) -> Grant:
        """Return the grant for an authorization code (RFC 6749, 4.1.3).

        *verifier* is empty where the URL had no PKCE.
        """
        body = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        if verifier and (await self.table()).pkce:
            body["code_verifier"] = verifier
        return await self._token(body, scopes)

    async def refresh(self, grant: Grant) -> Grant:
        """Return a new access token (RFC 6749, 6).

        The refresh token is the new one, or the old where it can be used again.
        """
        if not grant.refresh_token:
            raise FlowError(f"'{self.name}' gave no refresh token.", "invalid_grant")
        body = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
        return await self._token(body, grant.scopes, grant)

    async def client_credentials(self, scopes: Sequence[str]) -> Grant:
        """Return a token of the program's own (RFC 6749, 4.4)."""
        return await self._token({"grant_type": "client_credentials", **await self._scopes(scopes)}, scopes)

    async def exchange_token(self, subject_token: str, *, scopes: Sequence[str], audience: str | None = None) -> Grant:
        """Return a token for *audience* in exchange for *subject_token*, an access token (RFC 8693)."""
        body = {"grant_type": _EXCHANGE, "subject_token": subject_token, "subject_token_type": _ACCESS_TOKEN}
        body |= await self._scopes(scopes) | ({"audience": audience} if audience else {})
        return await self._token(body, scopes)

    async def identity_assertion(self, id_token: str, *, audience: str, resource: str, scopes: Sequence[str]) -> str:
        """Return what the authorization server *audience* takes for a grant by the person of *id_token*.

        It is an ID-JAG for *resource* (draft-ietf-oauth-identity-assertion-authz-grant, 4.3).
        """
        body = {"grant_type": _EXCHANGE, "requested_token_type": _ID_JAG, "audience": audience, "resource": resource}
        body |= {"subject_token": id_token, "subject_token_type": _ID_TOKEN, **await self._scopes(scopes)}
        table = await self.table()
        assert table.token_url is not None
        answer = await self._post(table.token_url, body)
        assertion = self._secret(answer, "access_token")  # so it is called there, whatever it is (RFC 8693, 2.2.1)
        if assertion is None or answer.get("issued_token_type") != _ID_JAG:
            raise self._malformed()
        return assertion

    async def exchange_assertion(self, assertion: str, scopes: Sequence[str]) -> Grant:
        """Return a token in exchange for an *assertion* (RFC 7523, 2.1)."""
        body = {"grant_type": _ASSERTION, "assertion": assertion, **await self._scopes(scopes)}
        return await self._token(body, scopes)

    async def start_device(self, scopes: Sequence[str]) -> DeviceCode:
        """Begin the flow for a device without a browser (RFC 8628, 3.1)."""
        table = await self.table()
        if table.device_url is None:
            raise FlowError(f"'{self.name}' has no device authorization endpoint.", "unsupported")
        answer = await self._post(table.device_url, await self._scopes(scopes))
        device_code = self._secret(answer, "device_code")
        user_code = self._secret(answer, "user_code")
        names = ("verification_uri_complete", "verification_uri", "verification_url")  # the last is Google's
        url = next((text for name in names if (text := self._secret(answer, name))), None)
        if not (device_code and user_code and url):
            raise self._malformed()
        try:
            require_endpoint(url)
        except ValueError:
            raise self._malformed() from None
        lives_s = min(self._seconds(answer.get("expires_in")) or 600.0, 86_400.0)
        pause_s = min(max(self._seconds(answer.get("interval")) or 5.0, _MIN_POLL_INTERVAL_S), 60.0)
        return DeviceCode(device_code, user_code, url, self.clock() + timedelta(seconds=lives_s), pause_s)

    async def poll_device(self, device_code: str, scopes: Sequence[str]) -> Grant | Literal["pending", "slow_down"]:
        """Return the grant once a person has entered the code (RFC 8628, 3.4)."""
        try:
            return await self._token({"grant_type": _DEVICE, "device_code": device_code}, scopes)
        except FlowError as error:
            if error.error == "authorization_pending":
                return "pending"
            if error.error == "slow_down":
                return "slow_down"
            raise

    async def revoke(self, grant: Grant) -> bool:
        """Return whether the provider was told that *grant* ends: as RFC 7009 says, or as its table does."""
        table = await self.table()
        url, refresh, access = table.revoke_url, grant.refresh_token, grant.access_token
        if url is None:
            return False
        match table.revoke:
            case "bearer":
                for token in filter(None, (refresh, access)):
                    await self._post(url, {}, auth=httpx2.FunctionAuth(partial(_bearer, token)), may_be_empty=True)
            case "delete":
                auth = _ClientAuth(self.client.id, self.client.secret, "client_secret_basic", "json")
                await self._post(url, {"access_token": access}, auth=auth, method="DELETE", may_be_empty=True)
            case "named":
                body = {"refresh_token": refresh} if refresh else {"access_token": access}
                await self._post(url, body, may_be_empty=True)
            case kind:
                token = access if kind == "access_token" else refresh or access
                await self._post(url, {"token": token}, may_be_empty=True)
        return True

    async def _scopes(self, scopes: Sequence[str]) -> dict[str, str]:
        return {"scope": (await self.table()).scope_separator.join(scopes)} if scopes else {}

    def _filled(self, template: str) -> str:
        try:
            url = filled(template, {"client_id": self.client.id}, self.client.parameters)
            require_endpoint(url)
        except ToolcribError as missing:
            raise FlowError(
                f"'{self.name}' needs the setting '{missing}': [auth.{self.name}] {missing} = \"...\".", "unsupported"
            ) from None
        except ValueError as error:
            raise FlowError(f"'{self.name}': {error}, in [auth.{self.name}].", "unsupported") from None
        return url

    # Requests

    async def _discover(self, issuer: str) -> OAuth2:
        for url in document_urls(issuer):
            response = await self._send("GET", url)
            if response.status_code == 200 and (document := _read(response)):
                with suppress(ValueError):  # a message of pydantic would quote the document
                    return with_document(self.oauth2, document, issuer)
            if response.status_code >= 500:
                raise FlowError(f"'{self.name}' failed with status {response.status_code}.", "unreachable")
        raise FlowError(f"The issuer of '{self.name}' has no valid metadata (RFC 8414).", "malformed")

    async def _token(self, body: Mapping[str, str], asked: Sequence[str], before: Grant | None = None) -> Grant:
        table = await self.table()
        assert table.token_url is not None
        answer = await self._post(table.token_url, {**body, **_resource(table)})
        grant = self._grant(table, answer, asked, before)
        if self.on_answer is not None:
            self.on_answer(answer)
        return grant

    async def _post(
        self,
        url: str,
        body: Mapping[str, str],
        *,
        auth: httpx2.Auth | None = None,
        method: str = "POST",
        may_be_empty: bool = False,
    ) -> dict[str, Any]:
        """Return what the provider answered. Raises FlowError."""
        table = await self.table()
        if auth is None:
            auth = self._client_auth(table, url)
        response = await self._send(method, self._filled(url), body, auth, table.headers)
        answer, status = _read(response), response.status_code
        code = answer.get("error")
        has_failed = table.error_status_ok and answer and answer.get("ok") is not True
        if 300 <= status < 400:
            # The server that is named there must not get the client's secret.
            raise FlowError(f"'{self.name}' answered with a redirect, which is not followed.", "redirected")
        if code or has_failed or status >= 400:
            raise self._refusal(table, code, status)
        if not answer and not may_be_empty:
            raise self._malformed()
        return answer

    def _client_auth(self, table: OAuth2, url: str) -> httpx2.Auth:
        """Return what proves at *url* that this is the client: its secret, or what its key signs (RFC 7523, 2.2)."""
        client = self.client
        proof: Any = client.secret
        method: Any = METHOD_NAMES[table.client_auth if client.secret else "none"]
        if client.private_key:
            proof, algorithm = _signing_key(client.private_key)
            if proof is None:
                reason = "is not a private key: a PEM without a password, or a JWK"
                raise FlowError(f"The private_key of '{self.name}' {reason}.", "unsupported")
            headers = {"kid": proof.kid} if proof.kid else None
            method = PrivateKeyJWT(table.issuer or self._filled(url), headers=headers, alg=algorithm)
        return _ClientAuth(client.id, proof, method, table.body)

    async def _send(
        self,
        method: str,
        url: str,
        body: Mapping[str, str] | None = None,
        auth: httpx2.Auth | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        options: dict[str, Any] = {"auth": auth, "follow_redirects": False}
        options["headers"] = {"Accept": "application/json", **(headers or {})}
        options["data"] = None if body is None else dict(body)
        try:
            async with self.http() as http:
                if method == "POST":  # by the method of that name, which programs replace in their tests
                    return await http.post(url, **options)
                return await http.request(method, url, **options)
        except (httpx2.HTTPError, httpx2.InvalidURL, ToolcribError, ValueError) as error:
            raise FlowError(f"'{self.name}' cannot be reached: {type(error).__name__}.", "unreachable") from None

    # Answers

    def _refusal(self, table: OAuth2, error: Any, status: int) -> FlowError:
        # Of what a provider says, only a code that looks like one: a text could quote a secret.
        code = error if isinstance(error, str) and _CODE.fullmatch(error) else ""
        if not code and status >= 500:
            return FlowError(f"'{self.name}' failed with status {status}.", "unreachable")
        reason = code or f"status {status}"
        if code in table.ended_errors:
            code = "invalid_grant"
        return FlowError(f"'{self.name}' refused: {reason}.", code or f"status_{status}")

    def _malformed(self) -> FlowError:
        return FlowError(f"'{self.name}' sent an answer that is not valid OAuth 2.0.", "malformed")

    def _grant(self, table: OAuth2, answer: Mapping[str, Any], asked: Sequence[str], before: Grant | None) -> Grant:
        token = self._token_in(table, answer, is_refresh=before is not None)
        access = self._secret(token, "id_token" if table.id_token else "access_token")
        refresh = self._refresh_token(table, token, before)
        if access is None:
            raise self._malformed()
        lives_s = self._seconds(token.get("expires_in")) or (table.lifetime_s if refresh else None)
        if table.id_token:  # it ends by itself, not with the access token
            lives_s = self._seconds(self._ends(access) - self.clock().timestamp())
        granted = self._granted(token.get("scope"), asked)
        return Grant(
            access_token=access,
            refresh_token=refresh,
            scopes=_with_implied(table, granted, can_refresh=bool(refresh)),
            expires_at=None if lives_s is None else self.clock() + timedelta(seconds=lives_s),
            detail={**(before.detail if before else {}), **_details(table, answer)},
        )

    def _refresh_token(self, table: OAuth2, token: Mapping[str, Any], before: Grant | None) -> str | None:
        """Return the refresh token of an answer, or of the grant *before* where that can be used again."""
        refresh = self._secret(token, "refresh_token")
        if before is not None and table.refresh == "kept":
            refresh = refresh or before.refresh_token  # where it rotates, the old one is spent
        return None if table.refresh == "none" else refresh

    def _token_in(self, table: OAuth2, answer: Mapping[str, Any], *, is_refresh: bool) -> Mapping[str, Any]:
        """Return what has the token: the answer, or a member of it. Raises FlowError for one of another type."""
        token: Any = answer.get(table.token_member) if table.token_member else answer
        if is_refresh and (not isinstance(token, dict) or "access_token" not in token):
            token = answer  # a refresh is answered without the member
        if not isinstance(token, Mapping):
            raise self._malformed()
        kind = token.get("token_type")
        if kind is not None and table.token_types and not (isinstance(kind, str) and kind.lower() in table.token_types):
            raise self._malformed()
        return token

    def _granted(self, scope: Any, asked: Sequence[str]) -> Sequence[str]:
        """Return the scopes in an answer: text, or a list as some write it. Of the characters of RFC 6749, A.4."""
        if scope is None or scope == "":
            return asked  # without a word on scopes, they are those that were asked for (RFC 6749, 5.1)
        scopes: Any = scope.replace(",", " ").split() if isinstance(scope, str) else scope
        if not (isinstance(scopes, list) and all(isinstance(word, str) and _is_token(word) for word in scopes)):
            raise self._malformed()
        if sum(map(len, scopes)) + len(scopes) > _MAX_SCOPES_CHARS:
            raise self._malformed()
        return scopes

    def _secret(self, answer: Mapping[str, Any], name: str) -> str | None:
        """Return the text *name* of *answer*, of the characters of RFC 6749, A, and so long that it can be redacted."""
        value = answer.get(name)
        if value is None or value == "":
            return None
        if not (isinstance(value, str) and value.isascii() and value.isprintable() and value.strip() == value):
            raise self._malformed()
        if not MIN_SECRET_CHARS <= len(value) <= _MAX_TOKEN_CHARS:
            raise self._malformed()
        return value

    def _ends(self, id_token: str) -> float:
        """Return when *id_token* ends: as it says, since it came from its issuer itself (OpenID Connect, 3.1.3.7)."""
        try:
            return float(json.loads(extract_compact(id_token.encode()).payload)["exp"])
        except (ValueError, KeyError, TypeError, JoseError):
            raise self._malformed() from None

    def _seconds(self, value: Any) -> float | None:
        """Return a duration, also where it is text. None for one that has no end: absent, 0, or decades."""
        if value is None:
            return None
        try:
            seconds = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
        except (ValueError, OverflowError):
            seconds = -1.0
        if not seconds >= 0:
            raise self._malformed()
        return seconds if 0 < seconds < _MAX_LIFETIME_S else None


class _ClientAuth(httpx2.Auth):
    """Authenticates the client by authlib; where a provider wants JSON, the body is written as that."""

    requires_request_body = True

    def __init__(self, client_id: str, proof: Any, method: Any, body: str) -> None:
        self._auth = ClientAuth(client_id, proof, method)
        self._body = body

    def auth_flow(self, request: httpx2.Request) -> Any:
        headers = dict(request.headers)
        parts: Any = self._auth.prepare(request.method, str(request.url), headers, request.content.decode())  # type: ignore[no-untyped-call]
        _, headers, body = parts
        if self._body == "json":
            headers["content-type"] = "application/json"
            body = json.dumps(dict(parse_qsl(body)))
        headers.pop("content-length", None)
        yield httpx2.Request(request.method, request.url, headers=headers, content=body, extensions=request.extensions)


def _bearer(token: str, request: httpx2.Request) -> httpx2.Request:
    """Authenticate *request* by *token* itself (RFC 6750)."""
    request.headers["Authorization"] = f"Bearer {token}"
    return request


def _signing_key(text: str) -> tuple[Any, str]:
    """Return the private key in *text* and the algorithm that it signs by; None for any other text."""
    for kind in _KEY_KINDS:
        try:
            key = import_key(json.loads(text) if text.lstrip().startswith("{") else text.strip(), kind)
        except (ValueError, TypeError, JoseError):
            continue
        guesses = (JWSRegistry.guess_algorithm(key, strategy) for strategy in JWSRegistry.Strategy)
        algorithm = key.alg or next((guess.name for guess in guesses if guess is not None), None)
        if key.is_private and algorithm is not None:
            return key, algorithm
    return None, ""


def _is_token(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text and text != ""


def _details(table: OAuth2, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return what the table keeps of an answer, for tools and hosts; and whose token it is, for a resource."""
    details = {"issuer": table.issuer, "resource": table.resource} if table.resource and table.issuer else {}
    texts = {name: str(answer[name]) for name in table.keep if isinstance(answer.get(name), str | int)}
    return details | {
        name: text for name, text in texts.items() if len(text) <= _MAX_DETAIL_CHARS and text.isprintable()
    }


def _with_implied(table: OAuth2, scopes: Sequence[str], *, can_refresh: bool) -> tuple[str, ...]:
    """Return *scopes*, those that the table says they imply, and the one for a refresh token where there is one."""
    implied = [name for scope in scopes for name in table.implied_scopes.get(scope, ())]
    offline = [table.offline_scope] if can_refresh and table.offline_scope else []
    return tuple(dict.fromkeys((*scopes, *implied, *offline)))


def _resource(table: OAuth2) -> dict[str, str]:
    return {} if table.resource is None else {"resource": table.resource}


def _read(response: httpx2.Response) -> dict[str, Any]:
    """Return the members of an answer: JSON, or form-encoded, as some write it. There are none in any other."""
    try:
        data: Any = response.json()
    except (ValueError, RecursionError):
        kind = response.headers.get("content-type") or "text/plain"
        # Not by the charset that it names: Python has some that are none.
        text = response.content.decode(errors="replace")
        data = dict(parse_qsl(text)) if "form-urlencoded" in kind or "text/plain" in kind else None
    return data if isinstance(data, dict) else {}
