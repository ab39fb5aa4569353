"""What a server says of this program to others that take such a document as the id of a client."""

from collections.abc import Iterator, Mapping

import httpx2
import pytest

from toolcrib import Caller, Crib
from toolcrib.auth import CredentialBroker
from toolcrib.auth.catalogue import callback_segment
from toolcrib.serve import asgi_app

from ..auth.test_servers import REGISTERED, Protected

PUBLIC = "https://tools.example.com"
DOCUMENT = f"{PUBLIC}/auth/client.json"


def nobody(headers: Mapping[str, str]) -> Caller:
    raise PermissionError


@pytest.fixture
def upstream() -> Iterator[Protected]:
    """A server that needs a login, at an authorization server for public clients."""
    upstream = Protected()
    upstream.document["token_endpoint_auth_methods_supported"] = ["none"]
    yield upstream
    upstream.close()


async def test_a_server_with_a_public_address_describes_itself_and_is_known_by_that(upstream: Protected) -> None:
    upstream.document["client_id_metadata_document_supported"] = True
    broker = CredentialBroker(allow=["127.0.0.1"])
    app = asgi_app(Crib([], broker=broker), nobody, base_url=f"{PUBLIC}/")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=PUBLIC) as http, app.lifespan():
        last = callback_segment(upstream.name)
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
        query = await upstream.asked(broker)
        assert (query["client_id"], query["redirect_uri"]) == (document["client_id"], document["redirect_uris"][0])
        assert upstream.sent("/register") == []


async def test_where_documents_are_not_taken_it_registers_with_its_public_address(upstream: Protected) -> None:
    broker = CredentialBroker(allow=["127.0.0.1"])
    asgi_app(Crib([], broker=broker), nobody, base_url=PUBLIC)
    query = await upstream.asked(broker)
    assert query["client_id"] == REGISTERED["client_id"]
    assert [each["redirect_uris"] for each in upstream.sent("/register")] == [[query["redirect_uri"]]]
    assert query["redirect_uri"].startswith(f"{PUBLIC}/auth/callback/server.")


@pytest.mark.parametrize("base_url", [None, "http://tools.example.com", "https://127.0.0.1:8642"])
async def test_an_address_that_others_cannot_read_is_not_the_id_of_a_client(base_url: str | None) -> None:
    broker = CredentialBroker(allow=["127.0.0.1"])
    app = asgi_app(Crib([], broker=broker), base_url=base_url)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:  # noqa: SIM117
        async with app.lifespan():
            assert (await http.get("/auth/client.json/server.0")).status_code == 404
