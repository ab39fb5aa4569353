"""The permissions to import modules and to run source code that a configuration names.

A configuration is data, and may come from anywhere. No module is imported before its namespace is trusted here, and no
source code is run before that is allowed here.
"""

import os
from contextvars import ContextVar
from typing import Self

from ...core import LoadError

_NAMESPACES_VARIABLE = "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"
_SOURCE_VARIABLE = "TOOLCRIB_ALLOW_SOURCE_CODE"
_SOURCE_CODE = "<source code>"  # which is no namespace
_TRUSTED_BY_DEFAULT = (
    "autogen_core",
    "autogen_agentchat",
    "autogen_ext",
    "autogen_studio",
    "autogenstudio",
    "toolcrib",
)


class UntrustedError(LoadError, ValueError):
    """A configuration names a module or source code that may not be imported or run."""


class Permission:
    """A permission of the whole process from its construction on, which ends with its `with` block if it has one.

    In the `with` it holds for the block and what the block calls, and in no other thread or task.
    """

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)
        _of_process.add(self)

    def __enter__(self) -> Self:
        _of_process.discard(self)
        self._outside = _of_block.set(_of_block.get() | self.names)
        return self

    def __exit__(self, *raised: object) -> None:
        _of_block.reset(self._outside)


_of_process: set[Permission] = set()
_of_block: ContextVar[frozenset[str]] = ContextVar("toolcrib_autogen_permissions", default=frozenset())


def trust_namespaces(*names: str) -> Permission:
    """Let `load_component` import the packages *names*, such as `"mycompany_agents"`, and all modules below them.

    A call trusts them from now on, in the whole process. `with trust_namespaces(...):` trusts them in the block and in
    what it calls only. The environment variable AUTOGEN_ALLOWED_PROVIDER_NAMESPACES does the same: names, separated by
    commas.
    """
    return Permission(*_split(",".join(names)))


def require_trusted(module: str) -> None:
    """Raise UntrustedError, a ValueError, if *module* is in no trusted namespace. Imports nothing."""
    variable = os.environ.get(_NAMESPACES_VARIABLE, "")
    trusted = {*_TRUSTED_BY_DEFAULT, *_split(variable), *_permitted()} - {_SOURCE_CODE}
    if any(f"{module}.".startswith(f"{name}.") for name in trusted):
        return
    package = module.partition(".")[0]
    raise UntrustedError(
        f"Provider module '{module}' is not in a trusted namespace. Trusted are: {', '.join(sorted(trusted))}. "
        f"If you trust it, call toolcrib.dialects.autogen.trust_namespaces({package!r}), "
        f"or set {_NAMESPACES_VARIABLE}={package} (names separated by commas)."
    )


def allow_source_code() -> Permission:
    """Let configurations run the Python source code that they carry. Their authors control this process.

    A call allows it from now on, in the whole process. Prefer `with allow_source_code():`, which allows it in the block
    and in what it calls only. The environment variable TOOLCRIB_ALLOW_SOURCE_CODE=1 allows it from outside.
    """
    return Permission(_SOURCE_CODE)


def require_source_code_allowed(name: str) -> None:
    """Raise UntrustedError, a ValueError, if source code in the configuration of the tool *name* may not run."""
    variable = os.environ.get(_SOURCE_VARIABLE, "").strip().lower()
    if _SOURCE_CODE in _permitted() or variable in ("1", "true", "yes", "on"):
        return
    raise UntrustedError(
        f"The configuration of the tool {name!r} carries source code, which loading it would run. If you trust where "
        "it comes from, load it in `with toolcrib.dialects.autogen.allow_source_code():`, "
        f"or set {_SOURCE_VARIABLE}=1."
    )


def _permitted() -> frozenset[str]:
    return _of_block.get().union(*(permission.names for permission in _of_process))


def _split(text: str) -> list[str]:
    """Return the names in *text*, separated by commas; AutoGen lets each end with a dot."""
    return [name for part in text.split(",") if (name := part.strip().rstrip("."))]
