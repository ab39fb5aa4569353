"""Fixtures and doubles for the tests of those who write tools.

With Toolcrib installed, pytest has the fixtures `bench`, a `MakeBench`, and `cassette`, a `Cassette` for each test.
Nothing else here needs pytest.
"""

from typing import TYPE_CHECKING, Any

from .bench import Bench, MakeBench, Settings
from .cassette import Cassette, CassetteError
from .faults import Fault, Faults, Met, failing, garbled, late, oversized

if TYPE_CHECKING:
    from ..agent import ScriptedModel

__all__ = [
    "Bench",
    "Cassette",
    "CassetteError",
    "Fault",
    "Faults",
    "MakeBench",
    "Met",
    "ScriptedModel",
    "Settings",
    "failing",
    "garbled",
    "late",
    "oversized",
]


def __getattr__(name: str) -> Any:
    if name != "ScriptedModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # When it is asked for: the plugin is loaded by every pytest there is.
    from ..agent import ScriptedModel

    return ScriptedModel
