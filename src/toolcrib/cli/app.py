"""The commands and their options. What each does is one function of a few lines; the doing is in the files beside."""

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import SetupError
from .answer import require_writable, tell_repairs, write_result
from .arguments import given, read_written
from .connect import over_http, over_stdio, require_loopback
from .interrupts import GRACE_S, Interrupts
from .sources import A_SOURCE, open_sources, tell_problems
from .streams import Output, is_rich, kept_quiet, log_to_stderr, prints_to_stderr, tell

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    # Boxes and colour only where somebody looks at them: help that is piped stays plain.
    rich_markup_mode="rich" if is_rich(sys.stdout) else None,
    pretty_exceptions_enable=False,
    epilog="Example: toolcrib list toolcrib.demo",
)


def _seconds(value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter("a number of seconds above 0.")
    return value


def _complete_tool(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tools, from the sources before it on the line."""
    sources = context.params.get("source") or ()
    if not sources:
        return []
    try:
        with kept_quiet():
            specs = open_sources(sources, example="").bench.specs()
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")]


def _version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"toolcrib {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> int | None:
    """Look at tools, call them, and serve them to MCP clients."""
    if context.invoked_subcommand is not None:
        return None
    if text := context.get_help():  # empty where Rich has written it already
        tell(text)
    return 2


@app.command("list", epilog="Example: toolcrib list tools.py more/ --json")
def list_tools(sources: Sources = None, as_json: Json = False) -> int:
    """List the tools of sources."""
    from .show import write_list

    output = Output(alone=True)
    opened = open_sources(sources or (), example="toolcrib list toolcrib.demo")
    specs = opened.bench.specs()
    if as_json:
        output.json([spec.to_dict() for spec in specs])
    else:
        write_list(specs, output)
    tell_problems(opened)
    return 1 if opened.problems else 0


@app.command(epilog="Example: toolcrib show -s tools.py search")
def show(tool: ToolName, source: Source = None, as_json: Json = False) -> int:
    """Show everything about one tool."""
    from .show import write_spec

    output = Output(alone=True)
    opened = open_sources(source or (), example="toolcrib show -s toolcrib.demo now")
    tell_problems(opened)
    spec = opened.bench.registry.get(tool).spec
    if as_json:
        output.json(spec.to_dict())
    else:
        write_spec(spec, source or (), output)
    return 0


@app.command(epilog="Example: toolcrib call -s tools.py search query=lathe limit=3")
def call(
    context: typer.Context,
    tool: ToolName,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="key=value (text, or JSON where the tool takes no text; a key given again makes a list), key=@file "
            "for the text of a file; or all in one: a JSON object, @file.json, or - for standard input.",
            show_default=False,
        ),
    ] = None,
    source: Source = None,
    as_json: Json = False,
    save_to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Save an image, sound, file or text of the result."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", callback=_seconds, help="The longest the call may take.")
    ] = None,
    show_errors: Annotated[
        bool, typer.Option("--show-errors", help="Show text and traceback of an exception in the tool.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair/--no-repair", help="Repair arguments where only one reading is possible.")
    ] = True,
) -> int:
    """Call a tool and print its result."""
    interrupts: Interrupts = context.obj
    log_to_stderr(tracebacks=show_errors)
    output = Output(alone=as_json)
    written = read_written(arguments or ())
    if save_to is not None:
        require_writable(save_to)
    with prints_to_stderr():
        opened = open_sources(
            source or (),
            example="toolcrib call -s toolcrib.demo now",
            timeout_s=timeout,
            show_errors=show_errors,
            repair=repair,
        )
    tell_problems(opened)
    bench = opened.bench

    async def work() -> int:
        async with bench:
            sent: Any = None
            if tool in bench.registry:
                sent = given(written, bench.registry.get(tool).spec.input_schema)
            result = await bench.call(tool, sent)
            if not as_json:
                tell_repairs(result.repairs, by_key=written.json is None)
            write_result(result, output, as_json=as_json, save_to=save_to)
            status = 0 if result.error is None else 1
            if result.error is not None and result.error.code == "timeout":
                # What still runs must not hold the process.
                interrupts.leave_within(GRACE_S, status)
            return status

    return interrupts.run(work())


@app.command(epilog="Example: toolcrib serve tools.py --port 8642")
def serve(
    context: typer.Context,
    sources: Sources = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Over standard input and output, not over HTTP.")] = False,
    host: Annotated[str, typer.Option(help="A loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any free one.")] = 8642,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", callback=_seconds, help="The longest a call may take.")
    ] = 60.0,
) -> int:
    """Serve tools to MCP clients: over HTTP on this computer, or over stdio."""
    require_loopback(host)
    interrupts: Interrupts = context.obj
    log_to_stderr(tracebacks=True)
    with prints_to_stderr():
        opened = open_sources(sources or (), example="toolcrib serve toolcrib.demo", timeout_s=timeout)
    tell_problems(opened)
    from ..serve import serve_http, serve_stdio

    names = sources or ()
    if stdio:
        if sys.stdin.isatty():
            tell(over_stdio(names))
        interrupts.run(serve_stdio(opened.bench))
        return 0
    try:
        interrupts.run(serve_http(opened.bench, host=host, port=port, ready=lambda url: tell(over_http(url, names))))
    except SetupError as error:
        raise SetupError(f"{error} The port is set with --port.") from None
    return 0
