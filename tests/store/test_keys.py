"""What is sealed opens in its own place and with its key only; keys turn over while others work; no key is shown."""

import asyncio
import base64
import stat
import threading
import traceback
from pathlib import Path

import pytest

from toolcrib import SetupError
from toolcrib.core import StoreError
from toolcrib.store import Store, database
from toolcrib.store.keys import KeyFile, Keys
from toolcrib.store.tables import Schema, Sealed, table

from .conftest import MakeStore

A, B = b"a" * 32, b"b" * 32
SECRETS = table("toolcrib_secrets", "principal", "profile", "sealed", key=("principal", "profile"))
CREATE = (
    "CREATE TABLE toolcrib_secrets (principal TEXT, profile TEXT, sealed {bytes}, PRIMARY KEY (principal, profile))"
)
SCHEMA = Schema(
    "secrets", [(CREATE,)], [Sealed(SECRETS, "sealed", lambda row: ("secret", row["principal"], row["profile"]))]
)


def keys(*given: bytes) -> Keys:
    return Keys(lambda: given, place="the test")


def test_what_is_sealed_opens_only_with_the_same_binding() -> None:
    ring = keys(A)
    sealed = ring.seal(b"token", "ann", "github", "")
    assert ring.unseal(sealed, "ann", "github", "") == b"token"
    assert sealed != ring.seal(b"token", "ann", "github", "")
    assert ring.unseal(ring.seal(b"", "\ud800", "\x00"), "\ud800", "\x00") == b""
    for other in (
        ("ann", "github"),
        ("anng", "ithub", ""),
        ("ann", "", "github"),
        ("Ann", "github", ""),
        (),
        ("anngithub",),
    ):
        with pytest.raises(StoreError, match="belongs to something else"):
            ring.unseal(sealed, *other)


def test_whatever_is_changed_in_an_envelope_it_does_not_open() -> None:
    ring = keys(A)
    sealed = ring.seal(b"token", "ann")
    for at in range(len(sealed)):
        with pytest.raises(StoreError):
            ring.unseal(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :], "ann")
    for garbage in (b"", b"\x01", sealed[:20], sealed[:60], sealed[1:], b"\x02" + sealed[1:], bytes(200)):
        with pytest.raises(StoreError, match="is damaged, or was sealed by a newer version"):
            ring.unseal(garbage, "ann")
    shortest = ring.seal(b"", "ann")
    for garbage in (sealed[:-1], sealed + b"x", shortest[:-1] + bytes([shortest[-1] ^ 1])):
        with pytest.raises(StoreError, match="cannot be opened"):
            ring.unseal(garbage, "ann")


def test_the_newest_key_seals_and_the_others_open() -> None:
    old, both = keys(A), keys(B, A)
    assert both.unseal(old.seal(b"x", "1"), "1") == b"x"
    with pytest.raises(StoreError, match=r"needs the key [0-9a-f]{16}, which is not in the test"):
        old.unseal(both.seal(b"x", "1"), "1")


def test_no_key_and_no_secret_is_shown(tmp_path: Path) -> None:
    ring = keys(A)
    sealed = ring.seal(b"canary", "ann")
    texts = [repr(ring), repr(vars(ring))]
    for attempt in (
        lambda: ring.unseal(sealed, "bob"),
        lambda: keys(B).unseal(sealed, "ann"),
        lambda: keys(b"aaaa").seal(b""),
    ):
        with pytest.raises((StoreError, SetupError)) as failed:
            attempt()
        texts.append("".join(traceback.format_exception(failed.value)))
    assert "canary" not in str(texts)
    assert "aaaa" not in "".join(text for text in texts if "lambda: keys" not in text)


def test_a_key_file_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key"
    begin = threading.Barrier(8)
    rings = [Keys(KeyFile(file), place="file") for _ in range(8)]
    sealed: list[bytes] = []

    def seal(ring: Keys) -> None:
        begin.wait()
        sealed.append(ring.seal(b"x", "1"))

    threads = [threading.Thread(target=seal, args=[ring]) for ring in rings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [rings[0].unseal(each, "1") for each in sealed] == [b"x"] * 8
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.parent.iterdir()] == ["key"]
    assert len(base64.b64decode(file.read_text())) == 32


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "key"
    Keys(KeyFile(file), place="file").seal(b"x")
    file.chmod(mode)
    with pytest.raises(SetupError, match=f"mode 0{mode:o}.*chmod 600"):
        Keys(KeyFile(file), place="file").seal(b"x")


