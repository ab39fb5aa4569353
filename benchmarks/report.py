"""What was measured → tables: on a terminal, and in results.md. This file does no I/O."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FLOOR, BARE, SERVED, AUTOGEN = "floor", "Toolcrib", "Toolcrib as served", "AutoGen workbench"
FASTMCP = "FastMCP server"
STORELESS = "Toolcrib, without a store"
COMMIT = "a commit alone, in bare ASGI"
OVER_HTTP = "tools/call over HTTP, {} tools: the server's processor time"
IN_SESSION = "tools/call over HTTP, 4 tools, in a session of 2025-11-25: the server's processor time"
CONNECTIONS = 16
AT_ONCE = {
    f"tools/call over HTTP, {CONNECTIONS} at once: the server's processor time": "2026-07-28",
    f"tools/call over HTTP, {CONNECTIONS} at once in sessions: the server's processor time": "2025-11-25",
}
OVER_STDIO = {"tools/call over stdio": "2025-11-25", "tools/call over stdio, without a session": "2026-07-28"}
LISTED = "the first tools/list over HTTP, 1,000 tools: the server's processor time"
LISTED_AGAIN = "tools/list over HTTP again, 1,000 tools: the server's processor time"
STARTED = "a server of one tool until it answers `initialize` over {}: its processor time"
MEMORY = "memory of a server of one tool that has answered `initialize` over {}"
SESSION = "memory of an idle session of 2025-11-25"
DEFINED = "memory of a function tool that is defined"
GATEWAY = "a call of an MCP server's tool, over stdio"
GATEWAY_HTTP = "a gateway's call with an HTTP upstream: the gateway's processor time"
WARM, SUBPROCESS = "warm WebAssembly call", "a Python program"
HELD = "the event loop held by 1 MB: {}"
HELD_BY = (
    "check, valid",
    "check, wrong throughout",
    "check, unions nested 40 deep",
    "message, unknown names",
    *(
        f"{step}, {kind}"
        for step in ("redaction", "preview and read_result")
        for kind in ("nothing to redact", "a secret on every line", "JSON of secrets", "300,000 parts")
    ),
    "schemas of plain members",
    "schemas of many parts",
)
KEYED, SEEN, DBOS = "a call with a new key, SQLite", "a call with a key that was seen", "DBOS, a workflow of one step"
SHARED_LIMIT = "a call with a shared {}, SQLite"
ANSWER = "an answer among 100,000 waiting tasks"
HELP = "`toolcrib --help`: its processor time"
OPENAPI = "loading an OpenAPI document of 1,000 operations"


@dataclass(frozen=True, slots=True)
class Row:
    """One subject in one case: its fastest and median time, and how many times the floor's and Toolcrib's it is.

    Of a case that begins with "memory" these are bytes.
    """

    case: str
    subject: str
    best_us: float
    median_us: float
    times_floor: float | None
    times_toolcrib: float | None


@dataclass(frozen=True, slots=True)
class Verdict:
    target: str
    came: str
    met: bool

    @property
    def word(self) -> str:
        return "PASS" if self.met else "miss"


@dataclass(frozen=True, slots=True)
class Report:
    rows: Sequence[Row]
    notes: Sequence[str]
    """What was found besides, in sentences."""
    about: Mapping[str, Any]
    """date, python, machine, versions, and whether it was a quick run."""

    def cases(self) -> Iterator[tuple[str, list[Row]]]:
        for case in dict.fromkeys(row.case for row in self.rows):
            yield case, [row for row in self.rows if row.case == case]

    def verdicts(self) -> dict[tuple[str, str], Verdict]:
        """By case and subject. None for what was not measured."""
        found = {(row.case, row.subject): row for row in self.rows}
        return {key: judge(found[key], found.get((key[0], FLOOR))) for key, judge in TARGETS.items() if key in found}

    def to_dict(self) -> dict[str, Any]:
        verdicts = self.verdicts()
        return {
            **self.about,
            "notes": [*self.notes],
            "rows": [
                {
                    "case": row.case,
                    "subject": row.subject,
                    "best_us": round(row.best_us, 3),
                    "median_us": round(row.median_us, 3),
                    "times_floor": _rounded(row.times_floor),
                    "times_toolcrib": _rounded(row.times_toolcrib),
                    **(
                        {"target": verdict.target, "came": verdict.came, "met": verdict.met}
                        if (verdict := verdicts.get((row.case, row.subject)))
                        else {}
                    ),
                }
                for row in self.rows
            ],
        }


Judge = Callable[[Row, Row | None], Verdict]


def _above_floor(limit_us: float, aim_us: float) -> Judge:
    def judge(row: Row, floor: Row | None) -> Verdict:
        assert floor is not None
        above = row.best_us - floor.best_us
        came = f"{above:.2f} µs, {above / floor.best_us:.1f} times the floor"
        return Verdict(f"at most {limit_us:g} µs above the floor (aim: {aim_us:g})", came, above <= limit_us)

    return judge


def _at_most_us(limit_us: float) -> Judge:
    return lambda row, floor: Verdict(f"at most {limit_us:g} µs", f"{row.best_us:.2f} µs", row.best_us <= limit_us)


def _at_most_mib(limit: float) -> Judge:
    def judge(row: Row, floor: Row | None) -> Verdict:
        return Verdict(f"at most {_size(limit * 1024**2)}", _size(row.best_us), row.best_us <= limit * 1024**2)

    return judge


def _median_at_most_us(limit_us: float) -> Judge:
    def judge(row: Row, floor: Row | None) -> Verdict:
        return Verdict(f"in the median at most {_time(limit_us)}", _time(row.median_us), row.median_us <= limit_us)

    return judge


def _at_most_times(limit: float, what: str = "the floor") -> Judge:
    def judge(row: Row, floor: Row | None) -> Verdict:
        times = row.times_floor or 0.0
        return Verdict(f"at most {limit:g} times {what}", f"{times:.3f}", times <= limit)

    return judge


def _toolcrib_faster(limit: float) -> Judge:
    def judge(row: Row, floor: Row | None) -> Verdict:
        times = row.times_toolcrib or 0.0
        return Verdict(f"Toolcrib at least {limit:g} times as fast", f"{times:.1f} times", times >= limit)

    return judge


_SDK = "the SDK's server"

TARGETS: Mapping[tuple[str, str], Judge] = {
    ("tiny async tool", BARE): _at_most_times(4.5),
    ("tiny async tool", SERVED): _at_most_us(7.5),
    ("tiny async tool", AUTOGEN): _toolcrib_faster(6),
    ("50 models as argument", BARE): _at_most_times(1.15),
    ("50 models, fields optional", BARE): _at_most_times(1.15),
    ("50 models, times and links in them", BARE): _at_most_times(1.15),
    ("50 models, datetime and URL fields", BARE): _at_most_times(1.15),
    ("50 models as result", BARE): _at_most_times(1.15),
    ("50 dicts as result", BARE): _at_most_times(1.15),
    ("one tool among 1,000", BARE): _at_most_times(1.1, "the same alone"),
    ("warm call in a process", BARE): _median_at_most_us(2_000),
    ("10,000 blocking calls at once, 32 threads, 1 ms each", AUTOGEN): _toolcrib_faster(3),
    ("agent turn, scripted model, one tiny tool", "pydantic-ai, FunctionModel"): _toolcrib_faster(5),
    ("agent turn, scripted model, one tiny tool", "pydantic-ai, TestModel"): _toolcrib_faster(5),
    ("agent turn, scripted model, one tiny tool", "OpenAI Agents, a Model"): _toolcrib_faster(5),
    ("agent turn, scripted model, one tiny tool", "OpenAI Agents, ScriptedModel"): _toolcrib_faster(5),
    ("lowering 20 schemas again", BARE): _at_most_times(0.1, "the first time"),
    ("AutoGen's call_tool, tiny async tool", AUTOGEN): _toolcrib_faster(2),
    ("AutoGen's call_tool, 50 models as result", AUTOGEN): _toolcrib_faster(3),
    ("a sealed grant in SQLite", BARE): _at_most_us(40),
    ("a cached grant", BARE): _at_most_us(4),
    ("tiny async tool that needs a token", BARE): _above_floor(6, 4),
    ("tiny async tool that needs a token, start committed in the call log", BARE): _above_floor(20, 10),
    ("call over HTTP, tiny async tool", BARE): _at_most_times(2, "a bare Starlette route"),
    ("search among 10,000 tools", BARE): _median_at_most_us(10_000),
    (KEYED, DBOS): _toolcrib_faster(2),
    (SEEN, BARE): _at_most_us(100),
    **{(SHARED_LIMIT.format(kind), BARE): _above_floor(1_000, 500) for kind in ("rate", "budget")},
    (ANSWER, BARE): _above_floor(1_000, 500),
    (WARM, BARE): _at_most_us(500),
    (WARM, SUBPROCESS): _toolcrib_faster(15),
    ("a cached 30 kB module ready", BARE): _at_most_us(2_000),
    **{(OVER_HTTP.format(count), STORELESS): _at_most_times(0.45, _SDK) for count in ("4", "100", "1,000")},
    **{(OVER_HTTP.format(count), BARE): _at_most_times(1.2, _SDK) for count in ("4", "100", "1,000")},
    **{(title, STORELESS): _at_most_times(limit, _SDK) for title, limit in zip(AT_ONCE, (0.45, 0.35), strict=True)},
    **{(title, BARE): _at_most_times(limit, _SDK) for title, limit in zip(AT_ONCE, (0.8, 0.7), strict=True)},
    (GATEWAY, BARE): _at_most_times(1.3, "the SDK's own client"),
    (GATEWAY_HTTP, BARE): _at_most_us(2_500),
    **{(title, STORELESS): _at_most_times(0.6, _SDK) for title in OVER_STDIO},
    (IN_SESSION, STORELESS): _at_most_times(0.35, _SDK),
    (IN_SESSION, BARE): _at_most_times(1.2, _SDK),
    (LISTED, BARE): _at_most_us(20_000),
    (LISTED_AGAIN, BARE): _at_most_us(2_000),
    (SESSION, BARE): _at_most_mib(4 / 1024),
    (STARTED.format("stdio"), BARE): _at_most_us(1_000_000),
    (MEMORY.format("stdio"), BARE): _at_most_mib(70),
    (DEFINED, BARE): _at_most_mib(8 / 1024),
    ("the definition of 10,000 function tools", BARE): _at_most_us(300),
    **{(HELD.format(kind), BARE): _at_most_us(50_000) for kind in HELD_BY},
    (OPENAPI, BARE): _at_most_times(1.5, "the floor"),
    ("importing, over `import asyncio, pydantic`", BARE): _at_most_times(1.3),
    ("importing, over `import asyncio; from pydantic import BaseModel`", BARE): _at_most_times(1.3),
    (HELP, BARE): _at_most_us(300_000),
}

_METHOD = """\
How: everything runs in one interpreter and one run. What is compared takes turns, round by round, in a changing order;
a batch of calls lasts about 2 ms. A time is that of a subject's fastest round, and a ratio is one of fastest rounds:
noise only ever adds time. Where a round is long (imports, listings of peers, many calls at once) there are few of them,
and a ratio is the median of the ratios within each round. Times depend on the machine: trust the ratios.

