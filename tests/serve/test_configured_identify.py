"""Who may enter as `[server]` of the settings has it: keys, the tokens of an issuer, both, or neither."""

from pathlib import Path

import pytest

from toolcrib import SetupError
from toolcrib.auth import Client
from toolcrib.serve import Identify, local_caller
from toolcrib.serve.access.authentication import configured_identify
from toolcrib.store import Store
from toolcrib.workbench.settings import read_settings

ISSUER = 'issuer = "https://id.example"'
PUBLIC = 'public_base_url = "https://tools.example.com/base/"'


def configured(folder: Path, *lines: str, store: Store | None = None) -> Identify:
    file = folder / "toolcrib.toml"
    file.write_text("\n".join(["[server]", *lines, ""]))
    return configured_identify(read_settings(file, {}), store)


@pytest.mark.parametrize(
    ("lines", "audience"),
    [
        ((ISSUER, 'audience = "tools"'), "tools"),
        ((ISSUER, PUBLIC), "https://tools.example.com/base/mcp"),
        ((ISSUER, PUBLIC, 'audience = "tools"'), "tools"),
    ],
)
def test_tokens_are_for_the_audience_that_is_set_else_for_the_public_address(
    tmp_path: Path, lines: tuple[str, ...], audience: str
) -> None:
    identify = configured(tmp_path, *lines)
    assert {name: tokens.audience for name, tokens in identify.issuers.items()} == {"https://id.example": audience}
    assert repr(identify) == "<Authenticator of no keys, 1 issuers>"
    assert repr(identify.issuers["https://id.example"]) == f"<AccessTokens of https://id.example for {audience}>"


def test_keys_are_those_of_the_store_and_may_be_beside_an_issuer(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    both = configured(tmp_path, "keys = true", ISSUER, PUBLIC, store=store)
    assert repr(both) == "<Authenticator of keys, 1 issuers>"
    assert repr(configured(tmp_path, "keys = true", store=store)) == "<Authenticator of keys, 0 issuers>"
    assert configured(tmp_path, store=store) is local_caller
    store.close()


def test_people_log_in_as_the_client_that_is_set(tmp_path: Path) -> None:
    for line, secret in (("", ""), ('client_secret = "${file:secret.txt}"', "of-the-client")):
        (tmp_path / "secret.txt").write_text("of-the-client")
        identify = configured(tmp_path, ISSUER, PUBLIC, 'client_id = "console"', line)
        (tokens,) = identify.issuers.values()
        assert tokens.client == Client("console", secret)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((ISSUER,), "'issuer' needs what its tokens are for: set 'audience' in \\[server\\], or 'public_base_url'"),
        (("keys = true",), "'keys' needs the store that they are in"),
        (("keys = true", ISSUER, PUBLIC), "'keys' needs the store that they are in"),
        (('audience = "x"',), "are of an 'issuer', which is not set"),
        (('client_id = "console"',), "are of an 'issuer', which is not set"),
        (('scopes = ["tools"]',), "are of an 'issuer', which is not set"),
    ],
)
def test_what_is_missing_in_the_settings_is_named(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        configured(tmp_path, *lines)
