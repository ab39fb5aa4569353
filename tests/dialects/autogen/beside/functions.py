"""Functions that are dumped in configurations."""

import functools
import math
import random as chance
from typing import Annotated, Any

from autogen_core import CancellationToken


def add_up(a: int, b: Annotated[int, "The second"] = 2) -> int:
    """Add up."""
    return a + b


async def later(text: str) -> str:
    return text.upper()


def rooted(x: float) -> float:
    return math.sqrt(x)


def thrown(sides: int) -> int:
    return chance.randint(sides, sides)


def stopping(a: int, cancellation_token: CancellationToken) -> str:
    return f"{a} {cancellation_token.is_cancelled()}"


def marked(fn: Any) -> Any:
    return fn


@marked
@marked
def decorated(a: int) -> int:
    return a * 2


# Its text has a name that looks like another function's.
def many_lines(
    a: int,
    b: str = "def no(): ...",
) -> str:
    """def not_this_one(): ..."""

    def inside(c: int) -> int:
        return c + 1

    return f"{b}{inside(a)}"


def make_closure(by: int) -> Any:
    def closed(a: int) -> int:
        return a * by

    return closed


def make_local() -> Any:
    def local(a: int) -> int:
        return a + 1

    return local


class Methods:
    def method(self, a: int) -> int:
        return a

    @staticmethod
    def static(a: int) -> int:
        return a


class Called:
    def __call__(self, a: int) -> int:
        return a


short = lambda a: a  # noqa: E731
part = functools.partial(add_up, b=3)
