"""Logins at MCP servers that no person makes there: of the program, and by a company's identity provider."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from toolcrib import Call, Caller, Pending, SetupError, ToolAuth, ToolError
from toolcrib.auth import Client, CredentialBroker, Grant, OAuth2, Owner, Provider
from toolcrib.core import Credential

from .conftest import Server, as_json
from .test_servers import Protected

ALICE, BOB = Caller("alice"), Caller("bob")
KEY = ECKey.generate_key("P-256")
SECRET = "the-programs-secret-0123"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
WAYS = {"secret": {"secret": SECRET}, "key": {"private_key": KEY.as_pem(private=True).decode()}}


class Company(Server):
    """An identity provider that lets those in whose ID token it gave, while it has not `denied` them."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: str | None = None
        self.answers["/token"] = self.exchange

    def id_token(self, caller: Caller, **claims: Any) -> str:
        claims = {"sub": caller.principal, "exp": datetime.now(UTC) + timedelta(hours=1), **claims}
        return jwt.encode({"alg": "ES256"}, claims, KEY)

    def exchange(self, body: dict[str, str]) -> Any:
        if self.denied is not None:
            return as_json({"error": self.denied}, 400)
        if body["grant_type"] == "authorization_code":
            return as_json({"access_token": "for-userinfo-alone", "token_type": "Bearer", "expires_in": 86400,
                            "refresh_token": "the-refresh-token", "id_token": self.id_token(ALICE)})  # fmt: skip
        person = jwt.decode(body["subject_token"], KEY).claims["sub"]
        return as_json({"access_token": f"assertion-of-{person}", "issued_token_type": ID_JAG, "token_type": "N_A"})


@pytest.fixture
def server() -> Iterator[Protected]:
    """A server that names each token it gives by whose it is, and how many it gave before."""
    server, numbers = Protected(), count(1)
    del server.document["code_challenge_methods_supported"]
    server.document["token_endpoint_auth_methods_supported"] = ["client_secret_basic", "private_key_jwt"]

    def token(body: dict[str, str]) -> Any:
        whose = body.get("assertion", "assertion-of-the-program").removeprefix("assertion-of-")
        return as_json({"access_token": f"{whose}-{next(numbers)}", "token_type": "Bearer", "expires_in": 3600,
                        "refresh_token": "which-nobody-spends"})  # fmt: skip

    server.answers["/token"] = token
    yield server
    server.close()


@pytest.fixture
def company() -> Iterator[Company]:
    company = Company()
    yield company
    company.close()


def machine(server: Protected, **proof: Any) -> Client:
    return Client("toolcrib", grant="client_credentials", issuer=f"{server.url}/tenant", **proof)


async def given(broker: CredentialBroker, server: Protected, caller: Caller, *scopes: str) -> Credential | Pending:
    answer = await broker.authorize([ToolAuth(server.name, scopes=scopes)], caller, Call("use"))
    return answer if isinstance(answer, Pending) else answer[0]


async def secret(broker: CredentialBroker, server: Protected, caller: Caller, *scopes: str) -> str:
    credential = await given(broker, server, caller, *scopes)
    return credential.secret


# The program itself


