"""`hyperpocket.config.settings`: `settings.toml`, `.secrets.toml` and the environment's `POCKET_*`, in this order.

They are read by the first `config()`, in the working directory. Nothing is written, and no other variable is looked at.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from ....core import SetupError
from ....schema.toml import parse_toml
from .auth import AuthConfig
from .session import SessionConfig

FILES = ("settings.toml", ".secrets.toml")
PREFIX = "POCKET_"


class NetConfig(BaseModel):
    """`[net]`: which private hosts and networks providers may have."""

    allow: list[str] = Field(default_factory=list[str])


class Config(BaseModel, coerce_numbers_to_str=True, hide_input_in_errors=True):
    """The settings. Keys that nobody knows are ignored."""

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
    def _stays(cls, file: str | None) -> str | None:
        return None if file is None else str(Path(file).resolve())  # also when the working directory changes

    @model_validator(mode="after")
    def _has_its_providers(self) -> "Config":
        self.auth.know(self.providers)
        return self

    @property
    def internal_base_url(self) -> str:
        """Where the callback server listens."""
        return f"http://localhost:{self.internal_server_port}"

    @property
    def public_base_url(self) -> str:
        """Where browsers reach it."""
        url = f"{self.public_server_protocol}://{self.public_hostname}"
        usual = {"http": 80, "https": 443}.get(self.public_server_protocol)
        return url if self.public_server_port == usual else f"{url}:{self.public_server_port}"

    def callback_url(self, path: str) -> str:
        """The public address of *path* of the callback server."""
        prefix = self.callback_url_rewrite_prefix.strip("/")
        return "/".join(part for part in (self.public_base_url, prefix, path) if part)


@cache
def config() -> Config:
    """The settings, read once; what a program sets in them holds from then on. Raises SetupError."""
    values: dict[str, Any] = {}
    for name in FILES:
        values = _merged(values, _read(Path(name)))
    values = _merged(values, _from_environment(os.environ))
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        problems = (f"'{'.'.join(map(str, each['loc']))}': {each['msg']}" for each in error.errors(include_input=False))
        raise SetupError(f"The settings ({', '.join(FILES)}, {PREFIX}*) are not valid: {'; '.join(problems)}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return _lowered(parse_toml(file.read_text("utf-8-sig")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        # Not the message of an error in a line: it could quote a secret.
        reason = getattr(error, "strerror", None) or "it is not valid TOML"
        raise SetupError(f"{file} cannot be read: {reason}.") from None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The values of `POCKET_A__B=...`, as `{"a": {"b": ...}}`."""
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith(PREFIX):
            continue
        value: Any = _value(text)
        for key in reversed(name.removeprefix(PREFIX).split("__")):
            value = {key: value}
        values = _merged(values, _lowered(value))
    return values


def _value(text: str) -> Any:
    """*text*; where it is a list, a table or quoted as in TOML, that. A number stays text: it may be somebody's id."""
    if text.startswith(("[", "{", '"', "'")):
        try:
            return parse_toml(f"value = {text}")["value"]
        except ValueError:
            pass
    return text


def _lowered(table: Mapping[str, Any]) -> dict[str, Any]:
    """*table* with its names in lower case. Those of tool variables are the user's, and stay."""
    return {
        key.lower(): _lowered(value) if isinstance(value, dict) and key.lower() != "tool_vars" else value
        for key, value in table.items()
    }


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """*under* with *over* in it, table by table."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
