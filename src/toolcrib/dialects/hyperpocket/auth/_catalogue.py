"""The providers, and how hyperpocket names what belongs to them. The catalogue is read on first use, not on import."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from ....core import SetupError
from .._providers import providers_in
from ..config.settings import config

if TYPE_CHECKING:
    from ....auth.catalogue import HandlerName, Provider

KINDS: Mapping[str, tuple[str, str, str]] = {
    "oauth2": ("oauth2", "OAuth2", "OAuth2"),
    "token": ("token", "Token", "Token"),
    "basic": ("basicauth", "Basic", "BasicAuth"),
    "keypair": ("keypair", "Keypair", "Keypair"),
}
"""By the handler of our catalogue: how its modules begin, and its classes; those of its request and response."""

_MEMBER = re.compile(r"(\w+): (\w+)(\??)")
_ANSWER = "access_token: str, token_type: str?, expires_in: int?, refresh_token: str?, scope: str?"


def catalogue() -> Mapping[str, "Provider"]:
    """The providers of the package, and those of the file that `providers` in the settings names."""
    return providers_in(config().providers)


def is_provider(name: str) -> bool:
    """Whether the catalogue has *name*."""
    return name in catalogue()


def entry_of(name: str) -> "Provider":
    """The table of the provider *name*. Raises SetupError."""
    if (entry := catalogue().get(name)) is None:
        raise SetupError(f"There is no provider '{name}' in the catalogue any more.")
    return entry


@dataclass(frozen=True, slots=True)
class Names:
    """What is called how, of one handler of a provider."""

    module: str
    handler_name: str
    context: str
    kind_context: str
    handler: str
    request: str
    response: str
    from_response: str


@cache
def names_of(provider: str, kind: "HandlerName") -> Names:
    """The names of hyperpocket for the handler *kind* of *provider*."""
    module, infix, schema = KINDS[kind]
    own = _own(provider)
    prefix = own.get("prefix") or "".join(part.capitalize() for part in provider.split("_"))
    from_response = f"from_{provider}_{module}_response"
    return Names(
        module=module,
        handler_name=own.get("name", f"{provider.replace('_', '-')}-{module}"),
        context=own.get("context", f"{prefix}AuthContext"),
        kind_context=own.get("kind_context", f"{prefix}{infix}AuthContext"),
        handler=own.get("handler", f"{prefix}{infix}AuthHandler"),
        request=own.get("request", f"{prefix}{schema}Request"),
        response=own.get("response_name", f"{prefix}{schema}Response"),
        from_response=from_response if kind == "oauth2" else own.get("from_response", from_response),
    )


def recommended_scopes(provider: str) -> set[str]:
    """The scopes that hyperpocket recommends for *provider*."""
    return set(_own(provider).get("scopes", ()))


def is_scoped_kind(provider: str, kind: "HandlerName") -> bool:
    """Whether the handler *kind* of *provider* takes scopes."""
    oauth2 = entry_of(provider).oauth2
    return kind == "oauth2" and oauth2 is not None and bool(_own(provider).get("scoped", oauth2.scoped))


def kind_of(provider: str, handler_name: str | None) -> "HandlerName | None":
    """The handler of our catalogue that *handler_name* is, or the default one. None for one that it does not have."""
    if (entry := catalogue().get(provider)) is None:
        return None
    if handler_name is None:
        return entry.handler(None)[0]
    return next((kind for kind in entry.handlers if names_of(provider, kind).handler_name == handler_name), None)


def environment_names(provider: str, kind: "HandlerName") -> tuple[str, ...]:
    """The variables in which a tool finds the credentials: one, or a key and its secret."""
    names = entry_of(provider).environment
    prefix = provider.upper()
    if kind == "keypair":
        return tuple(names[:2]) if len(names) > 1 else (f"{prefix}_API_KEY", f"{prefix}_API_SECRET")
    is_basic = [name for name in names if name.endswith("BASIC_AUTH")]
    own = is_basic if kind == "basic" else [name for name in names if name not in is_basic]
    return (own[0] if own else f"{prefix}_{'BASIC_AUTH' if kind == 'basic' else 'TOKEN'}",)


def members_of(provider: str) -> tuple[str, Mapping[str, str]]:
    """The members of a token answer of *provider*, and those of the models in it, by name."""
    own = _own(provider)
    return own.get("response", _ANSWER), own.get("members", {})


def read_members(text: str) -> Mapping[str, tuple[str, bool]]:
    """The members in *text*, such as `scope: str?`: the name of a type, and whether it is optional."""
    return {name: (kind, bool(optional)) for name, kind, optional in _MEMBER.findall(text)}


def _own(provider: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _names().get(provider, {})
    return found


@cache
def _names() -> Mapping[str, Any]:
    return tomllib.loads(resources.files(__package__ or "").joinpath("names.toml").read_text("utf-8"))
