"""What the files of a tool's folder say: `config.toml`, `schema.json` and `README.md`."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from .....schema.toml import parse_toml
from ...config import pocket_logger
from ..tool import ToolAuth
from .script import ScriptRuntime

_MOST_BYTES = 1024**2


class ToolConfig(BaseModel, coerce_numbers_to_str=True, hide_input_in_errors=True):
    """`config.toml`. Keys that nobody knows are ignored."""

    name: str
    description: str | None = None
    language: str
    auth: ToolAuth | None = None
    tool_vars: dict[str, str] = Field(default_factory=dict[str, str])

    @field_validator("auth", mode="before")
    @classmethod
    def _empty_is_none(cls, table: Any) -> Any:
        return table or None

    @field_validator("language")
    @classmethod
    def _runs_here(cls, language: str) -> str:
        if language.lower() == "node":
            raise ValueError("the sandbox runs Python, and has nothing that runs JavaScript: write the tool in Python")
        if language.lower() != "python":
            raise ValueError(f"the language '{language[:80]}' is not supported: it is python")
        return language.lower()

    @property
    def runtime(self) -> ScriptRuntime:
        return ScriptRuntime(self.language)


def read_config(folder: Path) -> ToolConfig:
    """Return what `config.toml` in *folder* says. Raises ValueError."""
    try:
        return ToolConfig.model_validate(parse_toml(_text_of(folder, "config.toml")))
    except ValidationError as error:
        problems = (f"'{'.'.join(map(str, each['loc']))}': {each['msg']}" for each in error.errors(include_input=False))
        reason = "; ".join(problems)
    except (OSError, ValueError) as error:
        reason = _reason(error)
    raise ValueError(f"Failed to load config.toml: {reason} ({folder / 'config.toml'}).")


def read_schema(folder: Path) -> dict[str, Any] | None:
    """Return the JSON Schema in `schema.json`. None, and a warning, where there is none: the tool takes anything."""
    try:
        schema: Any = json.loads(_text_of(folder, "schema.json"))
        if isinstance(schema, dict):
            return schema
        reason = "it is not a JSON object"
    except RecursionError:
        reason = "it is nested too deeply"
    except (OSError, ValueError) as error:
        reason = _reason(error)
    pocket_logger.warning("%s: %s. The tool takes any arguments.", folder / "schema.json", reason)
    return None


def read_readme(folder: Path) -> str | None:
    """Return the text of `README.md`; None where there is none."""
    try:
        return _text_of(folder, "README.md")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / 'README.md'} cannot be read: {_reason(error)}.") from None


def _text_of(folder: Path, name: str) -> str:
    """The text of the file *name* in *folder*: a regular file of it, and nothing that a link leads to elsewhere."""
    file = (folder / name).resolve()
    if not file.exists():
        raise FileNotFoundError(2, "there is no such file")
    if not file.is_relative_to(folder) or not file.is_file():
        raise ValueError("it is not a file of this folder")
    with file.open("rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES // 1024**2} MiB")
    return content.decode("utf-8-sig")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error).rstrip(".")
