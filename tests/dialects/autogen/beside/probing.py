"""Probes: small programs by name, each with what it gives as JSON text, or the error it ends with.

The modules beside this one import `autogen_core`. The test runs them once as they are and once with the import root
changed, and compares what `python run.py` prints.
"""

import asyncio
import inspect
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

PROBES: dict[str, Callable[[], Any]] = {}


def probe(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Make a probe of a function without parameters, plain or async."""
    add(fn.__name__, fn)
    return fn


def add(name: str, fn: Callable[[], Any]) -> None:
    assert name not in PROBES, name
    PROBES[name] = fn


def outcome(name: str) -> str:
    fn = PROBES[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = fn()
            if inspect.isawaitable(value):
                value = asyncio.run(asyncio.wait_for(value, 20))
            said = json.dumps(value)
        except BaseException as error:
            said = told(error)
    # A ResourceWarning comes when the garbage is collected, which is no part of what a probe does.
    seen = [warning for warning in caught if not issubclass(warning.category, ResourceWarning | DeprecationWarning)]
    return _CHANCE.sub("...", "\n".join([said, *(f"[{warning.category.__name__}]" for warning in seen)]))


def told(error: BaseException) -> str:
    """*error* by the kind that a program written for the original catches it by, and its text."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__.split(".")[0] in _KNOWN)
    return f"{kind.__name__}: {error}"


_CHANCE = re.compile(r"0x[0-9a-f]{6,}|(?<=reference )[0-9a-f]{8}")
"""What is another text each time: addresses, and the references of errors."""

_KNOWN = ("builtins", "asyncio", "pydantic_core", "PIL")
