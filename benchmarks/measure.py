"""Measures, in one process and one interpreter, and says what it finds as JSON lines on stdout. Run by run.py.

Machines are noisy, and noise only ever adds time. So what is compared takes turns: in each round every subject makes a
batch of calls that lasts about two milliseconds, in an order that changes from round to round. A time is that of a
subject's fastest round, and a ratio is one of fastest rounds: in quiet and in noise it comes out the same within two in
a hundred, while ratios of averages do not. Where a round takes long there are few of them, and a ratio is the median
over the rounds of the ratio within a round. Garbage is collected as ever, and nothing is frozen: only the command that
serves does that, in a process of its own.
"""

import argparse
import asyncio
import gc
import itertools
import json
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from time import perf_counter, process_time
from typing import Any

import agent_calls
import call_log_calls
import cold_call
import credential_calls
import definition
import dialect_calls
import gateway_calls
import http_calls
import keyed_calls
import limit_calls
import loop_holds
import openapi_calls
import sandbox_calls
import search_calls
import serving_calls
import toolcrib_calls
import waiting_calls
from cases import APART, CALLS, HOLD, PAUSE, SUSPEND, TINY, Case, Loop, floor, fresh, thousand
from peer_calls import PEERS, Peer
from report import (
    AT_ONCE,
    COMMIT,
    CONNECTIONS,
    DBOS,
    DEFINED,
    GATEWAY,
    GATEWAY_HTTP,
    HELD,
    HELP,
    IN_SESSION,
    LISTED,
    LISTED_AGAIN,
    MEMORY,
    OVER_HTTP,
    OVER_STDIO,
    SESSION,
    STARTED,
    STORELESS,
)
from serving_calls import OLDER, VERSION
from toolcrib_calls import BARE, SERVED

from toolcrib import Tool

FLOOR = "floor"
ONE = "one"
MANY = 12
"""So many rounds have a quiet one among them."""
Work = Callable[[int], Awaitable[Any]]
"""Does something so many times."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time is spent: rounds of the near comparison and of the one with peers, seconds a batch lasts."""

    rounds: int
    peer_rounds: int
    batch_s: float
    import_rounds: int
    at_once: int
    serving_rounds: int
    requests: int
    sessions: int


FULL = Effort(
    rounds=200,
    peer_rounds=40,
    batch_s=0.002,
    import_rounds=11,
    at_once=10_000,
    serving_rounds=MANY,
    requests=100,
    sessions=5_000,
)
QUICK = Effort(
    rounds=60,
    peer_rounds=16,
    batch_s=0.002,
    import_rounds=7,
    at_once=10_000,
    serving_rounds=5,
    requests=50,
    sessions=500,
)


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def report(
    case: str, rounds: Mapping[str, Sequence[float]], tell: Iterable[str], *, base: str = FLOOR, scale: float = 1e6
) -> None:
    """Tell of some subjects: *rounds* are the seconds for one piece of work of each, round by round; bytes, at 1."""
    for subject in tell:
        say(
            event="row",
            case=case,
            subject=subject,
            best_us=min(rounds[subject]) * scale,
            median_us=median(rounds[subject]) * scale,
            times_floor=_ratio(rounds[subject], rounds[base]) if base in rounds else None,
            times_toolcrib=_ratio(rounds[subject], rounds[BARE]) if BARE in rounds and base != ONE else None,
        )


def _ratio(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) >= MANY:
        return min(one) / min(other)
    return median(mine / theirs for mine, theirs in zip(one, other, strict=True))


async def in_turns(
    subjects: Mapping[str, Work], rounds: int, batch_s: float, *, clock: Callable[[], float] = perf_counter
) -> dict[str, list[float]]:
    """Seconds by *clock* for one piece of work of each subject, round by round."""
    sizes = {name: await _batch_size(work, batch_s) for name, work in subjects.items()}
    found: dict[str, list[float]] = {name: [] for name in subjects}
    order = list(subjects)
    shuffled = random.Random(1)
    gc.collect()
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            work, size = subjects[name], sizes[name]
            began = clock()
            await work(size)
            found[name].append((clock() - began) / size)
    return found


