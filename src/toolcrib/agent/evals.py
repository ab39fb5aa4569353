"""Evals: scenarios that models are asked several times, and whether they call the tools as is expected.

Arguments are checked and repaired, and rules applied, as in any call. A tool does not run unless that is asked for:
the model gets the result that the scenario has, and what a policy would ask a person is approved.

What arguments must be is said as in `[[rule]] where`, by values, or by a JSON Schema. All that a file says is checked
before a model is asked, also whether the tools can be called in the way that is expected.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Unpack

from annotated_types import Ge, MinLen
from pydantic import Field, ValidationError

from .. import formats
from ..core import (
    Answer,
    Approve,
    Call,
    Caller,
    CancellationToken,
    DefinitionError,
    LoadError,
    Pending,
    SetupError,
    Text,
    ToolcribError,
    ToolError,
    ToolSpec,
)
from ..formats import Reply, Usage
from ..schema import require_schema, written
from ..schema.declared import Keys, Strict, mistakes_in
from ..schema.describe import display_path
from ..schema.view import is_valid, pointer
from ..tools import Tool
from ..workbench import Crib, Options, Stores, View, Workbench
from ..workbench.rules import Names, Rule, is_like, unknown_name
from ..workbench.settings import SettingsError, SettingsProblem, place_in, read_toml
from .agent import MAX_PROMPT_CHARS, Agent
from .model import Model, ModelError, model_from_name, require_model
from .outcome import Outcome, Trace

_REPLY_TOKENS = 100
_FORMATS = {"responses": "openai_responses", **{name: name for name in ("openai", "anthropic", "gemini", "bedrock")}}
_TracedCall = tuple[Call, Trace]
_NOT_RUN: Options = {"recorder": (), "limits": (), "retries": ()}
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


def read_scenarios(source: str | Path | Mapping[str, Any], prices: Mapping[str, Any] | None) -> Scenarios:
    """Return the scenarios in a TOML file, or in the same data; *prices* go before theirs.

    Raises SettingsError, and LoadError for a file that cannot be read.
    """
    file = None if isinstance(source, Mapping) else Path(source)
    data, lines = (source, {}) if isinstance(source, Mapping) else read_toml(Path(source))
    try:
        values = ScenarioFile.model_validate(data)
        data = {"price": prices or {}, "scenario": values.scenario}
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


@dataclass(frozen=True, slots=True)
class EvalEstimate:
    """What an eval will take, about: how many `runs`, how many `tokens`, and the `price`, where all models have one.

    `tool_tokens` are those of the list of tools by model, about, which each request contains.
    """

    runs: int
    tokens: int
    price: float | None
    tool_tokens: Mapping[str, int]
    currency: str = ""


@dataclass(frozen=True, slots=True)
class EvalRun:
    """One run of a scenario with a model. `problems` are why it has not passed.

    `right_tool`: it called the tools that it must, and none that it must not; `right_arguments`: also with the
    arguments that are expected.
    """

    model: str
    scenario: str
    number: int
    right_tool: bool
    right_arguments: bool
    problems: tuple[str, ...]
    usage: Usage
    price: float | None
    calls: tuple[Trace, ...]

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def tokens(self) -> int:
        return self.usage.input + self.usage.output

    @property
    def repairs(self) -> int:
        """The repairs of arguments in all calls."""
        return sum(len(call.repairs) for call in self.calls)

    @property
    def denials(self) -> int:
        """The calls that were denied."""
        return sum(call.code == "denied" for call in self.calls)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON data."""
        names = ("model", "scenario", "number", "passed", "right_tool", "right_arguments", "repairs", "denials")
        data = {name: getattr(self, name) for name in (*names, "tokens", "price")}
        calls = [call.to_dict() for call in self.calls]
        return {**data, "problems": [*self.problems], "usage": self.usage.to_dict(), "calls": calls}


