"""`toolcrib list` and `show`: tools for people, in a table, and everything about one."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import formats
from ..core import Hints, Requirement, Secret, ToolAuth, ToolSpec
from ..schema.describe import LIMITS, closest_match, describe, did_you_mean, display_name
from ..schema.handles import REFERENCE
from ..tools import Tool
from ..tools.places import place_of
from .terminal import Output, UsageError, clean, one_line

if TYPE_CHECKING:
    from ..workbench.settings import Settings

Line = Sequence[tuple[str, str]]
"""Pieces of text, each with its style in Rich's terms."""

FORMATS = ("openai", "openai-responses", "anthropic", "gemini", "bedrock", "mcp")

_DESCRIBED = frozenset(
    {"type", "$ref", "anyOf", "oneOf", "enum", "const", "items", "properties", "required", "default", "description"}
    | {"title", "$defs", "format", "additionalProperties", "examples", *LIMITS}
)


def write_list(specs: Sequence[ToolSpec], output: Output) -> None:
    """A table for a terminal; elsewhere one line a tool: name, what it is, arguments and flags between tabs."""
    rows = [(spec.name, _summary(spec), _usage(spec), ", ".join(_flags(spec))) for spec in specs]
    if not output.is_rich:
        if rows:
            output.write("\n".join("\t".join(row) for row in rows))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("Tool", style="bold cyan", overflow="fold", no_wrap=True)
    table.add_column("What it does", overflow="fold", ratio=3)
    table.add_column("Arguments", overflow="fold", ratio=2)
    table.add_column("Flags", style="dim", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    output.print(table)


def signature(spec: ToolSpec) -> str:
    """A tool on one line: its name, its arguments, what it does."""
    summary = _summary(spec)
    return f"{one_line(spec.name)}({', '.join(_usage(spec).split(' '))}){f'  {summary}' if summary else ''}"


def write_tool(tool: Tool[..., Any], settings: "Settings", options: Sequence[str], output: Output) -> None:
    """Everything about *tool*, what the *settings* add, and how to call it with the *options* that lead to it."""
    _write_lines([*_spec_lines(tool, settings), [], [("Call it", "bold")]], output)
    line = f"  {call_line(tool.spec, options)}"
    if not output.is_rich:
        output.write(line)
        return
    from rich.text import Text

    output.print(Text(line), wrap=False)


def _write_lines(lines: Sequence[Line], output: Output) -> None:
    if not output.is_rich:
        output.write("\n".join("".join(text for text, _ in line).rstrip() for line in lines))
        return
    from rich.text import Text

    output.print(Text("\n").join(Text.assemble(*line) for line in lines))


def _provider_definition(spec: ToolSpec, provider: str) -> dict[str, Any]:
    """The definition of a tool that *provider* gets, and what is lost in it, as JSON data."""
    if provider not in FORMATS:
        hint = did_you_mean(closest_match(provider, FORMATS))
        raise UsageError(f"There is no format '{display_name(provider)}'.{hint} The formats are: {', '.join(FORMATS)}.")
    format = getattr(formats, provider.replace("-", "_"))  # noqa: A001
    (definition,) = format.tools([spec])
    return {"definition": definition, "losses": [loss.to_dict() for loss in format.losses([spec]).get(spec.name, ())]}


def write_provider_definition(spec: ToolSpec, provider: str, output: Output, *, as_json: bool) -> None:
    """Write the definition that *provider* gets: all *as_json*, or the definition and a few lines for each loss.

    Raises UsageError for an unknown provider.
    """
    definition = _provider_definition(spec, provider)
    if as_json:
        output.json(definition)
        return
    output.indented(definition["definition"])
    lines: list[Line] = [[], [("Losses", "bold")]]
    for loss in definition["losses"]:
        lines.append([(f"  {one_line(loss['path']) or '(the whole)'}  ", "cyan"), (one_line(loss["keyword"]), "green")])
        lines.append([(f"    {one_line(loss['meaning'])}", "")])
    _write_lines(lines if definition["losses"] else [*lines, [("  none", "dim")]], output)


def call_line(spec: ToolSpec, options: Sequence[str]) -> str:
    """A command line that calls the tool: with its first example, or with its required arguments named by kind."""
    words = ["toolcrib", "call", *options, spec.name]
    if spec.examples:
        example = spec.examples[0]
        if all(isinstance(value, str) and not value.startswith("@") for value in example.values()):
            words += [f"{key}={value}" for key, value in example.items()]
        elif example:
            words.append(json.dumps(dict(example), ensure_ascii=False))
        return clean(shlex.join(words))
    properties = spec.input_schema.get("properties", {})
    required = [f"{name}={_placeholder(properties.get(name), spec)}" for name in spec.input_schema.get("required", ())]
    return one_line(" ".join([shlex.join(words), *required]))


def _spec_lines(tool: Tool[..., Any], settings: "Settings") -> Iterator[Line]:
    spec = tool.spec
    yield [(spec.name, "bold cyan"), (f"  {one_line(spec.title)}" if spec.title else "", "bold")]
    if spec.description:
        yield []
        yield from ([(line, "")] for line in clean(spec.description).splitlines())
    yield []
    yield [("Arguments", "bold")]
    yield from _members(spec.input_schema, spec.input_schema, 1) or [[("  none", "dim")]]
    if spec.output_schema is not None:
        yield []
        yield [("Returns  ", "bold"), (one_line(describe(dict(spec.output_schema), spec.output_schema)), "")]
        yield from _inside(spec.output_schema, spec.output_schema, 1)
    facts = [fact for fact in (*_facts(spec), *_handling(tool, settings)) if fact[1]]
    if facts:
        yield []
        yield from ([(f"{name:<9} ", "bold"), (one_line(value), "")] for name, value in facts)


def _members(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, seen: tuple[str, ...] = ()) -> list[Line]:
    """One line for each property of an object, and below it, deeper, those of what is inside."""
    properties = {name: _Property.of(part) for name, part in schema.get("properties", {}).items()}
    required = schema.get("required", ())
    indent = "  " * depth
    names = {name: one_line(name) for name in properties}
    kinds = {name: one_line(describe(part.schema, root)) + part.handle for name, part in properties.items()}
    name_width = max(map(len, names.values()), default=0)
    kind_width = min(max(map(len, kinds.values()), default=0), 30)
    lines: list[Line] = []
    for name, part in properties.items():
        of = part.schema
        notes = [] if name in required else [f"default {_json(of['default'])}" if "default" in of else "optional"]
        notes += [f"{key} {_json(value)}" for key, value in of.items() if key not in _DESCRIBED]
        description = one_line(of.get("description", ""))
        note = f"({', '.join(notes)})" if notes else ""
        lines.append(
            [
                (f"{indent}{names[name]:<{name_width}}  ", "cyan"),
                (f"{kinds[name]:<{kind_width}}", "green"),
                (f"  {description}" if description else "", ""),
                (f"  {note}" if note else "", "dim"),
            ]
        )
        lines += _inside(of, root, depth + 1, seen)
    others = schema.get("additionalProperties")
    if isinstance(others, dict) or (others is True and depth == 1):
        kind = describe(others, root) if isinstance(others, dict) else "any value"
        lines.append([(f"{indent}…  ", "cyan"), (one_line(kind), "green"), ("  under any other name", "")])
    return lines


@dataclass(frozen=True, slots=True)
class _Property:
    """The *schema* of a property, without the form in which the *handle* of a large result is sent in its place."""

    schema: Mapping[str, Any]
    handle: str = ""

    @classmethod
    def of(cls, schema: Any) -> "_Property":
        if not isinstance(schema, Mapping):
            return cls({})
        forms = [form for form in schema.get("anyOf", ()) if form != REFERENCE]
        if len(forms) == len(schema.get("anyOf", ())):
            return cls(schema)
        return cls({**schema, "anyOf": forms}, " or a handle")


def _inside(schema: Any, root: Mapping[str, Any], depth: int, seen: tuple[str, ...] = ()) -> list[Line]:
    """The members of the objects that a schema leads to, each object once on the way down.

    Where it leads to one of several, each comes under its name.
    """
    if not isinstance(schema, Mapping) or depth > 8:
        return []
    if isinstance(ref := schema.get("$ref"), str):
        if ref in seen or not ref.startswith("#/"):
            return []
        target: Any = root
        for part in ref[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(target, Mapping) else {}
        return _inside(target, root, depth, (*seen, ref))
    if "properties" in schema:
        return _members(schema, root, depth, seen)
    parts = [schema.get("items"), *schema.get("allOf", ())]
    lines = [line for part in parts for line in _inside(part, root, depth, seen)]
    forms = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    shown = [(form, members) for form in forms if (members := _inside(form, root, depth + 1, seen))]
    if len(shown) == 1:
        return lines + _inside(shown[0][0], root, depth, seen)
    for number, (form, members) in enumerate(shown, 1):
        name = str(form.get("title") or form.get("$ref", f"form {number}").rpartition("/")[2])
        lines += [[(f"{'  ' * depth}{one_line(name)}", "bold")], *members]
    return lines


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


def _handling(tool: Tool[..., Any], settings: "Settings") -> Iterator[tuple[str, str]]:
    """Where the tool is defined and runs, and which rules and limits of the settings are for it."""
    from .check import rules_for

    spec = tool.spec
    yield "Isolation", str(getattr(tool, "isolation", None) or "")
    yield "Serial", "yes, one call at a time" if tool.lock is not None else ""
    decisions: list[str] = []
    for rule in rules_for(spec, settings.rules):
        principals = "" if rule.principals == "*" else f" for {_json(rule.principals)}"
        decisions.append(f"{rule.do}{principals}{f' where {_json(dict(rule.where))}' if rule.where else ''}")
    if decisions and (" where " in decisions[-1] or " for " in decisions[-1]):
        decisions.append(settings.values.policy.default)
    yield "Rules", ", else ".join(decisions)
    limits = [limit for limit in settings.limits if limit.names.fullmatch(spec.name)]
    yield "Limits", ", ".join(f"{limit} per {limit.per}" for limit in limits)
    place = place_of(getattr(tool, "fn", None))
    yield "Defined", "" if place is None else place.removeprefix(f"{Path.cwd()}{os.sep}")


def _flags(spec: ToolSpec) -> list[str]:
    flags = [name for name in _hints(spec.hints) if not name.startswith("not ")]
    names = [each.provider if isinstance(each, ToolAuth) else each.name for each in spec.requirements]
    return [*flags, f"needs {one_line(', '.join(names))}"] if names else flags


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
