"""The commands and their options. What each does is one function of a few lines; the doing is in the files beside.

An option goes before the environment, and that before the settings: so an option that was not given is None here.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import Call, SetupError
from .answer import require_writable, tell_repairs, write_result
from .arguments import given, read_written
from .ask import Asks
from .connect import over_http, over_stdio, require_loopback
from .interrupts import GRACE_S, Interrupts
from .live import Live
from .run import settled
from .sources import A_SOURCE, open_sources, tell_problems
from .streams import Output, is_rich, kept_quiet, log_to_stderr, prints_to_stderr, tell
from .usage import UsageError

if TYPE_CHECKING:
    from ..workbench.settings import Settings

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    # Boxes and colour only where somebody looks at them: help that is piped stays plain.
    rich_markup_mode="rich" if is_rich(sys.stdout) else None,
    pretty_exceptions_enable=False,
    epilog="Example: toolcrib list toolcrib.demo",
)


_SERVED_S = 60.0
"""The longest a call of an MCP client may take, where nothing else is said."""
_WAITS = 3
"""The exit status of a call that waits for somebody."""


def _seconds(value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter("a number of seconds above 0.")
    return value


def _settings(config: Path | None) -> "Settings":
    # Imported here: pydantic takes a while, and not every command line leads to it.
    from ..workbench.settings import find_settings, read_settings

    return read_settings(find_settings(config))


def _complete_tool(context: typer.Context, incomplete: str) -> list[str]:
    """Names of tools, from the sources before it on the line."""
    try:
        with kept_quiet():
            settings = _settings(context.params.get("config"))
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
def list_tools(sources: Sources = None, config: Config = None, as_json: Json = False) -> int:
    """List the tools of sources."""
    from .show import write_list

    output = Output(alone=True)
    settings = _settings(config)
    opened = open_sources(sources or (), settings, example="toolcrib list toolcrib.demo")
    specs = opened.bench.specs()
    if as_json:
        output.json([spec.to_dict() for spec in specs])
    else:
        write_list(specs, output)
    tell_problems(opened)
    return 1 if opened.problems else 0


@app.command(epilog="Example: toolcrib show -s tools.py search")
def show(tool: ToolName, source: Source = None, config: Config = None, as_json: Json = False) -> int:
    """Show everything about one tool."""
    from .show import write_spec

    output = Output(alone=True)
    settings = _settings(config)
    opened = open_sources(source or (), settings, example="toolcrib show -s toolcrib.demo now")
    tell_problems(opened)
    spec = opened.bench.registry.get(tool).spec
    if as_json:
        output.json(spec.to_dict())
    else:
        options = [word for named in source or () for word in ("-s", named)]
        write_spec(spec, [*options, *(() if config is None else ("-c", str(config)))], output)
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
    config: Config = None,
    as_json: Json = False,
    save_to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Save an image, sound, file or text of the result."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", callback=_seconds, help="The longest the call may take.")
    ] = None,
    show_errors: Annotated[
        bool | None, typer.Option("--show-errors", help="Show text and traceback of an exception in the tool.")
    ] = None,
    repair: Annotated[
        bool | None,
        typer.Option("--repair/--no-repair", help="Repair arguments where only one reading is possible: it is so."),
    ] = None,
) -> int:
    """Call a tool and print its result.

    Where it waits for an approval or an answer, the person at the terminal is asked. Without a terminal, what it waits
    for is printed, and the exit status is 3.
    """
    interrupts: Interrupts = context.obj
    settings = _settings(config)
    log_to_stderr(tracebacks=settings.values.show_errors if show_errors is None else show_errors)
    output = Output(alone=as_json)
    written = read_written(arguments or ())
    if save_to is not None:
        require_writable(save_to)
    live = Live(output, as_json=as_json, is_over=lambda: interrupts.came)
    asks = Asks(live.clear)
    with prints_to_stderr():
        opened = open_sources(
            source or (),
            settings,
            example="toolcrib call -s toolcrib.demo now",
            # A preview is for models, who can read on from it.
            unless_set={"max_result_chars": None},
            ask=asks.at_once,
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
            result = await settled(bench, Call(tool, sent), asks, live)
            if not as_json:
                tell_repairs(result.repairs, by_key=written.json is None)
            write_result(result, output, as_json=as_json, save_to=save_to)
            status = 1 if result.error is not None else 0 if result.pending is None else _WAITS
            if result.error is not None and result.error.code == "timeout":
                # What still runs must not hold the process.
                interrupts.leave_within(GRACE_S, status)
            return status

    return interrupts.run(work())


Stdio = Annotated[bool, typer.Option("--stdio", help="Over standard input and output, not over HTTP.")]
Host = Annotated[str | None, typer.Option(help="A loopback address to listen on.", show_default="127.0.0.1")]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port to listen on; 0 takes any free one.", show_default="8642"),
]
Longest = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", callback=_seconds, help="The longest a call may take.", show_default="60"),
]


@app.command(epilog="Example: toolcrib serve tools.py --port 8642")
def serve(
    context: typer.Context,
    sources: Sources = None,
    config: Config = None,
    stdio: Stdio = False,
    host: Host = None,
    port: Port = None,
    timeout: Longest = None,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Load files again when they are saved, and tell the clients.")
    ] = True,
) -> int:
    """Serve tools to MCP clients: over HTTP on this computer, or over stdio."""
    served = _Served(_settings(config), sources or (), stdio=stdio, host=host, port=port, timeout_s=timeout)
    log_to_stderr(tracebacks=True)
    return served.run(context.obj, example="toolcrib serve toolcrib.demo", follow=watch)


@app.command(epilog="Example: toolcrib dev tools.py")
def dev(
    context: typer.Context,
    sources: Sources = None,
    config: Config = None,
    stdio: Stdio = False,
    host: Host = None,
    port: Port = None,
    timeout: Longest = None,
) -> int:
    """Serve tools while you write them: what you save is loaded, and what becomes of it is said.

    Models are told the text of exceptions. A file that is broken at the start is waited for.
    """
    from .dev import say_what_is_loaded

    served = _Served(_settings(config), sources or (), stdio=stdio, host=host, port=port, timeout_s=timeout)
    log_to_stderr(tracebacks=True)
    say_what_is_loaded()
    return served.run(context.obj, example="toolcrib dev tools.py", follow=True, may_wait=True, show_errors=True)


@dataclass(frozen=True, slots=True)
class _Served:
    """What `serve` and `dev` are told. Raises UsageError for a host that others could reach."""

    settings: "Settings"
    sources: Sequence[str]
    stdio: bool = field(kw_only=True)
    host: str | None = field(kw_only=True)
    port: int | None = field(kw_only=True)
    timeout_s: float | None = field(kw_only=True)

    def __post_init__(self) -> None:
        at = self.settings.values.server
        require_loopback(self.host or at.host, option="--host" if self.host else "The host of the settings,")

    def run(self, interrupts: Interrupts, **options: Any) -> int:
        settings, names, at = self.settings, self.sources, self.settings.values.server
        with prints_to_stderr():
            opened = open_sources(
                names, settings, unless_set={"timeout_s": _SERVED_S}, timeout_s=self.timeout_s, **options
            )
        tell_problems(opened)
        from ..serve import serve_http, serve_stdio

        if self.stdio:
            if sys.stdin.isatty():
                tell(over_stdio(names, settings.file))
            interrupts.run(serve_stdio(opened.bench))
            return 0
        try:
            interrupts.run(
                serve_http(
                    opened.bench,
                    host=self.host or at.host,
                    port=at.port if self.port is None else self.port,
                    ready=lambda url: tell(over_http(url, names, settings.file)),
                )
            )
        except SetupError as error:
            raise SetupError(f"{error} The port is set with --port.") from None
        return 0


@app.command(epilog="Example: toolcrib check --config toolcrib.toml")
def check(
    config: Config = None,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Let a warning be a failure.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the settings, for editors, and check nothing.")
    ] = False,
) -> int:
    """Check the settings: read them, load what they name, and say what does not work."""
    from ..workbench.settings import NAME, SCHEMA, SettingsError, find_settings, read_settings
    from .check import problem_data, report, report_data, write_report

    output = Output(alone=True)
    if schema:
        output.write(SCHEMA.read_text("utf-8"))
        return 0
    file = find_settings(config)
    if file is None:
        raise UsageError(f"There is no {NAME} here. Name a file: --config FILE.")
    log_to_stderr(tracebacks=False)
    try:
        found = report(read_settings(file))
    except SettingsError as error:
        if not as_json:
            raise
        output.json({"file": str(file), "ok": False, "sources": [], "problems": problem_data(error.problems)})
        return 1
    if as_json:
        output.json(report_data(found))
    else:
        write_report(found, output)
    return 1 if found.problems or (strict and found.warnings) else 0
