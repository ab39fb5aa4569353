"""The life of one call. Runs any `core.Tool`, and knows no kind of tool."""

from .around import Run, around, time_left_s
from .depends import Provided
from .feed import Feed
from .keep import held, put_back
from .life import refuse, run
from .scene import Retries, Scene
from .threads import Escaped, in_thread
from .waiting import Desk

__all__ = [
    "Desk",
    "Escaped",
    "Feed",
    "Provided",
    "Retries",
    "Run",
    "Scene",
    "around",
    "held",
    "in_thread",
    "put_back",
    "refuse",
    "run",
    "time_left_s",
]
