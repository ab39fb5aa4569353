"""The names of hyperpocket: 74 providers, 82 handlers, and a module for each of what belongs to them."""

import copy
import importlib
import pickle
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from toolcrib.auth import load_catalogue
from toolcrib.core import Credential
from toolcrib.dialects.hyperpocket import auth as package
from toolcrib.dialects.hyperpocket.auth import (
    PREBUILT_AUTH_HANDLERS,
    AuthContext,
    AuthHandlerInterface,
    AuthProvider,
    core_handler,
    environment_of,
    get_auth_provider,
    is_scoped,
    secrets_of,
)

from .conftest import Settings

pytestmark = pytest.mark.usefixtures("settings")
PACKAGE = package.__name__

IRREGULAR = {
    "apitoken.context": ["ApiTokenAuthContext"],
    "apitoken.token_context": ["ApiTokenAuthContext"],
    "apitoken.token_handler": ["ApiTokenAuthHandler"],
    "apitoken.token_schema": ["ApiTokenRequest", "ApiTokenResponse"],
    "basicauth.basicauth_context": ["BasicAuthContext"],
    "basicauth.basicauth_handler": ["BasicAuthHandler"],
    "basicauth.basicauth_schema": ["BasicAuthRequest", "BasicAuthResponse"],
    "basicauth.context": ["BasicAuthContext"],
    "github.context": ["GitHubAuthContext"],
    "github.oauth2_context": ["GitHubOAuth2AuthContext"],
    "github.oauth2_handler": ["GitHubOAuth2AuthHandler"],
    "github.oauth2_schema": ["GitHubOAuth2Request", "GitHubOAuth2Response"],
    "github.token_context": ["GitHubTokenAuthContext"],
    "github.token_handler": ["GitHubTokenAuthHandler"],
    "github.token_schema": ["GitHubTokenRequest", "GitHubTokenResponse"],
    "gumloop.context": ["GumLoopContext"],
    "gumloop.token_context": ["GumLoopTokenContext"],
    "kraken.keypair_handler": ["KrakeyKeypairAuthHandler"],
    "linkedin.basicauth_context": ["LinkedinBasicAuthContext"],
    "linkedin.basicauth_handler": ["LinkedinBasicAuthHandler"],
    "linkedin.basicauth_schema": ["LinkedinBasicAuthRequest", "LinkedinBasicAuthResponse"],
}
"""Names that follow no rule, or that of one provider."""

SUFFIXES = {
    "context": ["AuthContext"],
    "oauth2_context": ["OAuth2AuthContext"],
    "oauth2_handler": ["OAuth2AuthHandler"],
    "oauth2_schema": ["OAuth2Request", "OAuth2Response"],
    "token_context": ["TokenAuthContext"],
    "token_handler": ["TokenAuthHandler"],
    "token_schema": ["TokenRequest", "TokenResponse"],
    "keypair_context": ["KeypairAuthContext"],
    "keypair_schema": ["KeypairRequest", "KeypairResponse"],
}


def modules_of(provider: str) -> list[str]:
    entry = load_catalogue()[provider]
    kinds = ["basicauth" if kind == "basic" else kind for kind in entry.handlers]
    return ["context", *(f"{kind}_{what}" for kind in kinds for what in ("context", "handler", "schema"))]


def names_in(provider: str, module: str) -> list[str]:
    if (names := IRREGULAR.get(f"{provider}.{module}")) is not None:
        return names
    prefix = "".join(part.capitalize() for part in provider.split("_"))
    return [f"{prefix}{suffix}" for suffix in SUFFIXES[module]]


