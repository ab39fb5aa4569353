"""`toolcrib check SOURCE...`: what is weak or wrong in tools, and whether their examples work in the sandbox.

An example is tried only where it can do no harm: in the sandbox, of a tool that has nothing beyond it.
"""

import asyncio
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..core import Secret, ToolAuth, ToolcribError
from ..tools import Permissions, Tool, load
from ..tools.git import is_git_address
from ..workbench import Workbench
from .sources import log_fetches
from .terminal import Output, counted, one_line

SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential", re.IGNORECASE)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SHORT, _LONG = 15, 1024
_VISIBLE_CONTROLS = "\n\t\r"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a tool: a `problem` makes the check fail, a `warning` only where it is strict."""

    level: Literal["problem", "warning", "note"]
    message: str


@dataclass(frozen=True, slots=True)
class _Checked:
    source: str
    tools: Mapping[str, Sequence[Finding]]
    problems: Sequence[str]

    def count(self, level: str) -> int:
        own = len(self.problems) if level == "problem" else 0
        return own + sum(finding.level == level for findings in self.tools.values() for finding in findings)


def run_lint(sources: Sequence[str], *, as_json: bool, strict: bool) -> int:
    """All of `toolcrib check SOURCE...`. Returns the exit status."""
    output = Output()
    log_fetches()
    checked = [asyncio.run(_checked(source)) for source in sources]
    problems, warnings = (sum(one.count(level) for one in checked) for level in ("problem", "warning"))
    if as_json:
        output.json({"ok": not problems, "sources": [asdict(one) for one in checked]})
    else:
        for one in checked:
            for line in _lines(one):
                output.write(line)
        tools = sum(len(one.tools) for one in checked)
        output.write(f"{counted(tools, 'tool')}, {counted(problems, 'problem')}, {counted(warnings, 'warning')}.")
    return 1 if problems or (strict and warnings) else 0


async def _checked(source: str) -> _Checked:
    # A stranger's Python is not imported for this. What any other tool needs is looked at, and is not given to it.
    permissions = Permissions(trusted=not is_git_address(source))
    try:
        loaded = load(permissions.to(source))
    except ToolcribError as error:
        return _Checked(source, {}, [str(error)])
    tools = {tool.spec.name: [*findings(tool), *await _tried(tool)] for tool in loaded.tools}
    return _Checked(source, tools, [*map(str, loaded.problems)])


def findings(tool: Tool[..., Any]) -> Iterator[Finding]:
    """What is weak or wrong in the name, the texts, the schema, the hints and the needs of *tool*."""
    spec = tool.spec
    if not _NAME.fullmatch(spec.name):
        yield Finding(
            "warning", "Its name is not one that all providers take: they get another (64 letters, digits, _ -)."
        )
    if not spec.description.strip():
        yield Finding("problem", "It has no description: a model cannot tell when to call it.")
    elif len(spec.description) < _SHORT:
        yield Finding("warning", f"Its description has {len(spec.description)} characters. Say what it does, and when.")
    elif len(spec.description) > _LONG:
        yield Finding("warning", f"Its description is longer than {_LONG} characters, which some providers cut.")
    for place, text in _texts(spec.to_dict()):
        if hidden := {c for c in text if c not in _VISIBLE_CONTROLS and unicodedata.category(c) in ("Cc", "Cf", "Co")}:
            shown = ", ".join(sorted(f"U+{ord(c):04X}" for c in hidden)[:3])
            yield Finding("problem", f"{place} has characters that nobody sees, and a model reads: {shown}.")
    yield from _of_schema(spec.input_schema)
    hints, needs = spec.hints, tool.requires
    if hints.read_only and hints.destructive:
        yield Finding("problem", "It is declared read_only and destructive.")
    if hints.read_only is None and hints.destructive is None:
        yield Finding("warning", "It declares neither read_only nor destructive, so it is taken to change things.")
    if hints.read_only and any(not mount["read_only"] for mount in needs.get("mounts", ())):
        yield Finding("problem", "It is declared read_only, and needs a folder to write in.")
    if hints.open_world is False and needs.get("hosts"):
        yield Finding("problem", "It is declared open_world = false, and needs to reach hosts.")
    if "*" in needs.get("hosts", ()):
        yield Finding("problem", "It needs to reach every host. Name those that it uses.")
    if not spec.examples and tool.isolation == "wasm":
        yield Finding("warning", "It has no examples, so nothing of it was tried.")


def _of_schema(schema: Mapping[str, Any]) -> Iterator[Finding]:
    properties = schema.get("properties") or {}
    if not properties and schema.get("additionalProperties") is not False:
        yield Finding("warning", "Its schema takes any arguments. Name those that it takes.")
    for name, declared in properties.items():
        of: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
        if SECRET_NAME.search(name) and of.get("type", "string") == "string":
            yield Finding("warning", f"Argument '{name}' looks like a credential, which a model would write. Use auth.")
        if not {"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"} & of.keys():
            yield Finding("warning", f"Argument '{name}' has no type.")
        if not of.get("description") and "$ref" not in of:
            yield Finding("warning", f"Argument '{name}' has no description.")


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The texts in *value*, each with the names that lead to it; names are texts, too."""
    if isinstance(value, str):
        yield f"'{place}'", value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"A name in '{place}'", str(key)
            yield from _texts(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, place)


async def _tried(tool: Tool[..., Any]) -> list[Finding]:
    """Whether the examples of *tool* work, in the sandbox and with nothing granted."""
    examples = tool.spec.examples
    if not examples or tool.isolation != "wasm":
        return []
    if needed := _beyond_the_sandbox(tool):
        return [Finding("note", f"Its examples were not tried: it needs {', '.join(needed)}.")]
    found: list[Finding] = []
    async with Workbench([tool]) as bench:
        for number, example in enumerate(examples, 1):
            result = await bench.call(tool.spec.name, example)
            if result.status != "success":
                code = result.error.code if result.error is not None else result.status
                found.append(Finding("problem", f"Example {number} does not work ({code}): {result.text}"))
    works = len(examples) - len(found)
    return [*found, Finding("note", f"{works} of {len(examples)} examples work in the sandbox.")]


def _beyond_the_sandbox(tool: Tool[..., Any]) -> list[str]:
    needs = [f"a token of {one.provider}" for one in tool.spec.requirements if isinstance(one, ToolAuth)]
    needs += [f"the secret {one.name}" for one in tool.spec.requirements if isinstance(one, Secret)]
    return needs + [key for key in ("variables", "hosts", "mounts") if tool.requires.get(key)]


def _lines(checked: _Checked) -> Iterator[str]:
    source = one_line(checked.source)
    for problem in checked.problems:
        yield f"{source}: problem: {one_line(problem)}"
    for name, found in checked.tools.items():
        yield f"{source}: {one_line(name)}{'' if found else ': no findings'}"
        yield from (f"  {finding.level}: {one_line(finding.message)}" for finding in found)