def test_a_key_file_that_cannot_be_made_or_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match=f"The key file {tmp_path}/file/key cannot be written: File exists"):
        Keys(KeyFile(tmp_path / "file" / "key"), place="file").seal(b"x")
    with pytest.raises(SetupError, match=f"The key file {tmp_path} cannot be read: Is a directory"):
        Keys(KeyFile(tmp_path), place="file").seal(b"x")


async def test_keys_come_from_the_environment_or_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_KEY", f"{base64.b64encode(B).decode()}\n{base64.b64encode(A).decode()}")
    store = Store(tmp_path / "store.db")
    assert store.keys.unseal(keys(A).seal(b"x", "1"), "1") == b"x"
    assert keys(B).unseal(store.keys.seal(b"x", "1"), "1") == b"x"
    assert list(tmp_path.iterdir()) == []
    store = Store(tmp_path / "store.db", key=lambda: [A])
    assert keys(A).unseal(store.keys.seal(b"x", "1"), "1") == b"x"
    monkeypatch.setenv("TOOLCRIB_KEY", "canary")
    with pytest.raises(SetupError, match="TOOLCRIB_KEY must") as refused:
        Store(tmp_path / "store.db").keys.seal(b"x")
    assert "canary" not in str(refused.value)


async def fill(store: Store, count: int) -> None:
    rows = [{"principal": f"p{n:04}", "profile": "", "sealed": None} for n in range(count)]
    for row in rows:
        row["sealed"] = store.keys.seal(str(row["principal"]).encode(), "secret", str(row["principal"]), "")  # type: ignore[assignment]
    rows.append({"principal": "none", "profile": "", "sealed": None})
    await store.transact(lambda connection: connection.execute(SECRETS.insert(), rows).rowcount)


async def opened(store: Store) -> list[bytes]:
    rows = await store.read(SECRETS.select().where(SECRETS.c.sealed.is_not(None)).order_by(SECRETS.c.principal))
    return [store.keys.unseal(row["sealed"], "secret", row["principal"], row["profile"]) for row in rows]


async def test_keys_turn_over_while_others_read_and_write(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BATCH", 20)
    store, other = make_store(), make_store()
    for each in (store, other):
        each.use(SCHEMA)
    await fill(store, 45)
    everything = [f"p{number:04}".encode() for number in range(45)]
    assert await opened(other) == everything
    ended = asyncio.Event()

    async def read() -> int:
        times = 0
        while not ended.is_set():
            assert await opened(other) == everything
            times += 1
            await asyncio.sleep(0)
        return times

    reading = asyncio.create_task(read())
    assert await store.rotate_key() == 45
    ended.set()
    assert await reading > 0
    assert await store.rotate_key() == 45
    lines = (tmp_path / "store.key").read_bytes().split()
    assert len(lines) == 3
    # Another process seals with the newest at once; the newest alone opens everything.
    newest = keys(base64.b64decode(lines[0]))
    assert newest.unseal(other.keys.seal(b"x", "1"), "1") == b"x"
    rows = await store.read(SECRETS.select().where(SECRETS.c.principal == "p0007"))
    assert newest.unseal(rows[0]["sealed"], "secret", "p0007", "") == b"p0007"


async def test_rows_that_do_not_open_are_left_as_they_are(
    make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    store.use(SCHEMA)
    await fill(store, 4)
    damage = SECRETS.update().where(SECRETS.c.principal.in_(["p0001", "p0003"])).values(sealed=b"garbage")
    await store.transact(lambda connection: connection.execute(damage).rowcount)
    assert await store.rotate_key() == 2
    assert "could not be sealed again" in caplog.text
    assert await store.rotate_key() == 2
    rows = await store.read(SECRETS.select().where(SECRETS.c.principal == "p0001"))
    assert rows[0]["sealed"] == b"garbage"
