"""How many wrong keys an address may try. Whoever was let in before goes on, also where others share the address."""

import math
from collections import OrderedDict
from hashlib import blake2b
from ipaddress import IPv6Network, ip_address
from secrets import token_bytes
from time import monotonic

TRIES = 20
"""How many wrong keys may come from an address at once; after that, one every `AGAIN_S` seconds."""
AGAIN_S = 3.0
_MOST = 10_000


class Throttle:
    """The wrong keys of each address, and marks of the keys that were right; at most 10,000 of each, the latest."""

    def __init__(self) -> None:
        self._free_at_s: OrderedDict[str, float] = OrderedDict()  # when all tries of an address are there again
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._salt = token_bytes(32)

    def wait_s(self, address: str, key: str) -> int:
        """How long *key* of *address* has to wait; 0 where it may be tried."""
        if not self._free_at_s:
            return 0
        over_s = self._free_at_s.get(_group(address), 0.0) - monotonic() - (TRIES - 1) * AGAIN_S
        return math.ceil(over_s) if over_s > 0 and self._mark(key) not in self._right else 0

    def note_wrong(self, address: str) -> None:
        group, clock_s = _group(address), monotonic()
        self._free_at_s[group] = max(self._free_at_s.pop(group, clock_s), clock_s) + AGAIN_S
        while len(self._free_at_s) > _MOST or next(iter(self._free_at_s.values())) < clock_s:
            self._free_at_s.popitem(last=False)

    def note_right(self, key: str) -> None:
        mark = self._mark(key)
        self._right[mark] = None
        self._right.move_to_end(mark)
        if len(self._right) > _MOST:
            self._right.popitem(last=False)

    def _mark(self, key: str) -> bytes:
        return blake2b(key.encode(), key=self._salt, digest_size=16).digest()


def _group(address: str) -> str:
    """*address*; of IPv6 its network of 64 bits, which one host usually has."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(IPv6Network((found, 64), strict=False))
