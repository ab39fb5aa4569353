"""The variables that set one value each, read as the tables of the settings' file that they stand for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_settings import EnvSettingsSource

_PATHS = frozenset({"toolcrib_store_url", "toolcrib_store_key", "toolcrib_providers"})


class Environment(EnvSettingsSource):
    """What the variables *names* of any environment set of *model*; with each name are the keys of its value."""

    def __init__(self, model: Any, names: Mapping[str, tuple[str, ...]], environ: Mapping[str, str]) -> None:
        self._names = names
        self._environ = {name.lower(): environ[name].strip() for name in names if environ.get(name, "").strip()}
        for name in _PATHS & self._environ.keys():
            # Unlike those in the file, they are relative to the current folder.
            if "://" not in (path := self._environ[name]) and not path.startswith("${"):
                self._environ[name] = str(Path(path).expanduser().absolute())
        super().__init__(model, env_prefix="TOOLCRIB_", env_nested_delimiter="_", env_nested_max_split=1)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._environ

    def explode_env_vars(self, field_name: str, field: Any, env_vars: Mapping[str, str | None]) -> dict[str, Any]:
        own = {name: value for name, value in env_vars.items() if self._names[name.upper()][0] == field_name}
        return super().explode_env_vars(field_name, field, own)  # `pending_timeout_s` is not a key of [pending]
