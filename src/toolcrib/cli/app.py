"""The frame of the command: the table of commands, the options that most of them share, and what one run works with.

The module of a command is imported when that command is asked for.
"""

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from ..core import Caller
from .interrupts import Interrupts
from .terminal import Output, echo, is_rich, log_to_stderr

if TYPE_CHECKING:
    from ..store import Store
    from ..workbench import Crib
    from ..workbench.settings import Settings
    from .sources import Opened

T = TypeVar("T")

_COMMANDS = {
    "init": ("new", "Begin a project here, with settings, a tool and a test."),
    "list": ("show", "List the tools of sources."),
    "show": ("show", "Show everything about one tool."),
    "call": ("call", "Call a tool and print its result."),
    "chat": ("chat", "Chat with a model that uses the tools."),
    "eval": ("evals", "Ask models what scenarios have, and look whether they call the tools as is expected."),
    "serve": ("serving", "Serve tools to MCP clients, and as an HTTP API."),
    "console": (
        "serving",
        "Print a link that lets you into the console of the server that runs here. It works once, for five minutes.",
    ),
    "dev": ("serving", "Serve tools while you write them."),
    "install": ("install", "Have an MCP client start the server of these tools."),
    "uninstall": (
        "install",
        "Remove a server from the settings of an MCP client. What else is there stays, and there is a backup.",
    ),
    "worker": ("worker", "Run the tasks of a store, and serve no tools."),
    "check": ("check", "Check the settings, or the tools of sources."),
    "new": ("new", "Write a new tool that works, and its test, here."),
    "lock": ("lock", "Lock sources, and what their tools promise."),
    "auth": ("auth", "Log in to providers, and see what was granted."),
    "secrets": ("auth", "Secrets that tools need by name."),
    "pending": ("calls", "Approvals, inputs and logins that calls wait for."),
    "grants": ("calls", "Approvals for more than one call: what runs without a question, and until when."),
    "calls": ("calls", "The log of calls: who called what, and how it ended."),
    "tasks": ("tasks", "Calls that run as tasks: where they are, and what they wait for."),
    "threads": ("store", "What threads remember for rules: which labels they have seen, and what came before."),
    "keys": ("calls", "Keys with which clients enter the server."),
    "store": ("store", "Copies of the store, and what it has of one caller."),
    "sandbox": ("sandbox", "Where tools that are not trusted run."),
}
"""The module of each command, or group of commands, and its help, in the order of the help."""

_FIRST = ("init", "call", "chat", "serve", "install")
"""The commands of the short help."""

# Boxes and colour only at a terminal: help that is piped stays plain.
_MARKUP: Any = "rich" if is_rich(sys.stdout) else None


class Session:
    """What one run of the command works with: the options that commands share, the settings, and standard output."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.config: Path | None = None
        self.store: str | None = None
        self.as_json = False
        self.principal, self.profile = "local", "default"

    @cached_property
    def output(self) -> Output:
        """Return standard output, which is for results alone from now on."""
        return Output()

    @cached_property
    def settings(self) -> "Settings":
        """Return the settings of `--config`, or those that are found. Raises SettingsError."""
        # Imported here: pydantic takes a while, and not every command line leads to it.
        from ..workbench.settings import find_settings, read_settings

        return read_settings(find_settings(self.config))

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, self.profile)

    def run(self, work: Coroutine[Any, Any, T], *, serves: bool = False) -> T:
        """Run *work* until it ends, or a signal ends it. What *serves* runs on uvloop, where it is installed."""
        return self.interrupts.run(work, serves=serves)

    def open(self, sources: Sequence[str] | None, **how: Any) -> "Opened":
        """Open *sources*, or those of the settings, as the shared options say: see `open_sources`."""
        from .sources import open_sources

        return open_sources(sources or (), self.settings, store=self.store, **how)

    @asynccontextmanager
    async def crib(self, *, with_grants: bool = True) -> "AsyncGenerator[Crib]":
        """Start a crib of the settings and the store, without tools."""
        if with_grants:
            from .. import auth as auth  # before the store, whose extra is a part of this one
        from ..workbench import Crib
        from ..workbench.credentials import configured

        log_to_stderr(tracebacks=False)
        given: dict[str, Any] = {} if self.store is None else {"store": self.store}
        if not with_grants:
            given["broker"] = None
        options = {**self.settings.options(), **configured(self.settings, given, default_store=True)}
        crib = Crib((), **options)
        crib.own(options["store"])
        async with crib:
            yield crib

    @contextmanager
    def opened_store(self) -> "Generator[Store]":
        """Open the store of the option or the settings."""
        from ..workbench.credentials import store_of

        log_to_stderr(tracebacks=False)
        store = store_of(self.settings, self.store)
        try:
            yield store
        finally:
            store.close()

    def show(self, data: Any, *, columns: Sequence[str] = (), text: str | None = None) -> None:
        """Write JSON *data*; or for people *text*, these *columns* of a list, or a line for each member."""
        if self.as_json:
            self.output.json(data)
        elif text is not None:
            echo(text)
        elif columns:
            self.output.table(data, columns)
        else:
            self.output.members(data)


_SHARED: dict[str, Any] = {
    "config": Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The settings; else TOOLCRIB_CONFIG, or the nearest toolcrib.toml or pyproject.toml, here or above.",
        ),
    ],
    "store": Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The database for grants and for what waits: an SQLite file, or the URL of a PostgreSQL database.",
        ),
    ],
    "principal": Annotated[str, typer.Option(metavar="NAME", help="Who calls, or whose it is.")],
    "profile": Annotated[str, typer.Option(metavar="NAME", help="Which of their identities.")],
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")],
}
"""The options that commands share; the Session has their values."""
_DEFAULTS = {"principal": "local", "profile": "default", "as_json": False}
_WORDS = {"caller": ("principal", "profile"), "json": ("as_json",)}
"""Words of `command(takes=...)`, and the options that each stands for; any other is that of its name."""
STORE_OPTIONS = "config store json"
"""What most commands about the store take."""


class _Command(TyperCommand):
    """A command whose help shows its arguments by name, without Python types."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                name = parameter.metavar or parameter.name
                vars(parameter).update(
                    display_type_rich=lambda ctx: None, get_usage_pieces=lambda ctx, name=name: [name]
                )


