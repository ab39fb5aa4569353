"""Access tokens of one issuer: JWTs (RFC 7519, RFC 9068) that it has signed, for this server; and its ID tokens.

The issuer's keys are found by its metadata, kept, and fetched again when they are old or when a token names one that is
not among them, which does not happen more often than every few seconds. What a token's header says of keys is ignored.
"""

import asyncio
import json
import logging
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from ...auth.catalogue import Client, document_urls, require_endpoint
from ...core import Caller, SetupError
from ...machinery import log_failure
from ...net import client as guarded_client
from .callers import AuthenticationError

try:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import Key, RSAKey, import_key
    from joserfc.jwt import JWTClaimsRegistry
except ModuleNotFoundError:
    raise SetupError(
        "Tokens of an issuer need the package 'joserfc', which is missing: pip install 'toolcrib[serve]'"
    ) from None

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""Signatures by a private key that only the issuer has: nothing symmetric, and never `none`."""

_TYPES = frozenset({None, "at+jwt", "application/at+jwt", "jwt"})
# Those of tokens that are no access tokens: ID tokens, logout and other events.
_FOREIGN = ("nonce", "at_hash", "c_hash", "s_hash", "events")
# Where issuers say what a token is for (Keycloak, Cognito and others), and what they say of access tokens.
_PURPOSES = ("typ", "token_use", "token_type")
_ACCESS = frozenset({"access", "access_token", "bearer", "at+jwt", "jwt"})
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_LEEWAY_S = 30
_FRESH_S, _KEPT_S, _PAUSE_S = 300.0, 24 * 3600.0, 5.0  # how old keys get, with the issuer and without; between tries
_MAX_SUBJECT_CHARS = 255
_MIN_RSA_BITS = 2048
_LONGEST_VALUE, _MOST_VALUES = 1000, 1000
_NOT_VALID = "This token is not valid here."

_log = logging.getLogger("toolcrib")

_Keys = Mapping[tuple[Any, str], Key]
"""By id and type: several types may share an id (RFC 7517, 4.5)."""


class AccessTokens:
    """Reads the access tokens of *issuer* (an https URL) that are for *audience* and have all of *scopes*.

    The principal is `ISSUER|SUBJECT`. Their groups are in the claim *groups_claim*, a list; of the others, those named
    in *claims* are kept for rules. A dot in the name of a claim leads into objects. *allow* are hosts and networks that
    may be reached although they are private, as of `net.client`. *client* is what the issuer knows this server as,
    where people may log in there. Raises SetupError.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        scopes: Iterable[str] = (),
        groups_claim: str = "groups",
        claims: Iterable[str] = (),
        allow: Iterable[str] = (),
        client: Client | None = None,
    ) -> None:
        url = urlsplit(issuer)
        if url.scheme not in ("https", "http") or not url.netloc or url.query or url.fragment or not _is_plain(issuer):
            raise SetupError("An issuer is a URL without a query, as its tokens have it: 'https://id.example.com'.")
        if not audience:
            raise SetupError("Tokens are for an audience: without one, those for other servers would be accepted.")
        if client is not None:
            try:
                require_endpoint(issuer)
            except ValueError as error:
                raise SetupError(f"People cannot log in at the issuer {issuer}: {error}.") from None
        self.issuer = issuer
        self.audience = audience
        self.client = client
        self.scopes = tuple(scopes)
        self._groups_claim = groups_claim
        self._claims = tuple(claims)
        self._allow = tuple(allow)
        self._keys: _Keys = {}
        self._metadata: Mapping[str, Any] = {}
        self._fetched_at_s = self._tried_at_s = float("-inf")
        self._lock = asyncio.Lock()

    async def caller(self, token: str) -> Caller:
        """Return the caller of *token*.

        Raises AuthenticationError: 401, 403 where scopes are missing, 503 without keys.
        """
        claims = await self._verified(token, aud=self.audience)
        purposes = {str(claims[name]).lower() for name in _PURPOSES if claims.get(name) is not None}
        if "cnf" in claims or any(name in claims for name in _FOREIGN) or purposes - _ACCESS:
            # Bound to a key whose possession nothing here has proved, or of another purpose.
            raise AuthenticationError("This token is not a bearer access token.")
        if absent := [scope for scope in self.scopes if scope not in _scopes(claims)]:
            message = f"The token lacks the scope{'s' * (len(absent) > 1)}: {' '.join(absent)}."
            raise AuthenticationError(message, "insufficient_scope", status=403, scopes=self.scopes)
        return self._caller(claims)

    async def person(self, id_token: str, nonce: str) -> Caller:
        """Return the caller that *id_token* of a login with *nonce* is about. Raises AuthenticationError."""
        client_id = "" if self.client is None else self.client.id
        claims = await self._verified(id_token, aud=client_id, nonce=nonce)
        if claims.get("azp", client_id) != client_id:  # OpenID Connect Core 1.0, 3.1.3.7
            raise AuthenticationError(_NOT_VALID)
        return self._caller(claims)

    async def metadata(self) -> Mapping[str, Any]:
        """Return what the issuer publishes of itself. Raises AuthenticationError: 503."""
        await self._fetch(lambda: self._age_s() > _FRESH_S)
        self._require_fetched()
        return self._metadata

    def login_scopes(self, supported: Any) -> Sequence[str]:
        """Return what a login asks for: what tokens must have, and of *supported* what brings the claims that are
        read.
        """
        names = ("profile", self._groups_claim, *self._claims) if isinstance(supported, list) else ()
        return list(dict.fromkeys(("openid", *self.scopes, *(name for name in names if name in supported))))

    def http(self) -> httpx2.AsyncClient:
        """Return the guarded client for requests to the issuer."""
        return guarded_client(allow=self._allow, max_bytes=1024 * 1024, timeout_s=10.0)

    async def _verified(self, token: str, **values: str) -> Mapping[str, Any]:
        """Return the claims of *token*, which the issuer has signed, and which has *values*."""
        key = await self._key(_header(token))
        expected: dict[str, Any] = {"iss": self.issuer, **values, "exp": None, "sub": None}
        options: dict[str, Any] = {name: {"essential": True, "value": value} for name, value in expected.items()}
        try:
            claims = jwt.decode(token, key, algorithms=ALGORITHMS).claims
            JWTClaimsRegistry(now=lambda: int(time.time()), leeway=_LEEWAY_S, **options).validate(claims)
        except (JoseError, ValueError, TypeError, RecursionError):
            # What is wrong with it would help only an attacker.
            raise AuthenticationError(_NOT_VALID) from None
        subject = claims["sub"]
        if not 0 < len(subject) <= _MAX_SUBJECT_CHARS or not subject.isprintable():
            raise AuthenticationError("The subject of this token is not valid.")
        return claims

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        pairs = [(name, value) for name in self._claims for value in _values(claims, name)]
        return Caller(
            f"{self.issuer}|{claims['sub']}",
            groups=frozenset(_values(claims, self._groups_claim)),
            claims=frozenset(pairs),
        )

    async def _key(self, header: Mapping[str, Any]) -> Key:
        """Return the issuer's key for a token with *header*."""
        if header.get("alg") not in ALGORITHMS:
            raise AuthenticationError(_NOT_VALID)
        # Also where the key is known: it may have been withdrawn since, however long no request came.
        await self._fetch(lambda: self._found(header) is None or self._age_s() > _FRESH_S)
        key = self._found(header)
        self._require_fetched()
        if key is None:
            raise AuthenticationError(_NOT_VALID)
        return key

    def _require_fetched(self) -> None:
        if self._age_s() > _KEPT_S:
            raise AuthenticationError(
                "The keys of the issuer cannot be fetched now. Try again later.", None, status=503
            )

    def _age_s(self) -> float:
        return time.monotonic() - self._fetched_at_s

    def _found(self, header: Mapping[str, Any]) -> Key | None:
        key_id = header.get("kid")
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get((key_id, _KEY_TYPES[header["alg"][:2]])) if isinstance(key_id, str) else None

    async def _fetch(self, is_needed: Callable[[], bool]) -> None:
        if not is_needed():
            return
        async with self._lock:  # one at a time; a request that waited for another may need none any more
            if not is_needed() or time.monotonic() - self._tried_at_s < _PAUSE_S:
                return
            try:
                async with self.http() as http:
                    document = await self._document(http)
                    response = await http.get(document["jwks_uri"])
                    response.raise_for_status()
                    self._keys, self._metadata = _imported(response.json()), document
                    self._fetched_at_s = time.monotonic()
            except Exception as error:
                # A token of a key that is known stays valid for a day.
                log_failure(f"The keys of the issuer {self.issuer} could not be fetched", error, None)
            self._tried_at_s = time.monotonic()

    async def _document(self, http: Any) -> Mapping[str, Any]:
        for url in document_urls(self.issuer):
            response = await http.get(url)
            if response.status_code == 200:
                document: Any = response.json()
                if not isinstance(document, dict) or document.get("issuer") != self.issuer:
                    raise ValueError("its metadata belongs to another issuer")
                return document
        raise ValueError("it has no metadata (RFC 8414)")

    def __repr__(self) -> str:
        return f"<AccessTokens of {self.issuer} for {self.audience}>"


