"""Secrets of a whole run are looked for, in clear and in every encoding that redaction knows, in all that comes out."""

import base64
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from toolcrib import Caller, Context, Crib, ToolAuth, tool
from toolcrib.auth import CallbackError, DatabaseVault, Owner
from toolcrib.record import CallLog
from toolcrib.store import Store

from .canaries import require_hidden
from .conftest import SECRET, MakeParts, Provider

ALICE, BOB = Caller("alice"), Caller("bob")
NEEDS = ToolAuth("local", scopes=["openid", "read"])


@tool(auth=NEEDS)
async def leak(ctx: Context, how: str) -> object:
    """Shows its token in one of many ways."""
    token = ctx.credentials["local"].secret
    logging.getLogger("toolcrib").info("The token is %s", token)
    match how:
        case "raise":
            raise ValueError(f"refused {token}") from KeyError(token)
        case "data":
            return {"token": token, token: [quote(token), token.encode().hex()]}
        case "encoded":
            return base64.b64encode(f"Bearer {token}".encode()).decode()
        case "credential":
            return repr(ctx.credentials)
    return token


@tool
async def echo(text: str) -> str:
    return text


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Path]:
    """A file with all that anybody logs."""
    handler = logging.FileHandler(tmp_path / "all.log")
    root, before = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield tmp_path / "all.log"
    root.setLevel(before)
    root.removeHandler(handler)
    handler.close()


async def test_no_secret_of_a_run_is_in_what_comes_out(
    provider: Provider, make_parts: MakeParts, tmp_path: Path, logged: Path
) -> None:
    store = Store(tmp_path / "data" / "store.db")
    vault = DatabaseVault(store)
    parts = make_parts(provider, vault=vault)
    owner, canaries, out = Owner.of(ALICE, "local", "oauth2"), {SECRET}, []

    async def remember() -> None:
        stored = await vault.get(owner)
        canaries.update(stored.grant.secrets)
        out.append(repr(stored))

    options = {"broker": parts.broker, "store": store, "show_errors": True}
    recorder = CallLog(with_content=True)
    async with Crib([leak, echo, parts.who], recorder=recorder, **options) as crib:
        alice, bob = crib.workbench(ALICE), crib.workbench(BOB)
        for deny in (True, False):
            waiting = await alice.call("leak", {"how": "raise"})
            out += [repr(waiting), waiting.text, json.dumps(waiting.to_dict())]
            state = parse_qs(urlsplit(waiting.pending.url).query)["state"][0]
            begun = await vault.find(state, now=crib.pending.clock())
            canaries.add(begun.verifier)
            out.append(repr(begun))
            logging.disable()  # what the browser logs is not ours
            callback = provider.grant(waiting.pending.url, deny=deny)
            logging.disable(logging.NOTSET)
            canaries.update(parse_qs(urlsplit(callback).query).get("code", ()))
            try:
                out.append(repr(await crib.complete(callback)))
            except CallbackError as error:
                out.append("".join(traceback.format_exception(error)))
        await remember()
        with pytest.raises(CallbackError) as replayed:
            await crib.complete(callback)
        out.append("".join(traceback.format_exception(replayed.value)))
        for expired in (False, True):
            if expired:
                await parts.expire(ALICE)
            for how in ("raise", "data", "encoded", "credential", "text"):
                result = await alice.call("leak", {"how": how})
                assert result.pending is None
                out += [repr(result), result.text, json.dumps(result.to_dict())]
            await remember()
        # A code that is not one, a provider that refuses, and a grant that has ended.
        other = await bob.call("who")
        forged = parse_qs(urlsplit(other.pending.url or "").query)["state"][0]
        canaries.add("canary-code-0123456789")
        with pytest.raises(CallbackError) as failed:
            answer = f"code=canary-code-0123456789&state={forged}&iss={quote(provider.issuer)}"
            await crib.complete(f"{callback.partition('?')[0]}?{answer}")
        out.append("".join(traceback.format_exception(failed.value)))
        needed = parts.broker.needed(NEEDS, "leak")
        out += [repr(each) for each in (crib, alice, parts.broker, vault, store, needed, parts.broker.flow(needed))]
        await parts.broker.revoke(owner)
        out.append(repr(await alice.call("leak", {"how": "text"})))
    assert len(canaries) >= 9
    require_hidden(canaries, *out, logged.read_text(), *map(repr, recorder), folder=tmp_path / "data")
    store.close()
