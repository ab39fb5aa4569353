"""Servers that say themselves who gives access to them: found out, registered at, and asked, against loopback."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from toolcrib import Call, Caller, ToolAuth, ToolError
from toolcrib.auth import Client, CredentialBroker, MemoryVault
from toolcrib.auth.catalogue import callback_segment
from toolcrib.core import Credential

from .conftest import ALICE, TOKEN, Answer, Server, as_json

CALLBACK = "http://127.0.0.1:1/auth/callback"
METADATA = "/.well-known/oauth-protected-resource"
DOCUMENT = "/.well-known/oauth-authorization-server/tenant"
REGISTERED = {"client_id": "the-client-id", "client_secret": "the-client-secret-0123"}


class Protected(Server):
    """An MCP server at `/mcp`, what it says of itself, and its authorization server at `/tenant`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = f"mcp:{self.url}/mcp"
        self.callback = f"{CALLBACK}/{callback_segment(self.name)}"
        self.metadata: dict[str, Any] = {
            "resource": f"{self.url}/mcp",
            "authorization_servers": [f"{self.url}/tenant"],
            "scopes_supported": ["read", "write"],
        }
        self.document: dict[str, Any] = {
            "issuer": f"{self.url}/tenant",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }
        self.places(f"{METADATA}/mcp", DOCUMENT)
        self.answers |= {"/register": as_json(REGISTERED, 201), "/token": as_json(TOKEN)}

    def places(self, metadata: str | None, document: str | None) -> None:
        """Publish both at these paths, and nowhere else."""
        self.answers = {path: answer for path, answer in self.answers.items() if path in ("/register", "/token")}
        self.answers["/mcp"] = as_json({}, 401)
        if metadata is not None:
            self.answers[metadata] = lambda _: as_json(self.metadata)
        if document is not None:
            self.answers[document] = lambda _: as_json(self.document)

    def broker(self, redirect_uri: str | None = CALLBACK, **options: Any) -> CredentialBroker:
        return CredentialBroker(redirect_uri=redirect_uri, **options)

    async def asked(self, broker: CredentialBroker) -> dict[str, str]:
        """The parameters of the URL at which Alice is asked."""
        found = await broker.authorize([ToolAuth(self.name)], ALICE, Call("use"))
        assert (found.url or "").startswith(f"{self.url}/authorize?")
        return {name: values[-1] for name, values in parse_qs(urlsplit(found.url or "").query).items()}

    async def granted(self, broker: CredentialBroker) -> Credential:
        """What Alice's call is given after she has granted what it asks for."""
        state = (await self.asked(broker))["state"]
        await broker.complete(f"{self.callback}?state={state}&code=the-code&iss={self.url}/tenant", caller=ALICE)
        found = await broker.authorize([ToolAuth(self.name)], ALICE, Call("use"))
        (credential,) = found
        return credential


@pytest.fixture
def server() -> Iterator[Protected]:
    server = Protected()
    yield server
    server.close()


async def test_somebody_grants_access_to_a_server_that_registers_this_program(server: Protected) -> None:
    asked = await server.asked(broker := server.broker())
    assert {**asked, "state": "", "code_challenge": ""} == {
        "response_type": "code",
        "client_id": "the-client-id",
        "redirect_uri": server.callback,
        "scope": "read write",
        "state": "",
        "resource": f"{server.url}/mcp",
        "code_challenge": "",
        "code_challenge_method": "S256",
    }
    credential = await server.granted(broker)
    assert (credential.secret, credential.hosts) == (TOKEN["access_token"], (urlsplit(server.url).netloc,))
    (registered,) = server.sent("/register")
    assert registered == {
        "client_name": "Toolcrib",
        "redirect_uris": [server.callback],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
        "application_type": "native",
    }
    (sent,) = server.sent("/token")
    assert (sent["client_secret"], sent["resource"]) == (REGISTERED["client_secret"], f"{server.url}/mcp")


async def test_it_is_registered_once_for_an_issuer_and_an_address(server: Protected) -> None:
    vault = MemoryVault()
    for address in (CALLBACK, CALLBACK, "https://crib.example/auth/callback", None):
        broker = server.broker(address, vault=vault)
        for _ in range(2):
            await broker.discover(server.name)
    kinds = [
        (each["redirect_uris"], each["application_type"]) for each in map(dict[str, Any], server.sent("/register"))
    ]
    last = callback_segment(server.name)
    assert kinds == [
        ([server.callback], "native"),
        ([f"https://crib.example/auth/callback/{last}"], "web"),
        ([f"http://127.0.0.1/auth/callback/{last}"], "native"),
    ]
    server.document["issuer"] = f"{server.url}/other"
    server.metadata["authorization_servers"] = [f"{server.url}/other"]
    server.places(f"{METADATA}/mcp", "/.well-known/oauth-authorization-server/other")
    await server.broker(None, vault=vault).discover(server.name)
    assert len(server.sent("/register")) == 4


