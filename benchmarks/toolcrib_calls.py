"""How Toolcrib is called: bare, and as a server would call it, with everything on."""

import itertools
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

from cases import CALLS, Case, Loop

from toolcrib import Caller, Tool, ToolSpec, Workbench
from toolcrib.formats import openai
from toolcrib.record import CallLog

BARE = "Toolcrib"
SERVED = "Toolcrib as served"


def bare(case: Case, *, timeout_s: float | None = None) -> Loop:
    return _loop(Workbench([case.fn], timeout_s=timeout_s), case)


def served(case: Case) -> Loop:
    """With a deadline, a caller, a secret to redact, a policy, and a record of each call."""
    return _loop(
        Workbench(
            [case.fn],
            timeout_s=60,
            caller=Caller("alice"),
            secrets=["s3cr3t-value-1"],
            policy=_allow,
            recorder=CallLog(),
        ),
        case,
    )


@asynccontextmanager
async def isolated(case: Case) -> AsyncGenerator[Loop]:
    """In a worker process, which ends with the context."""
    async with Workbench([Tool(case.fn, isolation="process")]) as bench:
        yield _loop(bench, case)


def among(tools: list[Callable[..., Any]], case: Case) -> Loop:
    return _loop(Workbench(tools), case)


def define(fn: Callable[..., Any]) -> None:
    Tool(fn)


def lister(tools: list[Callable[..., Any]]) -> Callable[[], Any]:
    return Workbench(tools).specs


def lowered_again(count: int) -> Callable[[], Any]:
    """The tools of a request to a provider in strict mode, as it is made at every turn."""
    specs = _specs(count)
    return lambda: openai.tools(specs, strict=True)


def lowered_first(count: int) -> Callable[[], Any]:
    """The same where no spec has been seen before."""
    specs = _specs(count)
    number = itertools.count()

    def lower() -> Any:
        version = str(next(number))
        return openai.tools([replace(spec, version=version) for spec in specs], strict=True)

    return lower


def _specs(count: int) -> list[ToolSpec]:
    made = [Tool(case.fn).spec for case in CALLS]
    return [replace(made[n % len(made)], name=f"tool_{n}") for n in range(count)]


def _allow(spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Literal["allow"]:
    return "allow"


def _loop(bench: Workbench, case: Case) -> Loop:
    name, text = case.name, case.text

    async def loop(times: int) -> str:
        answer = ""
        for _ in range(times):
            answer = (await bench.call(name, text)).text
        return answer

    return loop