def _is_plain(issuer: str) -> bool:
    # Without '|', so that it is clear where the issuer ends in the name of a principal.
    return issuer.isascii() and issuer.isprintable() and not {*issuer} & {*' |"\\<>'}


def _header(token: str) -> Mapping[str, Any]:
    try:
        first, _, _ = token.split(".")
        header: Any = json.loads(_decoded(first))
        kind = header.get("typ")
        if (kind if kind is None else kind.lower()) in _TYPES:
            return header  # type: ignore[no-any-return]
    except (ValueError, AttributeError, RecursionError):
        pass
    raise AuthenticationError(_NOT_VALID)


def _imported(document: Any) -> _Keys:
    """Return the public keys for signatures in a JWK set (RFC 7517). Those that cannot be used are left out."""
    keys: dict[tuple[Any, str], Key] = {}
    for data in document["keys"]:
        try:
            if data.get("kty") not in _KEY_TYPES.values() or data.get("use") not in (None, "sig"):
                continue
            key = import_key(data)
            if key.is_private:
                raise SetupError("its private part is published, so that anyone can sign with it")
            if isinstance(key, RSAKey) and key.public_key.key_size < _MIN_RSA_BITS:
                raise SetupError(f"it has less than {_MIN_RSA_BITS} bits")
            keys[data.get("kid"), data["kty"]] = key
        except (SetupError, JoseError, ValueError, TypeError, AttributeError) as error:
            reason = error if isinstance(error, SetupError) else type(error).__name__
            _log.warning("A key of the issuer cannot be used: %s", reason)
    return keys


