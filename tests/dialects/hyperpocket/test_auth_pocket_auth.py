"""PocketAuth: the states of a session, and handlers that programs wrote."""

import asyncio
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from toolcrib.core import SetupError, ToolError
from toolcrib.dialects.hyperpocket.auth import AuthContext, AuthProvider
from toolcrib.dialects.hyperpocket.auth.schema import AuthenticateRequest
from toolcrib.dialects.hyperpocket.config import config
from toolcrib.dialects.hyperpocket.config.auth import SlackAuthConfig
from toolcrib.dialects.hyperpocket.config.session import SessionConfigInMemory
from toolcrib.dialects.hyperpocket.futures import FutureStore
from toolcrib.dialects.hyperpocket.futures.futurestore import RefusedError
from toolcrib.dialects.hyperpocket.pocket_auth import AuthState, PocketAuth
from toolcrib.dialects.hyperpocket.session.in_memory import InMemorySessionStorage
from toolcrib.dialects.hyperpocket.tool import ToolAuth

from . import own_handler
from .conftest import Settings
from .own_handler import OwnContext

GOOGLE, SLACK = AuthProvider.GOOGLE, AuthProvider.SLACK
CLIENTS = '[auth.google]\nclient_id = "id"\nclient_secret = "secret"\n'
WHERE = {"auth_provider": GOOGLE, "thread_id": "alice", "profile": "default"}


class OwnHandler(own_handler.OwnHandler):
    """As programs write one, for Slack; it may fail, or wait in the middle of its work."""

    name = "own-slack"
    fails = False
    pause: asyncio.Event | None = None
    arrived: asyncio.Event | None = None

    async def _work(self) -> None:
        if self.pause is not None and self.arrived is not None:
            self.arrived.set()
            await self.pause.wait()
        if self.fails:
            raise LookupError("no such account")

    @staticmethod
    def provider() -> AuthProvider:
        return AuthProvider.SLACK

    async def authenticate(self, *args: Any, **kwargs: Any) -> OwnContext:
        await self._work()
        return await super().authenticate(*args, **kwargs)

    async def refresh(self, auth_req: AuthenticateRequest, context: AuthContext, **kwargs: Any) -> AuthContext:
        await self._work()
        return OwnContext(access_token=f"{context.access_token}+", description="", expires_at=None)


@pytest.fixture
def auth(settings: Settings) -> PocketAuth:
    settings(CLIENTS)
    return PocketAuth(handlers=[OwnHandler], session_storage=InMemorySessionStorage(SessionConfigInMemory()))


def uid_of(auth: PocketAuth, provider: AuthProvider = SLACK) -> str:
    session: Any = auth.session_storage.get(provider, "alice", "default")
    return session.auth_resolve_uid


def resolve(auth: PocketAuth, token: str = "token-1") -> None:
    FutureStore.resolve_future(uid_of(auth), token)


NEEDS = ToolAuth(auth_provider=SLACK, scopes=["a"])
OWN = {"auth_handler_name": "own-slack", "thread_id": "alice"}


def request(*scopes: str) -> AuthenticateRequest:
    return AuthenticateRequest(auth_scopes=list(scopes))


async def test_a_session_goes_through_its_six_states(auth: PocketAuth) -> None:
    states = [await auth.check(request("a"), **OWN)]
    await auth.prepare(request("a"), **OWN)
    states.append(await auth.check(request("a"), **OWN))
    resolve(auth)
    states.append(await auth.check(request("a"), **OWN))
    await auth.authenticate_async(request("a"), **OWN)
    states.append(await auth.check(request("a"), **OWN))
    states.append(await auth.check(request("a", "b"), **OWN))
    for left_s in (310, 290):
        ends = datetime.now(UTC) + timedelta(seconds=left_s)
        context = OwnContext(access_token="token-1", description="", expires_at=ends)
        auth.session_storage.set(SLACK, "alice", "default", ["a"], None, context, True)
        states.append(await auth.check(request("a"), **OWN))
    assert [state.name for state in states] == [
        "NO_SESSION",
        "PENDING_RESOLVE",
        "RESOLVED",
        "SKIP_AUTH",
        "DO_AUTH",
        "SKIP_AUTH",
        "DO_REFRESH",
    ]


async def test_deleting_a_session_ends_its_url_and_whoever_waits(auth: PocketAuth) -> None:
    await auth.prepare(request("a"), **OWN)
    uid = uid_of(auth)
    waiting = asyncio.ensure_future(auth.authenticate_async(request("a"), **OWN))
    await asyncio.sleep(0)
    assert auth.delete_session(SLACK, "alice") is True
    assert auth.delete_session(SLACK, "alice") is False
    with pytest.raises(RuntimeError):
        await waiting
    with pytest.raises(ValueError, match=r"^No grant waits for this uid.$"):
        FutureStore.resolve_future(uid, "token-1")


async def test_nobody_grants_in_time_and_the_next_call_has_a_new_url(auth: PocketAuth, settings: Settings) -> None:
    settings(f"auth_timeout_s = 0.05\n{CLIENTS}")
    first = await auth.prepare(auth.make_request(["a"], None, GOOGLE), **WHERE)
    with pytest.raises(TimeoutError, match=r"^Access to GOOGLE was not granted in time.$"):
        await auth.authenticate_async(auth.make_request(["a"], None, GOOGLE), **WHERE)
    assert await auth.prepare(auth.make_request(["a"], None, GOOGLE), **WHERE) != first


