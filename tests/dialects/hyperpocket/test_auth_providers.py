"""The eight supported providers, each imitated on loopback: asked for, granted, refreshed by its handler."""

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from toolcrib.auth import load_catalogue
from toolcrib.dialects.hyperpocket.auth import AuthHandlerInterface
from toolcrib.dialects.hyperpocket.auth.schema import AuthenticateRequest
from toolcrib.dialects.hyperpocket.futures import CallbackCode, FutureStore
from toolcrib.dialects.hyperpocket.pocket_auth import PocketAuth

from ...auth.imitation import CLIENT_ID, CLIENT_SECRET, ORG, QUIRKS, Imitation
from .conftest import Settings

SCOPES = {
    "github": ["repo"],
    "google": ["openid", "email"],
    "slack": ["chat:write", "users:read"],
    "notion": [],
    "jira": ["read:jira-work", "write:jira-work"],
    "linear": ["read", "write"],
    "salesforce": ["api", "id"],
    "x": ["tweet.read", "users.read"],
}


def toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.fixture
def server() -> Iterator[Imitation]:
    server = Imitation()
    yield server
    server.close()


class Person:
    """Somebody with a browser, and the handler of one imitated provider."""

    def __init__(self, name: str, server: Imitation, settings: Settings) -> None:
        self.name, self.server = name, server
        entry = server.provider(name, load_catalogue()[name])
        assert entry.oauth2 is not None
        table = entry.oauth2.model_dump(exclude_none=True)
        if name == "google":
            table["issuer"] = f"{server.url}/accounts.google.com"
        catalogue = f"[{name}]\nsettings = {toml(entry.settings)}\nrecommended_scopes = []\n" + "".join(
            f"oauth2.{key} = {toml(value)}\n" for key, value in table.items()
        )
        client = f'client_id = "{CLIENT_ID}"\nclient_secret = "{CLIENT_SECRET}"\n'
        also = f'domain_url = "{server.url}/{ORG}"\n' if name == "salesforce" else ""
        settings(
            f'providers = "providers.toml"\nnet.allow = ["127.0.0.1"]\n[auth.{name}]\nuse_recommended_scope = false\n'
            + client
            + also,
            providers=catalogue,
        )
        self.auth = PocketAuth()
        self.handler: AuthHandlerInterface = self.auth.find_handler_instance(f"{name}-oauth2")
        self.request: AuthenticateRequest = self.handler.make_request(SCOPES[name])

    def follow(self, text: str) -> CallbackCode:
        """Grant access at the URL in *text*. Gives what comes back."""
        parts = urlsplit(text.rpartition(" ")[2])
        connection = HTTPConnection(self.server.host)
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        assert answer.status == 302, (text, self.server.problems)
        query = {key: values[0] for key, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
        connection.close()
        return CallbackCode(query["code"], query)

    async def granted(self) -> Any:
        text = self.handler.prepare(self.request, "alice", "default", "the-uid")
        code = self.follow(text)
        assert code.query["state"] == "the-uid"
        FutureStore.resolve_future("the-uid", code)
        return await self.handler.authenticate(self.request, "the-uid")


@pytest.fixture(params=sorted(QUIRKS))
def person(request: pytest.FixtureRequest, server: Imitation, settings: Settings) -> Person:
    return Person(request.param, server, settings)


def test_each_of_the_19_urls_has_what_a_callback_is_matched_by(settings: Settings) -> None:
    names = [name for name, entry in load_catalogue().items() if entry.oauth2 is not None]
    client = 'client_id = "the-id"\nclient_secret = "s"\ndomain_url = "https://acme.my.salesforce.com"\n'
    settings("".join(f"[auth.{name}]\n{client}" for name in names))
    auth = PocketAuth()
    wrong = []
    for name in names:
        handler = auth.find_handler_instance(f"{name}-oauth2")
        text = handler.prepare(handler.make_request(), "alice", "default", f"uid-of-{name}")
        query = {key: values[0] for key, values in parse_qs(urlsplit(text).query).items()}
        expected = {
            "response_type": "code",
            "client_id": "the-id",
            "state": f"uid-of-{name}",
            "redirect_uri": f"https://localhost:8001/proxy/auth/{name}/oauth2/callback",
        }
        if not expected.items() <= query.items():
            wrong.append((name, query))
    assert len(names) == 19
    assert wrong == []
