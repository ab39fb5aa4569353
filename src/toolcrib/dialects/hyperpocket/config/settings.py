"""`hyperpocket.config.settings`: `settings.toml`, `.secrets.toml` and the environment's `POCKET_*`, in this order.

They are read by the first `config()`, in the working directory. Nothing is written, and no other variable is looked at.
"""

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from ....core import SetupError
from .auth import AuthConfig
from .session import SessionConfig

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
    merged = dict(under)
    for name, value in over.items():
        key = name.lower()
        if isinstance(value, dict):
            below = merged[key] if isinstance(merged.get(key), dict) else {}
            value = {**below, **value} if key == "tool_vars" else _merged(below, value)
        merged[key] = value
    return merged
