"""An issuer on loopback whose tokens and keys can be anything."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from toolcrib.serve import AuthenticationError
from toolcrib.serve.access.tokens import AccessTokens

AUDIENCE = "https://tools.example.com/mcp"
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
OKP = OKPKey.generate_key("Ed25519", {"kid": "okp"})
NEW = ECKey.generate_key("P-256", {"kid": "new"})


class Issuer:
    """An issuer on loopback: its metadata, and its keys, which can be exchanged."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [key.as_dict(private=False) for key in (RSA, EC, OKP)]
        self.asked = 0
        self.is_down = False
        self.fails = ""  # the path that is not answered well
        self.moved = ""  # the path that is redirected to the same under `/there`
        self.named: str | None = None
        self.document: Any = ...  # instead of the keys
        self.answer: Any = {}  # of the token endpoint
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys = {"keys": issuer.keys} if issuer.document is ... else issuer.document
                found: Any = {"/.well-known/openid-configuration": issuer.metadata(), "/jwks": keys}
                issuer.asked += self.path == "/jwks"
                found |= {f"/there{path}": document for path, document in found.items()}
                if self.path == issuer.moved:
                    self.send_response(302)
                    self.send_header("Location", f"/there{self.path}")
                    self.end_headers()
                    return
                is_down = issuer.is_down or self.path == issuer.fails
                self.send_response(500 if is_down else 200 if self.path in found else 404)
                self.end_headers()
                self.wfile.write(json.dumps(found.get(self.path)).encode())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(500 if issuer.fails == self.path else 400 if "error" in issuer.answer else 200)
                self.end_headers()
                self.wfile.write(json.dumps(issuer.answer).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def metadata(self) -> dict[str, Any]:
        endpoints = {"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
        return {"issuer": self.named or self.url, "jwks_uri": f"{self.url}/jwks", **endpoints}

    def token(self, *, key: Key = EC, header: Any = None, **claims: Any) -> str:
        """A valid token, but for what is given; None leaves a claim out."""
        algorithm = {"rsa": "RS256", "ec": "ES256", "new": "ES256", "okp": "Ed25519"}.get(str(key.kid), "HS256")
        now = int(time.time())
        content = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": now + 60, "iat": now, **claims}
        content = {name: value for name, value in content.items() if value is not None}
        shown = {"alg": algorithm, "kid": key.kid, "typ": "at+jwt", **(header or {})}
        shown = {name: value for name, value in shown.items() if value is not None}
        return jwt.encode(shown, content, key, algorithms=[shown["alg"]], default_type=None)


def accepting(issuer: Issuer, **options: Any) -> AccessTokens:
    return AccessTokens(issuer.url, AUDIENCE, allow=["127.0.0.1"], **options)


async def refusal(tokens: AccessTokens, token: str) -> int:
    with pytest.raises(AuthenticationError) as raised:
        await tokens.caller(token)
    for part in token.split("."):
        assert not part or len(part) < 8 or part not in str(raised.value)
    return raised.value.status


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