async def _batch_size(work: Work, batch_s: float) -> int:
    """How many pieces of *work* take about *batch_s*. Warms it up, too."""
    size = 1
    while True:
        began = perf_counter()
        await work(size)
        took = perf_counter() - began
        if took >= batch_s / 4:
            return max(1, round(size * batch_s / took))
        size *= 4


async def one_call_after_the_other(peers: Mapping[str, Peer], effort: Effort) -> None:
    for case in CALLS:
        say(event="doing", what=case.title)
        near = {FLOOR: floor(case), BARE: toolcrib_calls.bare(case), SERVED: toolcrib_calls.served(case)}
        far: dict[str, Loop] = {}
        for peer in peers.values():
            far |= await peer.calls(case)
        await _answers_are_right(case, near, far)
        report(case.title, await in_turns(near, effort.rounds, effort.batch_s), near)
        if far:
            # Again with the floor and Toolcrib among them, as what the peers are compared with.
            both = {FLOOR: near[FLOOR], BARE: near[BARE]} | far
            report(case.title, await in_turns(both, effort.peer_rounds, effort.batch_s), far)


async def deadline(effort: Effort) -> None:
    """A tool that suspends costs the most, since its deadline needs a timer. The floor is asyncio's own timeout."""
    say(event="doing", what=SUSPEND.title)
    near = {FLOOR: floor(SUSPEND, timeout_s=60), BARE: toolcrib_calls.bare(SUSPEND, timeout_s=60)}
    await _answers_are_right(SUSPEND, near, {})
    report(SUSPEND.title, await in_turns(near, effort.rounds, effort.batch_s), near)


async def _answers_are_right(case: Case, near: Mapping[str, Loop], far: Mapping[str, Loop]) -> None:
    """A subject that is fast because it fails is no subject."""
    for name, loop in near.items():
        answer = await loop(1)
        if json.loads(answer) != case.json_answer:
            raise SystemExit(f"{name} answered {answer[:200]!r} to '{case.title}'.")
    last = case.json_answer[-1]["name"] if isinstance(case.json_answer, list) else str(case.json_answer)
    for name, loop in far.items():
        answer = await loop(1)
        if last not in answer or (isinstance(case.json_answer, int) and answer != last):
            raise SystemExit(f"{name} answered {answer[:200]!r} to '{case.title}'.")


async def among_a_thousand(peers: Mapping[str, Peer], effort: Effort) -> None:
    title = "one tool among 1,000"
    say(event="doing", what=title)
    tools = thousand()
    pairs = {BARE: (toolcrib_calls.bare(TINY), toolcrib_calls.among(tools, TINY))}
    for peer in peers.values():
        one, many = await peer.among([TINY.fn], TINY), await peer.among(tools, TINY)
        if one is not None and many is not None:
            pairs[peer.label] = (one, many)
    for subject, (one, many) in pairs.items():
        effort_here = effort.rounds if subject == BARE else effort.peer_rounds
        # Here the floor is the same library with one tool.
        report(title, await in_turns({ONE: one, subject: many}, effort_here, effort.batch_s), [subject], base=ONE)
    await _listing(peers, tools, effort)


async def _listing(peers: Mapping[str, Peer], tools: list[Callable[..., Any]], effort: Effort) -> None:
    title = "listing 1,000 tools again"
    say(event="doing", what=title)
    specs = toolcrib_calls.lister(tools)
    ours = _sync(specs)
    report(title, await in_turns({BARE: ours}, effort.rounds, effort.batch_s), [BARE])
    for peer in peers.values():
        listed = await peer.lister(tools)
        if listed is not None:
            assert len(await listed()) == len(specs()) == 1000
            rounds = await in_turns({BARE: ours, peer.label: _async(listed)}, 3, effort.batch_s)
            report(title, rounds, [peer.label])


async def at_once(case: Case, peers: Mapping[str, Peer], effort: Effort, *, peer_rounds: int) -> None:
    say(event="doing", what=case.title)
    subjects = {FLOOR: floor(case), BARE: toolcrib_calls.bare(case), SERVED: toolcrib_calls.served(case)}
    near = await _at_once_in_turns(subjects, 5, effort.at_once)
    report(case.title, near, near)
    for peer in peers.values():
        label, loop = list((await peer.calls(case)).items())[-1]
        say(event="doing", what=f"{case.title}: {label}")
        turn = {FLOOR: subjects[FLOOR], BARE: subjects[BARE], label: loop}
        report(case.title, await _at_once_in_turns(turn, peer_rounds, effort.at_once), [label])


