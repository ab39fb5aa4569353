"""A server on loopback that imitates the OAuth endpoints of eight providers: what each does differently is data.

The facts in `QUIRKS` are written from the providers' documentation, and not from the catalogue that is tested here.
The path of each URL begins with the host that it stands for: `/github.com/login/oauth/authorize`.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from toolcrib.auth import Client, OAuth2, Provider

CLIENT_ID, CLIENT_SECRET = "the-client-id", "the-client-secret-0123456789"
ORG = "acme.my.salesforce.com"
_NAMES = ("token_url", "authorize_url", "device_url", "revoke_url", "issuer")


@dataclass(frozen=True, slots=True)
class Quirks:
    """What one provider does differently."""

    authorize: str
    token: str
    revoke: str
    separator: str = " "
    scope_parameter: str = "scope"
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the authorization URL without which nothing, or no refresh token, is given."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """What is answered in place of a scope that was asked for."""
    tree: Mapping[str, str] = field(default_factory=dict)
    """For a scope, those that are not answered beside it, since they are in it."""
    offline: str = ""
    """The scope without which there is no refresh token."""
    auth: str = "post"
    content: str = "application/x-www-form-urlencoded"
    members: frozenset[str] | None = None
    """With these, a body with others is refused."""
    headers: tuple[str, ...] = ()
    answers_form: bool = False
    error_status: int = 400
    code_error: str = "invalid_grant"
    ended_error: str = "invalid_grant"
    has_ok: bool = False
    nested: str | None = None
    token_type: str | None = "Bearer"
    scope_answer: str = "text"
    expires_s: int | None = 3600
    rotates: bool = False
    first_only: bool = False
    """A refresh token is given with the first consent only, or where consent is asked for."""
    pkce: str = "takes"
    revokes: str = "token"
    also: Mapping[str, Any] = field(default_factory=dict)
    device: str = ""
    device_url_member: str = "verification_uri"
    pending_status: int = 400


# https://docs.github.com/en/apps/oauth-apps/building-oauth-apps/scopes-for-oauth-apps, "Available scopes" and
# "Normalized scopes"; `write:packages` and `write:discussion` as its settings show them.
GITHUB_SCOPES = {
    "repo": "repo:status repo_deployment public_repo repo:invite security_events",
    "admin:repo_hook": "write:repo_hook read:repo_hook",
    "write:repo_hook": "read:repo_hook",
    "admin:org": "write:org read:org",
    "write:org": "read:org",
    "admin:public_key": "write:public_key read:public_key",
    "write:public_key": "read:public_key",
    "admin:gpg_key": "write:gpg_key read:gpg_key",
    "write:gpg_key": "read:gpg_key",
    "admin:enterprise": "manage_runners:enterprise manage_billing:enterprise read:enterprise",
    "user": "read:user user:email user:follow",
    "project": "read:project",
    "write:packages": "read:packages",
    "write:discussion": "read:discussion",
}

QUIRKS: dict[str, Quirks] = {
    "github": Quirks(
        authorize="github.com/login/oauth/authorize",
        token="github.com/login/oauth/access_token",
        revoke=f"api.github.com/applications/{CLIENT_ID}/token",
        tree=GITHUB_SCOPES,
        answers_form=True,
        error_status=200,
        code_error="bad_verification_code",
        ended_error="bad_refresh_token",
        token_type="bearer",
        scope_answer="commas",
        rotates=True,
        revokes="delete",
        device="github.com/login/device/code",
        pending_status=200,
    ),
    "google": Quirks(
        authorize="accounts.google.com/o/oauth2/v2/auth",
        token="oauth2.googleapis.com/token",
        revoke="oauth2.googleapis.com/revoke",
        fixed={"access_type": "offline"},
        scopes={name: f"https://www.googleapis.com/auth/userinfo.{name}" for name in ("email", "profile")},
        first_only=True,
        device="oauth2.googleapis.com/device/code",
        device_url_member="verification_url",
        pending_status=428,
    ),
    "slack": Quirks(
        authorize="slack.com/oauth/v2/authorize",
        token="slack.com/api/oauth.v2.access",
        revoke="slack.com/api/auth.revoke",
        separator=",",
        scope_parameter="user_scope",
        error_status=200,
        code_error="invalid_code",
        ended_error="invalid_refresh_token",
        has_ok=True,
        nested="authed_user",
        token_type="user",
        scope_answer="commas",
        rotates=True,
        pkce="refuses",
        revokes="bearer",
    ),
    "notion": Quirks(
        authorize="api.notion.com/v1/oauth/authorize",
        token="api.notion.com/v1/oauth/token",
        revoke="api.notion.com/v1/oauth/revoke",
        fixed={"owner": "user"},
        auth="basic",
        content="application/json",
        members=frozenset(("grant_type", "code", "redirect_uri", "refresh_token", "token")),
        headers=("notion-version",),
        token_type="bearer",
        scope_answer="none",
        expires_s=None,
        rotates=True,
        pkce="refuses",
        revokes="access_token",
        also={"workspace_id": "w1", "owner": {"type": "user"}},
    ),
    "jira": Quirks(
        authorize="auth.atlassian.com/authorize",
        token="auth.atlassian.com/oauth/token",
        revoke="",
        fixed={"audience": "api.atlassian.com", "prompt": "consent"},
        offline="offline_access",
        content="application/json",
        error_status=403,
        ended_error="unauthorized_client",
        rotates=True,
    ),
    "linear": Quirks(
        authorize="linear.app/oauth/authorize",
        token="api.linear.app/oauth/token",
        revoke="api.linear.app/oauth/revoke",
        fixed={"actor": "user"},
        separator=",",
        scope_answer="list",
        rotates=True,
        revokes="named",
    ),
    "salesforce": Quirks(
        authorize=f"{ORG}/services/oauth2/authorize",
        token=f"{ORG}/services/oauth2/token",
        revoke=f"{ORG}/services/oauth2/revoke",
        tree={"full": "api id profile email address phone openid web visualforce custom_permissions"},
        offline="refresh_token",
        expires_s=None,
        also={"instance_url": "{server}", "issued_at": "1493144749805", "signature": "x"},
    ),
    "x": Quirks(
        authorize="x.com/i/oauth2/authorize",
        token="api.x.com/2/oauth2/token",
        revoke="api.x.com/2/oauth2/revoke",
        offline="offline.access",
        auth="basic",
        ended_error="invalid_request",
        token_type="bearer",
        rotates=True,
        pkce="requires",
    ),
}


class Imitation:
    """The server. *tokens* are the access tokens that are valid; *secrets* are all that it ever gave out."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.refresh_tokens: dict[str, tuple[str, list[str]]] = {}
        self.codes: dict[str, tuple[str, dict[str, str], list[str]]] = {}
        self.secrets: list[str] = [CLIENT_SECRET]
        self.refreshes: dict[str, int] = {}
        self.consents: set[str] = set()
        self.problems: list[str] = []
        self.devices: dict[str, list[str]] = {}
        self.entered: set[str] = set()
        self.spent: set[str] = set()
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length).decode()
                with outer.lock:
                    status, headers, text = outer.answer(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def provider(self, shipped: Provider) -> Provider:
        """*shipped* with this server in the place of its hosts, and no other change."""
        table = shipped.oauth2
        moved = {key: self._moved(url) for key in _NAMES if (url := getattr(table, key, None)) is not None}
        hosts = shipped.hosts if not shipped.hosts or "{" in shipped.hosts[0] else [self.host]
        oauth2 = None if table is None else OAuth2(**{**table.model_dump(), **moved})
        return shipped.model_copy(update={"oauth2": oauth2, "hosts": hosts})

    def client(self, name: str) -> Client:
        return Client(CLIENT_ID, CLIENT_SECRET, {"domain_url": f"{self.url}/{ORG}"} if name == "salesforce" else {})

    def _moved(self, url: str) -> str:
        return url if url.startswith("{") else f"{self.url}/{url.removeprefix('https://')}"

    # What it answers

    def answer(self, method: str, path: str, headers: dict[str, str], body: str) -> tuple[int, dict[str, str], str]:
        parts = urlsplit(path)
        lowered = {name.lower(): value for name, value in headers.items()}
        place = parts.path.strip("/")
        if place == "api":
            owner = self.tokens.get(lowered.get("authorization", "").removeprefix("Bearer "))
            return (200, {}, f"hello from {owner}") if owner else (401, {}, "who are you?")
        for name, quirks in QUIRKS.items():
            if place == quirks.authorize:
                return self._authorize(name, quirks, dict(parse_qsl(parts.query)))
            if place == quirks.token and method == "POST":
                return self._token(name, quirks, lowered, body)
            if place == quirks.device and method == "POST":
                return self._device(name, quirks, lowered, body)
            if quirks.revoke and place == quirks.revoke:
                return self._revoke(name, quirks, method, lowered, body)
        return 404, {}, "not here"

    def _authorize(self, name: str, quirks: Quirks, query: dict[str, str]) -> tuple[int, dict[str, str], str]:
        scopes = [one for one in query.get(quirks.scope_parameter, "").split(quirks.separator) if one]
        missing = [key for key, value in quirks.fixed.items() if query.get(key) != value]
        if query.get("response_type") != "code" or query.get("client_id") != CLIENT_ID or missing:
            return self._problem(f"{name}: the authorization URL lacks {missing or 'its basics'}")
        if any(" " in one or "," in one for one in scopes) or (quirks.scope_answer == "none" and scopes):
            return self._problem(f"{name}: these are not scopes: {scopes}")
        if {"takes": False, "refuses": "code_challenge" in query}.get(quirks.pkce, "code_challenge" not in query):
            return self._problem(f"{name}: PKCE")
        if "code_challenge" in query and query.get("code_challenge_method") != "S256":
            return self._problem(f"{name}: not S256")
        code = self._made(f"code-{name}-{len(self.codes)}")
        self.codes[code] = (name, query, scopes)
        back = {"code": code, "state": query["state"]}
        if name == "google":
            back["iss"] = f"{self.url}/accounts.google.com"
        return 302, {"Location": f"{query['redirect_uri']}?{urlencode(back)}"}, ""

    def _token(self, name: str, quirks: Quirks, headers: dict[str, str], body: str) -> tuple[int, dict[str, str], str]:
        sent = self._read(name, quirks, headers, body)
        if sent is None:
            return self._refuse(quirks, headers, "invalid_client")
        if sent.get("grant_type") == "refresh_token":
            self.refreshes[name] = self.refreshes.get(name, 0) + 1
            if sent.get("refresh_token") in self.spent:
                self.problems.append(f"{name}: a refresh token is spent twice")
            known = self.refresh_tokens.get(sent.get("refresh_token", ""))
            if known is None:
                return self._refuse(quirks, headers, quirks.ended_error)
            if quirks.rotates:
                del self.refresh_tokens[sent["refresh_token"]]
                self.spent.add(sent["refresh_token"])
            return self._give(name, quirks, headers, known[1], is_refresh=True, refreshable=quirks.rotates)
        if sent.get("device_code") in self.devices:
            if sent["device_code"] not in self.entered:
                return self._written(quirks, headers, quirks.pending_status, {"error": "authorization_pending"})
            return self._give(
                name, quirks, headers, self.devices.pop(sent["device_code"]), is_refresh=False, refreshable=True
            )
        found = self.codes.pop(sent.get("code", ""), None)
        if found is None or found[0] != name or sent.get("redirect_uri") != found[1]["redirect_uri"]:
            return self._refuse(quirks, headers, quirks.code_error)
        query, scopes = found[1:]
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        if query.get("code_challenge", "") not in ("", base64.urlsafe_b64encode(digest).decode().rstrip("=")):
            return self._refuse(quirks, headers, "invalid_grant")
        again = name in self.consents and query.get("prompt") != "consent"
        self.consents.add(name)
        refreshable = (not quirks.offline or quirks.offline in scopes) and not (quirks.first_only and again)
        return self._give(name, quirks, headers, scopes, is_refresh=False, refreshable=refreshable)

    def _device(self, name: str, quirks: Quirks, headers: dict[str, str], body: str) -> tuple[int, dict[str, str], str]:
        sent = self._read(name, quirks, headers, body) or {}
        code = self._made(f"{name}-device-{len(self.devices)}")
        self.devices[code] = sent.get("scope", "").split()
        shown = {"user_code": "WDJB-MJHT", quirks.device_url_member: f"{self.url}/device"}
        return self._written(quirks, headers, 200, {"device_code": code, **shown, "expires_in": 900, "interval": 5})

    def _give(
        self,
        name: str,
        quirks: Quirks,
        headers: dict[str, str],
        scopes: list[str],
        *,
        is_refresh: bool,
        refreshable: bool,
    ) -> tuple[int, dict[str, str], str]:
        token: dict[str, Any] = {"access_token": self._made(f"{name}-access-{len(self.secrets)}")}
        self.tokens[token["access_token"]] = name
        if refreshable:
            token["refresh_token"] = self._made(f"{name}-refresh-{len(self.secrets)}")
            self.refresh_tokens[token["refresh_token"]] = (name, scopes)
        if quirks.token_type is not None:
            token["token_type"] = quirks.token_type
        if quirks.expires_s is not None:
            token["expires_in"] = quirks.expires_s
        inner = {narrow for one in scopes for narrow in quirks.tree.get(one, "").split()}
        granted = [quirks.scopes.get(one, one) for one in scopes if one not in inner]
        if quirks.scope_answer != "none":
            token["scope"] = {"text": " ".join(granted), "commas": ",".join(granted), "list": granted}[
                quirks.scope_answer
            ]
        also = {key: self.url if value == "{server}" else value for key, value in quirks.also.items()}
        answer = {**token, **also}
        if quirks.nested is not None and not is_refresh:  # without scopes for a person, the token is a bot's
            answer = {quirks.nested: {"id": "U1", **token}} if scopes else {**token, "token_type": "bot"}
        return self._written(quirks, headers, 200, {**({"ok": True} if quirks.has_ok else {}), **answer})

    def _revoke(
        self, name: str, quirks: Quirks, method: str, headers: dict[str, str], body: str
    ) -> tuple[int, dict[str, str], str]:
        if quirks.revokes == "bearer":
            tokens = [headers.get("authorization", "").removeprefix("Bearer ")]
        elif quirks.revokes == "delete":
            if method != "DELETE" or headers.get("authorization") != _basic():
                return self._problem(f"{name}: revoked by {method}")
            tokens = [json.loads(body).get("access_token", "")]
        else:
            sent = self._read(name, quirks, headers, body) or {}
            named = [sent.get(kind, "") for kind in ("access_token", "refresh_token")]
            tokens = named if quirks.revokes == "named" else [sent.get("token", "")]
        kinds: list[dict[str, Any]] = [
            self.tokens,
            *([] if quirks.revokes == "access_token" else [self.refresh_tokens]),
        ]
        ended = [one for one in tokens for kind in kinds if kind.pop(one, None)]
        if not ended:
            return self._refuse(quirks, headers, "invalid_token")
        if quirks.revokes != "bearer":  # the end of one is the end of the grant
            self.tokens = {token: owner for token, owner in self.tokens.items() if owner != name}
            self.refresh_tokens = {token: one for token, one in self.refresh_tokens.items() if one[0] != name}
        return 200, {"Content-Type": "application/json"}, json.dumps({"ok": True, "revoked": True})

    def _read(self, name: str, quirks: Quirks, headers: dict[str, str], body: str) -> dict[str, str] | None:
        """What was sent, if it is as this provider takes it, by the client that it knows."""
        content = headers.get("content-type", "").partition(";")[0]
        if content != quirks.content or any(one not in headers for one in quirks.headers):
            self.problems.append(f"{name}: {content}, {sorted(headers)}")
            return None
        sent: dict[str, str] = json.loads(body) if content == "application/json" else dict(parse_qsl(body))
        if quirks.members is not None and not set(sent) <= quirks.members:
            self.problems.append(f"{name}: {sorted(set(sent) - quirks.members)} should not be present")
            return None
        if quirks.auth == "basic":
            known = headers.get("authorization") == _basic() and "client_secret" not in sent
        else:
            known = (sent.get("client_id"), sent.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        return sent if known else None

    def _refuse(self, quirks: Quirks, headers: dict[str, str], error: str) -> tuple[int, dict[str, str], str]:
        answer = {"error": error, "error_description": "It is not valid."}
        return self._written(quirks, headers, quirks.error_status, {"ok": False, **answer} if quirks.has_ok else answer)

    def _written(
        self, quirks: Quirks, headers: dict[str, str], status: int, answer: Mapping[str, Any]
    ) -> tuple[int, dict[str, str], str]:
        if quirks.answers_form and "json" not in headers.get("accept", ""):
            return status, {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(answer)
        return status, {"Content-Type": "application/json"}, json.dumps(answer)

    def _problem(self, text: str) -> tuple[int, dict[str, str], str]:
        self.problems.append(text)
        return 400, {}, text

    def _made(self, text: str) -> str:
        self.secrets.append(made := f"{text}-{hashlib.sha256(text.encode()).hexdigest()[:16]}")
        return made


def _basic() -> str:
    return f"Basic {base64.b64encode(f'{CLIENT_ID}:{CLIENT_SECRET}'.encode()).decode()}"
