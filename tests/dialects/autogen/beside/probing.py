"""Probes: small programs by name. The outcome of each is its result as JSON text, or the error that it raises.

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
            text = json.dumps(value)
        except BaseException as error:
            text = error_text(error)
    # A ResourceWarning comes with the garbage collection, which is not a part of the probe.
    seen = [warning for warning in caught if not issubclass(warning.category, ResourceWarning | DeprecationWarning)]
    return _CHANCE.sub("...", "\n".join([text, *(f"[{warning.category.__name__}]" for warning in seen)]))


def error_text(error: BaseException) -> str:
    """Return the type by which a program written for the original catches *error*, and its text."""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__.split(".")[0] in _KNOWN)
    return f"{kind.__name__}: {error}"


_CHANCE = re.compile(r"0x[0-9a-f]{6,}|(?<=reference )[0-9a-f]{8}")
"""The texts that differ each time: addresses, and the references of errors."""

_KNOWN = ("builtins", "asyncio", "pydantic_core", "PIL")