@dataclass(frozen=True, slots=True)
class EvalReport:
    """What an eval has found. `why` is why there are not all runs; empty where there are."""

    runs: tuple[EvalRun, ...]
    estimate: EvalEstimate
    pass_rate: float = 1.0
    why: str = ""

    @property
    def failures(self) -> list[str]:
        """A sentence for each scenario of which too few runs have passed, and for what stopped the eval."""
        sentences = [self.why] if self.why else []
        for (model, scenario), runs in self._groups().items():
            number = sum(not run.passed for run in runs)
            if len(runs) - number < self.pass_rate * len(runs):
                why = " ".join(dict.fromkeys(problem for run in runs for problem in run.problems))
                sentences.append(f"{model}, '{scenario}': {number} of {len(runs)} failed. {why}")
        return sentences

    def summary(self) -> list[dict[str, Any]]:
        """Return what the runs of each model and scenario come to, and those of each model, as JSON data."""
        groups = self._groups()
        rows: list[dict[str, Any]] = []
        for model in dict.fromkeys(model for model, _ in groups):
            runs = [(scenario, runs) for (name, scenario), runs in groups.items() if name == model]
            rows += [self._row(model, *group) for group in runs]
            rows.append(self._row(model, None, [run for _, group in runs for run in group]))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        runs = [run.to_dict() for run in self.runs]
        texts = {"why": self.why or None, "currency": self.estimate.currency or None, "failures": self.failures}
        return {"ok": not texts["failures"], **texts, "summary": self.summary(), "runs": runs}

    def _groups(self) -> dict[tuple[str, str], list[EvalRun]]:
        groups: dict[tuple[str, str], list[EvalRun]] = {}
        for run in self.runs:
            groups.setdefault((run.model, run.scenario), []).append(run)
        return groups

    def _row(self, model: str, scenario: str | None, runs: Sequence[EvalRun]) -> dict[str, Any]:
        tokens = [run.tokens for run in runs]
        counts = {
            name: sum(getattr(run, name) for run in runs)
            for name in ("passed", "right_tool", "right_arguments", "repairs", "denials", "tokens")
        }
        spread = {"min_tokens": min(tokens), "max_tokens": max(tokens), "calls": sum(len(run.calls) for run in runs)}
        more = {"tool_tokens": self.estimate.tool_tokens[model], "price": _sum([run.price for run in runs])}
        return {"model": model, "scenario": scenario, "runs": len(runs), **counts, **spread, **more}


async def evaluate(
    scenarios: str | Path | Mapping[str, Any],
    models: Model | str | Iterable[Model | str],
    tools: Iterable[Any],
    *,
    runs: int = 1,
    execute: bool = False,
    max_tokens: int | None = None,
    max_calls: int | None = None,
    pass_rate: float = 1.0,
    prices: Mapping[str, Mapping[str, float]] | None = None,
    on_progress: Callable[[EvalEstimate | EvalRun], Any] | None = None,
    cancellation: CancellationToken | None = None,
    **options: Unpack[Options],
) -> EvalReport:
    """Ask each of *models* each of *scenarios*, *runs* times, with *tools*, sources as a Workbench takes them.

    *scenarios* are a TOML file, or the same data. *options* are those of a Workbench. Tools do not run, unless
    *execute*: else calls have the results of the scenarios. The whole eval is stopped beyond *max_tokens*, input and
    output, and *max_calls* of tools. *pass_rate* is the share of the runs of a scenario that has to pass. *prices* go
    before those of the scenarios: {"MODEL": {"input": 1.0, "output": 2.0}}. *on_progress* is called with the estimate
    before the first request, and with each run; *cancellation* ends the eval with what there is.

    Raises SetupError, with file and line, for scenarios that are not valid or name what there is not, and LoadError
    where tools are missing.
    """
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise SetupError('An eval takes sources of tools: evaluate("scenarios.toml", MODEL, [add, "tools.py"]).')
    content = read_scenarios(scenarios, prices)
    evaluation = _Eval(content.values, {"max_tokens": max_tokens, "max_calls": max_calls}, cancellation)
    sources: list[Any] = [*tools]
    if not execute:
        sources = [View("stubs", tuple(sources), lambda tools: [*map(evaluation.stub, tools)])]
        options = {**options, **_NOT_RUN, "store": Stores(), "ask": _approve}
    report = on_progress or (lambda _: None)
    async with _clients(models) as clients, Crib(sources, **options) as evaluation.crib:
        names = [client.name for client in clients]
        plan = _plan(clients, runs, content.values.scenario)
        if (bench := evaluation.bench()).problems:  # with fewer tools it would be another eval
            raise LoadError("\n".join(map(bench.redacted, map(str, bench.problems))))
        content.require_known([tool.spec for tool in bench.registry])
        report(estimate := evaluation.estimate(names, runs, bench.specs()))
        for client, number, scenario in plan:
            if (run := await evaluation.run(client, scenario, number)) is None:
                break
            report(run)
    return EvalReport(tuple(evaluation.runs), estimate, pass_rate, evaluation.why)


