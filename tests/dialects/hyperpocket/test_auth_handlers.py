"""The handlers of providers: their URLs, what a person enters, recommended scopes, and a catalogue of a user's own."""

from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from toolcrib.auth import load_catalogue
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.auth.google.oauth2_handler import GoogleOAuth2AuthHandler
from toolcrib.dialects.hyperpocket.auth.google.oauth2_schema import GoogleOAuth2Request
from toolcrib.dialects.hyperpocket.auth.kraken.keypair_handler import KrakeyKeypairAuthHandler
from toolcrib.dialects.hyperpocket.auth.schema import AuthenticateRequest
from toolcrib.dialects.hyperpocket.auth.slack.oauth2_context import SlackOAuth2AuthContext
from toolcrib.dialects.hyperpocket.auth.slack.oauth2_handler import SlackOAuth2AuthHandler
from toolcrib.dialects.hyperpocket.auth.slack.oauth2_schema import SlackOAuth2Response
from toolcrib.dialects.hyperpocket.auth.valyu.token_handler import ValyuTokenAuthHandler
from toolcrib.dialects.hyperpocket.config import config
from toolcrib.dialects.hyperpocket.config.auth import GoogleAuthConfig, SlackAuthConfig
from toolcrib.dialects.hyperpocket.futures import FutureStore
from toolcrib.dialects.hyperpocket.pocket_auth import PocketAuth

from .conftest import Settings


@pytest.fixture(autouse=True)
def configured(settings: Settings) -> None:
    config().auth.google = GoogleAuthConfig(client_id="google-id", client_secret="google-secret")
    config().auth.slack = SlackAuthConfig(client_id="1.2", client_secret="slack-secret")


def test_recommended_scopes_are_those_of_hyperpocket_unless_the_settings_say_otherwise() -> None:
    assert GoogleOAuth2AuthHandler.recommended_scopes() == set()
    assert "channels:history" in SlackOAuth2AuthHandler.recommended_scopes()
    config().auth.slack = SlackAuthConfig(client_id="1", client_secret="s", use_recommended_scope=False)
    assert SlackOAuth2AuthHandler.recommended_scopes() == set()


# What a person enters


async def test_a_token_that_is_entered_becomes_the_context() -> None:
    handler = ValyuTokenAuthHandler()
    text = handler.prepare(AuthenticateRequest(), "alice", "default", "the-uid")
    assert text == (
        "User needs to authenticate using the following URL: https://localhost:8001/proxy/auth/token?state=the-uid"
    )
    begun: Any = FutureStore.get_future("the-uid")
    assert (begun.data["form"], begun.data["title"]) == ("token", "Valyu")
    FutureStore.resolve_future("the-uid", "valyu-key")
    context = await handler.authenticate(AuthenticateRequest(), "the-uid")
    assert context.to_dict() == {"VALYU_API_KEY": "valyu-key"}
    assert (context.expires_at, context.detail) == (None, None)
    with pytest.raises(RuntimeError, match="cannot be refreshed"):
        await handler.refresh(AuthenticateRequest(), context)


@pytest.mark.parametrize("entered", ["key:secret:1", {"kraken_api_key": "key", "kraken_api_secret": "secret:1"}])
async def test_a_key_pair_is_two_variables(entered: Any) -> None:
    handler = KrakeyKeypairAuthHandler()
    handler.prepare(handler.make_request(), "alice", "default", "the-uid")
    FutureStore.resolve_future("the-uid", entered)
    context = await handler.authenticate(handler.make_request(), "the-uid")
    assert context.to_dict() == {"KRAKEN_API_KEY": "key", "KRAKEN_API_SECRET": "secret:1"}
    assert context.to_profiled_dict("w") == {"W_KRAKEN_API_KEY": "key", "W_KRAKEN_API_SECRET": "secret:1"}


def test_no_secret_is_in_a_repr() -> None:
    user = {"id": "U1", "access_token": "canary-1", "refresh_token": "canary-2"}
    given = SlackOAuth2Response(ok=True, authed_user=user, access_token="canary-3", refresh_token="canary-4")
    seen = [
        given,
        SlackOAuth2AuthContext.from_slack_oauth2_response(given),
        GoogleOAuth2Request(auth_scopes=[], client_id="id", client_secret="canary-5"),
        GoogleAuthConfig(client_id="id", client_secret="canary-6"),
    ]
    assert [text for text in map(repr, seen) if "canary" in text] == []


def test_a_provider_of_a_users_catalogue_has_its_names_and_handlers(settings: Settings) -> None:
    settings('providers = "providers.toml"', providers='[my-crm]\ntitle = "CRM"\ntoken = {}\n')
    crm = AuthProvider.get_auth_provider("my-crm")
    assert (crm, crm.name, crm.value) == (AuthProvider.MY_CRM, "MY_CRM", "my_crm")
    assert crm is AuthProvider("my_crm")
    module = import_module("toolcrib.dialects.hyperpocket.auth.my_crm.token_handler")
    handler = PocketAuth().find_handler_instance(None, crm)
    assert isinstance(handler, module.MyCrmTokenAuthHandler)
    assert (handler.name, handler.provider()) == ("my-crm-token", crm)


async def test_half_a_key_pair_is_refused_without_being_quoted() -> None:
    handler = KrakeyKeypairAuthHandler()
    handler.prepare(handler.make_request(), "alice", "default", "the-uid")
    FutureStore.resolve_future("the-uid", "canary")
    with pytest.raises(ValueError, match=r"^A key pair for Kraken has the form key:secret.$"):
        await handler.authenticate(handler.make_request(), "the-uid")


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
