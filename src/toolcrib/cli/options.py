"""The parameters that several commands share.

How calls run is declared by `FileOptions` alone: each of its options is an option of the commands that call.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from annotated_doc import Doc
from typer.core import TyperArgument, TyperCommand

from ..core import SetupError
from ..workbench.options import TAKES, FileOptions, require_plain
from .complete import complete_source, complete_tool
from .sources import SOURCE_FORMS


def port_number(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= 65535:
        raise typer.BadParameter("a port is a number from 0 to 65535.")
    return value


SourceNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE...]",
        help=f"Where the tools are. {SOURCE_FORMS}.",
        autocompletion=complete_source,
    ),
]
Source = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        "-s",
        metavar="SOURCE",
        help="A source, in any of these forms; may be repeated.",
        autocompletion=complete_source,
    ),
]
ToolName = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="The tool, by any name.", autocompletion=complete_tool)
]
ToolNames = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="NAME", help="Only this tool; may be repeated.", autocompletion=complete_tool),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The settings; else TOOLCRIB_CONFIG, or the nearest toolcrib.toml or pyproject.toml, here or above.",
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="The database for grants and for what waits: an SQLite file, or the URL of a PostgreSQL database.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")]
Stdio = Annotated[bool, typer.Option("--stdio", help="Serve over standard input and output, not over HTTP.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address to listen on (default: 127.0.0.1).")]
Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", callback=port_number, help="The port; 0 takes any free one (default: 8642)."),
]


def call_options(command: Callable[..., int]) -> Callable[..., int]:
    """*command*, which gets as `options` those of `FileOptions` that the command line sets, and `store`.

    Each is an option of it.
    """
    hints = get_type_hints(FileOptions, include_extras=True)
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.name != "options"]
    derived = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name, hint))
        for name, hint in hints.items()
    ]
    derived.append(inspect.Parameter("store", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Store))

    @functools.wraps(command)
    def run(**values: Any) -> int:
        given = {name: value for name in (*hints, "store") if (value := values.pop(name)) is not None}
        return command(**values, options=given)

    parameters = [*own, *derived]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _option(name: str, hint: Any) -> Any:
    """The option of the command line for *name* of FileOptions: `--timeout SECONDS` for `timeout_s`."""
    flag = f"--{name.removesuffix('_s').replace('_', '-')}"
    # Not by schema.declared: pydantic takes a while, and not every command line leads to it.
    help_text = next(extra.documentation for extra in get_args(hint) if isinstance(extra, Doc)).replace("`", "")
    if get_args(hint)[0] is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=help_text)]
    kind, metavar = (float, "SECONDS") if name.endswith("_s") else (int, "NUMBER")

    def require(value: Any) -> Any:
        if value is not None:
            try:
                require_plain({name: value}, of="")
            except SetupError:
                raise typer.BadParameter(f"{TAKES[name].partition(' (')[0]}.") from None
        return value

    return Annotated[kind | None, typer.Option(flag, metavar=metavar, callback=require, help=help_text)]


class PlainCommand(TyperCommand):
    """A command whose help shows its arguments by their names alone, without Python types."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument):
                name = param.display_name_raw
                vars(param).update(display_type_rich=lambda ctx: None, get_usage_pieces=lambda ctx, name=name: [name])


def print_version(requested: bool) -> None:
    if requested:
        from .. import __version__

        typer.echo(f"toolcrib {__version__}")
        raise typer.Exit