def group(help: str | None = None) -> typer.Typer:  # noqa: A002 - as Typer calls it
    """Return a group of commands; each is added by `command`."""
    return typer.Typer(help=help, rich_markup_mode=_MARKUP, callback=_start, invoke_without_command=True)


def command(
    app: typer.Typer, name: str, *, example: str | None = None, takes: str = "config json"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a function to *app* as the command *name*.

    Its first parameter is the Session; the others are its arguments and options. *takes* are the shared options that it
    has. It returns an exit status, or None for success. An async function is run until a signal ends it.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        names = [option for word in takes.split() for option in _WORDS.get(word, (word,))]

        @wraps(function)
        def run(context: typer.Context, **values: Any) -> int:
            session: Session = context.find_root().obj
            vars(session).update({option: values.pop(option) for option in names})
            status = function(session, **values)
            return (session.run(status) if inspect.iscoroutine(status) else status) or 0

        first, *own = inspect.signature(function, eval_str=True).parameters.values()
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            first.replace(name="context", annotation=typer.Context),
            *own,
            *(inspect.Parameter(of, keyword, default=_DEFAULTS.get(of), annotation=_SHARED[of]) for of in names),
        ]
        vars(run).update(
            __signature__=inspect.Signature(parameters),
            __annotations__={parameter.name: parameter.annotation for parameter in parameters},
        )
        app.command(name, cls=_Command, epilog=example and f"Example: {example}")(run)
        return function

    return register


def _start(context: typer.Context) -> int | None:
    if context.invoked_subcommand is not None:
        return None
    if text := context.get_help():  # empty where Rich has written it already
        echo(text)
    return 2


def _print_version(requested: bool) -> None:
    if requested:
        from .. import __version__

        typer.echo(f"toolcrib {__version__}")
        raise typer.Exit


class _Root(TyperGroup):
    """The command itself. The module of a command is imported when that command is asked for, and not for the help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # For the help, and by name; `get_command` has the real ones.
        self.commands = {name: TyperCommand(name, help=text) for name, (_, text) in _COMMANDS.items()}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f".{_COMMANDS[cmd_name][0]}", __package__)
        subgroup = getattr(module, cmd_name, None)
        if not isinstance(subgroup, typer.Typer):
            return typer.main.get_group(module.app).commands[cmd_name]
        command = typer.main.get_group(subgroup)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        names = _COMMANDS if ctx.meta.get(_ALL) else _FIRST
        listed = TyperGroup(name=self.name)
        vars(listed).update({**vars(self), "commands": {name: self.commands[name] for name in names}})
        listed.format_help(ctx, formatter)


def _print_all(context: typer.Context, requested: bool) -> None:
    if requested:
        context.meta[_ALL] = True
        if text := context.get_help():
            typer.echo(text)
        raise typer.Exit


_ALL = "toolcrib.help-all"

app = typer.Typer(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=_MARKUP,
    epilog="All commands: toolcrib --help-all",
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    help_all: Annotated[
        bool, typer.Option("--help-all", callback=_print_all, is_eager=True, help="Show all commands and exit.")
    ] = False,
) -> int | None:
    """Look at tools, call them, and serve them to MCP clients."""
    return _start(context)