async def test_processes_that_register_at_the_same_time_are_one_client(server: Protected) -> None:
    vault, both, numbers = MemoryVault(), threading.Barrier(2), count()

    def register(_: Mapping[str, Any]) -> Answer:
        both.wait(30)
        return as_json({**REGISTERED, "client_id": f"client-{next(numbers)}"}, 201)

    server.answers["/register"] = register
    one, other = (server.broker(vault=vault) for _ in range(2))
    needs = [ToolAuth(server.name)]
    await asyncio.gather(*(broker.authorize(needs, ALICE, Call("use")) for broker in (one, other)))
    pending = await one.authorize(needs, Caller("bob"), Call("use"))
    asked = {name: values[-1] for name, values in parse_qs(urlsplit(pending.url or "").query).items()}
    await other.complete(f"{server.callback}?state={asked['state']}&code=the-code&iss={server.url}/tenant")
    assert [sent["client_id"] for sent in server.sent("/token")] == [asked["client_id"]]


@pytest.mark.parametrize(
    ("metadata", "document"),
    [
        (METADATA, DOCUMENT),
        (f"{METADATA}/mcp", "/.well-known/openid-configuration/tenant"),
        ("/anywhere", "/tenant/.well-known/openid-configuration"),
    ],
)
async def test_what_is_published_is_found_wherever_it_may_be(server: Protected, metadata: str, document: str) -> None:
    server.places(metadata, document)
    if metadata == "/anywhere":
        challenge = f'Bearer error="invalid_token", resource_metadata="{server.url}/anywhere"'
        server.answers["/mcp"] = as_json({}, 401, **{"WWW-Authenticate": challenge})
    assert (await server.asked(server.broker()))["client_id"] == "the-client-id"


async def test_a_server_of_the_first_revision_has_its_endpoints_at_fixed_places(server: Protected) -> None:
    server.places(None, None)
    server.answers["/register"] = as_json({"client_id": "public-client"})
    asked = await server.asked(broker := server.broker())
    assert (asked["client_id"], "scope" in asked) == ("public-client", False)
    assert dict[str, Any](server.sent("/register")[0])["token_endpoint_auth_method"] == "none"
    await broker.complete(f"{server.callback}?state={asked['state']}&code=the-code", caller=ALICE)
    assert "client_secret" not in server.sent("/token")[0]


@pytest.mark.parametrize(
    ("client", "methods", "document_url", "sent"),
    [
        (Client("ours", "the-own-secret"), ["none", "client_secret_post"], None, "the-own-secret"),
        (Client("ours"), ["none", "client_secret_post"], None, None),
        (Client("ours", "the-own-secret"), ["private_key_jwt"], None, "the-own-secret"),
        (None, ["client_secret_post"], "https://crib.example/client", None),
        (Client("ours"), ["none"], "https://crib.example/client", None),
    ],
)
async def test_who_has_a_client_there_registers_none(
    server: Protected, client: Client | None, methods: list[str], document_url: str | None, sent: str | None
) -> None:
    server.document["token_endpoint_auth_methods_supported"] = methods
    server.document["client_id_metadata_document_supported"] = True
    clients: Mapping[str, Client] = {} if client is None else {server.name: client}
    await server.granted(server.broker(clients=clients, client_document_url=document_url))
    assert server.sent("/register") == []
    (token,) = server.sent("/token")
    assert (token["client_id"], token.get("client_secret")) == (document_url if client is None else "ours", sent)


