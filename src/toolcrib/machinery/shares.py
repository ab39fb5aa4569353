"""Bounds that principals fill together. Where one is full, the principal who holds the most pays.

So a caller who floods pays for it, and one who holds less than they do loses nothing, also where they have many
accounts. What cannot be taken back, such as a thread, has a `share` in place of that.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from ..core import AnswerError, Grant

K = TypeVar("K")
V = TypeVar("V")

MAX_GRANTS = 1000
"""How many grants a principal has at a time."""


class Shares(Generic[K, V]):
    """Values by key, each held by a principal, the least recently used first. Not for several threads at once."""

    def __init__(self) -> None:
        self.size = 0
        self._entries: OrderedDict[K, tuple[V, Hashable, int]] = OrderedDict()
        self._keys: defaultdict[Hashable, OrderedDict[K, None]] = defaultdict(OrderedDict)
        self._sizes: Counter[Hashable] = Counter()

    def put(self, key: K, value: V, principal: Hashable, size: int = 1) -> None:
        """Hold *value* for *principal*, as used last, in place of what is there under *key*."""
        if key in self._entries:
            self.pop(key)
        self._entries[key] = value, principal, size
        self._keys[principal][key] = None
        self._sizes[principal] += size
        self.size += size

    def get(self, key: K) -> V | None:
        """Return the value under *key*, which is used last from now on; None where there is none."""
        if (entry := self._entries.get(key)) is None:
            return None
        self._entries.move_to_end(key)
        self._keys[entry[1]].move_to_end(key)
        return entry[0]

    def pop(self, key: K) -> V:
        value, principal, size = self._entries.pop(key)
        del self._keys[principal][key]
        self._sizes[principal] -= size
        self.size -= size
        if not self._keys[principal]:
            del self._keys[principal], self._sizes[principal]
        return value

    def drop(self, may_go: Callable[[V], bool] | None = None, *, of: Hashable | None = None) -> V | None:
        """Drop and return the oldest value of the principal who holds the most, or of the principal *of*.

        *may_go* says which values may be dropped; where a principal has none, the next one pays. None where none may.
        """
        if of is not None:
            order: list[Hashable] = [of]
        elif may_go is None:
            order = [max(self._sizes, key=self._sizes.__getitem__)] if self._sizes else []
        else:
            order = sorted(self._sizes, key=self._sizes.__getitem__, reverse=True)
        for principal in order:
            for key in self._keys.get(principal, ()):
                if may_go is None or may_go(self._entries[key][0]):
                    return self.pop(key)
        return None

    def count(self, principal: Hashable) -> int:
        return len(self._keys.get(principal, ()))

    def held(self, principal: Hashable) -> int:
        """Return the size of what *principal* holds."""
        return self._sizes.get(principal, 0)

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, entry[0]) for key, entry in self._entries.items())

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def __len__(self) -> int:
        return len(self._entries)


def room_for(
    principal: str, size: int, rows: Iterable[tuple[K, str, int, bool]], *, max_count: int, max_size: int
) -> list[K] | None:
    """Return which of *rows* go, so that *principal* can add one of *size*; None where they hold the most themselves.

    A row is its key, its principal, its size, and whether it may go, the oldest first.
    """
    weights: dict[str, float] = defaultdict(float, {principal: 1 / max_count + size / max_size})  # first: pays if equal
    count, total, going = 1, size, list[K]()
    queues: defaultdict[str, deque[tuple[K, int]]] = defaultdict(deque)
    for key, owner, row_size, may_go in rows:
        count, total = count + 1, total + row_size
        weights[owner] += 1 / max_count + row_size / max_size
        if may_go:
            queues[owner].append((key, row_size))
    while count > max_count or total > max_size:
        payer = max((owner for owner in weights if owner == principal or queues[owner]), key=weights.__getitem__)
        if payer == principal:
            return None
        key, row_size = queues[payer].popleft()
        going.append(key)
        count, total = count - 1, total - row_size
        weights[payer] -= 1 / max_count + row_size / max_size
    return going


def share(limit: int, others: int) -> int:
    """Return how much of *limit* a principal may hold, of which the *others* hold so much: half of the rest."""
    return (limit - others + 1) // 2


def require_grants_room(count: int) -> None:
    """Raise AnswerError where a principal with *count* grants gets no more."""
    if count >= MAX_GRANTS:
        raise AnswerError("This caller has too many grants. Revoke some, or approve this call alone.", "invalid")


def is_grant_of(grant: Grant, principal: str | None) -> bool:
    """Return whether *principal* has *grant*, or has given it; None is everybody."""
    return principal in (None, grant.principal, grant.given_by)
