"""Options that several commands have, and what is read of them."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .sources import A_SOURCE, open_sources
from .streams import kept_quiet

if TYPE_CHECKING:
    from ..workbench.settings import Settings


def seconds(value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter("a number of seconds above 0.")
    return value


def settings_of(config: Path | None) -> "Settings":
    # Imported here: pydantic takes a while, and not every command line leads to it.
    from ..workbench.settings import find_settings, read_settings

    return read_settings(find_settings(config))


def _complete_tool(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tools, from the sources before it on the line."""
    try:
        with kept_quiet():
            settings = settings_of(context.params.get("config"))
            specs = open_sources(context.params.get("source") or (), settings, example="").bench.specs()
    except Exception:
        return []  # completion has nowhere to say what is wrong; the command itself will
    return [spec.name for spec in specs if spec.name.startswith(incomplete)]


Sources = Annotated[
    list[str] | None, typer.Argument(metavar="SOURCE", help=f"Where the tools are. {A_SOURCE}.", show_default=False)
]
Source = Annotated[
    list[str] | None,
    typer.Option("--source", "-s", metavar="SOURCE", help=f"Where tools are; may be repeated. {A_SOURCE}."),
]
ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.", autocompletion=_complete_tool)]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The settings; else TOOLCRIB_CONFIG, or toolcrib.toml if it is here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")]
Timeout = Annotated[
    float | None, typer.Option(metavar="SECONDS", callback=seconds, help="The longest a call may take.")
]
Repair = Annotated[
    bool | None,
    typer.Option("--repair/--no-repair", help="Repair arguments where only one reading is possible: it is so."),
]
Stdio = Annotated[bool, typer.Option("--stdio", help="Over standard input and output, not over HTTP.")]
Host = Annotated[str | None, typer.Option(help="A loopback address to listen on.", show_default="127.0.0.1")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any free one.", show_default="8642"),
]
Longest = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", callback=seconds, help="The longest a call may take.", show_default="60"),
]
