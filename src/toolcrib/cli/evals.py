"""`toolcrib eval`: scenarios that models are asked, and whether they call the tools as is expected.

The first Ctrl-C ends the eval with what there is. Runs go to standard error as they end, the table to standard output.
"""

from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from typing import Annotated, Any

import typer

from ..agent import EvalEstimate, EvalReport, EvalRun, evaluate
from ..core import CancellationToken, LoadError
from ..machinery import from_any_thread
from .app import Session, command, group
from .arguments import SourceNames
from .terminal import UsageError, counted, echo, log_to_stderr

app = group()

_COLUMNS = ["model", "scenario", "passed", "right_tool", "right_arguments", "repairs", "denials", "tokens"]


@command(
    app,
    "eval",
    example="toolcrib eval scenarios.toml tools.py --model openai:gpt-5-mini --runs 5",
    takes="config store json",
)
def run_eval(
    session: Session,
    scenarios: Annotated[Path, typer.Argument(metavar="SCENARIOS", help="A TOML file with [[scenario]] tables.")],
    sources: SourceNames = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="MODEL", help="As for `toolcrib chat`; may be repeated."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="How often each scenario is asked.")] = 1,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Stop beyond as many tokens, input and output.")
    ] = None,
    pass_rate: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="The share of runs of a scenario that has to pass.")
    ] = 1.0,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=INPUT,OUTPUT", help="What a million tokens cost; may be repeated."),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Let the tools run, as in `toolcrib chat`.")] = False,
) -> int:
    """Ask models what scenarios have, and look whether they call the tools as is expected.

    Arguments are checked and repaired and rules applied, but the tools do not run: calls have the results of the
    scenarios. Exit status 1: too few runs have passed, or the eval was stopped.
    """
    if not model:
        raise UsageError("No model is named. Name one or more: --model openai:MODEL, or scripted:FILE.")
    log_to_stderr(tracebacks=session.settings.options().get("show_errors", False))
    prices = dict(map(_price, price or ()))
    output = session.output
    tools = session.open(
        sources, example="For example: toolcrib eval scenarios.toml toolcrib.demo --model scripted:FILE"
    )
    if tools.problems:  # with fewer tools it would be another eval
        raise LoadError("\n".join(tools.problems))
    progress = _Progress(max_tokens)

    async def work() -> EvalReport:
        token = CancellationToken()
        cancel = from_any_thread(token.cancel)

        def pressed() -> bool:
            is_first, progress.is_interrupted = not progress.is_interrupted, True
            cancel()
            return is_first

        with session.interrupts.first_sigint_to(pressed):
            return await evaluate(
                scenarios,
                model,
                tools.sources,
                runs=runs,
                execute=execute,
                max_tokens=max_tokens,
                pass_rate=pass_rate,
                prices=prices,
                on_progress=progress,
                cancellation=token,
                **tools.options,
            )

    try:
        report = session.run(work())
    finally:
        if (store := tools.options.get("store")) is not None:
            store.close()
    if session.as_json:
        output.json(report.to_dict())
    else:
        output.table(*_table(report))
        echo("\n".join(report.failures) or "Passed.")
    return 128 + SIGINT if progress.is_interrupted else 1 if report.failures else 0


class _Progress:
    """Writes what an eval will take, and each run as it ends."""

    def __init__(self, max_tokens: int | None) -> None:
        self.is_interrupted = False
        self._limit = "" if max_tokens is None else f" At most {max_tokens:,} tokens are used."
        self._count = self._total = 0

    def __call__(self, event: EvalEstimate | EvalRun) -> None:
        if isinstance(event, EvalEstimate):
            self._total = event.runs
            price = "" if event.price is None else f", a price of about {_amount(event.price, event.currency)}"
            echo(f"{counted(event.runs, 'run')}: about {event.tokens:,} tokens{price}.{self._limit}")
            return
        self._count += 1
        text = "passed" if event.passed else f"failed. {' '.join(event.problems)}"
        echo(f"[{self._count}/{self._total}] {event.model}, '{event.scenario}': {text}")


def _table(report: EvalReport) -> tuple[list[dict[str, Any]], list[str]]:
    rows = report.summary()
    columns = [*_COLUMNS, "tool_tokens"] + ["price"] * any(row["price"] is not None for row in rows)
    for row in rows:
        row |= {name: f"{row[name]}/{row['runs']}" for name in ("passed", "right_tool", "right_arguments")}
        row |= {"scenario": row["scenario"] or "(all)", "tokens": f"{row['min_tokens']:,}-{row['max_tokens']:,}"}
        row["price"] = None if row["price"] is None else _amount(row["price"], report.estimate.currency)
    return rows, columns


def _amount(price: float, currency: str) -> str:
    return f"{price:.4f} {currency}".strip()


def _price(text: str) -> tuple[str, dict[str, float]]:
    model, _, amounts = text.rpartition("=")
    with suppress(ValueError):
        return model, dict(zip(("input", "output"), map(float, amounts.split(",")), strict=True))
    raise UsageError("--price takes a model and two prices: --price openai:MODEL=0.25,2")
