"""Token endpoints that mean harm, values that no provider sends, and secrets that could not be sent or redacted."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Context, Crib, SetupError, ToolAuth, tool
from toolcrib.auth import CallbackError, Client, CredentialBroker, DatabaseVault, Flow, Grant, OAuth2, Owner
from toolcrib.net import client
from toolcrib.store import Store

from .conftest import ALICE, CODE, SECRET, Server, as_json


def flow(server: Server, **options: Any) -> Flow:
    names = ("token", "authorize", "device", "revoke")
    table = OAuth2(**{**{f"{name}_url": f"{server.url}/{name}" for name in names}, **options})
    http = partial(client, allow=["127.0.0.1"], timeout_s=60.0)
    return Flow("idp", table, Client("the-client-id", SECRET), http)


async def exchanged(flow: Flow) -> Grant:
    return await flow.exchange_code(CODE, redirect_uri="http://127.0.0.1:1/", verifier="v" * 50, scopes=("read",))


@pytest.mark.parametrize("interval", [1e-9, "0.000001", 0.01])
async def test_a_provider_cannot_have_itself_polled_without_a_pause(server: Server, interval: Any) -> None:
    shown = {"device_code": "a-device-code", "user_code": "ABCD-EFGH", "verification_uri": "https://idp.example/device"}
    server.answers["/device"] = as_json({**shown, "interval": interval})
    assert (await flow(server).start_device(["read"])).interval_s == 0.05


@pytest.mark.parametrize("url", ["http://[::1?state=a", "http://x/?state=\ud800", "\x00", "//[", ""])
async def test_a_callback_that_is_not_a_url_completes_nothing(url: str) -> None:
    with pytest.raises(CallbackError) as raised:
        await CredentialBroker().complete(url)
    assert raised.value.reason == "unknown"


KEYS = {
    "a-key\n": "A key is sent in a header",
    "a-key\r\nX-Other: 1": "A key is sent in a header",
    "a-kéy-0123": "A key is sent in a header",
    "a-key\x00": "A key is sent in a header",
    "a-key\ud800": "can be written as UTF-8",
    "      ": "at least 4 characters",
    " e ": "at least 4 characters",
}


@pytest.mark.parametrize("key", KEYS)
async def test_a_key_that_could_not_be_sent_is_not_stored(key: str) -> None:
    broker, owner = CredentialBroker(), Owner.of(ALICE, "github", "token")
    with pytest.raises(SetupError, match=KEYS[key]) as raised:
        await broker.save(owner, Grant(key))
    assert key not in str(raised.value)
    assert await broker.vault.get(owner) is None


def failing() -> list[bytes]:
    raise ConnectionError(f"with {SECRET}")


@pytest.mark.parametrize("keys", [failing, list, lambda: None, lambda: [b"short"]])
async def test_keys_that_cannot_be_had_make_a_call_unavailable_and_are_not_quoted(
    tmp_path: Path, keys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def store(key: Any) -> Store:
        return Store(tmp_path / "store.db", key=key)

    owner = Owner.of(ALICE, "github", "token")
    await CredentialBroker(vault=DatabaseVault(store(lambda: [b"k" * 32]))).save(owner, Grant("a-key-0123"))

    @tool(auth=ToolAuth("github", "token"))
    async def use(ctx: Context) -> str:
        return ""

    async with Crib([use], broker=CredentialBroker(vault=DatabaseVault(store(keys)))) as crib:
        result = await crib.workbench(ALICE).call("use")
    assert (result.error.code, result.text) == ("unavailable", "The credentials of 'use' cannot be read now.")
    assert SECRET not in caplog.text