@pytest.mark.parametrize("way", WAYS)
async def test_a_program_has_one_token_for_all_callers(server: Protected, way: str) -> None:
    now = datetime.now(UTC)
    broker = server.broker(clients={server.name: machine(server, **WAYS[way])}, clock=lambda: now)
    tokens = await asyncio.gather(*(secret(broker, server, caller, "read") for caller in (ALICE, BOB) * 4))
    assert set(tokens) == {"the-program-1"}
    (body,) = server.sent("/token")
    assert (body["grant_type"], body["scope"]) == ("client_credentials", "read")
    assert body["resource"] == f"{server.url}/mcp"
    assert SECRET not in str(body)  # by HTTP Basic, or not at all
    if way == "key":
        claims = jwt.decode(body["client_assertion"], KEY).claims
        assert (claims["iss"], claims["sub"], claims["aud"]) == ("toolcrib", "toolcrib", f"{server.url}/tenant")
    # A wider scope, and the end of a token, cost one request each; no refresh token is spent.
    assert await secret(broker, server, BOB, "write") == "the-program-2"
    assert server.sent("/token")[-1]["scope"] == "read write"
    now += timedelta(hours=2)
    assert await secret(broker, server, ALICE, "read") == "the-program-3"
    assert {body["grant_type"] for body in server.sent("/token")} == {"client_credentials"}
    for owned in (ALICE, BOB):
        assert await broker.vault.owned_by(owned.principal) == []
    for text in (repr(broker.providers), repr(machine(server, **WAYS[way])), str(machine(server, **WAYS[way]))):
        assert SECRET not in text and "PRIVATE" not in text


async def test_a_server_cannot_have_the_secret_sent_to_another_issuer(server: Protected, company: Company) -> None:
    """It names its own accomplice as its authorization server, and that is never asked."""
    server.metadata["authorization_servers"] = [company.url]
    company.answers["/.well-known/oauth-authorization-server"] = as_json(
        {"issuer": company.url, "token_endpoint": f"{company.url}/token"}
    )
    for client in (machine(server, secret=SECRET), Client("toolcrib", SECRET, issuer=f"{server.url}/tenant")):
        server.document["code_challenge_methods_supported"] = ["S256"]
        await given(server.broker(clients={server.name: client}), server, ALICE)
    assert company.requests == []


@pytest.mark.parametrize("error", ["invalid_client", "invalid_scope"])
async def test_a_program_that_is_refused_asks_no_person(server: Protected, error: str) -> None:
    server.answers["/token"] = as_json({"error": error, "error_description": SECRET}, 400)
    broker = server.broker(clients={server.name: machine(server, secret=SECRET)})
    with pytest.raises(ToolError, match=rf"refused: {error}.*\[auth\.") as raised:
        await given(broker, server, ALICE)
    assert raised.value.code == "unauthorized"
    assert SECRET not in str(raised.value)


async def test_what_is_no_private_key_is_never_quoted(server: Protected) -> None:
    broker = server.broker(clients={server.name: machine(server, private_key="hunter2-hunter2")})
    with pytest.raises(ToolError, match="is not a private key") as raised:
        await given(broker, server, ALICE)
    assert raised.value.code == "unauthorized"
    assert "hunter2" not in str(raised.value)
    assert server.sent("/token") == []


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"grant": "client_credentials"}, "needs client_id and client_secret (or private_key) and issuer"),
        ({"grant": "client_credentials", "client_id": "a", "client_secret": "b"}, "needs issuer"),
        ({"grant": "client_credential", "client_id": "a"}, "Did you mean 'client_credentials'?"),
        ({"grant": "identity_assertion", "client_id": "a", "private_key": "b", "issuer": "https://c"}, "needs idp"),
        ({"idp": "github"}, "id_token = true"),
        ({"idp": "githib"}, "Did you mean 'github'?"),
    ],
)
def test_a_login_without_all_that_it_needs_is_refused_at_the_start(table: dict[str, str], message: str) -> None:
    with pytest.raises(SetupError) as raised:
        CredentialBroker(clients={"mcp:https://a.example/mcp": Client.from_settings(table)})
    assert message in str(raised.value)


# By the company


def by_company(server: Protected, company: Company, **options: Any) -> CredentialBroker:
    login = Client("toolcrib", SECRET, grant="identity_assertion", issuer=f"{server.url}/tenant", idp="company")
    oauth2 = OAuth2(authorize_url=f"{company.url}/authorize", token_url=f"{company.url}/token", id_token=True)
    return server.broker(
        clients={server.name: login, "company": Client("toolcrib-at-idp", "the-secret-at-the-idp")},
        catalogue={"company": Provider(title="Company", oauth2=oauth2)},
        allow=["127.0.0.1"],
        **options,
    )


