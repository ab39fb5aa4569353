"""The providers of a catalogue. What they are called here does not depend on the settings."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...auth import Provider


def module_name(name: str) -> str:
    """*name* of a provider, in any case, as it is in names of modules and of settings."""
    return name.lower().replace("-", "_")


@cache
def providers_in(file: str | None) -> Mapping[str, "Provider"]:
    """The providers of the package, and those of *file*, a catalogue, by the names of their modules."""
    from ...auth import load_catalogue

    return {module_name(name): entry for name, entry in load_catalogue(None if file is None else Path(file)).items()}