- *floor*: the same by hand, for one tool: pydantic validates the JSON text straight into arguments, the function is
  awaited, pydantic writes the value as JSON text. A sync function runs in asyncio's executor. Nothing is checked beyond
  types. For *one tool among 1,000* the floor is the same library with one tool; for the *call in a process* the
  function runs in the standard library's pool of processes. For *lowering again* it is lowering for the first time.
  For a *tool that needs a token* it is the same tool without `auth`, of the same crib; for *the call log* it is
  Toolcrib without any record. Grants are in SQLite, sealed; a
  cached one is checked for changes by other processes. For a *WebAssembly call* it is wasmtime's own instance, with
  the same limits, and its streams in files in memory; *Toolcrib* calls the module in its worker process. For
  *tools/call* and all of a *server* it is the low-level server of the official MCP SDK. For a *call over HTTP* it is a
  bare Starlette route that parses and answers the same JSON; the time is that of the server's process.
- *Servers* are processes of their own, on uvicorn with httptools and uvloop; a client sends raw requests, one after the
  other on one connection, or *16 at once* on as many, of 2026-07-28 where no session is named. *Toolcrib* is `toolcrib
  serve` with its defaults: with a store, where the start of each call is committed, and a call log. *Without a store*
  it is `serve_http(Crib(tools))`.
  *A commit alone* is an application without MCP that commits one row to SQLite, in a thread, before it answers.
