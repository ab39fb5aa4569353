"""The commands and their options. What each does is one function of a few lines; the work is in the files beside.

An option goes before the environment, and that before the settings: so an option that is left out is None here.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import Call, Caller
from ..workbench.options import FileOptions
from .arguments import read_arguments, read_words, require_tool, to_json
from .auth import auth, pending, secrets
from .call import LiveOutput, answered_call, connect, echo_repairs, require_writable, write_result
from .calls import calls
from .complete import complete_words
from .doctor import doctor
from .interrupts import GRACE_S, Interrupts
from .keys import keys
from .options import (
    Config,
    Host,
    Json,
    PlainCommand,
    Port,
    Source,
    SourceNames,
    Stdio,
    ToolName,
    ToolNames,
    call_options,
    print_version,
)
from .prompts import Prompter
from .sandbox import sandbox
from .sources import SOURCE_FORMS, open_sources, settings_of, shows_errors
from .terminal import Output, UsageError, echo, is_rich, is_terminal, log_to_stderr, prints_to_stderr

_PENDING_STATUS = 3  # the exit status of a call that waits for somebody

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    # Boxes and colour only where somebody looks at them: help that is piped stays plain.
    rich_markup_mode="rich" if is_rich(sys.stdout) else None,
    epilog="Example: toolcrib list toolcrib.demo",
)


def _help_without_command(context: typer.Context) -> int | None:
    if context.invoked_subcommand is not None:
        return None
    if text := context.get_help():  # empty where Rich has written it already
        echo(text)
    return 2


_GROUPS = {"auth": auth, "secrets": secrets, "pending": pending, "calls": calls, "keys": keys, "sandbox": sandbox}
for name, group in _GROUPS.items():
    for registered in group.registered_commands:
        registered.cls = PlainCommand
    app.add_typer(group, name=name, callback=_help_without_command, invoke_without_command=True)


def _command(example: str, name: str | None = None) -> Callable[[Any], Any]:
    return app.command(name, cls=PlainCommand, epilog=f"Example: {example}")


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> int | None:
    """Look at tools, call them, and serve them to MCP clients."""
    return _help_without_command(context)


@_command("toolcrib list tools.py more/ --json", "list")
def list_tools(
    sources: SourceNames = None,
    source: Source = None,
    tool: ToolNames = None,
    config: Config = None,
    as_json: Json = False,
) -> int:
    """List the tools of sources."""
    from .show import write_list

    output = Output()
    named = [*(sources or ()), *(source or ())]
    example = "For example: toolcrib list toolcrib.demo"
    opened = open_sources(named, settings_of(config), only=tool or (), example=example)
    specs = opened.listed().specs()
    if as_json:
        output.json([spec.to_dict() for spec in specs])
    else:
        write_list(specs, output)
    opened.echo_problems()
    return 1 if opened.problems else 0


@_command("toolcrib show tools.py search")
def show(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE...] TOOL",
            help=f"The tool's name, after its sources. {SOURCE_FORMS}.",
            autocompletion=complete_words,
        ),
    ] = None,
    source: Source = None,
    tool: ToolName = None,
    config: Config = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Show the definition that this provider gets, and what is lost in it: openai, openai-responses, "
            "anthropic, gemini, bedrock or mcp.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show everything about one tool."""
    from .show import write_provider_definition, write_tool

    read = read_words(words or (), tool)
    name = require_tool(read, "show")
    if read.arguments:
        raise UsageError(f"Unexpected argument '{read.arguments[0][:60]}'. Write: toolcrib show SOURCE TOOL")
    output = Output()
    settings = settings_of(config)
    opened = open_sources(
        [*read.sources, *(source or ())],
        settings,
        example=f"To show '{name}', name its source: toolcrib show tools.py {name}",
    )
    found = opened.listed().registry.get(name)
    opened.echo_problems()
    if provider is not None:
        write_provider_definition(found.spec, provider, output, as_json=as_json)
    elif as_json:
        output.json(found.spec.to_dict())
    else:
        options = [word for each in source or () for word in ("-s", each)]
        options += [] if config is None else ["-c", str(config)]
        write_tool(found, settings, [*options, *read.sources], output)
    return 0


