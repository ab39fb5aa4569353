"""What a server says of this program to others that take such a document as the id of a client."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolcrib import Caller, Crib, ToolAuth
from toolcrib.auth import CredentialBroker
from toolcrib.auth.catalogue import callback_segment
from toolcrib.serve import asgi_app

from .serving import running

PUBLIC = "https://tools.example.com"
DOCUMENT = f"{PUBLIC}/auth/client.json"


def nobody(headers: Mapping[str, str]) -> Caller:
    raise PermissionError


@asynccontextmanager
async def protected(registered: list[Any], *, takes_documents: bool) -> AsyncIterator[str]:
    """A server that needs a login, and its authorization server, in one: the URL."""

    async def refuse(request: Request) -> Response:
        challenge = f'Bearer resource_metadata="{request.base_url}.well-known/oauth-protected-resource"'
        return Response(status_code=401, headers={"WWW-Authenticate": challenge})

    async def resource(request: Request) -> Response:
        return JSONResponse(
            {"resource": f"{request.base_url}mcp", "authorization_servers": [str(request.base_url)[:-1]]}
        )

    async def metadata(request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": str(request.base_url)[:-1],
                "authorization_endpoint": f"{request.base_url}authorize",
                "token_endpoint": f"{request.base_url}token",
                "registration_endpoint": f"{request.base_url}register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
                "client_id_metadata_document_supported": takes_documents,
            }
        )

    async def register(request: Request) -> Response:
        registered.append(await request.json())
        return JSONResponse({"client_id": "registered-client"}, 201)

    app = Starlette(
        routes=[
            Route("/mcp", refuse, methods=["POST"]),
            Route("/.well-known/oauth-protected-resource", resource),
            Route("/.well-known/oauth-authorization-server", metadata),
            Route("/register", register, methods=["POST"]),
        ]
    )
    async with running(app) as url:
        yield url


async def asked(broker: CredentialBroker, url: str) -> dict[str, str]:
    """The query of the address to which somebody is sent to log in."""
    [pending] = await broker.ask_for([ToolAuth(f"mcp:{url}/mcp")], Caller("alice"), "tool")
    assert pending.url is not None
    return {name: values[0] for name, values in parse_qs(urlsplit(pending.url).query).items()}


async def test_a_server_with_a_public_address_describes_itself_and_is_known_by_that() -> None:
    broker, registered = CredentialBroker(allow=["127.0.0.1"]), list[Any]()
    app = asgi_app(Crib([], broker=broker), nobody, base_url=f"{PUBLIC}/")
    async with (
        protected(registered, takes_documents=True) as url,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=PUBLIC) as http,
        app.lifespan(),
    ):
        last = callback_segment(f"mcp:{url}/mcp")
        answer = await http.get(f"{DOCUMENT}/{last}")  # whoever reads it has no key
        document = answer.json()
        assert answer.headers["content-type"] == "application/json"
        assert document == {
            "client_id": f"{DOCUMENT}/{last}",
            "client_name": "Toolcrib",
            "redirect_uris": [f"{PUBLIC}/auth/callback/{last}"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "web",
        }
        query = await asked(broker, url)
        assert (query["client_id"], query["redirect_uri"]) == (document["client_id"], document["redirect_uris"][0])
        assert not registered


async def test_where_documents_are_not_taken_it_registers_with_its_public_address() -> None:
    broker, registered = CredentialBroker(allow=["127.0.0.1"]), list[Any]()
    asgi_app(Crib([], broker=broker), nobody, base_url=PUBLIC)
    async with protected(registered, takes_documents=False) as url:
        query = await asked(broker, url)
    assert query["client_id"] == "registered-client"
    assert [each["redirect_uris"] for each in registered] == [[query["redirect_uri"]]]
    assert query["redirect_uri"].startswith(f"{PUBLIC}/auth/callback/server.")


@pytest.mark.parametrize("base_url", [None, "http://tools.example.com", "https://127.0.0.1:8642"])
async def test_an_address_that_others_cannot_read_is_not_the_id_of_a_client(base_url: str | None) -> None:
    broker = CredentialBroker(allow=["127.0.0.1"])
    app = asgi_app(Crib([], broker=broker), base_url=base_url)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:  # noqa: SIM117
        async with app.lifespan():
            assert (await http.get("/auth/client.json/server.0")).status_code == 404
