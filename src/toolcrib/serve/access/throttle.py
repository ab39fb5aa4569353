"""How many wrong keys an address may try. A caller who was let in before goes on, also where others share it."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from ipaddress import IPv6Address, IPv6Network
from secrets import token_bytes
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from ...core import Caller
from ...machinery import Shares
from .callers import AuthenticationError
from .hosts import address_of

if TYPE_CHECKING:
    from .keys import AccessKey

TRIES = 20
"""How many wrong keys may come from an address at once; after that, one every `AGAIN_S` seconds."""
AGAIN_S = 3.0
_MAX_COUNT = 10_000

T = TypeVar("T", Caller, "AccessKey")


class TooManyTries(Exception):
    """A key that is not tried, since too many wrong ones came from its address; `wait_s` says for how long."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Throttle:
    """The wrong keys of each address, and marks of the keys that were right: 10,000 of each.

    Of addresses the latest are kept: a wrong key that is forgotten is no loss to others. Of marks, the principal with
    the most loses the one that they used least recently.
    """

    def __init__(self) -> None:
        self._free_at_s: OrderedDict[str, float] = OrderedDict()  # when all tries of an address are there again
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._right: Shares[bytes, bool] = Shares()
        self._salt = token_bytes(32)

    async def admit(self, key: str, address: str, find: Callable[[], Awaitable[T]]) -> T:
        """Return the owner of *key*, whom *find* knows. One that was right is tried whatever *address* sent.

        Raises AuthenticationError, and TooManyTries.
        """
        mark = blake2b(key.encode(), key=self._salt, digest_size=16).digest()
        if self._right.get(mark) is None:
            async with self.trying(address):
                owner = await find()
            self._right.put(mark, True, owner.principal)
            if len(self._right) > _MAX_COUNT:
                self._right.drop()
            return owner
        try:
            return await find()
        except AuthenticationError as refused:
            if refused.status == 401 and self._right.get(mark) is not None:
                self._right.pop(mark)
            raise

    @asynccontextmanager
    async def trying(self, address: str) -> AsyncGenerator[None]:
        """Admit the block that finds out whether a key of *address* is right. Raises TooManyTries.

        Where it raises AuthenticationError with the status 401, the key was wrong. Of one address, `TRIES` at a time
        are tried: however many come at once, the others see how those have ended.
        """
        group = _group(address)
        turns = self._turns.setdefault(group, asyncio.Semaphore(TRIES))
        async with turns:
            if wait_s := self._wait_s(group):
                raise TooManyTries(wait_s)
            try:
                yield
            except AuthenticationError as refused:
                if refused.status == 401:
                    self._note_wrong(group)
                raise

    def _wait_s(self, group: str) -> int:
        over_s = self._free_at_s.get(group, 0.0) - monotonic() - (TRIES - 1) * AGAIN_S
        return math.ceil(over_s) if over_s > 0 else 0

    def _note_wrong(self, group: str) -> None:
        clock_s = monotonic()
        self._free_at_s[group] = max(self._free_at_s.pop(group, clock_s), clock_s) + AGAIN_S
        while len(self._free_at_s) > _MAX_COUNT or next(iter(self._free_at_s.values())) < clock_s:
            self._free_at_s.popitem(last=False)


def _group(text: str) -> str:
    """Return the address *text*; of IPv6 its network of 64 bits, which one host usually has."""
    address = address_of(text)
    return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address or text)
