"""The store: one database, and what calls keep in it."""

from functools import cached_property
from pathlib import Path

from .database import Database
from .keys import KeySource
from .ledger import DEFAULT_KEEP_S
from .limits import SharedLimits
from .pendings import DatabasePendings
from .results import DatabaseResults
from .tasks import DatabaseTasks
from .threads import DatabaseThreads


class Store(Database):
    """One database for what must outlive a process, or be shared by several.

    *where* is the path of an SQLite file, or `postgresql://user@host/name`; without it, it is `store.db` in the user's
    data folder. *key* is the path of a key file, or a function that gives the keys, the newest first. Without it they
    are in the variable TOOLCRIB_KEY, else in a key file beside the database, or, for PostgreSQL, in the data folder.

    Idempotency keys are known for *keep_keys_s* seconds. `webhooks` are where it is announced that `tasks` have
    ended, and what is `pending` on a person.

    Nothing is opened or made before the first use. One store serves any number of event loops and threads, and goes on
    working in a child process. Raises SetupError for a URL that cannot be used; what fails later is a StoreError.
    """

    def __init__(
        self,
        where: str | Path | None = None,
        *,
        key: str | Path | KeySource | None = None,
        keep_keys_s: float = DEFAULT_KEEP_S,
    ) -> None:
        super().__init__(where, key=key)
        self._keep_keys_s = keep_keys_s

    @cached_property
    def pendings(self) -> DatabasePendings:
        """What calls wait for, in this database."""
        return DatabasePendings(self)

    @cached_property
    def results(self) -> DatabaseResults:
        """Large results, in this database."""
        return DatabaseResults(self)

    @cached_property
    def limits(self) -> SharedLimits:
        """The limits that all processes with this database share."""
        return SharedLimits(self)

    @cached_property
    def threads(self) -> DatabaseThreads:
        """What threads remember for rules, in this database."""
        return DatabaseThreads(self)

    @cached_property
    def ledger(self) -> DatabaseTasks:
        """Calls with an idempotency key, and tasks, in this database."""
        return DatabaseTasks(self, keep_s=self._keep_keys_s)
