"""The names of hyperpocket: 74 providers, 82 handlers, and a module for each of what belongs to them."""

import importlib
from typing import Any

import pytest
from pydantic import BaseModel

from toolcrib.auth import load_catalogue
from toolcrib.core import Credential
from toolcrib.dialects.hyperpocket import auth as package
from toolcrib.dialects.hyperpocket.auth import (
    PREBUILT_AUTH_HANDLERS,
    AuthContext,
    AuthHandlerInterface,
    AuthProvider,
    environment_of,
    get_auth_provider,
)

pytestmark = pytest.mark.usefixtures("settings")
PACKAGE = package.__name__

IRREGULAR = {
    "apitoken.token_context": ["ApiTokenAuthContext"],
    "apitoken.token_handler": ["ApiTokenAuthHandler"],
    "apitoken.token_schema": ["ApiTokenRequest", "ApiTokenResponse"],
    "basicauth.context": ["BasicAuthContext"],
    "gumloop.context": ["GumLoopContext"],
    "gumloop.token_context": ["GumLoopTokenContext"],
    "kraken.keypair_handler": ["KrakeyKeypairAuthHandler"],
}
"""Names that follow no rule."""

PREFIXES = {"apitoken": "ApiToken", "basicauth": "", "github": "GitHub"}
"""How the names of a provider begin, where it is not its name in title case."""

SUFFIXES = {
    "context": ["AuthContext"],
    "oauth2_context": ["OAuth2AuthContext"],
    "oauth2_handler": ["OAuth2AuthHandler"],
    "oauth2_schema": ["OAuth2Request", "OAuth2Response"],
    "token_context": ["TokenAuthContext"],
    "token_handler": ["TokenAuthHandler"],
    "token_schema": ["TokenRequest", "TokenResponse"],
    "basicauth_context": ["BasicAuthContext"],
    "basicauth_handler": ["BasicAuthHandler"],
    "basicauth_schema": ["BasicAuthRequest", "BasicAuthResponse"],
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
    prefix = PREFIXES.get(provider, provider.title().replace("_", ""))
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


def test_a_provider_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Invalid auth provider name. nonsense$"):
        get_auth_provider("nonsense")
    with pytest.raises(KeyError):
        AuthProvider["NONSENSE"]
    with pytest.raises(AttributeError):
        _ = AuthProvider.NONSENSE
    with pytest.raises(AttributeError):
        _ = AuthProvider.slack