async def _at_once_in_turns(subjects: Mapping[str, Loop], rounds: int, times: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, loop in subjects.items():
            found[name].append(await _all_at_once(loop, times))
    return found


async def blocking_at_once(peers: Mapping[str, Peer], effort: Effort) -> None:
    """With as many threads for everybody: the floor and AutoGen run sync functions in the loop's default executor."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    there = {name: peer for name, peer in peers.items() if name == "AutoGen"}
    await at_once(HOLD, there, effort, peer_rounds=3)


_THREADS = 32
"""As many as Toolcrib has."""


async def apart(effort: Effort) -> None:
    """The floor is the standard library's pool of processes, spawned like Toolcrib's."""
    say(event="doing", what=APART.title)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        async with toolcrib_calls.isolated(APART) as isolated:
            near = {FLOOR: floor(APART, pool), BARE: isolated}
            await _answers_are_right(APART, near, {})
            report(APART.title, await in_turns(near, effort.rounds, effort.batch_s), near)


async def agent_turns(peers: Mapping[str, Peer], effort: Effort) -> None:
    title = agent_calls.TITLE
    say(event="doing", what=title)
    near: dict[str, Loop] = {FLOOR: agent_calls.by_hand(), **agent_calls.toolcrib()}
    far: dict[str, Loop] = {}
    for name, make in agent_calls.PEERS.items():
        far |= make() if name in peers else {}
    for name, loop in (near | far).items():
        if (answer := await loop(1)) != "3":
            raise SystemExit(f"{name} answered {answer[:200]!r} to '{title}'.")
    report(title, await in_turns(near, effort.rounds, effort.batch_s), near)
    if far:
        report(title, await in_turns(near | far, effort.peer_rounds, effort.batch_s), far)


async def lowering(effort: Effort) -> None:
    """The floor is the first time: of specs that nobody has seen."""
    title = "lowering 20 schemas again"
    say(event="doing", what=title)
    near = {FLOOR: _sync(toolcrib_calls.lowered_first(20)), BARE: _sync(toolcrib_calls.lowered_again(20))}
    report(title, await in_turns(near, effort.rounds // 4, effort.batch_s), near)


async def dialects(peers: Mapping[str, Peer], effort: Effort) -> None:
    subjects = [BARE, dialect_calls.AUTOGEN] if "AutoGen" in peers else [BARE]
    for title, case in dialect_calls.CASES.items():
        say(event="doing", what=title)
        loops = dialect_calls.call_tool(case, subjects)
        await _answers_are_right(case, {}, loops)
        report(title, await in_turns(loops, effort.rounds, effort.batch_s), loops)


async def credentials(effort: Effort) -> None:
    """The floor is the same tool without `auth`."""
    async with credential_calls.vault() as (store, vault):
        sealed, cached = credential_calls.look_ups(store, vault)
        for title, work in ((credential_calls.SEALED, sealed), (credential_calls.CACHED, cached)):
            say(event="doing", what=title)
            report(title, await in_turns({BARE: work}, effort.rounds, effort.batch_s), [BARE])
        for title, log in ((credential_calls.AUTHORIZED, None), (credential_calls.LOGGED, store)):
            say(event="doing", what=title)
            async with credential_calls.calls(vault, log) as (without, authorized):
                near = {FLOOR: without, BARE: authorized}
                await _answers_are_right(TINY, near, {})
                report(title, await in_turns(near, effort.rounds, effort.batch_s), near)


async def gateway(effort: Effort) -> None:
    """The floor is the SDK's own client."""
    say(event="doing", what=GATEWAY)
    async with gateway_calls.over_stdio() as loops:
        report(GATEWAY, await in_turns(loops, effort.peer_rounds, 0.02), loops)
    say(event="doing", what=GATEWAY_HTTP)
    async with gateway_calls.over_http() as loops:
        report(GATEWAY_HTTP, await in_turns(loops, effort.peer_rounds, 0.02, clock=process_time), loops)


async def http(effort: Effort) -> None:
    """The floor is a bare Starlette route. A time is that of the server's process on the processor."""
    say(event="doing", what=http_calls.TITLE)
    if not serving_calls.can_measure():
        return
    with http_calls.servers() as servers:
        times = http_calls.rounds(servers, effort.rounds // 4, 200)
        report(http_calls.TITLE, times, times)


async def search(effort: Effort) -> None:
    """Only where the public set is installed, as it is beside the peers."""
    say(event="doing", what=search_calls.TITLE)
    try:
        specs, questions = search_calls.public_set()
    except PackageNotFoundError:
        return
    index, kept_mib = search_calls.many(specs)
    texts = itertools.cycle(text for text, _ in questions)
    find = _sync(lambda: list(itertools.islice(index.ranked(next(texts)), 5)))
    report(search_calls.TITLE, await in_turns({BARE: find}, effort.rounds, 0.02), [BARE])
    for text in search_calls.notes(specs, questions, kept_mib):
        say(event="note", text=text)


async def call_log(effort: Effort) -> None:
    """The floor is a call without any record."""
    say(event="doing", what=call_log_calls.TITLE)
    async with call_log_calls.calls() as logged:
        loops = {FLOOR: toolcrib_calls.bare(TINY), **logged}
        await _answers_are_right(TINY, loops, {})
        report(call_log_calls.TITLE, await in_turns(loops, effort.rounds, effort.batch_s), loops)


async def limits() -> None:
    """The floor is a limit of the process alone. A place takes two transactions, and one to give it back."""
    for kind, title in limit_calls.TITLES.items():
        say(event="doing", what=title)
        async with limit_calls.calls(kind) as (own, shared):
            rounds = {
                FLOOR: await keyed_calls.processor_seconds(own),
                BARE: await keyed_calls.processor_seconds(shared),
            }
            report(title, rounds, rounds)


async def keyed(has_peers: bool) -> None:
    """No floor: what counts is a whole call on the processor, beside DBOS, and how often it commits."""
    say(event="doing", what=keyed_calls.TITLE)
    async with keyed_calls.calls() as (new, seen):
        rounds = {BARE: await keyed_calls.processor_seconds(new)}
        notes = {BARE: await keyed_calls.commits(new)}
        report(keyed_calls.SEEN_TITLE, {BARE: await keyed_calls.processor_seconds(seen)}, [BARE])
        if has_peers:
            async with keyed_calls.workflows() as workflow:
                rounds[DBOS] = await keyed_calls.processor_seconds(workflow)
                notes[DBOS] = await keyed_calls.commits(workflow)
        report(keyed_calls.TITLE, rounds, rounds)
    commits = ", ".join(f"{count:g} by {name}" for name, count in notes.items())
    say(event="note", text=f"{keyed_calls.TITLE}: commits {commits}.")


async def waiting() -> None:
    """The floor is a transaction that changes one row."""
    say(event="doing", what=waiting_calls.TITLE)
    async with waiting_calls.waiting() as (answer, change, look):
        await change(10)
        loops = {FLOOR: change, BARE: answer}
        report(
            waiting_calls.TITLE,
            {name: await keyed_calls.processor_seconds(loop) for name, loop in loops.items()},
            loops,
        )
        say(
            event="note",
            text=f"{waiting_calls.TITLE}: to look for what is due takes {await waiting_calls.look_us(look):.0f} µs.",
        )


async def loop_held(effort: Effort) -> None:
    """No floor: what counts is how long other calls wait."""
    say(event="doing", what=HELD.format("foreign data"))
    for name, seconds in (await loop_holds.holds(max(3, effort.serving_rounds // 2))).items():
        report(HELD.format(name), {BARE: seconds}, [BARE])


async def sandbox(effort: Effort) -> None:
    """The floor is wasmtime's own instance, with the same limits."""
    say(event="doing", what=sandbox_calls.TITLE)
    async with sandbox_calls.calls() as subjects:
        for name, loop in subjects.items():
            if (answer := await loop(1)) != sandbox_calls.TEXT:
                raise SystemExit(f"{name} answered {answer[:200]!r} to '{sandbox_calls.TITLE}'.")
        slow = {name: loop for name, loop in subjects.items() if name == sandbox_calls.SUBPROCESS}
        near = {name: loop for name, loop in subjects.items() if name not in slow}
        report(sandbox_calls.TITLE, await in_turns(near, effort.rounds, effort.batch_s), near)
        both = {BARE: subjects[BARE], **slow}
        report(sandbox_calls.TITLE, await in_turns(both, effort.peer_rounds, effort.batch_s), slow)
    say(event="doing", what=sandbox_calls.READY)
    with sandbox_calls.cached_module() as load:
        report(sandbox_calls.READY, await in_turns({BARE: _sync(load)}, effort.rounds, effort.batch_s), [BARE])


def serving(effort: Effort, *, peers: bool) -> None:
    """The floor is the low-level server of the official SDK."""
    subjects, rounds = serving_calls.subjects(peers), effort.serving_rounds
    for title, era in OVER_STDIO.items():
        say(event="doing", what=title)
        report(title, serving_calls.over_stdio(era, subjects, rounds, effort.requests), subjects)
    if not serving_calls.can_measure():
        return
    for count in serving_calls.COUNTS:
        title = OVER_HTTP.format(f"{count:,}")
        say(event="doing", what=title)
        names = [*subjects, COMMIT] if count == 4 else subjects
        report(title, serving_calls.over_http(VERSION, count, names, rounds, effort.requests), names)
    say(event="doing", what=IN_SESSION)
    report(IN_SESSION, serving_calls.over_http(OLDER, 4, subjects, rounds, effort.requests), subjects)
    for title, era in AT_ONCE.items():
        say(event="doing", what=title)
        requests = 4 * effort.requests  # else a round is six turns of all connections, whose times swing by a fifth
        times = serving_calls.over_http(era, 4, subjects, rounds, requests, connections=CONNECTIONS)
        report(title, times, subjects)
    say(event="doing", what=LISTED)
    first, again = serving_calls.listings(subjects, max(3, rounds // 4), again=20)
    report(LISTED, first, subjects)
    report(LISTED_AGAIN, again, subjects)
    for door in ("stdio", "HTTP"):
        say(event="doing", what=STARTED.format(door))
        times, sizes = serving_calls.starts(door, subjects, max(3, rounds // 4))
        report(STARTED.format(door), times, subjects)
        report(MEMORY.format(door), sizes, subjects, scale=1)
    say(event="doing", what=SESSION)
    holders = [name for name in subjects if name != STORELESS]
    report(SESSION, serving_calls.session_bytes(holders, effort.sessions), holders, scale=1)


async def openapi(effort: Effort) -> None:
    """The floor parses the document, and validates the schemas of its tools."""
    say(event="doing", what=openapi_calls.TITLE)
    with openapi_calls.loads() as subjects:
        works = {name: _sync(work) for name, work in subjects.items()}
        report(openapi_calls.TITLE, await in_turns(works, MANY, effort.batch_s), works)


async def _all_at_once(loop: Loop, times: int) -> float:
    """Seconds for one call of many that wait at the same time."""
    gc.collect()
    began = perf_counter()
    await asyncio.gather(*(loop(1) for _ in range(times)))
    return (perf_counter() - began) / times


async def definitions(peers: Mapping[str, Peer], effort: Effort) -> None:
    title = "defining a tool"
    say(event="doing", what=title)
    near = {FLOOR: _each(_define_by_hand), BARE: _each(toolcrib_calls.define)}
    report(title, await in_turns(near, effort.rounds // 4, 0.01), near)
    if peers:
        far = {name: _each(peer.define) for name, peer in peers.items()}
        report(title, await in_turns(near | far, MANY, 0.01), far)
    define = {BARE: Tool, f"{BARE}, its spec looked at": definition.described}
    define |= {name: peer.define for name, peer in peers.items()}
    sizes = {name: [definition.tool_bytes(make)] for name, make in define.items()}
    report(DEFINED, sizes, sizes, scale=1)


def _define_by_hand(fn: Callable[..., Any]) -> None:
    """The least there is to it: pydantic's validator and JSON Schema of the arguments, and its writer of the result."""
    from typing import get_type_hints

    from pydantic import TypeAdapter
    from typing_extensions import TypedDict

    hints = get_type_hints(fn)
    returns = hints.pop("return")
    arguments: Any = TypedDict("Arguments", hints)  # type: ignore[misc]
    TypeAdapter(arguments).json_schema()
    _ = TypeAdapter(returns).serializer


async def imports(peers: Mapping[str, Peer], effort: Effort) -> None:
    """In new interpreters, so that nothing is imported yet."""
    for base in ("import asyncio, pydantic", "import asyncio; from pydantic import BaseModel"):
        title = f"importing, over `{base}`"
        say(event="doing", what=title)
        near = {FLOOR: base, BARE: "import toolcrib"}
        report(title, _in_new_interpreters(near, effort.import_rounds), near)
        for name, peer in peers.items() if base.endswith("pydantic") else ():
            report(title, _in_new_interpreters(near | {name: peer.imported}, 3), [name])
    title = "importing, and defining a first tool"
    say(event="doing", what=title)
    near = {FLOOR: _FIRST_BY_HAND, BARE: _FIRST}
    report(title, _in_new_interpreters(near, effort.import_rounds), near)

    title = cold_call.TITLE
    say(event="doing", what=title)
    report(title, cold_call.seconds(effort.import_rounds), (FLOOR, BARE))
    counts = cold_call.crossings()
    say(
        event="note",
        text=f"{title}: {counts.files} files, {counts.borders} borders between them, {counts.returns} of them returns.",
    )

    say(event="doing", what=HELP)
    report(HELP, {BARE: cold_call.help_seconds(effort.import_rounds)}, (BARE,))

    title = definition.TITLE
    say(event="doing", what=title)
    times = definition.seconds()
    report(title, {name: [time] for name, time in times.items()}, (FLOOR, BARE))
    say(event="note", text=f"{title}: the spec of one takes {times['its spec'] * 1000:.2f} ms at the first look.")


_FIRST_BY_HAND = """
import asyncio
from pydantic import TypeAdapter
from typing_extensions import TypedDict
TypeAdapter(TypedDict("Arguments", {"a": int, "b": int})).json_schema()
TypeAdapter(int)
"""
_FIRST = """
from toolcrib import Workbench, tool
@tool
async def add(a: int, b: int) -> int:
    return a + b
Workbench([add])
"""


def _in_new_interpreters(programs: Mapping[str, str], rounds: int) -> dict[str, list[float]]:
    for program in programs.values():
        _in_new_interpreter(program)  # writes the bytecode
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            found[name].append(_in_new_interpreter(program))
    return found


def _in_new_interpreter(program: str) -> float:
    """Seconds that *program* takes in a new interpreter, its own start left out."""
    code = f"from time import perf_counter\nbegan = perf_counter()\n{program}\nprint(perf_counter() - began)"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout.split()[-1])


def _sync(work: Callable[[], Any]) -> Work:
    async def times(count: int) -> None:
        for _ in range(count):
            work()

    return times


def _async(work: Callable[[], Awaitable[Any]]) -> Work:
    async def times(count: int) -> None:
        for _ in range(count):
            await work()

    return times


def _each(define: Callable[[Callable[..., Any]], None]) -> Work:
    return _sync(lambda: define(fresh()))


async def measure(peers: Mapping[str, Peer], effort: Effort, *, quick: bool) -> None:
    await one_call_after_the_other(peers, effort)
    await deadline(effort)
    await among_a_thousand({} if quick else peers, effort)
    # Once for each peer: some take ten seconds.
    await at_once(PAUSE, {} if quick else peers, effort, peer_rounds=1)
    await apart(effort)
    await blocking_at_once(peers, effort)
    await definitions(peers, effort)
    await agent_turns(peers, effort)
    await lowering(effort)
    await dialects(peers, effort)
    await credentials(effort)
    await http(effort)
    await gateway(effort)
    await search(effort)
    await call_log(effort)
    await limits()
    await keyed(bool(peers))
    await loop_held(effort)  # before what leaves a large heap, whose collection would be counted
    await waiting()
    await sandbox(effort)
    serving(effort, peers=bool(peers))
    await openapi(effort)
    await imports({} if quick else peers, effort)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    peers: dict[str, Peer] = {}
    for name, make in ({} if options.no_peers else PEERS).items():
        say(event="doing", what=f"importing {name}")
        peers[name] = make()
    packages = ["pydantic", "pydantic-core"]
    if peers:
        packages += ["autogen-core", "fastmcp", "langchain-core", "openai-agents", "pydantic-ai-slim"]
    say(event="versions", versions={package: version(package) for package in packages})
    asyncio.run(measure(peers, effort, quick=options.quick))
    say(event="done")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
