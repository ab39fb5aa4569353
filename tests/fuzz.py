"""What tests that draw by chance share: a seed and a number of cases that are the same in every run.

So no run fails for what another did not draw. To look for more, by hand and for longer:
`TEST_SEED=7 TEST_TIMES=10 pytest -m full tests/schema/test_lower_attack.py`.
"""

import os

SEED = os.environ.get("TEST_SEED")
TIMES = int(os.environ.get("TEST_TIMES", "1"))


def seed(own: int) -> int:
    """The seed of a test: *own*, or the one of `TEST_SEED`. It is printed, so it is seen where the test fails."""
    found = int(SEED or own)
    print(f"TEST_SEED={found}")
    return found


def seeds(number: int) -> range:
    """As many seeds as a test that is run for each of them needs."""
    first = int(SEED or 0)
    return range(first, first + cases(number))


def cases(own: int) -> int:
    """How many cases a test tries: *own*, multiplied by `TEST_TIMES`."""
    return own * TIMES
