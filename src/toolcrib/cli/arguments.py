"""The words after a command → sources, the tool's name, and the arguments of the call; how a shell completes them, and
how commands declare them.

`key=value` is text where the schema admits text, and otherwise JSON. Everything else about arguments is the check's.
"""

import re
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import LoadError
from ..schema import JSONError, SchemaView, parse_json
from ..schema.view import kind
from .terminal import UsageError, silenced

SOURCE_FORMS = (
    "A source is a .py file, a folder of them, a .wasm file, a folder with a tool.toml, an OpenAPI document "
    "(.json, .yaml, openapi:URL), an MCP server (its URL, 'mcp:COMMAND', a client's .json), a git address "
    "(git+https://HOST/PATH@REF#FOLDER), or an importable name: 'package.module' or 'package.module:name'"
)
_FORMS = 'key=value, key=@file, one JSON object \'{"key": "value"}\', @file.json, or - for standard input'


def is_source(word: str) -> bool:
    """Return whether a word before the tool's name is a source: it has `.`, `/` or `:`, and no `=`."""
    return any(mark in word for mark in "./:") and "=" not in word and not word.startswith(("{", "@", "-"))


@dataclass(frozen=True, slots=True)
class Words:
    """The words of `[SOURCE...] TOOL [ARGUMENT...]`."""

    sources: tuple[str, ...]
    tool: str | None
    arguments: tuple[str, ...]


def read_words(words: Sequence[str], tool: str | None = None) -> Words:
    """Split *words*; where `--tool` names the *tool*, there is no name among them."""
    count = next((at for at, word in enumerate(words) if not is_source(word)), len(words))
    sources, rest = tuple(words[:count]), tuple(words[count:])
    if tool is not None or not rest or "=" in rest[0]:
        return Words(sources, tool, rest)
    return Words(sources, rest[0], rest[1:])


def require_tool(words: Words, command: str) -> str:
    """Return the name of the tool. Raises UsageError, with the forms that work, where there is none."""
    if words.tool is not None:
        return words.tool
    if not words.sources:
        raise UsageError(f"Missing argument 'TOOL'. Try: toolcrib {command} --help")
    last = words.sources[-1]
    way_out = "" if last.endswith((".py", "/")) else f". If '{last[:60]}' is a tool: --tool {last[:60]}"
    raise UsageError(
        f"The name of the tool is missing after {last[:60]}. Write: toolcrib {command} {' '.join(words.sources)} TOOL. "
        f"To see the tools: toolcrib list {' '.join(words.sources)}{way_out}"
    )


@dataclass(frozen=True, slots=True)
class FileContent:
    """What is in a file, or in standard input, which messages call *title*."""

    title: str
    data: bytes

    def text(self) -> str:
        """Return it as text. Raises LoadError where it is not UTF-8."""
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise LoadError(
                f"{self.title} is not UTF-8 text (at byte {error.start + 1}), so it cannot be sent. A tool that takes "
                "any bytes takes them in base64: it annotates the parameter with pydantic.Base64Bytes."
            ) from None

    def text_for(self, place: SchemaView) -> str:
        """Return it in base64 where that is what *place*, or the items of a list there, admits; else as text."""
        schemas = [form.schema for view in (place, _item(place, 0)) for form in view.alternatives]
        words = {schema.get(key) for schema in schemas for key in ("contentEncoding", "format")}
        if "base64url" in words:
            return urlsafe_b64encode(self.data).decode()
        return self.text() if words.isdisjoint(("base64", "byte")) else b64encode(self.data).decode()


@dataclass(frozen=True, slots=True)
class WrittenArguments:
    """Arguments as they were written: one JSON text, or texts and files by key."""

    json: str | None
    by_key: Mapping[str, Sequence[str | FileContent]]


def read_arguments(arguments: Sequence[str], *, tool: str) -> WrittenArguments:
    """Read the words after the tool. Raises UsageError for another form, LoadError for a file that cannot be read."""
    if not arguments:
        return WrittenArguments(None, {})
    for argument in arguments:
        if re.search("[\ud800-\udfff]", argument):
            raise UsageError(f"'{argument[:40]}' is not UTF-8 text. Put it into a file and write key=@file.")
    first = arguments[0]
    if first == "-" or first.startswith(("{", "@")):
        if len(arguments) > 1:
            raise UsageError(f"'{first[:40]}' gives all arguments at once, so nothing can be beside it.")
        return WrittenArguments(first if first.startswith("{") else _content(first.removeprefix("@")).text(), {})
    return WrittenArguments(None, _by_key(arguments, tool))


