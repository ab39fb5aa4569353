"""The scenarios of an eval, as a TOML file has them: what a model is asked, what it must call, and what it must not.

What arguments must be is said as in `[[rule]] where`, by values, or by a JSON Schema. Everything in a file is checked
before a model is asked, also whether the tools can be called in the way that is expected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, MinLen
from pydantic import Field, ValidationError

from ..core import Caller, DefinitionError, SetupError, ToolcribError, ToolError, ToolSpec
from ..formats import Usage
from ..schema import require_schema, written
from ..schema.declared import Keys, Strict, mistakes_in
from ..schema.describe import display_path
from ..schema.view import is_valid, pointer
from ..workbench.rules import Names, Rule, is_like, unknown_name
from ..workbench.settings import SettingsError, SettingsProblem, place_in, read_toml

_Text = Annotated[str, MinLen(1)]
_Amount = Annotated[float, Ge(0)]


class Price(Strict):
    """What a model costs, for a million tokens."""

    input: _Amount
    output: _Amount
    cached: _Amount | None = Field(default=None, description="Of input that was read from a cache; else as 'input'.")

    def of(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input - usage.cached
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / 1_000_000


class ExpectedCall(Strict):
    """A call that the model must make."""

    tool: _Text = Field(description="The name of the tool, or a glob.")
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any], description="Arguments and their values.")
    where: dict[str, Any] = Field(default_factory=dict[str, Any], description="Conditions, as in [[rule]].")
    form: dict[str, Any] | None = Field(
        alias="schema", default=None, description="A JSON Schema of all arguments, defaults filled in."
    )

    def rule(self) -> Rule:
        """Return a rule whose conditions the arguments must meet. Raises ToolcribError for what cannot be met."""
        if self.form is not None:
            try:
                require_schema(self.form, label=f"'{self.tool}'")
            except DefinitionError as error:
                raise SetupError(str(error).replace("parameters=", "'schema'")) from None
        values = {pointer((name,)): {"eq": value} for name, value in self.arguments.items()}
        return Rule(do="allow", tools=self.tool, where={**values, **self.where})

    def accepts(self, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> bool:
        """Return whether checked *arguments* are as expected."""
        try:
            is_match = self.rule().matches(spec, arguments, caller)
        except ToolError:  # which a condition cannot judge
            return False
        return is_match and (
            self.form is None or is_valid(self.form, {**spec.defaults(), **written(arguments, strict=False)})
        )


class Scenario(Strict):
    """What a model is asked once, and what it must do."""

    name: _Text
    prompt: str
    call: list[ExpectedCall] = Field(default_factory=list[ExpectedCall], description="What it must call, in any order.")
    not_called: Names = Field(default=(), description="What it must not call: globs of names.")
    results: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="What tools return here, by name: they do not run."
    )

    @property
    def forbidden(self) -> Sequence[str]:
        return [self.not_called] if isinstance(self.not_called, str) else self.not_called


class ScenarioFile(Strict):
    """Scenarios, and what is common to them."""

    instructions: str = Field(default="", description="The system prompt.")
    currency: str = Field(default="", description="What prices are in.")
    price: dict[str, Price] = Field(default_factory=dict[str, Price], description="Prices by the name of the model.")
    results: dict[str, Any] = Field(default_factory=dict[str, Any], description="What tools return, by name.")
    scenario: Annotated[list[Scenario], MinLen(1)]


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Scenarios that were read. `lines` are of the keys of `file`."""

    values: ScenarioFile
    file: Path | None
    lines: Mapping[Keys, int]

    def require_known(self, specs: Sequence[ToolSpec]) -> None:
        """Raise SettingsError where a scenario names a tool or an argument that there is not."""
        if problems := [*self._unknown(specs)]:
            raise _error(self.file, self.lines, problems)

    def _unknown(self, specs: Sequence[ToolSpec]) -> Iterator[tuple[Keys, str]]:
        names = [spec.name for spec in specs]
        for keys, globs in self._globs():
            if sentence := unknown_name(globs, names, partial(is_like, tool=True), way_out=""):
                yield keys, f"This {sentence}"
        for number, scenario in enumerate(self.values.scenario):
            for index, call in enumerate(scenario.call):
                if mismatches := call.rule().mismatches(specs):
                    yield _call(number, index), f"This call is never made: {next(iter(mismatches.values()))}"

    def _globs(self) -> Iterator[tuple[Keys, Iterable[str]]]:
        yield ("results",), self.values.results
        for number, scenario in enumerate(self.values.scenario):
            yield ("scenario", number, "not_called"), scenario.forbidden
            yield ("scenario", number, "results"), scenario.results
            yield from ((_call(number, index), [call.tool]) for index, call in enumerate(scenario.call))


def read_scenarios(source: str | Path | Mapping[str, Any], prices: Mapping[str, Any]) -> Scenarios:
    """Return the scenarios in a TOML file, or in the same data; *prices* go before theirs.

    Raises SettingsError, and LoadError for a file that cannot be read.
    """
    file = None if isinstance(source, Mapping) else Path(source)
    data, lines = (source, {}) if isinstance(source, Mapping) else read_toml(Path(source))
    try:
        values = ScenarioFile.model_validate(data)
        data = {"price": prices, "scenario": values.scenario}
        values.price.update(ScenarioFile.model_validate(data).price)
    except ValidationError as error:
        mistakes = mistakes_in(ScenarioFile, data, error)
        raise _error(file, lines, [(mistake.keys, mistake.message) for mistake in mistakes]) from None
    if problems := [*_wrong(values)]:
        raise _error(file, lines, problems)
    return Scenarios(values, file, lines)


def _wrong(values: ScenarioFile) -> Iterator[tuple[Keys, str]]:
    names = [scenario.name for scenario in values.scenario]
    for number, scenario in enumerate(values.scenario):
        keys = ("scenario", number)
        if not scenario.prompt.strip():
            yield (*keys, "prompt"), f"'{scenario.name}' has no prompt. Write what a person would ask."
        if scenario.name in names[:number]:
            yield (*keys, "name"), f"There is a scenario '{scenario.name}' already."
        if not (scenario.call or scenario.not_called):
            yield keys, f"'{scenario.name}' expects nothing: it needs a [[scenario.call]], or 'not_called'."
        for index, call in enumerate(scenario.call):
            try:
                call.rule()
            except ToolcribError as error:
                yield _call(number, index), str(error)


def _call(scenario: int, index: int) -> Keys:
    return "scenario", scenario, "call", index


def _error(file: Path | None, lines: Mapping[Keys, int], problems: Iterable[tuple[Keys, str]]) -> SettingsError:
    places = [(place_in(file, lines, keys) if file else (display_path(keys), None), text) for keys, text in problems]
    sentences = [SettingsProblem(place, text, line) for (place, line), text in places]
    return SettingsError(sorted(sentences, key=lambda problem: problem.line or 0))
