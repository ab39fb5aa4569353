"""Names that a package imports when they are first used, so that `import toolcrib` stays fast."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, NoReturn

from ..core import SetupError


def lazy_names(
    package: str,
    modules: Mapping[str, str],
    extras: Mapping[str, str] | None = None,
    *,
    renamed: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """Return the `__getattr__` of *package*, by which each name of *modules* is imported from its module.

    A name that its module has itself, as "formats" in ".formats", is that module. Where a package is missing, and
    *extras* has the name, SetupError says which extra brings it. A name of before 0.2, of *renamed*,
    raises ImportError with the new one.
    """

    def get(name: str) -> Any:
        if renamed is not None and name in renamed:
            # Not AttributeError: `from package import name` would hide its message.
            room, _, new = f"{package}.{renamed[name]}".rpartition(".")
            raise ImportError(f"'{name}' is now '{renamed[name]}': from {room} import {new}")
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(modules[name], package)
        except ModuleNotFoundError as missing:
            if extras is None or name not in extras:
                raise
            raise_missing_extra(missing, f"{name} needs", extras[name])
        value = module if modules[name] == f".{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def defer_package(name: str) -> ModuleType:
    """Return the package *name*, whose `__init__` runs when a name of its own is first asked for.

    Modules of it are imported without it: that of `mcp`, for one, imports a client and two servers. Where it is
    imported already, it is returned as it is. Raises ModuleNotFoundError where it is missing.
    """
    if (module := sys.modules.get(name)) is not None:
        return module
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    module, execute, lock = module_from_spec(spec), spec.loader.exec_module, RLock()
    names, is_begun = vars(module), False

    def get(attribute: str) -> Any:
        nonlocal is_begun
        with lock:  # another thread waits until all is there
            if not is_begun:
                is_begun = True
                try:
                    execute(module)
                except BaseException:
                    is_begun = False
                    raise
                if names.get("__getattr__") is get:  # the package has none of its own
                    del names["__getattr__"]
        if attribute not in names and names.get("__getattr__") is get:  # its `__init__` runs, in this thread
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(module, attribute)

    names["__getattr__"] = get
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    return module


def raise_missing_extra(missing: ModuleNotFoundError, what: str, extra: str) -> NoReturn:
    """Raise SetupError with the command that installs *extra*: *what* ("The store needs") lacks a package.

    Raises *missing* itself where it is a module of Toolcrib's own.
    """
    package = (missing.name or "").partition(".")[0]
    if package == "toolcrib":
        raise missing
    raise SetupError(f"{what} the package '{package}', which is missing: pip install 'toolcrib[{extra}]'") from missing
