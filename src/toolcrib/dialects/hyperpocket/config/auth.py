"""`hyperpocket.config.auth`: the clients as which providers know this program.

The classes of providers, such as `GoogleAuthConfig`, are made on import, for each that the catalogue has.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, model_validator

if TYPE_CHECKING:
    from ....auth import Provider

_SUFFIX = "AuthConfig"
_NAMES = {"salesforce": "SalesForce"}


def module_name(name: str) -> str:
    """Return the *name* of a provider, in any case, as names of modules and of settings have it."""
    return name.lower().replace("-", "_")


@cache
def providers_in(file: str | None) -> Mapping[str, "Provider"]:
    """Return the providers of the package, and those of *file*, a catalogue, by the names of their modules."""
    from ....auth import load_catalogue

    return {module_name(name): entry for name, entry in load_catalogue(None if file is None else Path(file)).items()}


class BaseAuthConfig(BaseModel, hide_input_in_errors=True):
    """The settings that all providers have."""

    use_recommended_scope: bool = True


class OAuth2AuthConfig(BaseAuthConfig, extra="allow"):
    """A client that was registered with a provider; other keys, such as `domain_url`, fill its URLs."""

    client_id: str
    client_secret: str = Field(repr=False)


class AuthConfig(BaseModel, extra="allow", hide_input_in_errors=True):
    """`[auth]` in the settings: a table for each provider, or None."""

    use_prebuilt_auth: bool = True
    auth_encryption_secret_key: str | None = Field(default=None, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _read_clients(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {
            name: client_config(name).model_validate(table)
            if isinstance(table, dict) and name not in cls.model_fields
            else table
            for name, table in data.items()
        }

    def __getattr__(self, name: str) -> Any:
        if name in (self.__pydantic_extra__ or {}) or name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]
        return None


@cache
def client_config(provider: str) -> type[OAuth2AuthConfig]:
    """Return the class of the table `[auth.PROVIDER]`."""
    name = f"{_NAMES.get(provider, provider.title().replace('_', ''))}{_SUFFIX}"
    return type(name, (OAuth2AuthConfig,), {"__module__": __name__, "__doc__": f"`[auth.{provider}]`."})


def __getattr__(name: str) -> Any:
    if name.endswith(_SUFFIX):
        for provider, entry in providers_in(None).items():
            if entry.oauth2 is not None and client_config(provider).__name__ == name:
                return client_config(provider)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


DefaultAuthConfig = AuthConfig()
