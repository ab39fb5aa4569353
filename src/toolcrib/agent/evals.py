"""Evals: scenarios that models are asked several times, and whether they call the tools as is expected.

Arguments are checked and repaired, and rules applied, as in any call. A tool does not run unless that is asked for:
the model gets the result that the scenario has, and what a policy would ask a person is approved.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Unpack

from .. import formats
from ..core import Answer, Approve, Call, Caller, CancellationToken, LoadError, Pending, SetupError, Text, ToolSpec
from ..formats import Reply, Usage
from ..tools import Tool
from ..workbench import Crib, Options, Stores, View, Workbench
from ..workbench.rules import is_like
from .agent import MAX_PROMPT_CHARS, Agent
from .model import Model, ModelError, model_from_name, require_model
from .outcome import Outcome, Trace
from .scenarios import ExpectedCall, Scenario, ScenarioFile, read_scenarios

_REPLY_TOKENS = 100
_FORMATS = {"responses": "openai_responses", **{name: name for name in ("openai", "anthropic", "gemini", "bedrock")}}
_NOT_RUN: Options = {"recorder": (), "limits": (), "retries": ()}


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
    content = read_scenarios(scenarios, prices or {})
    evaluation = _Eval(content.values, {"max_tokens": max_tokens, "max_calls": max_calls}, cancellation)
    sources: list[Any] = [*tools]
    if not execute:
        sources = [View("stubs", tuple(sources), lambda tools: [*map(evaluation.stub, tools)])]
        options = {**options, **_NOT_RUN, "store": Stores(), "ask": _approve}
    report = on_progress or (lambda _: None)
    async with _clients(models) as clients, Crib(sources, **options) as evaluation.crib:
        if not clients or runs < 1 or len({client.name for client in clients}) < len(clients):
            raise SetupError("An eval takes one model or more, each once, and one run or more.")
        if (bench := evaluation.bench()).problems:  # with fewer tools it would be another eval
            raise LoadError("\n".join(map(bench.redacted, map(str, bench.problems))))
        content.require_known([tool.spec for tool in bench.registry])
        report(estimate := evaluation.estimate([client.name for client in clients], runs, bench.specs()))
        numbers = range(1, runs + 1)
        for client, number, scenario in ((c, n, s) for c in clients for n in numbers for s in content.values.scenario):
            if (run := await evaluation.run(client, scenario, number)) is None:
                break
            report(run)
    return EvalReport(tuple(evaluation.runs), estimate, pass_rate, evaluation.why)


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

    async def run(self, client: Model, scenario: Scenario, number: int) -> EvalRun | None:
        """Run *scenario* once, and keep what came of it; None where the eval is over."""
        usage = {"max_tokens": sum(run.tokens for run in self.runs), "max_calls": sum(len(r.calls) for r in self.runs)}
        rest: dict[str, Any] = {name: most - usage[name] for name, most in self.limits.items() if most is not None}
        if over := next((name for name, number in rest.items() if number <= 0), None):
            self.why = self.why or f"The eval was stopped: {over} is {self.limits[over]}."
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
    raw = {call.id: call for turn in outcome.turns if isinstance(turn, Reply) for call in turn.calls}
    calls = [(raw[trace.call_id], trace) for trace in outcome.trace]
    of_tools = [
        f"'{trace.tool}' was called, which must not be."
        for call, trace in calls
        if any(is_like(glob, call.tool, tool=True) for glob in scenario.forbidden)
    ]
    by_tool = [[pair for pair in calls if is_like(own.tool, pair[0].tool, tool=True)] for own in scenario.call]
    exact = [
        [call.id for call, _ in pairs if await _accepts(expected, call, bench)]
        for expected, pairs in zip(scenario.call, by_tool, strict=True)
    ]
    matches, exact_matches = _assigned([[call.id for call, _ in pairs] for pairs in by_tool]), _assigned(exact)
    of_arguments: list[str] = []
    for index, expected in enumerate(scenario.call):
        arguments = ", ".join(trace.arguments for _, trace in by_tool[index])[:MAX_PROMPT_CHARS]
        if index not in matches:
            of_tools.append(f"'{expected.tool}' was not called.")
        elif index not in exact_matches:
            of_arguments.append(f"'{expected.tool}' was called with other arguments: {arguments}.")
    return of_tools, of_arguments


async def _accepts(expected: ExpectedCall, call: Call, bench: Workbench) -> bool:
    """Return whether *call* is valid, if need be once it was repaired, and as *expected*."""
    tool, result = bench.registry.holder(call.tool), await bench.check(call)
    if tool is None or result.error is not None:
        return False
    return expected.accepts(tool.spec, result.unwrap(), bench.caller)


def _assigned(matches: Sequence[Sequence[str]]) -> set[int]:
    """Return which expectations have a call of their own: *matches* are the ids of the calls that fit each."""
    owners: dict[str, int] = {}

    def assign(index: int, tried: set[str]) -> bool:
        for call in matches[index]:
            if call not in tried:
                tried.add(call)
                if call not in owners or assign(owners[call], tried):
                    owners[call] = index
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
