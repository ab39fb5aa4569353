"""Somebody with a browser at an imitated provider."""

import asyncio
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection

from toolcrib import Caller, Context, Crib, ToolAuth, tool
from toolcrib.auth import CredentialBroker, Owner, load_catalogue
from toolcrib.workbench import Workbench

from .imitation import QUIRKS, Imitation

CALLBACK = "http://127.0.0.1:1/auth/callback"
ALICE = Caller("alice")


def _with_inner(name: str) -> list[str]:
    tree = QUIRKS[name].tree
    return sorted({*tree, *(one for inner in tree.values() for one in inner.split())})


# What a tool asks for.
SCOPES = {
    "github": _with_inner("github"),
    "google": ["openid", "email", "profile"],
    "slack": ["chat:write", "users:read"],
    "notion": [],
    "jira": ["read:jira-work", "write:jira-work"],
    "linear": ["read", "write"],
    "salesforce": _with_inner("salesforce"),
    "x": ["tweet.read", "users.read"],
}


class Person:
    """Alice, with a browser, and a crib whose broker knows one imitated provider."""

    def __init__(self, name: str, server: Imitation) -> None:
        self.name, self.server, self.shift = name, server, timedelta()
        self.broker = CredentialBroker(
            catalogue={name: server.provider(load_catalogue()[name])},
            clients={name: server.client(name)},
            redirect_uri=CALLBACK,
            allow=["127.0.0.1"],
            clock=lambda: datetime.now(UTC) + self.shift,
        )
        self.owner = Owner.of(ALICE, name, "oauth2")

        @tool(auth=ToolAuth(name, "oauth2", SCOPES[name]))
        async def hello(ctx: Context) -> str:
            response = await ctx.http(name).get(f"{server.url}/api")
            return f"{response.status_code} {response.text}"

        self.crib = Crib([hello], broker=self.broker)
        self.bench: Workbench = self.crib.workbench(ALICE)

    async def asked(self) -> str:
        """The URL that the next call offers."""
        result = await self.bench.call("hello")
        assert result.pending is not None, result.text
        return result.pending.url

    async def open(self, url: str) -> str:
        """Where the provider sends the browser back to."""

        def get() -> tuple[int, str]:
            browser = HTTPConnection(self.server.host)
            browser.request("GET", url.removeprefix(self.server.url))
            response = browser.getresponse()
            browser.close()
            return response.status, response.headers.get("Location", "")

        status, back = await asyncio.to_thread(get)
        assert status == 302, self.server.problems
        return back

    async def grant(self) -> None:
        await self.crib.complete(await self.open(await self.asked()), caller=ALICE)

    async def says(self) -> str:
        return (await self.bench.call("hello")).text
