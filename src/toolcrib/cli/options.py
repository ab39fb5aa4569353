"""The parameters that several commands have."""

from typing import Annotated

import typer

from .arguments import complete_source, complete_tool, complete_words
from .sources import SOURCE_FORMS


def _port_number(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= 65535:
        raise typer.BadParameter("a port is a number from 0 to 65535.")
    return value


SourceNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SOURCE...]", help=f"Where the tools are. {SOURCE_FORMS}.", autocompletion=complete_source),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE...] TOOL [ARGUMENT...]",
        help=f"{SOURCE_FORMS}. An argument is key=value (text, or JSON where the tool takes no text; a key that is "
        "repeated, or numbers with commas, make a list; issue.title=... is a member of an object), key=@file for "
        "the text of a file; or all in one: a JSON object, @file.json, or - for standard input.",
        autocompletion=complete_words,
    ),
]
ToolWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE...] TOOL",
        help=f"The tool's name, after its sources. {SOURCE_FORMS}.",
        autocompletion=complete_words,
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
Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", callback=_port_number, help="The port to listen on; 0 takes any free one."),
]
Principal = Annotated[str, typer.Option("--principal", metavar="NAME", help="Who calls, or whose it is.")]
