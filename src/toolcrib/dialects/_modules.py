"""Modules of the originals that share a file here: `hyperpocket.tool.function.tool` is `hyperpocket.tool.function`."""

import sys


def also_as(module: str, *names: str) -> None:
    """Make *module* importable as its submodules *names*, too. It keeps values of these names that it has by now."""
    content = sys.modules[module]
    for name in names:
        sys.modules[f"{module}.{name}"] = content
        vars(content).setdefault(name, content)
