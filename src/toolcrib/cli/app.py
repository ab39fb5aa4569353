"""The commands and their options. What each does is one function of a few lines; the doing is in the files beside.

An option goes before the environment, and that before the settings: so an option that was not given is None here.
"""

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
from .options import (
    Config,
    Host,
    Json,
    Longest,
    Port,
    Repair,
    Source,
    Sources,
    Stdio,
    Timeout,
    ToolName,
    seconds,
    settings_of,
)
from .run import settled
from .sources import open_sources, tell_problems
from .streams import Output, is_rich, log_to_stderr, prints_to_stderr, tell
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
    settings = settings_of(config)
    opened = open_sources(sources or (), settings, example="toolcrib list toolcrib.demo")
    specs = opened.bench.specs()
    if as_json:
        output.json([spec.to_dict() for spec in specs])
    else:
        write_list(specs, output)
    tell_problems(opened)
    return 1 if opened.problems else 0


@app.command(epilog="Example: toolcrib show -s tools.py search")
def show(
    tool: ToolName,
    source: Source = None,
    config: Config = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Show the definition as this provider gets it, and what is lost of it there: openai, "
            "openai-responses, anthropic, gemini, bedrock or mcp.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show everything about one tool."""
    from .show import provided, write_provided, write_spec

    output = Output(alone=True)
    settings = settings_of(config)
    opened = open_sources(source or (), settings, example="toolcrib show -s toolcrib.demo now")
    tell_problems(opened)
    spec = opened.bench.registry.get(tool).spec
    if provider is not None:
        said = provided(spec, provider)
        if as_json:
            output.json(said)
        else:
            write_provided(said, output)
    elif as_json:
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
        float | None, typer.Option(metavar="SECONDS", callback=seconds, help="The longest the call may take.")
    ] = None,
    show_errors: Annotated[
        bool | None, typer.Option("--show-errors", help="Show text and traceback of an exception in the tool.")
    ] = None,
    repair: Repair = None,
) -> int:
    """Call a tool and print its result.

    Where it waits for an approval or an answer, the person at the terminal is asked. Without a terminal, what it waits
    for is printed, and the exit status is 3.
    """
    interrupts: Interrupts = context.obj
    settings = settings_of(config)
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


@app.command(epilog="Example: toolcrib chat tools.py --model openai:gpt-5-mini")
def chat(
    context: typer.Context,
    sources: Sources = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="openai:NAME, responses:NAME, anthropic:NAME, gemini:NAME, bedrock:NAME, or scripted:FILE.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Say this, and leave after the answer.")
    ] = None,
    instructions: Annotated[str, typer.Option(metavar="TEXT", help="What the model is told before all turns.")] = "",
    tool_choice: Annotated[
        str, typer.Option(metavar="CHOICE", help="auto, any, none, or the tool that it calls first in each turn.")
    ] = "auto",
    max_steps: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="How often the model is asked in one turn.")
    ] = 25,
    config: Config = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one line of JSON for each event, and nothing else, to standard output."),
    ] = False,
    timeout: Timeout = None,
    show_errors: Annotated[
        bool | None, typer.Option("--show-errors", help="Tell the model the text of an exception in a tool.")
    ] = None,
    repair: Repair = None,
) -> int:
    """Talk to a model that uses the tools.

    At a terminal you are asked what calls wait for, and Ctrl-C stops a turn. Without a terminal each line of standard
    input is a turn. What the model says goes to standard output, everything else to standard error.
    """
    from .chat import Wanted, chat_with

    wanted = Wanted(model, prompt, instructions, tool_choice, max_steps, as_json=as_json)
    calls = {"timeout_s": timeout, "show_errors": show_errors, "repair": repair}
    return chat_with(wanted, sources or (), settings_of(config), context.obj, calls)


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
    served = _Served(settings_of(config), sources or (), stdio=stdio, host=host, port=port, timeout_s=timeout)
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

    served = _Served(settings_of(config), sources or (), stdio=stdio, host=host, port=port, timeout_s=timeout)
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


@app.command(epilog="Example: toolcrib dialects agent.py src/")
def dialects(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Python files, and folders of them. They are not run.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say which imports from other tool layers work here.

    The others are autogen_core, spark, hyperpocket and agent-swarm-kit. For what works, it is said what to write; the
    exit status is 1 where something does not.
    """
    from .dialects import read_data, read_programs, write_read

    if not files:
        raise UsageError("No file is given. Name Python files, or folders of them: toolcrib dialects agent.py")
    output = Output(alone=True)
    read = read_programs(files)
    if as_json:
        output.json(read_data(read))
    else:
        write_read(read, output)
    return 0 if read.is_well else 1
