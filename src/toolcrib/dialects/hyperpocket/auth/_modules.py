"""The modules of providers, such as `hyperpocket.auth.slack.oauth2_handler`: made when they are imported."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = f"{__package__}."


class _Finder(MetaPathFinder):
    """Finds `auth.PROVIDER` and `auth.PROVIDER.KIND_handler`, `_context` and `_schema` for what the catalogue has."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PACKAGE):
            return None
        from ._catalogue import is_provider

        provider, _, module = fullname.removeprefix(_PACKAGE).partition(".")
        if provider.startswith("_") or not is_provider(provider) or (module and not _contents(provider, module)):
            return None
        return ModuleSpec(fullname, _Maker(provider, module), is_package=not module)


class _Maker(Loader):
    def __init__(self, provider: str, module: str) -> None:
        self._provider = provider
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from ._catalogue import entry_of

        module.__doc__ = f"What hyperpocket has for {entry_of(self._provider).title}."
        for name, made in _contents(self._provider, self._module).items() if self._module else ():
            setattr(module, name, made())


def _contents(provider: str, module: str) -> dict[str, Any]:
    """The names in *module* of *provider*, each with what makes it. Empty for a module that there is not."""
    from ._catalogue import entry_of, names_of
    from ._handlers import handler_class
    from ._models import context_of_provider, models_of

    if module == "context":
        kind = entry_of(provider).handler(None)[0]
        return {names_of(provider, kind).context: lambda: context_of_provider(provider)}
    for kind in entry_of(provider).handlers:
        names = names_of(provider, kind)
        match module.removeprefix(f"{names.module}_"):
            case "handler":
                return {names.handler: lambda kind=kind: handler_class(provider, kind)}
            case "context":
                return {names.kind_context: lambda kind=kind: models_of(provider, kind).kind_context}
            case "schema":
                return {
                    names.request: lambda kind=kind: models_of(provider, kind).request,
                    names.response: lambda kind=kind: models_of(provider, kind).response,
                }
            case _:
                continue
    return {}


def install() -> None:
    """Have the modules of providers found. Real files go before them."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