def _plan(clients: Sequence[Model], runs: int, scenarios: Sequence[Scenario]) -> Iterator[tuple[Model, int, Scenario]]:
    """Return what to run, one after the other: there may be more *runs* than memory holds. Raises SetupError."""
    if not clients or runs < 1 or len({client.name for client in clients}) < len(clients):
        raise SetupError("An eval takes one model or more, each once, and one run or more.")
    return ((client, number, case) for client in clients for number in range(1, runs + 1) for case in scenarios)


@asynccontextmanager
async def _clients(models: Model | str | Iterable[Model | str]) -> AsyncGenerator[list[Model]]:
    """Make the models that are named, and close them at the end."""
    names: Any = [models] if isinstance(models, str) or not isinstance(models, Iterable) else models
    async with AsyncExitStack() as stack:
        clients: list[Model] = []
        for name in names:
            clients.append(model_from_name(name) if isinstance(name, str) else require_model(name))
            if isinstance(name, str) and (close := getattr(clients[-1], "close", None)) is not None:
                stack.push_async_callback(close)
        yield clients


@dataclass(slots=True)
class _Eval:
    """An eval as it goes on. `why` is why it ends before its end."""

    values: ScenarioFile
    limits: Mapping[str, int | None]
    cancellation: CancellationToken | None
    crib: Crib = field(init=False)
    results: Mapping[str, Any] = field(default_factory=dict[str, Any])
    runs: list[EvalRun] = field(default_factory=list[EvalRun])
    why: str = ""

    def bench(self) -> Workbench:
        """Return a workbench of a thread of its own: what rules remember of one run is nothing to another."""
        return self.crib.workbench(Caller(thread=f"eval_{token_hex(8)}"))

    def stub(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """Return *tool* with the result of the scenario that is asked in the place of its work."""

        async def work(*_: Any) -> Any:
            value = self.results.get(tool.spec.name, "Done.")
            return [Text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))]

        spec = replace(tool.spec, auth=None, once=False, output_schema=None)
        parts: dict[str, Any] = dict.fromkeys(("isolation", "codec", "needs", "lock", "verify", "cost", "retries"))
        return tool.wrapped(lambda _: work).replace(spec=spec, needs_context=False, is_task=False, **parts)

    def estimate(self, models: Sequence[str], runs: int, specs: Sequence[ToolSpec]) -> EvalEstimate:
        tool_tokens = {name: _tool_tokens(name, specs) for name in models}
        prices: list[float | None] = []
        total = Usage()
        for name, of_tools in tool_tokens.items():
            usage = Usage()
            for scenario in self.values.scenario:
                text = (len(self.values.instructions) + len(scenario.prompt)) // formats.CHARS_PER_TOKEN
                steps = len(scenario.call) + 1
                # Each request repeats what came before it.
                before = _REPLY_TOKENS * steps * (steps - 1) // 2
                usage += Usage(runs * (steps * (of_tools + text) + before), runs * steps * _REPLY_TOKENS)
            total += usage
            prices.append(self._price(name, usage))
        count = len(models) * runs * len(self.values.scenario)
        return EvalEstimate(count, total.input + total.output, _sum(prices), tool_tokens, self.values.currency)

    def _price(self, model: str, usage: Usage) -> float | None:
        price = self.values.price.get(model)
        return None if price is None else price.of(usage)

    def _take_stock(self) -> dict[str, Any]:
        """Return what is left of each limit, and end the eval where nothing is left of one."""
        usage = {"max_tokens": sum(run.tokens for run in self.runs), "max_calls": sum(len(r.calls) for r in self.runs)}
        rest = {name: most - usage[name] for name, most in self.limits.items() if most is not None}
        if over := next((name for name, number in rest.items() if number <= 0), None):
            self.why = self.why or f"The eval was stopped: {over} is {self.limits[over]}."
        return rest

    async def run(self, client: Model, scenario: Scenario, number: int) -> EvalRun | None:
        """Run *scenario* once, and keep what came of it; None where the eval is over."""
        rest = self._take_stock()
        if self.why:
            return None
        self.results = {**self.values.results, **scenario.results}
        errors: list[str] = []
        async with self.bench() as bench:
            agent = Agent(client, bench, instructions=self.values.instructions, **rest)
            try:
                outcome = await agent.run(scenario.prompt, cancellation=self.cancellation)
            except ModelError as error:
                errors, outcome = [str(error)], error.so_far or Outcome("failed", "")
            if outcome.status == "cancelled":
                self.why = "The eval was interrupted."
                return None
            of_tools, of_arguments = await _problems(scenario, outcome, bench)
        problems = errors or [*of_tools, *of_arguments]
        if problems and not errors and outcome.why:
            problems.append(outcome.why)
        price = self._price(client.name, outcome.usage)
        rights = not (errors or of_tools), not problems
        names = client.name, scenario.name, number
        self.runs.append(EvalRun(*names, *rights, tuple(problems), outcome.usage, price, outcome.trace))
        return self.runs[-1]


