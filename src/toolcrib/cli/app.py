"""The frame of the command: the table of commands, the options that most of them share, and what one run works with.

The module of a command is imported when that command is asked for.
"""

import inspect
import sys
from collections import UserDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from .interrupts import Interrupts
from .terminal import Output, echo, is_rich, log_to_stderr

if TYPE_CHECKING:
    from ..workbench import Crib
    from ..workbench.settings import Settings

T = TypeVar("T")

_MODULES = {
    "list": "show",
    "show": "show",
    "call": "call",
    "chat": "chat",
    "serve": "serving",
    "dev": "serving",
    "check": "check",
    "new": "new",
    "lock": "lock",
    "auth": "auth",
    "secrets": "auth",
    "pending": "calls",
    "calls": "calls",
    "keys": "calls",
    "sandbox": "sandbox",
}
"""The module of each command, or group of commands, in the order of the help."""

# Boxes and colour only at a terminal: help that is piped stays plain.
_MARKUP: Any = "rich" if is_rich(sys.stdout) else None


class Session:
    """What one run of the command works with: the options that commands share, the settings, and standard output."""

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.config: Path | None = None
        self.store: str | None = None
        self.as_json = False

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

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* until it ends, or a signal ends it."""
        return self.interrupts.run(work)

    @asynccontextmanager
    async def crib(self) -> "AsyncGenerator[Crib]":
        """Start a crib of the settings and the store, without tools."""
        from .. import auth as auth  # before the store, whose extra is a part of this one
        from ..workbench import Crib
        from ..workbench.credentials import configured

        log_to_stderr(tracebacks=False)
        store = {} if self.store is None else {"store": self.store}
        options = {**self.settings.options(), **configured(self.settings, store, default_store=True)}
        crib = Crib((), **options)
        crib.own(options["store"])
        async with crib:
            yield crib

    def report(self, text: str, data: Any) -> None:
        """Write what was done: *text* for people, or *data* as JSON."""
        if self.as_json:
            self.output.json(data)
        else:
            echo(text)

    def table(self, data: Sequence[dict[str, Any]], columns: Sequence[str], row: Callable[[Any], list[str]]) -> None:
        """Write *data* as JSON, or for people one *row* of each of it under the *columns*."""
        if self.as_json:
            self.output.json(list(data))
        else:
            self.output.table(columns, [*map(row, data)])

    def members(self, data: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Write an object or several as JSON, or for people a line for each member that has a value."""
        if self.as_json:
            self.output.json(data)
        else:
            self.output.members(data)


def _shared(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The settings; else TOOLCRIB_CONFIG, or the nearest toolcrib.toml or pyproject.toml, here or above.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="PATH",
            help="The database for grants and for what waits: an SQLite file, or the URL of a PostgreSQL database.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")] = False,
) -> None:
    """Declare the options that commands share: `command(takes=...)` says which ones a command has."""


def _keep(context: typer.Context, parameter: Any, value: Any) -> Any:
    if isinstance(session := context.find_root().obj, Session):
        setattr(session, parameter.name, Path(value) if parameter.name == "config" and value else value)
    return value


class _Command(TyperCommand):
    """A command with its share of the `_shared` options. Help shows its arguments by name, without Python types."""

    takes: Sequence[str] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                name = parameter.display_name_raw
                vars(parameter).update(
                    display_type_rich=lambda ctx: None, get_usage_pieces=lambda ctx, name=name: [name]
                )

    @cached_property
    def _taken(self) -> list[Any]:
        app = typer.Typer(add_completion=False)
        app.command()(_shared)
        options = [option for option in typer.main.get_command(app).params if option.name in self.takes]
        for option in options:
            vars(option).update(expose_value=False, callback=_keep)
        return options

    def get_params(self, ctx: Any) -> list[Any]:
        *own, last = super().get_params(ctx)
        return [*own, *self._taken, last]  # the last is --help


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
        hints = get_type_hints(function, include_extras=True)
        _, *own = inspect.signature(function).parameters.values()

        @wraps(function)
        def run(context: typer.Context, **values: Any) -> int:
            session: Session = context.find_root().obj
            status = function(session, **values)
            return (session.run(status) if inspect.iscoroutine(status) else status) or 0

        first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [first, *(parameter.replace(annotation=hints[parameter.name]) for parameter in own)]
        vars(run).update(
            __signature__=inspect.Signature(parameters),
            __annotations__={parameter.name: parameter.annotation for parameter in parameters},
        )
        options = {"as_json" if word == "json" else word for word in takes.split()}
        cls = type("Command", (_Command,), {"takes": options})
        app.command(name, cls=cls, epilog=example and f"Example: {example}")(run)
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


class _Commands(UserDict[str, Any]):
    """The commands by name. `{"call": "call"}` names a module, which is imported when the command is asked for."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if isinstance(command, str):
            module = import_module(f".{command}", __package__)
            group = getattr(module, name, None)
            if isinstance(group, typer.Typer):
                command = typer.main.get_group(group)
                command.name = name
            else:
                command = typer.main.get_group(module.app).commands[name]
            self.data[name] = command
        return command

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.data else default


class _Root(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands(_MODULES)


app = typer.Typer(
    cls=_Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=_MARKUP,
    epilog="Example: toolcrib list toolcrib.demo",
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> int | None:
    """Look at tools, call them, and serve them to MCP clients."""
    return _start(context)
