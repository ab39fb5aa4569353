"""The doors to credentials, and what an attack has: see test_identity.py."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from toolcrib import Caller, Crib, ToolcribError, ToolError
from toolcrib.auth import CredentialBroker
from toolcrib.store import Store

ADA, BOB = Caller("ada", "work", "t1"), Caller("bob", "work", "t1")
TOKEN, REFRESH, SECRET = "adas-access-token", "adas-refresh-token", "adas-named-secret"
NAMES = (
    *("", " ", "_", "%", "*", ".*", "?", "a%", "ad_", "a.*", "^ada$", "ada\0", "\0ada", "ada\0work", "ada ", " ada"),
    *("ADA", "\uff41da", "ada/work", "../ada", "ada/../bob", "..\\ada", "ada,work", '["ada"]', "ada' OR '1'='1"),
    *('ada" --', "ada;--", "\ud800", "ada\n", "operator", "local"),
)
"""What a database, a path, a pattern or a terminal could take for ada."""

REFUSALS = (ToolcribError, ToolError)
Attack = Callable[["World"], Awaitable[Any]]
ATTACKS: dict[str, Attack] = {}


def door(*names: str) -> Callable[[Attack], Attack]:
    def register(attack: Attack) -> Attack:
        assert not {*names} & {*ATTACKS}
        ATTACKS.update(dict.fromkeys(names, attack))
        return attack

    return register


@dataclass
class World:
    """Ada's credentials in a store, and a crib that others use."""

    folder: Path
    store: Store
    crib: Crib
    given: list[tuple[str, str, str]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    """What came back to whoever attacked."""

    @property
    def broker(self) -> CredentialBroker:
        return self.crib.credentials.broker

    async def state_of(self, name: str = "read", caller: Caller = ADA) -> tuple[str, str]:
        """What somebody waits for: its state, and its id."""
        bench = self.crib.workbench(Caller(caller.principal, "fresh", caller.thread))
        pending = (await bench.call(name)).pending
        return parse_qs(urlsplit(pending.url).query)["state"][0], pending.id

    def see(self, *values: Any) -> None:
        self.seen += [repr(value) for value in values]

    async def refused(self, work: Awaitable[Any]) -> None:
        """*work* gives nothing, or raises, and either way shows nothing."""
        try:
            self.see(await work)
        except REFUSALS as error:
            self.see(error)
