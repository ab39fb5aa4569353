"""Fixtures and test doubles for the authors of tools.

With Toolcrib installed, pytest has the fixtures `bench`, a `MakeBench`, and `cassette`, a `Cassette` for each test.
Nothing else here needs pytest.
"""

from typing import TYPE_CHECKING, Any

from .bench import Bench, MakeBench
from .cassette import Cassette, CassetteError
from .faults import Fault, Faults, InjectedFault, failing, garbled, late, oversized

if TYPE_CHECKING:
    from ..agent import ScriptedModel

__all__ = [
    "Bench",
    "Cassette",
    "CassetteError",
    "Fault",
    "Faults",
    "InjectedFault",
    "MakeBench",
    "ScriptedModel",
    "failing",
    "garbled",
    "late",
    "oversized",
]


def __getattr__(name: str) -> Any:
    if name != "ScriptedModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported on first use, because every pytest run loads the plugin.
    from ..agent import ScriptedModel

    return ScriptedModel