@_command("toolcrib call tools.py search query=lathe limit=3")
@call_options
def call(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE...] TOOL [ARGUMENT...]",
            help=f"{SOURCE_FORMS}. An argument is key=value (text, or JSON where the tool takes no text; a key that is "
            "repeated, or numbers with commas, make a list; issue.title=... is a member of an object), key=@file for "
            "the text of a file; or all in one: a JSON object, @file.json, or - for standard input.",
            autocompletion=complete_words,
        ),
    ] = None,
    source: Source = None,
    tool: ToolName = None,
    principal: Annotated[str, typer.Option("--principal", metavar="NAME", help="Who calls.")] = "local",
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="Which of their identities.")] = "default",
    config: Config = None,
    as_json: Json = False,
    save_to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Save an image, sound, file or text of the result."),
    ] = None,
    *,
    options: FileOptions,
) -> int:
    """Call a tool and print its result.

    Where it waits for an approval or an answer, the person at the terminal is asked. Without a terminal, what it waits
    for is printed, and the exit status is 3.
    """
    read = read_words(words or (), tool)
    name = require_tool(read, "call")
    interrupts: Interrupts = context.obj
    settings = settings_of(config)
    output = Output(exclusive=as_json)
    written = read_arguments(read.arguments, tool=name)
    if save_to is not None:
        require_writable(save_to)
    live = LiveOutput(output, as_json=as_json, is_over=lambda: interrupts.came)
    # At a terminal sits the developer, who is shown where the tool failed.
    log_to_stderr(tracebacks=shows_errors(settings, options.get("show_errors")) or is_terminal(2), prepare=live.clear)
    prompter = Prompter(live.clear)
    with prints_to_stderr():
        opened = open_sources(
            [*read.sources, *(source or ())],
            settings,
            example=f"To call '{name}', name its source: toolcrib call tools.py {name}",
            # A preview is for models, who can read on from it.
            defaults={"max_result_chars": None},
            ask=prompter.ask_at_once,
            caller=Caller(principal, profile),
            **options,
        )
    opened.echo_problems()
    bench = opened.bench

    async def work() -> int:
        async with bench:
            arguments: Any = None
            schema: Any = {}
            if opened.has_servers and name not in bench.registry:
                await connect(bench, prompter, live)
            if name in bench.registry:
                schema = bench.registry.get(name).spec.input_schema
                arguments = to_json(written, schema)
            result = await answered_call(bench, Call(name, arguments), prompter, live)
            if not as_json:
                echo_repairs(result.repairs, schema.get("properties", ()), by_key=written.json is None)
            write_result(result, output, as_json=as_json, save_to=save_to, stored=bool(bench.crib.options["store"]))
            status = 1 if result.error is not None else 0 if result.pending is None else _PENDING_STATUS
            if result.error is not None and result.error.code == "timeout":
                # What still runs must not hold the process.
                interrupts.leave_within(GRACE_S, status)
            return status

    return interrupts.run(work())


@_command("toolcrib chat tools.py --model openai:gpt-5-mini")
@call_options
def chat(
    context: typer.Context,
    sources: SourceNames = None,
    source: Source = None,
    tool: ToolNames = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="openai:NAME, responses:NAME, anthropic:NAME, gemini:NAME, bedrock:NAME, or scripted:FILE.",
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Send this, and exit after the answer.")
    ] = None,
    instructions: Annotated[str, typer.Option(metavar="TEXT", help="Instructions to the model for all turns.")] = "",
    tool_choice: Annotated[
        str, typer.Option(metavar="CHOICE", help="auto, any, none, or the tool that it calls first in each turn.")
    ] = "auto",
    max_steps: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="The most requests to the model in one turn.")
    ] = 25,
    config: Config = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one line of JSON for each event, and nothing else, to standard output."),
    ] = False,
    *,
    options: FileOptions,
) -> int:
    """Chat with a model that uses the tools.

    At a terminal you are asked what calls wait for, and Ctrl-C stops a turn. Without a terminal each line of standard
    input is a turn. The model's words go to standard output, everything else to standard error.
    """
    from .chat import run_chat

    return run_chat(
        [*(sources or ()), *(source or ())],
        settings_of(config),
        context.obj,
        tools=tool or (),
        model=model,
        prompt=prompt,
        as_json=as_json,
        calls=options,
        instructions=instructions,
        tool_choice=tool_choice,
        max_steps=max_steps,
    )


