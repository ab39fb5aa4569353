"""`toolcrib.toml` and the environment → what a workbench is made with. The environment goes before the file.

Secrets are in the environment or in files of their own, and only references to them are in the settings. What these
give is struck out of everything that is shown. No error here quotes a value.
"""

import copy
import math
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from ..call import Retries
from ..core import LoadError, SetupError, ToolcribError, matching
from ..record import Redactor
from ..schema import nearest
from ..schema.document import Document
from ..schema.explain import other_problems, problems
from ..schema.words import called, describe, did_you_mean, spoken
from ..tools import Tool
from .limits import Limit, limits_from_data, retries_from_data
from .lines import Keys, lines_of
from .rules import Rules, rules_from_data
from .tables import File, SourceTable, schema
from .views import View, filtered, prefixed, renamed

NAME = "toolcrib.toml"
SCHEMA = Path(__file__).with_name("settings.schema.json")
"""The JSON Schema of the file, for editors."""

_PREFIX = "TOOLCRIB_"
_CONFIG = "TOOLCRIB_CONFIG"
_SOURCES = "TOOLCRIB_SOURCES"
_ELSEWHERE = ("TOOLCRIB_ALLOW_SOURCE_CODE",)  # read where configurations of AutoGen's are loaded, and never of a file
_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<what>[^{}]*)(?P<end>\}?)")
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMS = "'${env:NAME}' or '${file:PATH}'; '$${' stands for '${' itself"
_LEAST_SECRET = 4  # what a Redactor takes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingsProblem:
    """One thing wrong with the settings. *place* is the file, with its *line* where there is one, or a variable."""

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class SettingsError(SetupError):
    """Settings that cannot be used. *problems* are all that was found."""

    def __init__(self, problems: Sequence[SettingsProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of tools, as it was *said*, and what `load` takes for it.

    *place* is where it was said, if that was in the settings; *view* is what they make of its tools.
    """

    said: str
    source: str
    place: str | None = None
    line: int | None = None
    view: Callable[[Any], Any] = lambda source: source


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that fit together. They stay out of the repr, for secrets may be in them."""

    file: Path | None = None
    sources: tuple[NamedSource, ...] = ()
    values: File = field(default_factory=File, repr=False)
    rules: Rules = field(default_factory=lambda: Rules(()), repr=False)
    limits: tuple[Limit, ...] = ()
    retries: tuple[Retries, ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    lines: Mapping[Keys, int] = field(default_factory=dict[Keys, int], repr=False)

    def options(self, unless_set: Mapping[str, Any] | None = None, **given: Any) -> dict[str, Any]:
        """What `Workbench` takes: what is *given* and is not None, else what is set here, else *unless_set*."""
        values = self.values
        said = {name: getattr(values, name) for name in _OF_CALLS if name in values.model_fields_set}
        if said.get("max_result_chars") == 0:
            said["max_result_chars"] = None
        said |= {
            "limits": self.limits,
            "retries": self.retries,
            # Without a policy nothing is asked, which is quicker.
            "policy": self.rules if values.rule or values.policy.default != "allow" else None,
            "variables": self.variables,
            "secrets": self.secrets,
        }
        return dict(unless_set or {}) | said | {name: value for name, value in given.items() if value is not None}

    def timed(self, source: Any) -> Any:
        """*source*, its tools with the deadlines of the settings."""
        deadlines = [(matching(table.tools), table.timeout_s) for table in self.values.deadline]

        def change(tools: list[Tool[..., Any]]) -> list[Tool[..., Any]]:
            return [_due(tool, deadlines) for tool in tools]

        return View(str(source), (source,), change) if deadlines else source

    def struck(self, text: str) -> str:
        """*text* without the secrets."""
        return Redactor(self.secrets).strike(text) if self.secrets else text

    def place(self, *keys: str | int) -> tuple[str, int | None]:
        """The file, and the line on which the value under *keys* stands, or the table that it is in."""
        return _place(self.file, self.lines, keys)


def find_settings(config: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The settings that are meant: *config*, else TOOLCRIB_CONFIG, else `toolcrib.toml` here, if it is there.

    Raises LoadError for a file that was named and is not there.
    """
    named = config or (Path(environ[_CONFIG]) if environ.get(_CONFIG) else None)
    if named is not None:
        if not named.is_file():
            by = "--config" if config is not None else _CONFIG
            raise LoadError(f"There is no file {named}, which {by} names.")
        return named
    return Path(NAME) if Path(NAME).is_file() else None


def read_settings(file: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of *file* (None for no file) and of the variables of *environ* that begin with TOOLCRIB_.

    Paths in the file are relative to its folder; paths in variables to the current one. Raises SettingsError, and
    LoadError for a file that cannot be read.
    """
    return _Reading(file, environ).settings()


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[SettingsProblem]:
    """The variables that look like settings and are none."""
    known = [_CONFIG, _SOURCES, *_ELSEWHERE, *(name for name, _, _ in _scalars())]
    return [
        SettingsProblem(name, f"There is no setting of this name.{did_you_mean(nearest(name, known))}")
        for name in sorted(environ)
        if name.startswith(_PREFIX) and name not in known
    ]


class _Reading:
    """One file being read. Problems are gathered, so that all are told at once."""

    def __init__(self, file: Path | None, environ: Mapping[str, str]) -> None:
        self._file = file
        self._folder = Path() if file is None else file.parent
        self._environ = environ
        self._problems: list[SettingsProblem] = []
        self._secrets: dict[str, None] = {}
        self._lines: dict[Keys, int] = {}

    def settings(self) -> Settings:
        data = {} if self._file is None else self._parsed(self._file)
        values = self._overlaid(self._validated(data))
        self._require_no_references(data)
        rows = {name: [row.model_dump(exclude_unset=True) for row in getattr(values, name)] for name in _LISTS}
        rules = self._made("rule", rows["rule"], lambda rows: list(rules_from_data(rows)))
        settings = Settings(
            file=self._file,
            sources=self._sources(values),
            values=values,
            rules=Rules(rules, default=values.policy.default),
            limits=tuple(self._made("limit", rows["limit"], limits_from_data)),
            retries=tuple(self._made("retry", rows["retry"], retries_from_data)),
            variables=self._replaced(values.variables, ("variables",)),
            secrets=self._known_secrets(values),
            lines=self._lines,
        )
        self._made("deadline", rows["deadline"], lambda rows: [matching(row.get("tools", "*")) for row in rows])
        if self._problems:
            raise SettingsError(sorted(self._problems, key=_line))
        return settings

    # The file

    def _parsed(self, file: Path) -> dict[str, Any]:
        try:
            text = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        except OSError as error:
            raise LoadError(f"{file} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise LoadError(f"{file} is not UTF-8 text (at byte {error.start + 1}).") from None
        try:
            data = tomllib.loads(text)
            self._lines = lines_of(text)
        except RecursionError:
            raise LoadError(f"{file} is nested too deeply.") from None
        except ValueError as error:
            said = str(error)
            at = _AT.search(said)
            line = int(at["line"]) if at and at["line"] else text.count("\n") + 1 if at else None
            column = f", column {at['column']}" if at and at["column"] else ""
            message = f"This is no TOML{column}: {said[: at.start()] if at else said}."
            place = f"{file}:{line}" if line is not None else str(file)
            raise SettingsError([SettingsProblem(place, message, line)]) from None
        return data

    def _validated(self, data: dict[str, Any]) -> File:
        try:
            return File.model_validate(data)
        except ValidationError as error:
            plain = _plain(data)
            found = problems(Document(schema(), formats=False), plain)
            details: list[Any] = error.errors(include_url=False, include_input=False, include_context=False)
            found += other_problems(details, plain, found)
            for problem in found:
                keys = _keys(problem.path, data)
                self._say(keys, _unknown(keys) if problem.came == "name" else problem.sentence)
            raise SettingsError(sorted(self._problems, key=_line)) from None

    def _require_no_references(self, data: Mapping[str, Any]) -> None:
        for keys, text in _texts({name: part for name, part in data.items() if name not in ("variables", "secrets")}):
            if "${" in text:
                self._say(
                    keys, f"{called(keys)}: references like '${{env:NAME}}' stand in [variables] and secrets only."
                )

    # The environment

    def _overlaid(self, values: File) -> File:
        for name, keys, annotation in _scalars():
            text = self._environ.get(name)
            if text is None or not text.strip():
                continue
            try:
                value = _of_text(text.strip(), TypeAdapter(annotation))
            except ValidationError:
                self._problems.append(SettingsProblem(name, f"Expected {_described(keys)}."))
                continue
            if len(keys) == 2:
                value = getattr(values, keys[0]).model_copy(update={keys[1]: value})
            values = values.model_copy(update={keys[0]: value})
        return values

    # What the values stand for

    def _sources(self, values: File) -> tuple[NamedSource, ...]:
        if named := self._environ.get(_SOURCES, "").strip():
            try:
                return tuple(NamedSource(word, word, _SOURCES) for word in shlex.split(named))
            except ValueError:
                self._problems.append(SettingsProblem(_SOURCES, "A quote in it is never closed."))
                return ()
        made: list[NamedSource] = []
        for number, table in enumerate(values.source):
            place, line = _place(self._file, self._lines, ("source", number))
            try:
                _viewed([], table)  # what is wrong without knowing the tools
            except ToolcribError as error:
                self._say(("source", number), str(error))
            else:
                source = _resolved(table.where, self._folder)
                made.append(NamedSource(table.where, source, place, line, partial(_viewed, table=table)))
        return tuple(made)

    def _made(self, name: str, rows: Sequence[Any], make: Callable[[Sequence[Any]], Sequence[T]]) -> list[T]:
        """What *make* makes of each of the rows, which it is given one by one to tell which is wrong."""
        made: list[T] = []
        for number, row in enumerate(rows):
            try:
                made += make([row])
            except ToolcribError as error:
                self._say((name, number), str(error).removeprefix(f"{name.capitalize()} 1: "))
        return made

    def _known_secrets(self, values: File) -> tuple[str, ...]:
        for number, text in enumerate(values.secrets):
            whole = _REFERENCE.fullmatch(text)
            if whole is None or whole["escaped"]:
                self._say(
                    ("secrets", number),
                    f"{called(('secrets', number))} is no reference. A secret itself must not be in this file: write "
                    "'${env:NAME}' or '${file:PATH}'.",
                )
            else:
                self._replaced(text, ("secrets", number))
        return tuple(self._secrets)

    def _replaced(self, value: Any, keys: Keys) -> Any:
        """*value* with what its references stand for."""
        if isinstance(value, dict):
            return {key: self._replaced(inner, (*keys, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._replaced(inner, (*keys, index)) for index, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        return _REFERENCE.sub(lambda found: "${" if found["escaped"] else self._referred(found, keys), value)

    def _referred(self, found: re.Match[str], keys: Keys) -> str:
        kind, _, name = found["what"].partition(":")
        secret = problem = ""
        if not found["end"] or not (_NAME.fullmatch(name) if kind == "env" else kind == "file" and name):
            problem = f"a '${{' in it begins no reference. Write {_FORMS}."
        elif kind == "env":
            secret = self._environ.get(name, "")
            if not secret:
                problem = f"the variable {name} is {'empty' if name in self._environ else 'not set'}."
        else:
            file = self._folder / Path(name).expanduser()
            try:
                secret = file.read_bytes().decode("utf-8-sig").rstrip("\r\n")
                problem = "" if secret else f"the file {file} is empty."
            except (OSError, ValueError) as error:
                said = getattr(error, "strerror", None) or "it is not UTF-8 text"
                problem = f"the file {file} cannot be read: {said}."
        if secret and len(secret) < _LEAST_SECRET:
            problem = (
                f"what '${{{kind}:{name}}}' gives is too short to be struck out of what is shown: it would be found in "
                f"ordinary words. A secret has at least {_LEAST_SECRET} characters; what is no secret is written here."
            )
        if problem:
            self._say(keys, f"{called(keys)}: {problem}")
        else:
            self._secrets[secret] = None
        return secret

    def _say(self, keys: Keys, message: str) -> None:
        place, line = _place(self._file, self._lines, keys)
        self._problems.append(SettingsProblem(place, message, line))


_OF_CALLS = ("timeout_s", "repair", "show_errors", "max_result_chars", "pending_s")
_LISTS = ("rule", "limit", "retry", "deadline")


def _line(problem: SettingsProblem) -> int:
    return problem.line or 0


def _viewed(source: Any, table: SourceTable) -> Any:
    """*source* as the *table* wants it: filtered, then renamed, then prefixed."""
    patterns = [table.tools] if isinstance(table.tools, str) else table.tools or ()
    if patterns or table.without or table.tags or table.hint:
        source = filtered(source, *patterns, without=table.without or (), tags=table.tags or (), hint=table.hint)
    if table.rename:
        names: Any = table.rename  # of the lists, `renamed` itself says what is wrong
        source = renamed(source, names)
    return prefixed(source, table.prefix) if table.prefix else source


def _resolved(source: str, folder: Path) -> str:
    """*source* as the file in *folder* means it: a path from there, or the name of a module."""
    path = Path(source).expanduser()
    is_path = "/" in source or os.sep in source or source.endswith(".py") or ".py:" in source
    return str(folder / path) if is_path or (folder / path).exists() else source


def _due(tool: Tool[..., Any], deadlines: Sequence[tuple[re.Pattern[str], float]]) -> Tool[..., Any]:
    for names, timeout_s in deadlines:
        if names.fullmatch(tool.spec.name):
            made = copy.copy(tool)
            made.spec = replace(tool.spec, timeout_s=timeout_s)
            return made
    return tool


def _scalars() -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """The settings that have a variable: its name, the keys in the file, and the type."""
    for name, info in File.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for inner, of in kind.model_fields.items():
                yield f"{_PREFIX}{name}_{inner}".upper(), (name, inner), _type(of)
        elif name not in (*_LISTS, "source", "secrets", "variables"):
            yield f"{_PREFIX}{name}".upper(), (name,), _type(info)


def _of_text(text: str, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_strings(text)
    except ValidationError:
        return adapter.validate_json(text)  # a Literal of numbers takes no text


def _type(info: Any) -> Any:
    return Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation


def _unknown(keys: Keys) -> str:
    """That the last of *keys* is none of the table it stands in."""
    table: type[BaseModel] = File
    for key in keys[:-1]:
        if isinstance(key, str):
            table = _table(table.model_fields[key].annotation)
    takes = [info.alias or name for name, info in table.model_fields.items()]
    name, inside = str(keys[-1]), ""
    if len(keys) > 1:
        inside = f" in [[{keys[0]}]]" if isinstance(keys[1], int) else f" in [{keys[0]}]"
    hint = did_you_mean(nearest(name, takes))
    return f"There is no key '{spoken(name)}'{inside}.{hint} It takes: {', '.join(takes)}."


def _table(annotation: Any) -> type[BaseModel]:
    inner: type[BaseModel] = next(iter(get_args(annotation)), annotation)
    return inner


def _described(keys: tuple[str, ...]) -> str:
    root = schema()
    tables = {"policy": "PolicyTable", "server": "ServerTable"}
    properties = (root if len(keys) == 1 else root["$defs"][tables[keys[0]]])["properties"]
    return describe(properties[keys[-1]], root)


def _place(file: Path | None, found: Mapping[Keys, int], keys: Keys) -> tuple[str, int | None]:
    for length in range(len(keys), 0, -1):
        if (line := found.get(tuple(keys[:length]))) is not None:
            return f"{file}:{line}", line
    return str(file), None


def _keys(pointer: str, data: Any) -> Keys:
    """A JSON pointer (RFC 6901) into *data* as keys, as far as it leads."""
    keys: list[str | int] = []
    for part in pointer.split("/")[1:]:
        key: str | int = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, list):
            key = int(part)
            data = data[key] if key < len(data) else None
        else:
            data = data.get(key) if isinstance(data, dict) else None
        keys.append(key)
    return tuple(keys)


def _texts(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(inner, (*keys, key))


def _plain(value: Any) -> Any:
    """*value* as JSON has it. Times become text, as do numbers that are none."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, date | time) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
