"""What threads remember of their calls, as facts, each for a while: for rules that ask what came before.

A fact is text: `seen LABEL`, `after GLOB` (a call of such a tool succeeded), or `calls RULE 2` (the second call that a
rule has let through).
"""

from collections.abc import Collection
from typing import Protocol

UNNAMED_THREAD = "default"
"""The thread of callers without one: what it remembers is of all that they do at the time."""


class ThreadStore(Protocol):
    """Stores the facts of threads. What it raises counts as a no."""

    async def remember(self, principal: str, thread: str, facts: Collection[str], /) -> None:
        """Store *facts*, from now on for their whole life."""
        ...

    async def recall(self, principal: str, thread: str, facts: Collection[str], /) -> frozenset[str]:
        """Return those of *facts* that are stored."""
        ...

    async def take(self, principal: str, thread: str, name: str, most: int, /) -> bool:
        """Store the next fact of `fact_of_call`, up to the number *most*. False where all of them are there."""
        ...

    async def clear(self, principal: str | None = None, thread: str | None = None, /) -> int:
        """Forget the facts of a thread, of all threads of a principal, or of all. Return how many there were."""
        ...


def fact_of_call(name: str, number: int) -> str:
    """Return the fact that the rule *name* has let a call through *number* times."""
    return f"calls {name} {number}"


def life_s(thread: str) -> float:
    """Return how long a fact of *thread* is remembered: an hour, and 30 days where the thread has a name."""
    return 3600.0 if thread == UNNAMED_THREAD else 30 * 24 * 3600.0
