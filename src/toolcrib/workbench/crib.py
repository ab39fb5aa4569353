"""A crib: tools for the life of a program, handed out by caller."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from ..core import Answer, Asker, Caller, Pending, SetupError, answer_from
from .options import Options
from .registry import Registry
from .runtime import CribRuntime
from .sync import at_home
from .workbench import Workbench

if TYPE_CHECKING:
    from ..auth import Completed


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

    def __init__(self, sources: Iterable[Any] | Registry = (), **options: Unpack[Options]) -> None:
        super().__init__(sources, options, of="Crib")

    @classmethod
    def from_config(cls, path: str | Path | None = None, **options: Unpack[Options]) -> Self:
        """A crib of the sources and options in a configuration file; *options* take precedence.

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
        """A workbench for *caller*, to be stopped when their session ends. Raises SetupError after `stop`.

        *ask* asks the person of this session; *variables* are added to those of the crib.
        """
        self.require_open()
        given: object = caller
        if given is not None and not isinstance(given, Caller):
            kind = type(given).__name__
            raise SetupError(f'A workbench is for a Caller, as in crib.workbench(Caller("alice")), not {kind}.')
        return Workbench(self, caller=caller, ask=ask, variables=variables)

    @at_home
    async def answer(self, pending_id: str, answer: Answer | Mapping[str, Any], *, by: str) -> Pending:
        """Answer what a call of any of the workbenches waits for. See `Workbench.answer`."""
        return await self.pending.answer(pending_id, answer_from(answer), by=by)

    @at_home
    async def pendings(self) -> Sequence[Pending]:
        """What waits for an answer, the oldest first, of all callers."""
        return await self.pending.store.waiting(now=self.pending.clock())

    @at_home
    async def authorize(self, tools: Iterable[str], caller: Caller) -> list[Pending]:
        """What *caller* has yet to grant before all of *tools*, by name, can run: one pending a provider.

        The scopes of a provider are united. Raises ToolError `unauthorized`, naming a setting that is missing,
        UnknownToolError, and SetupError without a CredentialBroker.
        """
        requirements = (required for name in tools for required in self.registry.get(name).spec.requirements)
        return await self.credentials.ask_for(dict.fromkeys(requirements), caller)

    @at_home
    async def complete(self, url: str, *, caller: Caller | None = None) -> "Completed":
        """Complete an authorization with *url*, the address that a provider sent somebody back to, with its query.

        For hosts that have a web server of their own; `toolcrib.serve.callback_app` is one to mount. Give *caller*
        where you know who is at the browser: then nobody completes what somebody else has begun (RFC 6749, 10.12).
        Raises CallbackError, whose text is for that person.
        """
        return await self.credentials.complete(url, caller)

    @at_home
    async def wait_for(self, pending: Pending, *, timeout_s: float | None = None) -> bool:
        """Wait until *pending* is answered, or what it asks for is granted, by anybody in any process.

        False where that does not happen within *timeout_s*, or before it expires, and where a grant is refused.
        """
        return await self.credentials.wait_for(pending, timeout_s)

    def __repr__(self) -> str:
        return f"<Crib of {len(self.registry)} tools>"