def _scopes(claims: Mapping[str, Any]) -> Sequence[str]:
    """Return the scopes of a token: text with spaces (RFC 9068), or in `scp`, as some write it."""
    scope = claims.get("scope", claims.get("scp", ""))
    if isinstance(scope, str):
        return scope.split(" ")
    return [text for text in scope if isinstance(text, str)] if isinstance(scope, list) else []


def _values(claims: Mapping[str, Any], name: str) -> Sequence[str]:
    """Return the values of the claim *name* as texts."""
    if name == "scope":
        return _scopes(claims)
    claim = _claim(claims, name)
    values: list[Any] = claim if isinstance(claim, list) else [claim]
    texts = [
        value if isinstance(value, str) else json.dumps(value)
        for value in values
        if isinstance(value, str | int | float)
    ]
    return [text for text in texts if len(text) <= _LONGEST_VALUE][:_MOST_VALUES]


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return the claim *name*; a dot in it leads into objects, where there is no claim of that name."""
    claim: Any = claims
    for part in [name] if name in claims else name.split("."):
        claim = claim.get(part) if isinstance(claim, Mapping) else None
    return claim


def issuer_of(token: str) -> str:
    """Return the issuer that *token* names, of which nothing is verified yet: it only says by whose keys it is read."""
    try:
        claims: Any = json.loads(_decoded(token.split(".")[1]))
        return str(claims["iss"])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise AuthenticationError(_NOT_VALID) from None


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))
