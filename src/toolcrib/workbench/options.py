"""The options of a Crib, and of a Workbench that makes a Crib of its own: declared here once.

Both constructors unpack them. Those that are plain values are also keys of `toolcrib.toml` and TOOLCRIB_ variables.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

from annotated_doc import Doc
from annotated_types import Ge, Gt

from ..call import Retry
from ..core import Broker, Middleware, Policy, Recorder, SetupError
from ..machinery import MIN_RESULT_CHARS, RESULT_CHARS, Asker, ErrorMessage, MayAnswer, PendingStore, ResultStore
from ..sandbox import Processes
from .limits import Limit, Limiter
from .memory import MemoryPendings, MemoryResults, MemoryThreads
from .search import Search, require_search

if TYPE_CHECKING:
    from ..store import Store
else:
    Store = Any  # it needs an extra, and those who read the annotations below do not

Seconds = Annotated[float, Gt(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """How many tasks run at a time, for `tasks=`. Raises SetupError."""

    concurrency: int = 32
    """In this process. 0 leaves them to other processes with the same store, such as `toolcrib worker`."""
    per_principal: int | None = None
    """Of one principal, in all processes with the store. None means no limit."""

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 0), ("per_principal", 1)):
            number = getattr(self, name)
            if not (type(number) is int and number >= least) and (name, number) != ("per_principal", None):
                raise SetupError(f"TaskLimits: '{name}' is a number from {least}, not {number!r:.60}.")


class Stores:
    """The stores of a crib one by one, for `store=`: *pendings* for what waits, *results* for large results.

    Each is in memory unless given. Workbenches with the same store share what is in it.
    """

    def __init__(self, *, pendings: PendingStore | None = None, results: ResultStore | None = None) -> None:
        self.pendings: PendingStore = MemoryPendings() if pendings is None else pendings
        self.results: ResultStore = MemoryResults() if results is None else results
        self.threads = MemoryThreads()


@dataclass(frozen=True, slots=True)
class Doubles:
    """What tests put in the place of parts of a crib: providers, the time by which what waits expires, and workers."""

    overrides: Mapping[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict[Any, Any])
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    processes: Processes | None = None


DOUBLES: ContextVar[Doubles | None] = ContextVar("toolcrib_doubles", default=None)
"""The doubles of cribs that are made in this context: see `toolcrib.testing.doubles`."""


class _PlainOptions(TypedDict, total=False):
    timeout_s: Annotated[
        Seconds | None,
        Doc(
            "The longest a call may take, in seconds, whatever the tool's own limit is. Without it there is no limit, "
            "and with `toolcrib serve` it is 60."
        ),
    ]
    repair: Annotated[bool, Doc("Whether arguments are repaired where the schema allows only one reading.")]
    show_errors: Annotated[bool, Doc("Whether models see the text of exceptions. For development.")]
    max_result_chars: Annotated[
        Literal[0] | Annotated[int, Ge(MIN_RESULT_CHARS)] | None,
        Doc(
            "How many characters of a result are shown. Of a larger one there is a preview, and the whole is stored "
            "under a handle, for the tool `read_result`. 0 shows everything, and so does `toolcrib call` by default."
        ),
    ]
    pending_timeout_s: Annotated[
        Seconds, Doc("How long a call waits for its answer, and how long an answer is valid, in seconds.")
    ]


_SEARCH = Doc(
    "Whether models are shown the tool `find_tools` in place of all tools; a number: where there are more tools than "
    "that."
)


class FileOptions(_PlainOptions, total=False):
    """The options that a file and the environment can set, too."""

    search: Annotated[bool | Annotated[int, Ge(1)], _SEARCH]


class Options(_PlainOptions, total=False):
    """All options."""

    search: Annotated[bool | int | Search, _SEARCH]
    limits: Annotated[
        Limiter | Iterable[Limit],
        Doc("How many calls run at a time, and how often. A Limiter counts for all workbenches that share it."),
    ]
    retries: Annotated[
        Iterable[Retry],
        Doc("How failed calls are made again, of tools that can be repeated. The first that matches a tool applies."),
    ]
    middleware: Annotated[
        Iterable[Middleware],
        Doc("Middleware around whole calls, the first outermost. Limits are inside it, so what it answers costs none."),
    ]
    policy: Annotated[
        Policy | None,
        Doc(
            "Decides on each call, once its arguments are checked and before credentials are asked for: a function, "
            "or Rules."
        ),
    ]
    broker: Annotated[Broker | None, Doc("Gives the credentials that a tool requires.")]
    secrets: Annotated[Iterable[str], Doc("Texts that are redacted in every result, error, record and log.")]
    recorder: Annotated[
        Recorder | Iterable[Recorder] | None,
        Doc(
            "Records each call: a recorder, or several. Without it, it is a `DatabaseCalls` where there is a `store`; "
            "`()` records nothing."
        ),
    ]
    error_message: Annotated[ErrorMessage | None, Doc("Changes the message of an error before a model sees it.")]
    variables: Annotated[Mapping[str, Any] | None, Doc("What tools find in `Context.variables`.")]
    ask: Annotated[
        Asker | None,
        Doc(
            "Asks a person while the call runs, in the caller's name. Without it, or where it returns None, calls wait "
            "for `answer`."
        ),
    ]
    may_answer: Annotated[
        MayAnswer | None,
        Doc("Who may answer a pending call. By default all, except the caller where the policy excludes them."),
    ]
    store: Annotated[
        Store | Stores | str | Path | None,
        Doc(
            "Where what waits, large results and the call log are stored: a database, or the path or URL of one, or "
            "`Stores`. In memory by default. A database survives a restart, and is shared by all processes that use it."
        ),
    ]
    tasks: Annotated[
        int | TaskLimits,
        Doc(
            "How many tasks run in this process at a time: 32, a number, or `TaskLimits`. 0 leaves them to other "
            "processes with the same store, such as `toolcrib worker`."
        ),
    ]
    lock: Annotated[
        str | Path | None,
        Doc(
            "A file that `toolcrib lock` wrote. Sources are what it has of them, changed tools are left "
            "out, and addresses that are not in it are refused. `from_config` takes the one beside the settings."
        ),
    ]


DEFAULTS: Options = {
    "timeout_s": None,
    "repair": True,
    "show_errors": False,
    "max_result_chars": RESULT_CHARS,
    "pending_timeout_s": 900.0,
    "search": False,
    "limits": (),
    "retries": (),
    "middleware": (),
    "policy": None,
    "broker": None,
    "secrets": (),
    "recorder": None,
    "error_message": None,
    "variables": None,
    "ask": None,
    "may_answer": None,
    "store": None,
    "tasks": TaskLimits(),
    "lock": None,
}

RENAMED = {
    "around": "middleware",
    "pending_s": "pending_timeout_s",
    "pendings": "store=Stores(pendings=...)",
    "results": "store=Stores(results=...)",
    "always_shown": "search=Search(always_shown=...)",
    "embed": "search=Search(embed=...)",
    "task_concurrency": "tasks",
    "tasks_per_principal": "tasks=TaskLimits(per_principal=...)",
    "overrides": "toolcrib.testing.doubles(overrides=...)",
    "clock": "toolcrib.testing.doubles(clock=...)",
}
"""Names of before 0.1, which raise until 0.2, and today's."""

_KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("policy", "error_message", "ask", "may_answer"), (Callable, "a function")),
    "variables": (Mapping, "a mapping"),
}
_LISTS: dict[str, tuple[Any, str]] = {
    "limits": (Limit, 'Limit values, as in limits=[Limit("db_*", concurrency=4)]'),
    "retries": (Retry, 'Retry values, as in retries=[Retry("gh_*", times=3)]'),
    "secrets": (str, "texts, as in secrets=[key]"),
    "middleware": (Callable, "async functions, as in middleware=[cached]"),
}


def require_options(options: Mapping[str, Any], *, of: str) -> Options:
    """Return all options: those of *options*, the defaults for the rest, and lists as tuples.

    Raises SetupError, naming *of* (the constructor) and the option, for a name that is not an option and for a value
    that an option cannot have.
    """
    _require_names(options, of)
    _require_plain(options, of)
    values: dict[str, Any] = {**DEFAULTS, **options}
    for name, (kind, expected) in _KINDS.items():
        if values[name] is not None and not isinstance(values[name], kind):
            raise SetupError(f"{of}: '{name}' is {expected}, not {type(values[name]).__name__}.")
    for name, (kind, expected) in _LISTS.items():
        if not isinstance(values[name], Limiter):
            values[name] = _listed(values[name], kind, f"{of}: {name} are {expected}")
    _require_store(values["store"], of)
    values["recorder"] = _recorders(values["recorder"], of)
    if not isinstance(values["tasks"], TaskLimits):
        values["tasks"] = TaskLimits(concurrency=values["tasks"])
    if values["search"]:
        require_search()
    values["max_result_chars"] = values["max_result_chars"] or None
    return cast(Options, values)


def _require_names(options: Mapping[str, Any], of: str) -> None:
    unknown = next((name for name in options if name not in DEFAULTS), None)
    if unknown in RENAMED:
        raise SetupError(f"{of}: the option '{unknown}' is now '{RENAMED[unknown]}'.")
    if unknown is not None:
        from ..schema import closest_match, did_you_mean

        hint = did_you_mean(closest_match(unknown, DEFAULTS))
        raise SetupError(f"{of} has no option '{unknown}'.{hint} The options are: {', '.join(DEFAULTS)}.")


def _require_plain(options: Mapping[str, Any], of: str) -> None:
    plain = {name: options[name] for name in FileOptions.__annotations__ if name in options}
    if isinstance(plain.get("search"), Search):
        del plain["search"]
    if any(value is not DEFAULTS[name] for name, value in plain.items()):  # type: ignore[literal-required]
        from ..schema.declared import require_values  # slow to import, and options are often the defaults

        require_values(FileOptions, plain, of=of)


def _listed(value: Any, kind: Any, expected: str) -> tuple[Any, ...]:
    items = () if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    wrong = [item for item in items if not isinstance(item, kind)]
    if wrong or isinstance(value, str) or not isinstance(value, Iterable):
        raise SetupError(f"{expected}, not {type((*wrong, value)[0]).__name__}.")
    return items


def _require_store(store: Any, of: str) -> None:
    if not (isinstance(store, str | Path | None) or (hasattr(store, "pendings") and hasattr(store, "results"))):
        raise SetupError(
            f"{of}: 'store' is a path, a URL, a Store, or Stores(pendings=..., results=...), "
            f"not {type(store).__name__}."
        )


def _recorders(recorder: Any, of: str) -> tuple[Recorder, ...] | None:
    if recorder is None:
        return None
    is_one = hasattr(recorder, "finished") or not isinstance(recorder, Iterable)
    recorders: tuple[Any, ...] = (recorder,) if is_one else tuple(recorder)
    if wrong := [recorder for recorder in recorders if not hasattr(recorder, "finished")]:
        raise SetupError(
            f"{of}: 'recorder' is a recorder or a list of them, not {type(wrong[0]).__name__}. A recorder inherits "
            "from toolcrib.core.Recorder."
        )
    return recorders