ANOTHER = "it did not register this program"
UNUSABLE: dict[str, tuple[str, Any, str]] = {
    "no authorization server": ("metadata", {"authorization_servers": []}, "it names no authorization server"),
    "one that is a number": ("metadata", {"authorization_servers": [5]}, "it names no authorization server"),
    "one by http": (
        "metadata",
        {"authorization_servers": ["http://idp.example/"]},
        "not one that a secret can be sent",
    ),
    "another resource": ("metadata", {"resource": "https://evil.example/mcp"}, "its metadata belongs to another"),
    "no resource": ("metadata", {"resource": None}, "its metadata belongs to another"),
    "another issuer": ("document", {"issuer": "https://evil.example"}, "or belongs to another issuer"),
    "no PKCE": ("document", {"code_challenge_methods_supported": ["plain"]}, "it does not support PKCE"),
    "no word on PKCE": ("document", {"code_challenge_methods_supported": None}, "it does not support PKCE"),
    "no registration": ("document", {"registration_endpoint": None}, "registers no clients by itself. Register"),
    "a registration by http": ("document", {"registration_endpoint": "http://a.example"}, "as RFC 7591 requires"),
    "a refusal": ("answer", as_json({**REGISTERED, "error": "no"}, 400), f"{ANOTHER} (status 400)"),
    "an answer without an id": ("answer", as_json({"client_secret": "a-secret"}, 201), f"{ANOTHER} (status 201)"),
    "an id that cannot be sent": ("answer", as_json({"client_id": "line\nbreak"}, 201), f"{ANOTHER} (status 201)"),
    "an id that cannot be redacted": ("answer", as_json({"client_id": "abc"}, 201), f"{ANOTHER} (status 201)"),
    "an id without end": ("answer", as_json({"client_id": "x" * 2001}, 201), f"{ANOTHER} (status 201)"),
    "a list": ("answer", as_json([REGISTERED], 201), f"{ANOTHER} (status 201)"),
    "no JSON": ("answer", (201, {}, b"<html>"), f"{ANOTHER} as RFC 7591 requires"),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_server_at_which_nobody_can_log_in_says_why(server: Protected, name: str) -> None:
    where, change, message = UNUSABLE[name]
    if where == "answer":
        server.answers["/register"] = change
    else:
        getattr(server, where).update(change)
    with pytest.raises(ToolError) as raised:
        await server.broker().discover(server.name)
    assert raised.value.code == "unauthorized"
    assert message in str(raised.value)


async def test_a_server_cannot_name_a_private_address_that_nobody_allowed(server: Protected) -> None:
    here = server.url.replace("127.0.0.1", "localhost")  # as whoever runs this has named it: a name, and no address
    server.name = server.name.replace("127.0.0.1", "localhost")
    server.metadata["resource"] = f"{here}/mcp"
    with pytest.raises(ToolError, match="cannot be reached") as raised:
        await server.broker().discover(server.name)
    assert (raised.value.code, server.sent(DOCUMENT)) == ("unavailable", [])

    server.metadata["authorization_servers"] = [f"{here}/tenant"]
    server.document["issuer"] = f"{here}/tenant"
    with pytest.raises(ToolError, match="cannot be reached"):
        await server.broker().discover(server.name)
    assert (len(server.sent(DOCUMENT)), server.sent("/register")) == (1, [])
    await server.broker(allow=["127.0.0.1"]).discover(server.name)
    assert len(server.sent("/register")) == 1


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    server = Protected()
    server.close()
    with pytest.raises(ToolError, match="cannot be reached") as raised:
        await server.broker().discover(server.name)
    assert raised.value.code == "unavailable"


@pytest.mark.parametrize(
    ("url", "place", "described", "is_taken"),
    [
        ("/mcp", f"{METADATA}/mcp", "/mcp", True),
        ("/mcp", f"{METADATA}/mcp", "/mcp/", True),
        ("/mcp", f"{METADATA}/mcp", "", False),
        ("/mcp", f"{METADATA}/mcp", "/mcp/more", False),
        ("/mcp", f"{METADATA}/mcp", "/mc", False),
        ("/mcp", f"{METADATA}/mcp", "/mcp?tenant=other", False),
        # The origin says itself that all of it is one resource (MCP); its root is nobody else's.
        ("/mcp", METADATA, "", True),
        ("/mcp", METADATA, "/", True),
        # Of two tenants of a host, one names both: of the path above, of the origin, and by a query.
        ("/tenants/evil/mcp", "/tenants/evil/metadata", "/tenants", False),
        ("/tenants/evil/mcp", "/tenants/evil/metadata", "", False),
        ("/tenants/evil/mcp", "/tenants/evil/metadata", "/tenants/good/mcp", False),
        ("/tenants/evil/mcp", "/tenants/evil/metadata", "/tenants/evil/mcp", True),
        ("/mcp?tenant=evil", "/metadata", "/mcp", False),
        ("/mcp?tenant=evil", "/metadata", "/mcp?tenant=good", False),
        ("/mcp?tenant=evil", "/metadata", "/mcp?tenant=evil", True),
        ("/mcp?tenant=evil", f"{METADATA}/mcp", "/mcp", True),
    ],
)
async def test_no_server_names_a_resource_that_is_not_its_own(
    server: Protected, url: str, place: str, described: str, is_taken: bool
) -> None:
    """The attacker is a server that shares its host, and would be sent tokens for its neighbours (RFC 9728, 3.3)."""
    server.name = f"mcp:{server.url}{url}"
    server.places(place, DOCUMENT)
    challenge = {"WWW-Authenticate": f'Bearer resource_metadata="{server.url}{place}"'}
    server.answers[url] = as_json({}, 401, **challenge)
    server.metadata["resource"] = f"{server.url}{described}"
    if is_taken:
        assert (await server.asked(server.broker()))["resource"] == f"{server.url}{described}"
        return
    with pytest.raises(ToolError, match="belongs to another resource"):
        await server.broker().discover(server.name)


async def test_a_grant_for_another_resource_is_not_sent_to_a_server_that_has_changed(server: Protected) -> None:
    server.places(METADATA, DOCUMENT)
    server.metadata["resource"] = server.url
    vault = MemoryVault()
    await server.granted(server.broker(vault=vault))
    server.places(f"{METADATA}/mcp", DOCUMENT)
    server.metadata["resource"] = f"{server.url}/mcp"
    assert (await server.asked(server.broker(vault=vault)))["resource"] == f"{server.url}/mcp"
