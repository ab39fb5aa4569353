"""Modules of the originals that share a file here: `hyperpocket.tool.function.tool` is `hyperpocket.tool.function`.

And what a module of an original has, and the dialect has not: asking for it names the way out.
"""

import dis
import sys
from collections.abc import Callable
from typing import Any


def also_as(module: str, *names: str) -> None:
    """Make *module* importable as its submodules *names*, too. It keeps values of these names that it has by now."""
    content = sys.modules[module]
    for name in names:
        sys.modules[f"{module}.{name}"] = content
        vars(content).setdefault(name, content)


def left_out(module: str, instead: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of *module*, whose errors say what *instead* of names that it does not have."""

    def missing(name: str) -> Any:
        message = f"module {module!r} has no attribute {name!r}. {instead} See docs/dialects/{module.split('.')[2]}.md."
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]:
            # `from module import name` takes an AttributeError for its own, and says no more than the name.
            raise ImportError(message, name=module)
        raise AttributeError(message)

    return missing
