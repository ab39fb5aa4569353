"""Settings: `toolcrib.toml`, or `[tool.toolcrib]` in `pyproject.toml`, with TOOLCRIB_ variables, which override it.

A secret is in the environment or in a file of its own, and the settings refer to it. What a reference resolves to is
redacted wherever it would be shown. No error here quotes a value.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..call import Retry
from ..core import LoadError, SetupError, ToolcribError
from ..record import Redactor
from ..record.redact import MIN_SECRET_CHARS
from ..schema.declared import Keys, mistakes_in
from ..schema.describe import closest_match, did_you_mean, display_path
from ..schema.toml import lines_of, parse_toml
from ..tools import Permissions
from ..tools.git import DOCUMENT, DOCUMENTS, is_git_address, parse_git_address
from ..tools.remote import MCPSource, is_remote, placed
from .limits import Limit
from .options import FileOptions
from .rules import Rule, Rules
from .tables import Environment, File, variables

NAME = "toolcrib.toml"
PROJECT = "pyproject.toml"
SCHEMA = Path(__file__).with_name("settings.schema.json")
"""The JSON Schema of the file, for editors."""

_CONFIG = "TOOLCRIB_CONFIG"
_SOURCES = "TOOLCRIB_SOURCES"
_REMOVED = {"in_process": "Remove it: WebAssembly runs in a process of its own, always."}
_WITH_REFERENCES = ("variables", "secrets", "auth", "secret", "store")
"""Tables whose texts may refer to secrets; so may `headers` and `env` of a source."""
# Never from a file: read where AutoGen configurations are loaded, and where a store is opened.
_OTHERS = ("TOOLCRIB_ALLOW_SOURCE_CODE", "TOOLCRIB_KEY")
_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<what>[^{}]*)(?P<end>\}?)")
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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
    """Settings that cannot be used. *problems* are all that were found."""

    def __init__(self, problems: Sequence[SettingsProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source of tools as it was *written*, and the *source* that `load` takes for it.

    *place* is where it is written, if that is in the settings; *view* applies its filters and names.
    """

    written: str
    source: str | MCPSource
    place: str | None = None
    line: int | None = None
    view: Callable[[Any], Any] = lambda source: source
    required: bool = True
    permissions: Permissions = field(default_factory=Permissions)
    openapi: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def granted(self, source: Any) -> Any:
        """Return *source*, this one as it is loaded now, with its permissions and options. Raises LoadError and
        SetupError.
        """
        if self.openapi and isinstance(source, str):
            from ..tools.openapi import openapi_source

            source = openapi_source(source, permissions=self.permissions, **self.openapi)
        return self.permissions.to(source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Valid settings. Secrets may be in their *values*, so the repr does not show them.

    *written* is what stands in the file, with its references; *secrets* are what these resolve to; *lines* are the
    lines of its keys.
    """

    file: Path | None = None
    sources: tuple[NamedSource, ...] = ()
    values: File = field(default_factory=File.model_construct, repr=False)
    rules: Rules = field(default_factory=lambda: Rules(()), repr=False)
    limits: tuple[Limit, ...] = ()
    retries: tuple[Retry, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)
    written: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    lines: Mapping[Keys, int] = field(default_factory=dict[Keys, int], repr=False)

    def options(self, unless_set: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Return the options for a Crib or Workbench: *options* that are not None, else these settings, else
        *unless_set*.
        """
        values = self.values
        options_set = {
            name: getattr(values, name) for name in FileOptions.__annotations__ if name in values.model_fields_set
        }
        if options_set.get("max_result_chars") == 0:
            options_set["max_result_chars"] = None
        options_set |= {
            "limits": self.limits,
            "retries": self.retries,
            # Without a policy there is nothing to ask, which is faster.
            "policy": self.rules if values.rule or values.policy.default != "allow" else None,
            "variables": values.variables,
            "secrets": self.secrets,
        }
        return (
            dict(unless_set or {}) | options_set | {name: value for name, value in options.items() if value is not None}
        )

    def path(self, written: str | None) -> str | None:
        """Return the path *written* in the file, which is relative to its folder; URLs stay."""
        if written is None or "://" in written or self.file is None:
            return written
        return str(self.file.parent / Path(written).expanduser())

    def redact(self, text: str) -> str:
        """Return *text* without the secrets."""
        return Redactor(self.secrets).redact(text) if self.secrets else text

    def place(self, *keys: str | int) -> tuple[str, int | None]:
        """Return the file, and the line of the value under *keys*, or of the table that it is in."""
        return _place(self.file, self.lines, keys)


def find_settings(config: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the file of settings: *config*, else TOOLCRIB_CONFIG, else the nearest one here or in a folder above.

    In a folder it is `toolcrib.toml`, else a `pyproject.toml` with a table `[tool.toolcrib]`. A file above that belongs
    to another user is passed over: settings name code that is run.

    Raises LoadError for a file that is named and does not exist.
    """
    if path_given := config or (Path(environ[_CONFIG]) if environ.get(_CONFIG) else None):
        if not path_given.is_file():
            raise LoadError(f"There is no file {path_given}{'' if config else f', which {_CONFIG} names'}.")
        return path_given
    try:
        folder_here = Path.cwd()
    except FileNotFoundError:  # it was removed meanwhile
        return None
    for folder in (folder_here, *folder_here.parents):
        for name in (NAME, PROJECT):
            file = folder / name
            if file.is_file() and (folder == folder_here or _is_own(file)) and (name == NAME or _has_table(file)):
                return Path(os.path.relpath(file))
    return None


def _is_own(file: Path) -> bool:
    return not hasattr(os, "getuid") or file.stat().st_uid in (os.getuid(), 0)


def _has_table(file: Path) -> bool:
    text = ""
    try:
        text = file.read_text("utf-8-sig")
        return "toolcrib" in text and "toolcrib" in parse_toml(text).get("tool", {})
    except (OSError, ValueError):
        # Settings with a mistake must not count as none: their rules would not apply. Reading them reports it.
        return "[tool.toolcrib" in text


def read_settings(file: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in *file* (None for no file) and in the variables of *environ* that begin with TOOLCRIB_.

    Paths in the file are relative to its folder; paths in variables to the current one. Raises SettingsError, and
    LoadError for a file that cannot be read.
    """
    return _Reader(file, environ).settings()


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[SettingsProblem]:
    """Return the variables that look like settings and are not."""
    names = [_CONFIG, _SOURCES, *_OTHERS, *variables()]
    return [
        SettingsProblem(name, f"There is no setting of this name.{did_you_mean(closest_match(name, names))}")
        for name in sorted(environ)
        if name.startswith("TOOLCRIB_") and name not in names
    ]


class _Reader:
    """Reads one file. Problems are collected, so that all are reported at once."""

    def __init__(self, file: Path | None, environ: Mapping[str, str]) -> None:
        self._file = file
        self._folder = Path() if file is None else file.parent
        self._environ = environ
        self._problems: list[SettingsProblem] = []
        self._secrets: dict[str, None] = {}
        self._header = "tool.toolcrib." if file is not None and file.name == PROJECT else ""
        self._lines: dict[Keys, int] = {}

    def settings(self) -> Settings:
        data = {} if self._file is None else self._parse(self._file)
        values = self._validate(self._resolve(_merged(data, Environment(self._environ)()), ()))
        sources = self._environment_sources()
        settings: Settings | None = None
        if values is not None:
            settings = Settings(
                file=self._file,
                sources=self._sources(values) if sources is None else sources,
                values=values,
                rules=Rules(self._make("rule", values.rule, Rule), default=values.policy.default),
                limits=tuple(self._make("limit", values.limit, Limit)),
                retries=tuple(self._make("retry", values.retry, Retry)),
                secrets=tuple(self._secrets),
                written=data,
                lines=self._lines,
            )
        if self._problems or settings is None:
            raise SettingsError(sorted(self._problems, key=lambda problem: problem.line or 0))
        return settings

    def _parse(self, file: Path) -> dict[str, Any]:
        try:
            text = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        except OSError as error:
            raise LoadError(f"{file} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise LoadError(f"{file} is not UTF-8 text (at byte {error.start + 1}).") from None
        try:
            data: Any = parse_toml(text)
            self._lines = lines_of(text)
        except ValueError as error:
            raise SettingsError([_syntax_problem(file, text, str(error))]) from None
        if self._header:
            data = data.get("tool", {}).get("toolcrib")
            self._lines = {keys[2:]: at for keys, at in self._lines.items() if keys[:2] == ("tool", "toolcrib")}
            if not isinstance(data, dict):
                raise LoadError(f"{file} has no table [tool.toolcrib].")
        return data  # type: ignore[no-any-return]

    def _validate(self, data: dict[str, Any]) -> File | None:
        set_by = {name: keys for name, keys in variables().items() if self._environ.get(name)}
        try:
            values: File = File.model_validate(data)
            return values
        except ValidationError as error:
            for mistake in mistakes_in(File, data, error, header=self._header):
                keys, message = mistake.keys, mistake.message
                if variable := next((name for name, path in set_by.items() if path == keys[: len(path)]), None):
                    self._problems.append(SettingsProblem(variable, f"Expected {mistake.expected}."))
                elif keys[0] == "source" and len(keys) <= 2:
                    self._add(keys, 'Each source is a table: [[source]], and below it from = "tools.py".')
                else:
                    self._add(keys, f"{message} {_REMOVED[str(keys[-1])]}" if keys[-1] in _REMOVED else message)
            return None

    def _environment_sources(self) -> tuple[NamedSource, ...] | None:
        if not (words := self._environ.get(_SOURCES, "").strip()):
            return None
        try:
            return tuple(NamedSource(word, word, _SOURCES) for word in shlex.split(words))
        except ValueError:
            self._problems.append(SettingsProblem(_SOURCES, "A quote in it is never closed."))
            return ()

    def _sources(self, values: File) -> tuple[NamedSource, ...]:
        sources: list[NamedSource] = []
        for number, table in enumerate(values.source):
            place, line = _place(self._file, self._lines, ("source", number))
            try:
                table.view([])  # finds what is wrong whatever the tools are
                permissions = table.permissions(self._folder)
                source = self._server(table.written, values) or _path_or_module(table.where, self._folder)
            except ToolcribError as error:
                self._add(("source", number), str(error))
            else:
                sources.append(
                    NamedSource(
                        str(table.written),
                        source,
                        place,
                        line,
                        table.view,
                        table.is_required(source),
                        permissions,
                        table.openapi_options(),
                    )
                )
        return tuple(sources)

    def _server(self, written: str | MCPSource, values: File) -> MCPSource | None:
        if not isinstance(written, MCPSource):
            return None
        return replace(written, folder=str(self._folder), allow=values.net.allow)

    def _make(self, name: str, rows: Sequence[BaseModel], make: Callable[..., T]) -> list[T]:
        """Return what *make* makes of the keys of each row."""
        values: list[T] = []
        for number, row in enumerate(rows):
            try:
                values.append(make(**{key: getattr(row, key) for key in row.model_fields_set}))
            except ToolcribError as error:
                self._add((name, number), str(error))
        return values

    def _resolve(self, value: Any, keys: Keys) -> Any:
        """Return *value*, which stands under *keys*, with what its references resolve to, and note the secrets."""
        if isinstance(value, dict):
            return {key: self._resolve(inner, (*keys, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner, (*keys, index)) for index, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        whole = _REFERENCE.fullmatch(value)
        is_secret = keys[0] in ("secret", "secrets") or (keys[0] == "auth" and keys[2:] == ("client_secret",))
        if is_secret and (whole is None or whole["escaped"]):
            self._add(
                keys,
                f"{display_path(keys)} is not a reference. The secret itself must not be in this file: write "
                "'${env:NAME}' or '${file:PATH}'.",
            )
        elif keys[0] in _WITH_REFERENCES or (keys[0] == "source" and keys[2:3] in (("headers",), ("env",))):
            return _REFERENCE.sub(lambda found: "${" if found["escaped"] else self._secret(found, keys), value)
        elif "${" in value:
            places = ", ".join(_WITH_REFERENCES)
            self._add(keys, f"{display_path(keys)}: references like '${{env:NAME}}' work in {places} only.")
        return value

    def _secret(self, found: re.Match[str], keys: Keys) -> str:
        kind, _, name = found["what"].partition(":")
        secret = problem = ""
        if not found["end"] or not (_NAME.fullmatch(name) if kind == "env" else kind == "file" and name):
            problem = (
                "the '${' in it does not begin a reference. Write '${env:NAME}' or '${file:PATH}'; '$${' stands for "
                "'${' itself."
            )
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
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                problem = f"the file {file} cannot be read: {reason}."
        if secret and len(secret) < MIN_SECRET_CHARS:
            problem = (
                f"what '${{{kind}:{name}}}' resolves to is too short to be redacted: it would be found in ordinary "
                f"words. A secret has at least {MIN_SECRET_CHARS} characters. If it is not a secret, write it here."
            )
        if problem:
            self._add(keys, f"{display_path(keys)}: {problem}")
        else:
            self._secrets[secret] = None
        return secret

    def _add(self, keys: Keys, message: str) -> None:
        place, line = _place(self._file, self._lines, keys)
        self._problems.append(SettingsProblem(place, message, line))


def _syntax_problem(file: Path, text: str, reason: str) -> SettingsProblem:
    """Return the problem with TOML that does not parse; *reason* ends with the place, as `tomllib` writes it."""
    at = _AT.search(reason)
    if at is None:
        return SettingsProblem(str(file), f"This is not valid TOML: {reason}.")
    line = int(at["line"] or text.count("\n") + 1)
    column = f", column {at['column']}" if at["column"] else ""
    return SettingsProblem(f"{file}:{line}", f"This is not valid TOML{column}: {reason[: at.start()]}.", line)


def _place(file: Path | None, lines: Mapping[Keys, int], keys: Keys) -> tuple[str, int | None]:
    for length in range(len(keys), 0, -1):
        if (line := lines.get(keys[:length])) is not None:
            return f"{file}:{line}", line
    return str(file), None


def _merged(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(data)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return result


def _path_or_module(source: str, folder: Path) -> str:
    """Return *source* as a path from *folder*, as a git address, as a server, or as the name of a module."""
    if is_git_address(source):
        return str(parse_git_address(source).beside(folder))
    if (folder / source).suffix in DOCUMENTS and (folder / source).is_file():
        return str(folder / source)  # of servers, or an OpenAPI document
    if is_remote(source):
        return placed(source, folder)
    if source.startswith(DOCUMENT):
        where = source.removeprefix(DOCUMENT)
        return source if "://" in where else f"{DOCUMENT}{folder / Path(where).expanduser()}"
    path = Path(source).expanduser()
    is_path = "/" in source or os.sep in source or source.endswith(".py") or ".py:" in source
    return str(folder / path) if is_path or (folder / path).exists() else source