def _by_key(arguments: Sequence[str], tool: str) -> Mapping[str, Sequence[str | FileContent]]:
    by_key: dict[str, list[str | FileContent]] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key or key.startswith(("{", "[", '"', "@")):
            raise UsageError(_not_an_argument(argument, tool, is_first=not by_key))
        by_key.setdefault(key, []).append(_content(value[1:], key=key) if value.startswith("@") else value)
    return by_key


def _not_an_argument(word: str, tool: str, *, is_first: bool) -> str:
    way_out = f" If '{tool[:40]}' is a source, write: -s {tool[:40]}" if is_first else ""
    if is_source(word) and not word[0].isdigit():
        way_out = f" A source goes before the tool: {word[:40]} {tool[:40]}"
    return f"'{word[:40]}' is not an argument. Write {_FORMS}.{way_out}"


def to_json(written: WrittenArguments, schema: Mapping[str, Any]) -> str | dict[str, Any]:
    """Return the arguments for `Workbench.call`, read as *schema* has them. Raises UsageError for keys in conflict."""
    if written.json is not None:
        return written.json
    root = SchemaView(schema)
    arguments: dict[str, Any] = {}
    for key, texts in written.by_key.items():
        steps, place = _path(root, key)
        parent = arguments
        for step in steps[:-1]:
            parent = parent.setdefault(step, {})
            if not isinstance(parent, dict):
                break
        if not isinstance(parent, dict) or steps[-1] in parent:
            raise UsageError(f"'{steps[0]}' is given as a whole and by its members. Give it one way.")
        parent[steps[-1]] = read_value(texts, place)
    return arguments


def _path(root: SchemaView, key: str) -> tuple[Sequence[str], SchemaView]:
    """Return the names that *key* stands for, and the place of its value: `issue.title` is a member of `issue`.

    An argument that has a dot in its own name goes before.
    """
    whole = (key,), _member(root, key) or root.at("none")
    if key in root.names.members or "." not in key:
        return whole
    steps, place = key.split("."), root
    for step in steps:
        inner = _member(place, step)
        if not step or (inner is None and (place is root or not place.names.members)):
            return whole
        place = inner or place.at("none")  # a misspelt member, which the check explains
    return steps, place


def _member(place: SchemaView, name: str) -> SchemaView | None:
    """Return the place of the member *name* of an object; None where nothing speaks of it."""
    views = (view for form in place.alternatives for view in form.member(name))
    return next((view for view in views if not view.is_false), None)


def read_value(texts: Sequence[str | FileContent], place: SchemaView) -> Any:
    """Return the value of a key: several texts are the items of a list."""
    if len(texts) == 1:
        return _value(texts[0], place)
    return [_value(text, _item(place, index)) for index, text in enumerate(texts)]


def _value(text: str | FileContent, place: SchemaView, *, is_item: bool = False) -> Any:
    text = text.text_for(place) if isinstance(text, FileContent) else text
    try:
        value = parse_json(text)
        of = kind(value)
    except JSONError:
        value, of = text, ""
    kinds = place.admitted_kinds
    if "string" in kinds:
        # An enumeration of texts and numbers admits both kinds, but not each value.
        return value if of and not place.is_valid(text) and place.is_valid(value) else text
    if "array" in kinds and of not in kinds and not is_item:
        return _items(text, place)
    return value


def _items(text: str, place: SchemaView) -> list[Any]:
    """Return the one item that *text* is; or if it is not valid, its parts between commas where these are."""
    first = _value(text, _item(place, 0), is_item=True)
    if "," in text and not _item(place, 0).is_valid(first):
        parts = [part.strip() for part in text.split(",")]
        places = [_item(place, index) for index in range(len(parts))]
        values = [_value(part, at, is_item=True) for part, at in zip(parts, places, strict=True)]
        if all(at.is_valid(value) for at, value in zip(places, values, strict=True)):
            return values
    return [first]


def _item(place: SchemaView, index: int) -> SchemaView:
    lists = [form for form in place.alternatives if "array" in form.kinds]
    return (lists[0] if lists else place).item(index)


def choices_of(place: SchemaView) -> list[str]:
    """Return the values that are listed at *place*, as they are typed; none where any other is admitted too."""
    if "boolean" in place.admitted_kinds:
        return ["true", "false"]
    if any(form.constants is None for form in place.alternatives if form.kinds != frozenset({"null"})):
        return []
    return [choice if isinstance(choice, str) else str(choice) for choice in place.choices]


