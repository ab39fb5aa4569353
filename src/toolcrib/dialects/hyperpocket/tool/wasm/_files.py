"""The files of a tool's folder: `config.toml`, `schema.json` and `README.md`, which a stranger may have written."""

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator

from ...config import pocket_logger
from ...config.settings import problems
from ..tool import ToolAuth

_MAX_BYTES = 1024**2


class ToolConfig(BaseModel, coerce_numbers_to_str=True, hide_input_in_errors=True):
    """`config.toml`. Unknown keys are ignored."""

    name: str
    description: str | None = None
    language: str
    auth: ToolAuth | None = None
    tool_vars: dict[str, str] = Field(default_factory=dict[str, str])

    @field_validator("auth", mode="before")
    @classmethod
    def _read_empty(cls, table: Any) -> Any:
        return table or None

    @field_validator("language")
    @classmethod
    def _check_language(cls, language: str) -> str:
        if language.lower() != "python":
            raise ValueError(f"the language '{language[:80]}' is not supported: the sandbox runs Python")
        return language.lower()


def read_config(folder: Path) -> ToolConfig:
    """Return the content of `config.toml` in *folder*. Raises ValueError."""
    try:
        return ToolConfig.model_validate(tomllib.loads(_text_of(folder, "config.toml")))
    except ValidationError as error:
        reason = problems(error)
    except (OSError, ValueError, RecursionError) as error:
        reason = _reason(error)
    raise ValueError(f"Failed to load config.toml: {reason} ({folder / 'config.toml'}).")


def read_schema(folder: Path) -> dict[str, Any] | None:
    """Return the JSON Schema in `schema.json`. Without one, warn and return None: the tool takes any arguments."""
    try:
        schema: Any = json.loads(_text_of(folder, "schema.json"))
        if isinstance(schema, dict):
            return schema
        reason = "it is not a JSON object"
    except (OSError, ValueError, RecursionError) as error:
        reason = _reason(error)
    pocket_logger.warning("%s: %s. The tool takes any arguments.", folder / "schema.json", reason)
    return None


def read_readme(folder: Path) -> str | None:
    """Return the text of `README.md`; None where there is none. Raises ValueError."""
    try:
        return _text_of(folder, "README.md")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / 'README.md'} cannot be read: {_reason(error)}.") from None


def _text_of(folder: Path, name: str) -> str:
    """Return the text of the file *name* in *folder*: a regular file of it, and no link to elsewhere."""
    file = (folder / name).resolve()
    if not file.exists():
        raise FileNotFoundError(2, "there is no such file")
    if not file.is_relative_to(folder) or not file.is_file():
        raise ValueError("it is not a file of this folder")
    if file.stat().st_size > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES // 1024**2} MiB")
    return file.read_text("utf-8-sig")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "it is nested too deeply"
    return getattr(error, "strerror", None) or str(error).rstrip(".")
