"""More than one tool at once: the registry, and the workbench that calls them for one caller."""

from typing import TYPE_CHECKING

from ..call import Retry
from ..core import Ask, Middleware, Policy
from ..core.source import PromptMessage
from ..machinery import Next, PendingStore, ResultStore, StoredPending, StoredResult, lazy_names
from . import sync
from .limits import Limit, Limiter, limits_from_data, retries_from_data
from .memory import MemoryPendings, MemoryResults
from .options import Options, Stores, TaskLimits
from .registry import Registry
from .resources import PromptList, ResourceList
from .search import Search
from .tasks import GoOn, LogLine, Save, StoredRun, Task, TaskEvent, Tasks, UnknownTaskError
from .views import View, filtered, joined, labelled, prefixed, renamed
from .workbench import Crib, Workbench

if TYPE_CHECKING:
    from .rules import AtMost, Right, Role, Rule, Rules, rules_from_data

__all__ = [
    "Ask",
    "AtMost",
    "Crib",
    "GoOn",
    "Limit",
    "Limiter",
    "LogLine",
    "MemoryPendings",
    "MemoryResults",
    "Middleware",
    "Next",
    "Options",
    "PendingStore",
    "Policy",
    "PromptList",
    "PromptMessage",
    "Registry",
    "ResourceList",
    "ResultStore",
    "Retry",
    "Right",
    "Role",
    "Rule",
    "Rules",
    "Save",
    "Search",
    "StoredPending",
    "StoredResult",
    "StoredRun",
    "Stores",
    "Task",
    "TaskEvent",
    "TaskLimits",
    "Tasks",
    "UnknownTaskError",
    "View",
    "Workbench",
    "filtered",
    "joined",
    "labelled",
    "limits_from_data",
    "prefixed",
    "renamed",
    "retries_from_data",
    "rules_from_data",
    "sync",
]


# Not every program needs these, and `import toolcrib` is for all of them.
__getattr__ = lazy_names(
    __name__,
    {
        "AtMost": ".rules",
        "Right": ".rules",
        "Role": ".rules",
        "Rule": ".rules",
        "Rules": ".rules",
        "rules_from_data": ".rules",
    },
    renamed={"CribRuntime": "Crib", "Retries": "Retry"},
)
