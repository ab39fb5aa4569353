"""What a crib opens for itself, it closes; what it was given stays open."""

import os
from pathlib import Path

import pytest

from toolcrib import Approve, Caller, Crib, Workbench, tool
from toolcrib.auth import DatabaseVault, Grant, secret_owner
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

ALICE = Caller("alice")
ASK = Rules([Rule(do="ask")])


@tool
async def pay(to: str) -> str:
    return f"paid {to}"


def open_files(folder: Path) -> list[str]:
    """The files of *folder* that this process has open."""
    links = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
    return sorted({Path(link).name for link in links if Path(link).parent == folder.resolve()})


async def approved(first: Crib, second: Crib) -> list[str]:
    """A call that waits in one crib, and is approved and made in another."""
    async with first:
        pending = (await first.workbench(ALICE).call("pay", {"to": "bob"})).pending
        assert pending is not None
    async with second:
        await second.answer(pending.id, Approve(), by="bob")
        return [(await second.workbench(ALICE).call("pay", {"to": "bob"})).text for _ in range(1)]


async def test_a_crib_closes_the_store_that_it_made_of_a_path(tmp_path: Path) -> None:
    for where in (tmp_path / "store.db", str(tmp_path / "store.db")):
        crib = Crib([pay], policy=ASK, store=where)
        async with crib:
            assert (await crib.workbench(ALICE).call("pay", {"to": "bob"})).status == "pending"
            assert "store.db" in open_files(tmp_path)
        assert open_files(tmp_path) == []
    bench = Workbench([pay], policy=ASK, store=tmp_path / "store.db")
    async with bench:
        await bench.call("pay", {"to": "bob"})
    assert open_files(tmp_path) == []
    again = [Crib([pay], policy=ASK, store=tmp_path / "store.db") for _ in range(2)]
    assert await approved(*again) == ["paid bob"]


async def test_a_store_that_it_was_given_stays_open(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    assert await approved(*(Crib([pay], policy=ASK, store=store) for _ in range(2))) == ["paid bob"]
    assert "store.db" in open_files(tmp_path)
    store.close()
    assert open_files(tmp_path) == []


TOOLS = """
from toolcrib import Context, Secret, tool

@tool(auth=Secret("KEY"))
async def use(ctx: Context) -> int:
    return len(ctx.credentials["KEY"].secret)
"""


async def test_a_program_has_the_store_and_the_credentials_of_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    settings = tmp_path / "toolcrib.toml"
    settings.write_text('[[source]]\nfrom = "tools.py"\n[store]\nurl = "data/store.db"\nkey = "keys/one.key"\n')
    async with Crib.from_config(settings) as crib:
        await crib.credentials.save(secret_owner("alice", "default", "KEY"), Grant("canary-key"))
        assert (await crib.workbench(ALICE).call("use")).value == 10
    assert open_files(tmp_path / "data") == []
    assert (tmp_path / "keys" / "one.key").exists()
    async with Workbench.from_config(settings, caller=ALICE) as bench:
        assert (await bench.call("use")).value == 10
    assert open_files(tmp_path / "data") == []
    # A store of the program's own goes before that of the settings, and its vault is there.
    store = Store(tmp_path / "other.db")
    async with Workbench.from_config(settings, caller=ALICE, store=store) as bench:
        assert (await bench.call("use")).status == "pending"
        assert isinstance(bench.crib.credentials.broker.vault, DatabaseVault)
    assert "other.db" in open_files(tmp_path)
    store.close()
    # Variables go before the file, and their paths are from the current folder.
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TOOLCRIB_STORE_URL", "third.db")
    monkeypatch.setenv("TOOLCRIB_STORE_KEY", "third.key")
    async with Crib.from_config(settings) as crib:
        assert (await crib.workbench(ALICE).call("use")).status == "pending"
    assert sorted(path.name for path in (tmp_path / "here").iterdir() if "-" not in path.name) == [
        "third.db",
        "third.key",
    ]