- *A call with a key*: the time is that of the process on the processor, in all threads, for DBOS too; its workflow is
  called directly, with an id of its own and the JSON serializer. So it is for *an answer*, whose floor is a transaction
  that changes one row of the same database.
- *The event loop held by 1 MB*: the longest gap between two ticks of a task on the loop, in processor time of the
  process, while one call reads, redacts or shows the data, or a server's tools are read and lowered.
- *Toolcrib*: `(await bench.call(name, text)).text`. *As served*: with a deadline, a caller, a secret to redact, a
  policy and a call log.
- *50 models as argument*: Toolcrib reads each name in an object once, and refuses one that stands twice. That takes
  four of its microseconds (it counts the names in the text), and fifteen where texts have colons; no peer does it.
- Peers are called in their own public way, from JSON text to text; what they can set up once is set up before. They do
  not all do the same: some write a Python repr where JSON is expected, and none looks for duplicate keys.
- An *agent turn* is a whole run: the model asks for the tool, is sent its result, and answers. The models are the test
  models of each library. *AutoGen's call_tool* is the same program on AutoGen and on Toolcrib's dialect of it, which
  writes JSON where AutoGen writes a Python repr.
"""


def terminal_lines(report: Report) -> Iterator[str]:
    """Lines in rich's markup, 80 columns wide where that is possible."""
    verdicts = report.verdicts()
    for case, rows in report.cases():
        yield f"[bold]{case:38}[/][dim]{'time':>12}{'x floor':>12}{'x Toolcrib':>12}[/]"
        for row in rows:
            times = f"{_times(row.times_floor):>12}{_times(row.times_toolcrib):>12}"
            yield f"  {row.subject:36}{_figure(row):>12}{times}"
            if verdict := verdicts.get((case, row.subject)):
                colour = "green" if verdict.met else "red"
                yield f"    [{colour}]{verdict.word}[/] [dim]{verdict.target}:[/] {verdict.came}"
        yield ""
    yield from report.notes
    yield summary(report)


