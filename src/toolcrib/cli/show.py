"""`toolcrib list` and `show`: tools for people, in a table, and everything about one."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import formats
from ..core import Hints, Requirement, Secret, ToolAuth, ToolSpec
from ..machinery import escaped
from ..schema import SchemaView
from ..schema.describe import LIMITS, describe
from ..schema.handles import REFERENCE
from ..schema.view import UNIONS, steps
from ..tools import Tool
from ..tools.loading import place_of
from ..workbench.lifespan import name_of
from ..workbench.settings import Settings
from .app import Session, command, group
from .arguments import Source, SourceNames, ToolName, ToolNames, ToolWords, read_words, require_tool
from .terminal import Line, Output, UsageError, no_such, one_line

FORMATS = tuple(name.replace("_", "-") for name in formats.PROVIDERS)

_DESCRIBED = frozenset(
    {"type", "$ref", *UNIONS, "enum", "const", "items", "properties", "required", "default", "description"}
    | {"title", "$defs", "format", "additionalProperties", "examples", *LIMITS}
)

app = group()


@command(app, "list", example="toolcrib list tools.py more/ --json")
def list_tools(session: Session, sources: SourceNames = None, tool: ToolNames = None) -> int:
    """List the tools of sources."""
    output = session.output
    example = "For example: toolcrib list toolcrib.demo"
    entries = session.open(sources, only=tool or (), example=example)
    listed = entries.listed()
    specs = [spec for spec in listed.specs() if spec is not listed.reader()]
    if session.as_json:
        output.json([spec.to_dict() for spec in specs])
    else:
        rows = [
            {"tool": spec.name, "what_it_does": _summary(spec), "arguments": _usage(spec), "flags": _flags(spec)}
            for spec in specs
        ]
        output.table(rows, ("tool", "what_it_does", "arguments", "flags"))
    entries.echo_problems()
    return 1 if entries.problems else 0


@command(app, "show", example="toolcrib show tools.py search")
def show(
    session: Session,
    words: ToolWords = None,
    source: Source = None,
    tool: ToolName = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Show the definition that this provider gets, and what is lost in it: openai, openai-responses, "
            "anthropic, gemini, bedrock or mcp.",
        ),
    ] = None,
) -> None:
    """Show everything about one tool."""
    read = read_words(words or (), tool)
    name = require_tool(read, "show")
    if read.arguments:
        raise UsageError(f"Unexpected argument '{read.arguments[0][:60]}'. Write: toolcrib show SOURCE TOOL")
    output = session.output
    example = f"To show '{name}', name its source: toolcrib show tools.py {name}"
    entries = session.open([*read.sources, *(source or ())], tool=name, example=example)
    entry = entries.listed().registry.get(name)
    entries.echo_problems()
    if provider is not None:
        _write_provider_definition(entry.spec, provider, output, as_json=session.as_json)
    elif session.as_json:
        output.json(entry.spec.to_dict())
    else:
        options = [word for name in source or () for word in ("-s", name)]
        options += [] if session.config is None else ["-c", str(session.config)]
        write_tool(entry, session.settings, [*options, *read.sources], output)


def signature(spec: ToolSpec) -> str:
    """Return a tool on one line: its name, its arguments, what it does."""
    summary = _summary(spec)
    return f"{one_line(spec.name)}({', '.join(_usage(spec).split(' '))}){f'  {summary}' if summary else ''}"


def write_tool(tool: Tool[..., Any], settings: Settings, options: Sequence[str], output: Output) -> None:
    """Write everything about *tool*, what the *settings* add, and how to call it with the *options* that lead to it."""
    output.lines([*_spec_lines(tool, settings), [], [("Call it", "bold")]])
    output.lines([[(f"  {call_line(tool.spec, options)}", "")]], wrap=False)


def _write_provider_definition(spec: ToolSpec, provider: str, output: Output, *, as_json: bool) -> None:
    """Write the definition of a tool that *provider* gets, and a few lines for each loss in it.

    Raises UsageError for an unknown provider.
    """
    if provider not in FORMATS:
        raise UsageError(f"{no_such('There is no format', provider, FORMATS)} The formats are: {', '.join(FORMATS)}.")
    format = getattr(formats, provider.replace("-", "_"))  # noqa: A001
    (definition,) = format.tools([spec])
    losses = [loss.to_dict() for loss in format.losses([spec]).get(spec.name, ())]
    if as_json:
        output.json({"definition": definition, "losses": losses})
        return
    output.json(definition, indent=True)
    lines: list[Line] = [[], [("Losses", "bold")]]
    for loss in losses:
        lines.append([(f"  {one_line(loss['path']) or '(the whole)'}  ", "cyan"), (one_line(loss["keyword"]), "green")])
        lines.append([(f"    {one_line(loss['meaning'])}", "")])
    output.lines(lines if losses else [*lines, [("  none", "dim")]])


def call_line(spec: ToolSpec, options: Sequence[str]) -> str:
    """Return a command line that calls the tool, with its first example, or its required arguments named by kind."""
    words = ["toolcrib", "call", *options, spec.name]
    if spec.examples:
        example = spec.examples[0]
        if all(isinstance(value, str) and not value.startswith("@") for value in example.values()):
            words += [f"{key}={value}" for key, value in example.items()]
        elif example:
            words.append(json.dumps(dict(example), ensure_ascii=False))
        return escaped(shlex.join(words))
    properties = spec.input_schema.get("properties", {})
    required = [f"{name}={_placeholder(properties.get(name), spec)}" for name in spec.input_schema.get("required", ())]
    return one_line(" ".join([shlex.join(words), *required]))


def _spec_lines(tool: Tool[..., Any], settings: Settings) -> Iterator[Line]:
    spec = tool.spec
    yield [(spec.name, "bold cyan"), (f"  {one_line(spec.title)}" if spec.title else "", "bold")]
    if spec.description:
        yield []
        yield from ([(line, "")] for line in escaped(spec.description).splitlines())
    yield []
    yield [("Arguments", "bold")]
    yield from _members(SchemaView(spec.input_schema), 1) or [[("  none", "dim")]]
    if spec.output_schema is not None:
        yield []
        yield [("Returns  ", "bold"), (one_line(describe(dict(spec.output_schema), spec.output_schema)), "")]
        yield from _inside(SchemaView(spec.output_schema), 1)
    facts = [fact for fact in (*_facts(spec), *_handling(tool, settings)) if fact[1]]
    if facts:
        yield []
        yield from ([(f"{name:<9} ", "bold"), (one_line(value), "")] for name, value in facts)


def _members(view: SchemaView, depth: int, above: frozenset[SchemaView] = frozenset()) -> list[Line]:
    """Return a line for each member of an object, and below it, deeper, those of what is inside.

    *above* are the objects that contain this one.
    """
    indent = "  " * depth
    plain = {name: _without_handle(member) for name, member in view.members.items()}
    kinds = {name: one_line(describe(of, view.root.schema)) + suffix for name, (of, suffix) in plain.items()}
    name_width = max((len(one_line(name)) for name in plain), default=0)
    kind_width = min(max(map(len, kinds.values()), default=0), 30)
    lines: list[Line] = []
    for name, (of, _) in plain.items():
        notes = _notes(of, is_required=name in view.required)
        description = one_line(str(of.get("description", "")))
        lines.append(
            [
                (f"{indent}{one_line(name):<{name_width}}  ", "cyan"),
                (f"{kinds[name]:<{kind_width}}", "green"),
                (f"  {description}" if description else "", ""),
                (f"  ({', '.join(notes)})" if notes else "", "dim"),
            ]
        )
        lines += _inside(view.members[name], depth + 1, above | {view})
    rest = view.schema.get("additionalProperties")
    if rest is True and depth == 1:
        rest = {}
    if isinstance(rest, dict):
        kind = one_line(describe(rest, view.root.schema))
        lines.append([(f"{indent}…  ", "cyan"), (kind, "green"), ("  under any other name", "")])
    return lines


def _notes(member: Mapping[str, Any], *, is_required: bool) -> list[str]:
    """Return the default of *member*, or that it may be left out, and the keywords that its description lacks."""
    default = f"default {_json(member['default'])}" if "default" in member else "optional"
    notes = [f"{key} {_json(value)}" for key, value in member.items() if key not in _DESCRIBED]
    return notes if is_required else [default, *notes]


def _without_handle(view: SchemaView) -> tuple[Mapping[str, Any], str]:
    """Return the schema of a member without the form in which a handle is sent in its place, and what to add for it."""
    forms = view.schema.get("anyOf", ())
    if REFERENCE not in forms:
        return view.schema, ""
    return {**view.schema, "anyOf": [form for form in forms if form != REFERENCE]}, " or a handle"


def _inside(view: SchemaView, depth: int, above: frozenset[SchemaView] = frozenset()) -> list[Line]:
    """Return the members of the objects that a schema leads to. Of several objects, each is under its name."""
    objects = [form for form in _forms(view) if form.members and form not in above]
    if len(objects) == 1:
        return _members(objects[0], depth, above)
    lines: list[Line] = []
    for number, form in enumerate(objects, 1):
        key = steps(form.pointer)[-1:]
        name = form.schema.get("title") or (f"form {number}" if not key or key[0].isdecimal() else key[0])
        lines += [[(f"{'  ' * depth}{one_line(str(name))}", "bold")], *_members(form, depth + 1, above)]
    return lines


def _forms(view: SchemaView) -> list[SchemaView]:
    """Return what a value may be, or its items if it is a list."""
    forms = [form for form in view.alternatives if form.schema != REFERENCE]
    return forms + [inner for form in forms if "items" in form.schema for inner in form.item(0).alternatives]


def _facts(spec: ToolSpec) -> Iterator[tuple[str, str]]:
    yield "Hints", ", ".join(_hints(spec.hints))
    for number, required in enumerate(spec.requirements):
        yield "" if number else "Needs", _requirement(required)
    yield "Timeout", "" if spec.timeout_s is None else f"{spec.timeout_s:g} s"
    yield "Version", spec.version or ""
    yield "Tags", ", ".join(sorted(spec.tags))
    yield "Strict", "" if spec.strict is None else "yes" if spec.strict else "no"
    for number, example in enumerate(spec.examples):
        yield "" if number else "Examples", _json(dict(example))


def _requirement(required: Requirement) -> str:
    if isinstance(required, Secret):
        return f"the secret {required.name}"
    scopes = f", with the scopes {' '.join(required.scopes)}" if required.scopes else ""
    handler = f", by {required.handler}" if required.handler else ""
    return f"credentials of {required.provider}{handler}{scopes}"


def _handling(tool: Tool[..., Any], settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield where the tool is defined and runs, and which rules and limits of the settings are for it."""
    spec = tool.spec
    yield "Isolation", str(getattr(tool, "isolation", None) or "")
    yield "Serial", "yes, one call at a time" if tool.lock is not None else ""
    yield "Rules", ", else ".join(_decisions(spec, settings))
    limits = [limit for limit in settings.limits if limit.names.fullmatch(spec.name)]
    yield "Limits", ", ".join(f"{limit} per {limit.per}" for limit in limits)
    place = place_of(getattr(tool, "fn", None))
    yield "Defined", "" if place is None else place.removeprefix(f"{Path.cwd()}{os.sep}")
    yield "Source", "" if place is not None or tool.source is None else name_of(tool.source)


