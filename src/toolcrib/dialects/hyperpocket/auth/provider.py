"""`hyperpocket.auth.provider`: the names of providers, those of users' catalogues too."""

import tomllib
from enum import Enum, EnumMeta
from importlib import resources
from typing import Any

from ..config import config, module_name, providers_in

# Only the names: reading the providers themselves needs the extra `auth`.
_NAMES = list(tomllib.loads(resources.files("toolcrib").joinpath("auth/providers.toml").read_text("utf-8")))


class _Providers(EnumMeta):
    """Has the providers of a user's catalogue too: `AuthProvider.CRM`. Only iteration passes over them."""

    def __getattr__(cls, name: str) -> "AuthProvider":
        if name == name.upper() and not name.startswith("_"):
            try:
                return AuthProvider.get_auth_provider(name)
            except ValueError as error:
                raise AttributeError(str(error)) from None
        raise AttributeError(name)


class AuthProvider(Enum, metaclass=_Providers):
    """A provider of credentials: `name` is in upper case, `value` is that of its module and of its settings."""

    _ignore_ = "_name"
    for _name in _NAMES:
        vars()[module_name(_name).upper()] = module_name(_name)

    @classmethod
    def get_auth_provider(cls, auth_provider_name: str) -> "AuthProvider":
        """Return the provider of that name, in any case. Raises ValueError where the catalogue has none."""
        return cls(auth_provider_name)

    @classmethod
    def _missing_(cls, value: Any) -> "AuthProvider":
        name = module_name(value) if isinstance(value, str) else ""
        if name in cls._value2member_map_:
            return cls(name)
        if name not in providers_in(config().providers):
            raise ValueError(f"Invalid auth provider name. {value}")
        provider = object.__new__(cls)
        provider._name_, provider._value_ = name.upper(), name
        cls._value2member_map_[name] = cls._member_map_[provider._name_] = provider
        return provider
