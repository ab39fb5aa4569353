"""The life of one call. Runs any `core.Tool`, and knows no kind of tool."""

from .around import Run, around, time_left_s
from .depends import Provided
from .feed import Feed
from .inside import Retries
from .keep import held, put_back
from .life import Scene, refuse, run
from .waiting import Desk

__all__ = [
    "Desk",
    "Feed",
    "Provided",
    "Retries",
    "Run",
    "Scene",
    "around",
    "held",
    "put_back",
    "refuse",
    "run",
    "time_left_s",
]
