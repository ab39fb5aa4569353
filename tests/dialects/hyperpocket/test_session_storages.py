"""Sessions in memory and in Redis: the same behaviour."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib.core import SetupError
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.config.session import SessionConfigInMemory, SessionConfigRedis
from toolcrib.dialects.hyperpocket.session.in_memory import InMemorySessionStorage
from toolcrib.dialects.hyperpocket.session.interface import BaseSessionValue, SessionStorageInterface
from toolcrib.dialects.hyperpocket.session.redis import RedisSessionStorage

from .conftest import Settings
from .own_handler import OwnContext

Storage = SessionStorageInterface[Any, Any]
SLACK, GITHUB, CLARITY = AuthProvider.SLACK, AuthProvider.GITHUB, AuthProvider.MICROSOFT_CLARITY
UNUSUAL = [*("user.", "user*", "[a-z]", "a__b", "a_", "_b", "__", "_", "%5F", "a%b", "ä ö", "x\ny", "\\"), ""]


class TeamContext(OwnContext):
    """A context with a field of its own."""

    team: str = ""


@pytest.fixture(scope="module")
def redis_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionConfigRedis]:
    """Debian's server, on a socket."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    socket = tmp_path_factory.mktemp("redis") / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(["redis-server", *options], stdout=subprocess.PIPE, text=True, cwd=socket.parent)
    assert process.stdout is not None
    assert any("ready to accept connections" in line.lower() for line in process.stdout)
    yield SessionConfigRedis(unix_socket_path=str(socket))  # type: ignore[call-arg]
    process.kill()
    process.communicate()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.full)])
def storage(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Storage]:
    if request.param == "memory":
        yield InMemorySessionStorage(SessionConfigInMemory())
        return
    storage = RedisSessionStorage(request.getfixturevalue("redis_config"))
    storage.client.flushdb()
    yield storage
    storage.client.close()


def own(token: str) -> TeamContext:
    return TeamContext(access_token=token, description="mine", expires_at=None, team="t1")


def put(storage: Storage, thread: str, token: str, provider: AuthProvider = SLACK, profile: str = "default") -> Any:
    return storage.set(provider, thread, profile, ["b", "a"], None, own(token), True)


def tokens(sessions: list[Any]) -> list[str]:
    return sorted(session.auth_context.access_token for session in sessions)


@pytest.mark.parametrize("thread", UNUSUAL)
def test_a_thread_has_only_its_own_sessions_whatever_its_name_is(storage: Storage, thread: str) -> None:
    others = [*(name for name in UNUSUAL if name != thread), "user1", "user1__x", "a", "b", "a__b__c"]
    for number, name in enumerate(others):
        put(storage, name, f"other-{number}")
        put(storage, name, f"other-work-{number}", profile=f"{thread}__x")
    assert storage.get_by_thread_id(thread) == []
    put(storage, thread, "own-1")
    put(storage, thread, "own-2", profile="x__default")
    put(storage, thread, "own-3", CLARITY)
    assert tokens(storage.get_by_thread_id(thread)) == ["own-1", "own-2", "own-3"]
    assert tokens(storage.get_by_thread_id(thread, CLARITY)) == ["own-3"]
    session = storage.get(SLACK, thread, "default")
    assert session is not None
    assert tokens([session]) == ["own-1"]


def test_keys_of_ordinary_names_are_as_they_were_in_hyperpocket(settings: Settings) -> None:
    storage = InMemorySessionStorage(SessionConfigInMemory())
    put(storage, "thread-1", "token", CLARITY, "work_1")
    assert list(InMemorySessionStorage.storage) == ["MICROSOFT_CLARITY__thread-1__work_1"]
    InMemorySessionStorage.storage.clear()
    assert storage.get(CLARITY, "thread-1", "work_1") is None


async def test_one_at_a_time_works_on_a_session(storage: Storage) -> None:
    inside: list[str] = []

    async def work(name: str, thread: str) -> None:
        async with storage.alone(SLACK, thread, "default"):
            inside.append(f"{name} in")
            await asyncio.sleep(0)
            inside.append(f"{name} out")

    await asyncio.gather(work("a", "t1"), work("b", "t1"))
    assert inside == ["a in", "a out", "b in", "b out"]
    async with storage.alone(SLACK, "t1", "default"):
        await asyncio.wait_for(work("c", "t2"), 60)


def test_no_token_or_uid_is_in_the_repr_of_a_session() -> None:
    session = BaseSessionValue(
        auth_provider_name="SLACK", scoped=True, auth_context=own("canary-1"), auth_resolve_uid="canary-2"
    )
    assert "canary" not in repr(session)


# In Redis alone


@pytest.mark.full
def test_what_is_pending_expires_in_redis(redis_config: SessionConfigRedis, settings: Settings) -> None:
    settings("auth_timeout_s = 120")
    storage = RedisSessionStorage(redis_config)
    storage.client.flushdb()
    storage.set(SLACK, "t1", "default", [], "the-uid", None, True)
    put(storage, "t2", "token")
    assert 0 < storage.client.ttl("SLACK__t1__default") <= 120
    assert storage.client.ttl("SLACK__t2__default") == -1
    storage.client.close()


@pytest.mark.full
def test_sessions_are_shared_by_several_clients_of_one_server(
    redis_config: SessionConfigRedis, settings: Settings
) -> None:
    first, second = RedisSessionStorage(redis_config), RedisSessionStorage(redis_config)
    first.client.flushdb()
    made = put(first, "t1", "token-1")
    assert second.get(SLACK, "t1", "default") == made
    assert json.loads(second.client.get("SLACK__t1__default"))["auth_context_type"] == "TeamContext"
    for storage in (first, second):
        storage.client.close()


@pytest.mark.full
def test_the_settings_choose_redis(redis_config: SessionConfigRedis, settings: Settings) -> None:
    from toolcrib.dialects.hyperpocket.pocket_auth import PocketAuth

    socket = Path(redis_config.model_extra["unix_socket_path"])  # type: ignore[index]
    settings(f'[session]\nsession_type = "redis"\n[session.redis]\nunix_socket_path = "{socket}"\n')
    storage = PocketAuth().session_storage
    assert isinstance(storage, RedisSessionStorage)
    assert storage.client.ping() is True
    storage.client.close()


@pytest.mark.full
def test_with_a_key_sessions_are_sealed_and_those_of_another_key_are_ignored(
    redis_config: SessionConfigRedis, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def opened(key: str) -> RedisSessionStorage:
        settings(f'[auth]\nauth_encryption_secret_key = "{key}"\n')
        return RedisSessionStorage(redis_config)

    first = opened("A" * 43 + "=")
    first.client.flushdb()
    made = put(first, "t1", "canary-token")
    assert b"canary" not in first.client.get("SLACK__t1__default")
    assert first.get(SLACK, "t1", "default") == made
    assert first.get_by_thread_id("t1") == [made]
    second = opened("B" * 43 + "=")
    assert second.get(SLACK, "t1", "default") is None
    assert second.get_by_thread_id("t1") == []
    assert "was not sealed with the key" in caplog.text
    for storage in (first, second):
        storage.client.close()
    with pytest.raises(SetupError, match=r"^'auth_encryption_secret_key' in ") as caught:
        opened("canary-key")
    assert "canary" not in str(caught.value)
