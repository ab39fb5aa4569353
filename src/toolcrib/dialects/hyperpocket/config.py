"""`hyperpocket.config`: `settings.toml`, `.secrets.toml` and the environment's `POCKET_*`, in this order.

The first `config()` reads them, in the working directory. Nothing is written, and no other variable is looked at.
"""

import logging
import os
import tomllib
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from ...core import SetupError
from .._modules import also_as

if TYPE_CHECKING:
    from ...auth import Provider


class SessionType(Enum):
    """Which storage: `IN_MEMORY`, or `REDIS`."""

    IN_MEMORY = "in_memory"
    REDIS = "redis"


class SessionConfigInMemory(BaseModel):
    """Sessions in memory need no settings."""


class SessionConfigRedis(BaseModel, extra="allow", hide_input_in_errors=True):
    """The server of the sessions; other keys, such as `password`, are options of redis-py's client."""

    host: str = "localhost"
    port: int = 6379
    db: int = 0
    password: str | None = Field(default=None, repr=False)


class SessionConfig(BaseModel):
    """`[session]` in the settings."""

    session_type: SessionType = SessionType.IN_MEMORY
    in_memory: SessionConfigInMemory = Field(default_factory=SessionConfigInMemory)
    redis: SessionConfigRedis = Field(default_factory=SessionConfigRedis)


DefaultSessionConfig = SessionConfig()


_SUFFIX = "AuthConfig"
_NAMES = {"salesforce": "SalesForce"}


def module_name(name: str) -> str:
    """Return the *name* of a provider, in any case, as names of modules and of settings have it."""
    return name.lower().replace("-", "_")


@cache
def providers_in(file: str | None) -> Mapping[str, "Provider"]:
    """Return the providers of the package, and those of *file*, a catalogue, by the names of their modules."""
    from ...auth import load_catalogue

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


FILES = ("settings.toml", ".secrets.toml")
PREFIX = "POCKET_"


class NetConfig(BaseModel):
    """`[net]`: which private hosts and networks providers may have."""

    allow: list[str] = Field(default_factory=list[str])


class Config(BaseModel, coerce_numbers_to_str=True, hide_input_in_errors=True):
    """The settings. Unknown keys are ignored."""

    internal_server_port: int = 8000
    enable_local_callback_proxy: bool = True
    public_hostname: str = "localhost"
    public_server_protocol: str = "https"
    public_server_port: int = 8001
    callback_url_rewrite_prefix: str = "proxy"
    log_level: str = "info"
    auth_timeout_s: float = 300.0
    providers: str | None = None
    net: NetConfig = Field(default_factory=NetConfig)
    auth: AuthConfig = Field(default_factory=AuthConfig)
    session: SessionConfig = Field(default_factory=SessionConfig)
    tool_vars: dict[str, str] = Field(default_factory=dict[str, str])
    docks: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])

    @field_validator("providers")
    @classmethod
    def _resolve(cls, file: str | None) -> str | None:
        return None if file is None else str(Path(file).resolve())  # the working directory may change

    @property
    def internal_base_url(self) -> str:
        """Where the callback server listens."""
        return f"http://localhost:{self.internal_server_port}"

    @property
    def public_base_url(self) -> str:
        """Where browsers reach it."""
        url = f"{self.public_server_protocol}://{self.public_hostname}"
        default_port = {"http": 80, "https": 443}.get(self.public_server_protocol)
        return url if self.public_server_port == default_port else f"{url}:{self.public_server_port}"

    def callback_url(self, path: str) -> str:
        """Return the public address of *path* of the callback server."""
        prefix = self.callback_url_rewrite_prefix.strip("/")
        return "/".join(part for part in (self.public_base_url, prefix, path) if part)


@cache
def config() -> Config:
    """Return the settings, read once; what a program sets in them holds from then on. Raises SetupError."""
    values: dict[str, Any] = {}
    for name in FILES:
        values = _merged(values, _read(Path(name)))
    for name, text in os.environ.items():
        if name.startswith(PREFIX):
            value = _value(text)
            for key in reversed(name.removeprefix(PREFIX).split("__")):  # `POCKET_A__B=...` is {"a": {"b": ...}}
                value = {key: value}
            values = _merged(values, value)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        reasons = problems(error)
        raise SetupError(f"The settings ({', '.join(FILES)}, {PREFIX}*) are not valid: {reasons}") from None


def problems(error: ValidationError) -> str:
    """Return what is wrong in a file, by key, without the values."""
    details = error.errors(include_input=False)
    return "; ".join(f"'{'.'.join(map(str, detail['loc']))}': {detail['msg']}" for detail in details)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        # The message of an error in a line could quote a secret.
        reason = getattr(error, "strerror", None) or "it is not valid TOML"
        raise SetupError(f"{file} cannot be read: {reason}.") from None


def _value(text: str) -> Any:
    """Return a list, a table or a quoted text as TOML reads it. A number stays text: it may be an id."""
    if text.startswith(("[", "{", '"', "'")):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except ValueError:
            pass
    return text


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return *under* with *over* in it, table by table, keys in lower case. Those of tool variables are the user's."""
    table = dict(under)
    for name, value in over.items():
        key = name.lower()
        if isinstance(value, dict):
            below = table[key] if isinstance(table.get(key), dict) else {}
            value = {**below, **value} if key == "tool_vars" else _merged(below, value)
        table[key] = value
    return table


pocket_logger = logging.getLogger("pocket_logger")


also_as(__name__, "auth", "session", "settings")
