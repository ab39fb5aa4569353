"""Workbenches with doubles, in one line."""

from typing import Any

from toolcrib import Workbench
from toolcrib.testing import doubles


def doubled(
    sources: Any = (), *, overrides: Any = None, clock: Any = None, processes: Any = None, **more: Any
) -> Workbench:
    """Return a Workbench of *sources*, made with these doubles; *more* are its other arguments."""
    with doubles(overrides=overrides, clock=clock, processes=processes):
        return Workbench(sources, **more)
