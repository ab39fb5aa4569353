"""Fixtures and doubles for the tests of those who write tools.

With Toolcrib installed, pytest has the fixture `bench`, a `MakeBench`. Nothing else here needs pytest.
"""

from .bench import Bench, MakeBench, Settings

__all__ = ["Bench", "MakeBench", "Settings"]
