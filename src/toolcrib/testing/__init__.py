"""Fixtures and test doubles for the authors of tools.

With Toolcrib installed, pytest has the fixtures `bench`, a `MakeBench`, and `cassette`, a `Cassette` for each test.
Nothing else here needs pytest.
"""

from typing import TYPE_CHECKING

from ..machinery import lazy_names
from .bench import Bench, MakeBench, doubles
from .cassette import Cassette, CassetteError
from .faults import Fault, Faults, InjectedFault, failing, garbled, late, oversized

if TYPE_CHECKING:
    from ..agent import ScriptedModel, evaluate

__all__ = [
    "Bench",
    "Cassette",
    "CassetteError",
    "Fault",
    "Faults",
    "InjectedFault",
    "MakeBench",
    "ScriptedModel",
    "doubles",
    "evaluate",
    "failing",
    "garbled",
    "late",
    "oversized",
]

# Imported on first use, because every pytest run loads the plugin.
__getattr__ = lazy_names(__name__, {"ScriptedModel": "..agent", "evaluate": "..agent"})