async def test_a_url_that_is_too_old_is_not_given_again(auth: PocketAuth) -> None:
    first = await auth.prepare(auth.make_request(["a"], None, GOOGLE), **WHERE)
    old = uid_of(auth, GOOGLE)
    FutureStore.futures[old] = replace(FutureStore.futures[old], created_at=monotonic() - 301)
    assert await auth.check(auth.make_request(["a"], None, GOOGLE), **WHERE) is AuthState.NO_SESSION
    assert await auth.prepare(auth.make_request(["a"], None, GOOGLE), **WHERE) != first
    assert FutureStore.get_future(old) is None


@pytest.mark.parametrize("fails", [True, False])
async def test_a_newer_session_stays_when_an_older_one_ends(auth: PocketAuth, fails: bool) -> None:
    handler: Any = auth.find_handler_instance("own-slack")
    handler.fails, handler.pause, handler.arrived = fails, asyncio.Event(), asyncio.Event()
    await auth.prepare(request("a"), **OWN)
    resolve(auth)
    older = asyncio.ensure_future(auth.authenticate_async(request("a"), **OWN))
    await handler.arrived.wait()
    newer = auth.session_storage.set(SLACK, "alice", "default", ["a"], "another-uid", None, True)
    handler.pause.set()
    with pytest.raises(LookupError if fails else RuntimeError):
        await older
    assert auth.session_storage.get(SLACK, "alice", "default") == newer


async def test_a_refresh_goes_on_when_the_call_is_given_up(auth: PocketAuth) -> None:
    handler: Any = auth.find_handler_instance("own-slack")
    near = OwnContext(access_token="token-1", description="", expires_at=datetime.now(UTC))
    auth.session_storage.set(SLACK, "alice", "default", ["a"], None, near, True)
    handler.pause, handler.arrived = asyncio.Event(), asyncio.Event()
    given_up = asyncio.ensure_future(auth.invoke(NEEDS, "alice", wait=False))
    await handler.arrived.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    handler.pause.set()
    context = await auth.invoke(NEEDS, "alice", wait=False)
    assert isinstance(context, OwnContext)
    assert context.access_token == "token-1+"  # refreshed once


async def test_a_handler_of_ones_own_is_the_default_of_its_provider(auth: PocketAuth) -> None:
    assert auth.find_handler_instance(None, SLACK).name == "own-slack"
    assert auth.find_handler_instance("slack-oauth2").name == "slack-oauth2"
    assert auth.find_handler_instance(None, GOOGLE).name == "google-oauth2"
    with pytest.raises(KeyError):
        auth.find_handler_instance("nonsense", SLACK)
    with pytest.raises(ValueError, match=r"^No handler found$"):
        auth.find_handler_instance()


def test_each_provider_has_exactly_one_default_handler(settings: Settings) -> None:
    handlers = PocketAuth().handlers.values()
    defaults = [handler.provider().name for handler in handlers if handler.provider_default()]
    assert sorted(defaults) == sorted(provider.name for provider in AuthProvider)
    assert PocketAuth().find_handler_instance(None, AuthProvider.LINEAR).name == "linear-oauth2"


# invoke


async def test_a_grant_is_prepared_on_one_loop_and_completed_on_another(auth: PocketAuth) -> None:
    """As `Pocket.invoke` does it, whose loops are its own, while the callback comes in a thread."""

    def in_a_thread(work: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(work)))
        thread.start()
        thread.join()
        return found[0]

    assert isinstance(in_a_thread(auth.invoke(NEEDS, "alice", wait=False)), str)
    waiting = asyncio.ensure_future(auth.invoke(NEEDS, "alice"))
    await asyncio.sleep(0)
    threading.Thread(target=resolve, args=(auth,)).start()
    assert isinstance(await asyncio.wait_for(waiting, 30), OwnContext)
    assert isinstance(in_a_thread(auth.invoke(NEEDS, "alice", wait=False)), OwnContext)


async def test_prepare_alone_starts_no_server_and_invoke_that_waits_does(auth: PocketAuth, settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # whoever listens there too, fails
        settings(f"internal_server_port = {taken.getsockname()[1]}\n{CLIENTS}")
        await auth.prepare(auth.make_request(["a"], None, GOOGLE), **WHERE)
        needs = ToolAuth(auth_provider=GOOGLE, scopes=["a"])
        assert isinstance(await auth.invoke(needs, "bob", wait=False), str)
        with pytest.raises(SetupError, match="cannot be listened on"):
            await asyncio.wait_for(auth.invoke(needs, "alice"), 60)


async def test_invoke_of_a_provider_that_is_not_configured_names_the_settings(auth: PocketAuth) -> None:
    with pytest.raises(ToolError) as caught:
        await auth.invoke(ToolAuth(auth_provider=AuthProvider.GITHUB, scopes=["repo"]), wait=False)
    assert (caught.value.code, caught.value.message) == (
        "unauthorized",
        "'github' is not configured: [auth.github] in settings.toml needs client_id and client_secret.",
    )


@pytest.mark.parametrize("names", [("slack-token", "slack-oauth2"), ("slack-oauth2", "slack-token")])
async def test_two_handlers_of_one_provider_that_wait_together_answer_only_for_themselves(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later question is in place of the earlier one, whose call is told so: in either order."""
    monkeypatch.setattr(config().auth, "slack", SlackAuthConfig(client_id="1.2", client_secret="slack-secret"))
    auth = PocketAuth()
    first, second = (auth.find_handler_instance(name) for name in names)
    requests = [handler.make_request(["chat:write"]) for handler in (first, second)]
    one = await auth.prepare(requests[0], first.name)
    waiting = asyncio.create_task(auth.authenticate_async(requests[0], first.name))
    await asyncio.sleep(0)
    other = await auth.prepare(requests[1], second.name)
    assert one and other and one != other
    with pytest.raises(RefusedError, match="Another way"):
        await waiting
    assert await auth.prepare(requests[1], second.name) == other
