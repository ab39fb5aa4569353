"""`hyperpocket.config.auth`: what providers know this program as.

The classes of providers, such as `GoogleAuthConfig`, are made on import, for each that the catalogue has.
"""

from functools import cache
from typing import Any

from pydantic import BaseModel, Field, PrivateAttr, model_validator

from .._providers import providers_in

_SUFFIX = "AuthConfig"
_NAMES = {"salesforce": "SalesForce"}


class BaseAuthConfig(BaseModel, hide_input_in_errors=True):
    """What all providers have."""

    use_recommended_scope: bool = True


class OAuth2AuthConfig(BaseAuthConfig, extra="allow"):
    """A client that was registered with a provider; other keys, such as `domain_url`, fill its URLs."""

    client_id: str
    client_secret: str = Field(repr=False)


class AuthConfig(BaseModel, extra="allow", hide_input_in_errors=True):
    """`[auth]` in the settings: a table for each provider, which is None where there is none."""

    use_prebuilt_auth: bool = True
    auth_encryption_secret_key: str | None = Field(default=None, repr=False)

    _providers: str | None = PrivateAttr(default=None)

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

    def know(self, providers: str | None) -> None:
        """Have the attributes of the catalogue *providers* too, each None where it has no table."""
        self._providers = providers

    def __getattr__(self, name: str) -> Any:
        found: dict[str, Any] = self.__pydantic_extra__ or {}
        if name in found or name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]
        if name in providers_in(self._providers):
            return None
        raise AttributeError(f"There is no provider '{name}'.")


@cache
def client_config(provider: str) -> type[OAuth2AuthConfig]:
    """The class of the table `[auth.PROVIDER]`."""
    name = f"{_NAMES.get(provider, provider.title().replace('_', ''))}{_SUFFIX}"
    return type(name, (OAuth2AuthConfig,), {"__module__": __name__, "__doc__": f"`[auth.{provider}]`."})


def __getattr__(name: str) -> Any:
    if name.endswith(_SUFFIX):
        for provider, entry in providers_in(None).items():
            if entry.oauth2 is not None and client_config(provider).__name__ == name:
                return client_config(provider)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


DefaultAuthConfig = AuthConfig()