def _content(name: str, *, key: str | None = None) -> FileContent:
    """Return the content of a file, or of standard input for `-`."""
    title = "standard input" if name == "-" else f"'{name}'"
    as_json = f'\'{{"{key}": "@..."}}\''
    way_out = "" if key is None else f" To send text that begins with @, write the arguments as JSON: {as_json}."
    try:
        if name != "-":
            return FileContent(title, Path(name).read_bytes())
        if sys.stdin is None:
            raise OSError(None, "it is closed")
        return FileContent(title, sys.stdin.buffer.read())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LoadError(f"{title} cannot be read: {reason}.{way_out}") from None


# What a shell may complete


def complete_source(incomplete: str) -> list[str]:
    """Return the paths of `.py` files, and of folders that may hold some."""
    folder, slash, start = incomplete.rpartition("/")
    try:
        paths = sorted(Path(f"{folder}{slash}" or ".").iterdir())
    except OSError:
        return []
    names = [path.name + ("/" if path.is_dir() else "") for path in paths if path.is_dir() or path.suffix == ".py"]
    return [f"{folder}{slash}{name}" for name in names if name.startswith(start) and not name.startswith(("_", "."))]


def complete_tool(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of tools, from the sources before it on the line."""
    words = [*(context.params.get("sources") or ()), *(context.params.get("words") or ()), *context.args]
    return _starting(_tools(context, [word for word in words if is_source(word)]), incomplete)


def complete_words(context: typer.Context, incomplete: str) -> list[str]:
    """Return sources, then the name of a tool, then its arguments."""
    words = read_words(context.params.get("words") or (), context.params.get("tool"))
    if words.tool is None:
        paths = [] if words.sources else complete_source(incomplete)
        return _starting(_tools(context, words.sources), incomplete) + paths
    if context.info_name != "call" or (spec := _tools(context, words.sources).get(words.tool)) is None:
        return []
    return _complete_arguments(spec.input_schema, words.arguments, incomplete)


def _complete_arguments(schema: Mapping[str, Any], arguments: Sequence[str], incomplete: str) -> list[str]:
    # Bash takes `=` for a word of its own, and leaves it out before a word that is empty.
    if arguments[-1:] == ("=",):
        return _values(schema, arguments[-2])
    if arguments and "=" not in arguments[-1] and arguments[-2:-1] != ("=",):
        return _values(schema, arguments[-1])
    key, equals, _ = incomplete.partition("=")
    if equals:
        return [f"{key}={value}" for value in _values(schema, key)]
    names = {argument.partition("=")[0] for argument in arguments}
    return [f"{name}=" for name in schema.get("properties", {}) if name not in names]


def complete_provider(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the providers of credentials."""
    try:
        from ..auth import load_catalogue

        settings = context.find_root().obj.settings
        file = settings.path(settings.values.providers)
        return _starting(load_catalogue(None if file is None else Path(file)), incomplete)
    except Exception:
        return []


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _values(schema: Any, key: str) -> list[str]:
    return choices_of(_path(SchemaView(schema), key)[1])


def _tools(context: typer.Context, sources: Sequence[str]) -> dict[str, Any]:
    """Return the specs of the tools of *sources* and of the options of the command line, by name."""
    try:
        with silenced():
            from ..tools import is_git_address

            sources = [*sources, *(context.params.get("source") or ())]
            if any(map(is_git_address, sources)):  # a fetch takes too long for a key press
                return {}
            return {spec.name: spec for spec in context.find_root().obj.open(sources, example="").bench.specs()}
    except Exception:
        return {}  # completion cannot report what is wrong; the command itself will


# The parameters that several commands have


def port_number(value: int | None) -> int | None:
    if value is not None and not 0 <= value <= 65535:
        raise typer.BadParameter("a port is a number from 0 to 65535.")
    return value


SourceNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SOURCE...]", help=f"Where the tools are. {SOURCE_FORMS}.", autocompletion=complete_source),
]
CallWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE...] TOOL [ARGUMENT...]",
        help=f"{SOURCE_FORMS}. An argument is key=value (text, or JSON where the tool takes no text; a key that is "
        "repeated, or numbers with commas, make a list; issue.title=... is a member of an object), key=@file for "
        "a file, as text or, where the tool takes base64, in base64; or all in one: a JSON object, @file.json, or - "
        "for standard input.",
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
    int | None, typer.Option(metavar="PORT", callback=port_number, help="The port to listen on; 0 takes any free one.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, metavar="NUMBER", help="How many at most.")]
Principal = Annotated[str, typer.Option("--principal", metavar="NAME", help="Who calls, or whose it is.")]
