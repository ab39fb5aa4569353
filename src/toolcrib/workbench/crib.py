"""A crib: tools for the life of a program, handed out by caller."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, Unpack

from ..core import Asker, Caller, SetupError
from .options import Options
from .runtime import CribRuntime
from .workbench import Workbench


class Crib(CribRuntime):
    """The runtime of tools, for the life of a program; it hands them out by caller: `crib.workbench(Caller("alice"))`.

    *sources* are what `toolcrib.tools.load` takes, or one Registry; the options are those of `Options`. Its workbenches
    share the registry, the sources, what waits, the large results, the counts of limits and the worker processes; a
    workbench is made in the same time for any number of tools.

    Sources are started once for all, with the crib or the first of its workbenches. A source that is opened by caller,
    such as a class, is opened for each workbench when a tool of it is first called, so that each caller has its state
    for themselves. A dependency with the scope `program` is opened once for the crib.

    `async with` and `with` start and stop it. `stop` stops the workbenches that were made of it, which then refuse
    calls; closes what was opened for the program; and stops the sources, in reverse.

    `problems` has what of the sources could not be loaded or started. Raises LoadError where a whole source cannot be
    loaded, and DefinitionError or NameConflictError for tools that cannot work.
    """

    @classmethod
    def from_config(cls, path: str | Path | None = None, **options: Unpack[Options]) -> Self:
        """Make a crib of the sources and options in a configuration file; *options* take precedence.

        Without *path*, the file is found as the command finds it. Raises SettingsError, with all that is wrong.
        """
        from .config import config_of

        found = config_of(path, options)
        crib = cls(found.sources, **found.options)
        crib.own(found.own_store)
        return crib

    def workbench(
        self, caller: Caller | None = None, *, ask: Asker | None = None, variables: Mapping[str, Any] | None = None
    ) -> Workbench:
        """Make a workbench for *caller*, to be stopped when their session ends. Raises SetupError after `stop`.

        *ask* asks the person of this session; *variables* are added to those of the crib.
        """
        self.require_open()
        given: object = caller
        if given is not None and not isinstance(given, Caller):
            kind = type(given).__name__
            raise SetupError(f'A workbench is for a Caller, as in crib.workbench(Caller("alice")), not {kind}.')
        return Workbench(self, caller=caller, ask=ask, variables=variables)