@_command("toolcrib serve tools.py --port 8642")
@call_options
def serve(
    context: typer.Context,
    sources: SourceNames = None,
    source: Source = None,
    tool: ToolNames = None,
    config: Config = None,
    stdio: Stdio = False,
    host: Host = None,
    port: Port = None,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Load files again when they are saved, and notify the clients.")
    ] = True,
    *,
    options: FileOptions,
) -> int:
    """Serve tools to MCP clients, and as an HTTP API.

    Over HTTP they are served to this computer only, unless the settings let in clients with keys or tokens. An MCP
    client that starts its servers itself starts this one with --stdio.
    """
    from .serving import Server

    named = [*(sources or ()), *(source or ())]
    server = Server(settings_of(config), named, tool or (), stdio=stdio, host=host, port=port, options=options)
    return server.run(context.obj, example="For example: toolcrib serve toolcrib.demo", follow=watch)


@_command("toolcrib dev tools.py")
@call_options
def dev(
    context: typer.Context,
    sources: SourceNames = None,
    source: Source = None,
    tool: ToolNames = None,
    config: Config = None,
    stdio: Stdio = False,
    host: Host = None,
    port: Port = None,
    *,
    options: FileOptions,
) -> int:
    """Serve tools while you write them.

    What you save is loaded again, and the outcome is shown. Models see the text of exceptions. A file that is broken at
    the start is waited for.
    """
    from .serving import Server, log_lines

    named = [*(sources or ()), *(source or ())]
    server = Server(
        settings_of(config),
        named,
        tool or (),
        stdio=stdio,
        host=host,
        port=port,
        options={"show_errors": True, **options},
        is_dev=True,
    )
    log_lines("toolcrib.watch")
    return server.run(context.obj, example="For example: toolcrib dev tools.py", follow=True, may_wait=True)


@_command("toolcrib check --config toolcrib.toml")
def check(
    sources: SourceNames = None,
    source: Source = None,
    config: Config = None,
    as_json: Json = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as failures.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the settings, for editors, and check nothing.")
    ] = False,
) -> int:
    """Check the settings, or the tools of sources.

    Of the settings, all that they name; of tools, their texts, schemas, hints, needs and examples. Examples are tried
    in the sandbox, for tools that run there and need nothing beyond it.
    """
    from .check import run_check

    named = [*(sources or ()), *(source or ())]
    return run_check(config, named, as_json=as_json, strict=strict, print_schema=schema)


_command("toolcrib doctor --json")(doctor)


@_command("toolcrib new count_words --kind wasm")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that models see.")],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="function: Python in your process. python, wasm: a folder for the sandbox, which needs no trust.",
        ),
    ] = "function",
) -> int:
    """Write a new tool that works, and its test, here."""
    from .new import run_new

    return run_new(name, kind, Path())


@_command("toolcrib lock git+https://example.com/tools@v1#weather")
def lock(
    sources: SourceNames = None,
    source: Source = None,
    config: Config = None,
    update: Annotated[
        bool, typer.Option("--update", help="Take what each source is now: the commit of its branch, its content.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="NAME", help="Accept what this tool promises now; may be repeated."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail where something differs.")] = False,
    as_json: Json = False,
) -> int:
    """Lock sources, and what their tools promise.

    A source is locked by its commit and content. Without SOURCE, all that come from outside or are locked. A tool that
    promises something else than it did is shown, and left out until it is accepted. The file is toolcrib.lock, beside
    the settings or in the current folder.
    """
    from .lock import run_lock

    named = [*(sources or ()), *(source or ())]
    return run_lock(named, settings_of(config), accept=accept or (), update=update, check=check, as_json=as_json)


@_command("toolcrib dialects agent.py src/")
def dialects(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Python files and folders. They are not run."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Report which imports from other tool layers work here.

    The others are autogen_core (and autogen_agentchat beside it), spark, hyperpocket and agent-swarm-kit. For each that
    works, the replacement is shown; the exit status is 1 where one does not.
    """
    from .dialects import read_data, read_programs, write_read

    if not files:
        raise UsageError("No file is given. Name Python files, or folders of them: toolcrib dialects agent.py")
    output = Output()
    read = read_programs(files)
    if as_json:
        output.json(read_data(read))
    else:
        write_read(read, output)
    return 0 if read.is_well else 1