def summary(report: Report) -> str:
    verdicts = report.verdicts()
    missed = [f"{case} ({subject})" for (case, subject), verdict in verdicts.items() if not verdict.met]
    summary = f"{len(verdicts) - len(missed)} of {len(verdicts)} targets met."
    return f"{summary} Missed: {'; '.join(missed)}." if missed else summary


def markdown(report: Report) -> str:
    about = report.about
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines = [
        "# Toolcrib beside its floor and its peers",
        "",
        f"Written by `make bench` on {about['date']}: {about['python']}, {about['machine']}; {versions}.",
        "",
        f"{summary(report)}",
        "",
        _METHOD,
    ]
    verdicts = report.verdicts()
    for case, rows in report.cases():
        figure = "size" if case.startswith("memory") else "time"
        lines += [f"## {case[0].upper()}{case[1:]}", "", f"| | {figure} | x floor | x Toolcrib |", "|---|--:|--:|--:|"]
        lines += [
            f"| {row.subject} | {_figure(row)} | {_times(row.times_floor)} | {_times(row.times_toolcrib)} |"
            for row in rows
        ]
        judged = [(row, verdict) for row in rows if (verdict := verdicts.get((case, row.subject)))]
        lines += ["", *(f"- {row.subject}: {v.target}. It is {v.came}: **{v.word}**." for row, v in judged)]
        lines += [""] if judged else []
    if report.notes:
        lines += ["## What was found besides", "", *(f"- {note}" for note in report.notes)]
    return "\n".join(lines).rstrip() + "\n"


def _figure(row: Row) -> str:
    return _size(row.best_us) if row.case.startswith("memory") else _time(row.best_us)


def _size(count: float) -> str:
    return f"{count / 1024**2:.1f} MiB" if count >= 1024**2 else f"{count / 1024:.1f} KiB"


def _time(us: float) -> str:
    if us >= 100_000:
        return f"{us / 1e6:.2f} s"
    if us >= 1_000:
        return f"{us / 1e3:.1f} ms"
    return f"{us:.2f} µs" if us < 10 else f"{us:.1f} µs"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