async def _problems(scenario: Scenario, outcome: Outcome, bench: Workbench) -> tuple[list[str], list[str]]:
    """Return what is wrong with the tools that were called, and with their arguments."""
    of_tools = [f"'{trace.tool}' was called, which must not be." for _, trace in _calls_of(scenario.forbidden, outcome)]
    by_tool = [_calls_of([expected.tool], outcome) for expected in scenario.call]
    exact = [
        [(call, trace) for call, trace in pairs if await _accepts(expected, call, bench)]
        for expected, pairs in zip(scenario.call, by_tool, strict=True)
    ]
    matches, exact_matches = _assigned(by_tool), _assigned(exact)
    of_arguments: list[str] = []
    for index, expected in enumerate(scenario.call):
        arguments = ", ".join(trace.arguments for _, trace in by_tool[index])[:MAX_PROMPT_CHARS]
        if index not in matches:
            of_tools.append(f"'{expected.tool}' was not called.")
        elif index not in exact_matches:
            of_arguments.append(f"'{expected.tool}' was called with other arguments: {arguments}.")
    return of_tools, of_arguments


def _calls_of(tools: Iterable[str], outcome: Outcome) -> list[_TracedCall]:
    """Return the calls of *outcome* whose tool is like one of *tools*."""
    raw = {call.id: call for turn in outcome.turns if isinstance(turn, Reply) for call in turn.calls}
    calls = [(raw[trace.call_id], trace) for trace in outcome.trace]
    return [pair for pair in calls if any(is_like(glob, pair[0].tool, tool=True) for glob in tools)]


async def _accepts(expected: ExpectedCall, call: Call, bench: Workbench) -> bool:
    """Return whether *call* is valid, if need be once it was repaired, and as *expected*."""
    tool, result = bench.registry.holder(call.tool), await bench.check(call)
    if tool is None or result.error is not None:
        return False
    return expected.accepts(tool.spec, result.unwrap(), bench.caller)


def _assigned(matches: Sequence[Sequence[_TracedCall]]) -> set[int]:
    """Return which expectations have a call of their own: *matches* are the calls that fit each."""
    owners: dict[str, int] = {}

    def assign(index: int, tried: set[str]) -> bool:
        for call, _ in matches[index]:
            if call.id not in tried:
                tried.add(call.id)
                if call.id not in owners or assign(owners[call.id], tried):
                    owners[call.id] = index
                    return True
        return False

    for index in range(len(matches)):
        assign(index, set())
    return {*owners.values()}


def _tool_tokens(model: str, specs: Sequence[ToolSpec]) -> int:
    form = getattr(formats, _FORMATS.get(model.partition(":")[0], "openai"))
    return len(json.dumps(form.tools(specs), ensure_ascii=False)) // formats.CHARS_PER_TOKEN


def _sum(prices: Sequence[float | None]) -> float | None:
    """Return the sum of *prices*; None where one is not known."""
    return None if None in prices else sum(price or 0.0 for price in prices)


async def _approve(pending: Pending) -> Answer | None:
    return Approve() if pending.kind == "approval" else None