async def save(broker: CredentialBroker, company: Company, caller: Caller) -> None:
    await broker.save(Owner.of(caller, "company", "oauth2"), Grant(company.id_token(caller)))


async def test_a_person_logs_in_at_the_company_and_is_let_in_at_its_servers(
    server: Protected, company: Company
) -> None:
    broker = by_company(server, company)
    pending = await given(broker, server, ALICE)
    assert (pending.url or "").startswith(f"{company.url}/authorize?")
    assert "scope=openid" in (pending.url or "")
    state = (pending.url or "").partition("state=")[2].partition("&")[0]
    await broker.complete(f"/auth/callback/company?state={state}&code=c", caller=ALICE)
    assert await secret(broker, server, ALICE, "read") == "alice-1"
    exchange, (granted,) = company.sent("/token")[-1], server.sent("/token")
    assert (exchange["audience"], exchange["resource"]) == (f"{server.url}/tenant", f"{server.url}/mcp")
    assert (exchange["client_id"], exchange["scope"]) == ("toolcrib-at-idp", "read")
    assert granted["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert "refresh_token" not in granted and SECRET not in str(company.requests)
    assert isinstance(await given(broker, server, BOB), Pending)


async def test_each_person_is_let_in_as_themselves_and_asked_about_again_at_each_end(
    server: Protected, company: Company
) -> None:
    now = datetime.now(UTC)
    broker = by_company(server, company, clock=lambda: now)
    for caller in (ALICE, BOB):
        await save(broker, company, caller)
    assert await secret(broker, server, ALICE) == "alice-1"
    assert set(await asyncio.gather(*(secret(broker, server, BOB) for _ in range(8)))) == {"bob-2"}
    now += timedelta(hours=2)
    assert await secret(broker, server, ALICE) == "alice-3"
    now += timedelta(hours=2)
    company.denied = "access_denied"
    with pytest.raises(ToolError, match="'company' refused: access_denied") as raised:
        await given(broker, server, ALICE)
    assert raised.value.code == "unauthorized"
    assert len(server.sent("/token")) == 3
    company.denied = "invalid_grant"  # the login there has ended: this call says so, and the next one asks
    with pytest.raises(ToolError, match="invalid_grant"):
        await given(broker, server, ALICE)
    assert isinstance(await given(broker, server, ALICE), Pending)


@pytest.mark.parametrize("answer", [{"access_token": "a-plain-token"}, {"issued_token_type": ID_JAG}, ["no"]])
async def test_what_is_no_assertion_is_not_passed_on(server: Protected, company: Company, answer: Any) -> None:
    broker = by_company(server, company)
    await save(broker, company, ALICE)
    company.answers["/token"] = as_json(answer)
    with pytest.raises(ToolError) as raised:
        await given(broker, server, ALICE)
    assert raised.value.code == "unavailable"
    assert server.sent("/token") == []


@pytest.mark.parametrize("exp", [None, "soon", float("nan"), 0, -1])
async def test_an_id_token_without_a_good_end_is_refused(server: Protected, company: Company, exp: Any) -> None:
    broker = by_company(server, company)
    flow = broker.flow(broker.needed(ToolAuth("company"), "use"))
    token = company.id_token(ALICE, exp=exp)
    company.answers["/token"] = as_json({"access_token": "other", "token_type": "Bearer", "id_token": token})
    with pytest.raises(Exception, match="not valid OAuth"):
        await flow.exchange_code("c", redirect_uri="http://127.0.0.1:1/", verifier="v", scopes=["openid"])


async def test_the_server_itself_asks_no_person_where_the_company_decides(server: Protected, company: Company) -> None:
    broker = by_company(server, company)
    await broker.discover(server.name)
    with pytest.raises(SetupError, match="granted by 'company'"):
        await broker.ask(broker.needed(ToolAuth(server.name), "use"), ALICE, "use")