def test_each_of_402_names_is_imported_from_its_module() -> None:
    found = [
        (provider, module, name, getattr(importlib.import_module(f"{PACKAGE}.{provider}.{module}"), name))
        for provider in load_catalogue()
        for module in modules_of(provider)
        for name in names_in(provider, module)
    ]
    assert len(found) == 402
    kinds = {"context": AuthContext, "handler": AuthHandlerInterface, "schema": BaseModel}
    wrong = [
        name
        for provider, module, name, made in found
        if not issubclass(made, kinds[module.rpartition("_")[2]])
        or (made.__name__, made.__module__) != (name, f"{PACKAGE}.{provider}.{module}")
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["nonsense", "slack.nonsense", "slack.keypair_handler", "slack.context.more"])
def test_other_modules_are_not_there(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{PACKAGE}.{name}")


def test_names_of_handlers_and_variables_are_those_of_hyperpocket() -> None:
    irregular = {
        handler.name: (handler.provider().name, handler.scoped)
        for handler in PREBUILT_AUTH_HANDLERS
        if handler.name.partition("-")[0] != handler.provider().value
        or (handler.scoped != handler.name.endswith("oauth2"))
    }
    assert irregular == {
        "calendly-oauth2": ("CALENDLY", False),
        "lever-sandbox-token": ("LEVER_SANDBOX", False),
        "microsoft-clarity-token": ("MICROSOFT_CLARITY", False),
        "semantic-scholar-token": ("SEMANTIC_SCHOLAR", False),
    }
    variables: dict[str, Any] = {}
    for provider in AuthProvider:
        credential = Credential(provider.value, "k:s", "keypair" if provider.value == "kraken" else "key")
        variables[provider.name] = list(environment_of(credential))
    assert {name: found for name, found in variables.items() if found != [f"{name}_TOKEN"]} == {
        "APITOKEN": ["API_TOKEN"],
        "BASICAUTH": ["BASIC_AUTH"],
        "KRAKEN": ["KRAKEN_API_KEY", "KRAKEN_API_SECRET"],
        "LINKEDIN": ["LINKEDIN_BASIC_AUTH"],
        "REDDIT": ["REDDIT_BOT_TOKEN"],
        "SLACK": ["SLACK_BOT_TOKEN"],
        "VALYU": ["VALYU_API_KEY"],
        "X": ["X_AUTH_TOKEN"],
    }


def test_a_provider_is_found_by_its_name_in_any_case_and_is_one_value() -> None:
    slack = AuthProvider.SLACK
    same = [AuthProvider["SLACK"], AuthProvider("slack"), AuthProvider("SLACK"), get_auth_provider("Slack")]
    assert [one is slack for one in [*same, copy.deepcopy(slack), pickle.loads(pickle.dumps(slack))]] == [True] * 6
    assert (slack.name, slack.value, str(slack), repr(slack)) == (
        "SLACK",
        "slack",
        "AuthProvider.SLACK",
        "<AuthProvider.SLACK: 'slack'>",
    )
    assert {slack: 1}[AuthProvider("slack")] == 1
    assert AuthProvider.SENDGRID.value == "sendgrid"
    assert len(AuthProvider) == len(list(AuthProvider)) == 74


def test_a_provider_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Invalid auth provider name. nonsense$"):
        get_auth_provider("nonsense")
    with pytest.raises(KeyError):
        AuthProvider["NONSENSE"]
    with pytest.raises(AttributeError):
        _ = AuthProvider.NONSENSE
    with pytest.raises(AttributeError):
        _ = AuthProvider.slack


def test_a_provider_is_a_field_of_a_model() -> None:
    class Model(BaseModel):
        provider: AuthProvider | None = None

    for given in ("slack", "SLACK", AuthProvider.SLACK):
        assert Model(provider=given).provider is AuthProvider.SLACK
    assert Model(provider=AuthProvider.SLACK).model_dump_json() == '{"provider":"slack"}'
    assert Model(provider=AuthProvider.SLACK).model_dump() == {"provider": AuthProvider.SLACK}
    with pytest.raises(ValidationError, match="Input should be"):
        Model(provider="nonsense")


def test_which_handlers_take_scopes_is_known_without_making_one() -> None:
    slack = AuthProvider.SLACK
    assert [is_scoped(slack), is_scoped(slack, "slack-token"), is_scoped(slack, "of-a-program")] == [True, False, None]
    assert [is_scoped(AuthProvider.CALENDLY), is_scoped(AuthProvider.NOTION)] == [False, True]
    assert [core_handler(slack, "slack-oauth2"), core_handler(slack, None), core_handler(slack, "own")] == [
        "oauth2",
        None,
        None,
    ]


def test_a_context_of_a_provider_is_pickled_and_names_what_to_redact() -> None:
    from toolcrib.dialects.hyperpocket.auth.linkedin.basicauth_context import LinkedinBasicAuthContext
    from toolcrib.dialects.hyperpocket.auth.slack.oauth2_context import SlackOAuth2AuthContext

    slack = SlackOAuth2AuthContext(access_token="xoxp-1", refresh_token="xoxe-1", description="", expires_at=None)
    basic = LinkedinBasicAuthContext(access_token="YWRhOndvcmQ=", description="", expires_at=None)
    assert pickle.loads(pickle.dumps(slack)) == slack
    assert [secrets_of(slack), secrets_of(basic)] == [("xoxp-1", "xoxe-1"), ("YWRhOndvcmQ=", "word")]


def test_a_users_catalogue_can_give_a_provider_of_ours_another_table(settings: Settings) -> None:
    settings('providers = "providers.toml"', providers="[slack]\nbasic = {}\n")
    assert [is_scoped(AuthProvider.SLACK), is_scoped(AuthProvider.SLACK, "slack-oauth2")] == [False, None]