def _decisions(spec: ToolSpec, settings: Settings) -> list[str]:
    """Return what the rules about a tool decide, up to the first that decides every call."""
    decisions: list[str] = []
    for rule in (rule for rule in settings.rules if rule.is_about(spec)):
        principals = "" if rule.is_for_all else f" for {_json(rule.principals)}"
        decisions.append(f"{rule.do}{principals}{f' where {_json(dict(rule.where))}' if rule.where else ''}")
        if rule.is_for_all and not rule.where:
            return decisions
    return [*decisions, settings.values.policy.default] if decisions else []


def _flags(spec: ToolSpec) -> str:
    flags = [name for name in _hints(spec.hints) if not name.startswith("not ")]
    names = [need.provider if isinstance(need, ToolAuth) else need.name for need in spec.requirements]
    return ", ".join([*flags, f"needs {', '.join(names)}"] if names else flags)


def _hints(hints: Hints) -> list[str]:
    values = {name.replace("_", "-"): getattr(hints, name) for name in Hints.__slots__}
    return [name if value else f"not {name}" for name, value in values.items() if value is not None]


def _summary(spec: ToolSpec) -> str:
    title = one_line(spec.title or "")
    first = one_line(spec.description.strip().partition("\n")[0])
    return f"{title}: {first}" if title and first else title or first


def _usage(spec: ToolSpec) -> str:
    required = spec.input_schema.get("required", ())
    names = [*spec.input_schema.get("properties", ())]
    return " ".join(one_line(name) if name in required else f"[{one_line(name)}]" for name in names)


def _placeholder(schema: Any, spec: ToolSpec) -> str:
    kind = describe(schema, spec.input_schema) if isinstance(schema, dict) else "value"
    return kind.split(" ")[0].upper() if not kind.startswith("one of") else "CHOICE"


def _json(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False, default=str))
