"""What a configuration may make this process import and run: the one place where it is asked.

A configuration is data, and may come from anywhere. Nothing of a module is imported before its namespace is trusted
here, and no source code is run before that is allowed here.
"""

import os
import threading
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from ...core import LoadError

_NAMESPACES_VARIABLE = "AUTOGEN_ALLOWED_PROVIDER_NAMESPACES"
_SOURCE_VARIABLE = "TOOLCRIB_ALLOW_SOURCE_CODE"
_AUTOGEN = ("autogen_core", "autogen_agentchat", "autogen_ext", "autogen_studio", "autogenstudio")
_TRUSTED = frozenset((*_AUTOGEN, "toolcrib"))
_YES = frozenset(("1", "true", "yes", "on"))


class UntrustedError(LoadError, ValueError):
    """A configuration wants something imported or run that nobody has allowed."""


class Permission:
    """Something that is allowed: to the whole process as soon as it is made; after a `with`, no longer.

    In the `with` it holds for the block and what the block calls, and in no other thread or task.
    """

    def __init__(self, register: "_Register", what: frozenset[str]) -> None:
        self._register = register
        self._what = what
        self._tokens: list[Token[frozenset[str]]] = []
        register.add(self)

    def __enter__(self) -> Self:
        self._register.remove(self)
        here = self._register.here
        self._tokens.append(here.set(here.get() | self._what))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._register.here.reset(self._tokens.pop())

    @property
    def what(self) -> frozenset[str]:
        return self._what


class _Register:
    """The permissions of one kind."""

    def __init__(self, name: str) -> None:
        self.here: ContextVar[frozenset[str]] = ContextVar(name, default=frozenset())
        self._lock = threading.Lock()
        self._everywhere: list[Permission] = []

    def add(self, permission: Permission) -> None:
        with self._lock:
            self._everywhere.append(permission)

    def remove(self, permission: Permission) -> None:
        with self._lock:
            self._everywhere = [each for each in self._everywhere if each is not permission]

    def given(self) -> frozenset[str]:
        with self._lock:
            everywhere = list(self._everywhere)
        return self.here.get().union(*(each.what for each in everywhere))


_namespaces = _Register("toolcrib_autogen_namespaces")
_source_code = _Register("toolcrib_autogen_source_code")


def trust_namespaces(*names: str) -> Permission:
    """Let `load_component` import the packages *names*, such as `"mycompany_agents"`, and all modules below them.

    A call trusts them from now on, in the whole process. `with trust_namespaces(...):` trusts them in the block and in
    what it calls only. The environment variable AUTOGEN_ALLOWED_PROVIDER_NAMESPACES, names with commas between them,
    says the same from outside.
    """
    return Permission(_namespaces, frozenset(_names(",".join(names))))


def trusted_namespaces() -> frozenset[str]:
    """The packages that configurations may name now."""
    return _TRUSTED.union(_names(os.environ.get(_NAMESPACES_VARIABLE, "")), _namespaces.given())


def require_trusted(module: str) -> None:
    """Raises UntrustedError, a ValueError, if *module* is in no trusted namespace. Imports nothing."""
    trusted = trusted_namespaces()
    parts = module.split(".")
    if any(".".join(parts[: length + 1]) in trusted for length in range(len(parts))):
        return
    package = parts[0]
    raise UntrustedError(
        f"Provider module '{module}' is not in a trusted namespace. Trusted are: {', '.join(sorted(trusted))}. "
        f"If you trust it, call toolcrib.dialects.autogen.trust_namespaces({package!r}), "
        f"or set {_NAMESPACES_VARIABLE}={package} (names with commas between them)."
    )


def allow_source_code() -> Permission:
    """Let configurations run the Python source code that they carry. Whoever writes such a one owns this process.

    A call allows it from now on, in the whole process. `with allow_source_code():` allows it in the block and in what
    it calls only, which is what to prefer. The environment variable TOOLCRIB_ALLOW_SOURCE_CODE=1 says the same from
    outside.
    """
    return Permission(_source_code, frozenset((_SOURCE_VARIABLE,)))


def require_source_code_allowed(name: str) -> None:
    """Raises UntrustedError, a ValueError, if source code in the configuration of the tool *name* may not run."""
    if _source_code.given() or os.environ.get(_SOURCE_VARIABLE, "").strip().lower() in _YES:
        return
    raise UntrustedError(
        f"The configuration of the tool {name!r} carries source code, which loading it would run. If you trust where "
        "it comes from, load it in `with toolcrib.dialects.autogen.allow_source_code():`, "
        f"or set {_SOURCE_VARIABLE}=1. A function that can be imported is better dumped by reference."
    )


def _names(text: str) -> list[str]:
    """The names in *text*, with commas between them; AutoGen lets each end with a dot."""
    return [name for part in text.split(",") if (name := part.strip().rstrip("."))]
