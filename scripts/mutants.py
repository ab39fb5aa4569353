"""Change the code in one place at a time, and check that a test fails.

The rooms, their tests and the mutants that nothing can notice are in tests/mutants.toml. The checkout is copied, and
the copy has an environment of its own, so that the processes which tests start run the changed code too. One run with
probes finds which tests reach each mutant of the sample; a mutant then runs only these. What no test reaches is not
counted. Prints the survivors and the share that was noticed; a mutant that hangs is noticed.
"""

import argparse
import ast
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from math import comb
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants.toml"
TESTS_S = 60.0  # what the tests of one mutant may take where nothing is changed; the quickest come first
PREPARE_S = 1200
CHANCE = 0.001  # how often a sample may speak against a minimum that holds


@dataclass(frozen=True)
class Mutant:
    room: str
    file: str
    number: int
    """Which of the file's changes it is, as `changes` yields them."""
    name: str

    def __str__(self) -> str:
        return f"{self.file.removeprefix('src/toolcrib/')} {self.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", help="only these, such as sandbox")
    parser.add_argument("--only", default="", help="only mutants whose name contains this")
    parser.add_argument("--sample", type=int, default=4, help="how many of each room; 0 for all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    table = tomllib.loads(TABLE.read_text())
    equivalent = {entry["mutant"] for entry in table["equivalent"]}
    mutants, stale = [], set(equivalent)
    for room, about in table["rooms"].items():
        there = list(mutants_of(room, about))
        stale -= {str(each) for each in there}
        if not options.rooms or room in options.rooms:
            wanted = [m for m in there if str(m) not in equivalent and options.only in str(m)]
            mutants += sampled(wanted, options.sample or len(wanted), options.seed)
    print(f"seed {options.seed}: {len(mutants)} mutants", file=sys.stderr)
    noticed: Counter[str] = Counter()
    survivors: list[Mutant] = []
    with Copies(options.jobs) as copies:
        reached = copies.probe(mutants, table["rooms"])
        tried = [mutant for mutant in mutants if reached[mutant]]
        print(f"{len(tried)} of them are reached by a test", file=sys.stderr)
        for mutant, failed in zip(tried, copies.each(lambda c, m: c.notices(m, reached[m]), tried), strict=True):
            if failed:
                noticed[mutant.room] += 1
            else:
                survivors.append(mutant)
                print(f"survived: {mutant}", file=sys.stderr, flush=True)
    counts = {room: (noticed[room], total) for room, total in Counter(m.room for m in tried).items()}
    low = too_low(counts, table)
    report = {"seed": options.seed, "noticed": counts, "too_low": low, "stale": sorted(stale)}
    if options.json:
        print(json.dumps({**report, "survivors": [str(mutant) for mutant in survivors]}, indent=2))
    else:
        for room, (count, total) in counts.items():
            print(f"{room}: {count} of {total} noticed ({count / total:.0%})")
        for name, share in low.items():
            print(f"too low: {share:.0%} of {name}")
        for mutant in sorted(stale):
            print(f"listed as equivalent, but no longer there: {mutant}")
    return 1 if low or stale or not tried else 0


def sampled(mutants: list[Mutant], number: int, seed: int) -> list[Mutant]:
    """*number* of *mutants*: for one seed the same ones, as long as the code has them, whatever else changes."""
    return sorted(mutants, key=lambda mutant: sha256(f"{seed} {mutant}".encode()).digest())[:number]


def too_low(counts: dict[str, tuple[int, int]], table: dict[str, Any]) -> dict[str, float]:
    """The shares that speak against a minimum: of each room, and of all of them together.

    A sample has chance in it: where nine of ten mutants are noticed, eight of a sample of ten often are. So a share is
    too low where so few would be noticed in fewer than one of a thousand samples, if the minimum held.
    """
    least = {room: table["rooms"][room].get("minimum", table["minimum"]) for room in counts}
    together = [sum(numbers) for numbers in zip(*counts.values(), strict=True)]
    groups = {room: (*counts[room], least[room]) for room in counts}
    if together:
        # Of rooms with minimums that differ, the sum varies less than this one, which has their mean everywhere.
        mean = sum(least[room] * total for room, (_, total) in counts.items()) / together[1]
        groups["all rooms"] = (together[0], together[1], mean)
    return {
        name: count / total
        for name, (count, total, minimum) in groups.items()
        if chance_of_so_few(count, total, minimum) < CHANCE
    }


def chance_of_so_few(noticed: int, total: int, share: float) -> float:
    """How often at most *noticed* of *total* mutants are noticed where *share* of all are."""
    return sum(comb(total, number) * share**number * (1 - share) ** (total - number) for number in range(noticed + 1))


# Changes of a source


@functools.cache
def source_of(file: str) -> str:
    """The source as it was when the run began."""
    return (ROOT / file).read_text()


def mutants_of(room: str, about: dict[str, Any]) -> Iterator[Mutant]:
    for folder in about["sources"]:
        for path in sorted((ROOT / folder).rglob("*.py")) if (ROOT / folder).is_dir() else [ROOT / folder]:
            seen: Counter[str] = Counter()
            file = str(path.relative_to(ROOT))
            for number, change in enumerate(changes(ast.parse(source_of(file)))):
                seen[change.name] += 1
                name = change.name if seen[change.name] == 1 else f"{change.name} ({seen[change.name]})"
                if change.kind in about.get("kinds", [change.kind]):
                    yield Mutant(room, file, number, name)


@dataclass
class Change:
    """One node that another takes the place of."""

    node: ast.AST
    instead: ast.AST
    kind: str
    place: str
    statement: ast.AST
    probes: list[ast.AST] = field(default_factory=list)
    """Where a probe shows that the change is reached: the node itself, or functions that use what it defines."""

    @property
    def name(self) -> str:
        old, new = (_line(each) for each in (self.node, self.instead))
        where = f" in {_line(self.statement)}" if isinstance(self.node, ast.Constant) else ""
        return f"{self.place or 'module'}: {self.kind}: {old} -> {new}{where}"


def _line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:70]


def changes(tree: ast.Module) -> Iterator[Change]:
    yield from _changes(tree, "", tree, None, tree)


def _changes(
    node: ast.AST, place: str, tree: ast.Module, function: ast.AST | None, statement: ast.AST
) -> Iterator[Change]:
    statement = node if isinstance(node, ast.stmt) else statement
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        place = f"{place}.{node.name}".lstrip(".")
        if any("overload" in ast.unparse(each) for each in node.decorator_list):
            return
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
            return
        if not isinstance(node, ast.ClassDef):
            yield from _defaults(node, place)
            function = node
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for kind, old, new in _variants(node):
        probes = [old] if function is not None else _functions(tree)
        yield Change(old, new, kind, place, statement, probes)
    for name, value in ast.iter_fields(node):
        # Annotations are for type checkers; an assertion states what cannot be otherwise; texts are read by people.
        if name in ("annotation", "returns", "decorator_list", "args", "bases") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Assert | ast.JoinedStr):
                yield from _changes(child, place, tree, function, statement)


def _functions(tree: ast.Module) -> list[ast.AST]:
    """The functions of the module: what stands at its top is reached before a test begins."""
    return [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef, place: str) -> Iterator[Change]:
    for default in (*node.args.defaults, *node.args.kw_defaults):
        if isinstance(default, ast.Constant) and (other := _other(default)) is not None:
            yield Change(default, other, "default", place, node, [node])


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """The changes of *node*: their kind, the node that is replaced and what replaces it."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.match_case(guard=ast.expr() as test):
            if not _turned(test) and not isinstance(test, ast.Constant):
                yield "condition", test, _negated(test)
        case ast.comprehension(ifs=tests):
            yield from (("condition", test, _negated(test)) for test in tests if not _turned(test))
        case ast.Compare() if turned := _turned(node):
            yield "comparison", node, turned
        case ast.Compare(ops=[op]) if other := _BOUNDARIES.get(type(op)):
            yield "comparison", node, ast.Compare(node.left, [other()], node.comparators)
        case ast.BoolOp(op=ast.And(), values=values):
            yield "and/or", node, ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            yield "and/or", node, ast.BoolOp(ast.And(), values)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant | ast.Compare):
            yield "return", node, ast.Return(ast.Constant(None))
        case ast.Constant(value=bool() | int() | float()):
            if (constant := _other(node)) is not None:
                yield "constant", node, constant
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete() | ast.AugAssign():
            yield "removed", node, ast.Pass()
        case ast.Continue() | ast.Break():
            yield "removed", node, ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "removed", node, ast.Pass()
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield "handler", caught, ast.Tuple([], ast.Load())
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            if all(item.optional_vars is None for item in items):
                yield "with", node, ast.If(ast.Constant(True), body, [])
        case ast.Try(finalbody=[_, *_]):
            yield "finally", node, ast.Try(node.body, node.handlers, node.orelse, [ast.Pass()])


_TURNS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def _turned(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and (other := _TURNS.get(type(node.ops[0]))):
        return ast.Compare(node.left, [other()], node.comparators)
    return None


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _other(constant: ast.Constant) -> ast.Constant | None:
    match constant.value:
        case bool():
            return ast.Constant(not constant.value)
        case int() | float():
            return ast.Constant(constant.value + 1)
        case str():
            return ast.Constant(constant.value + "~")
        case _:
            return None


class _Edit(ast.NodeTransformer):
    """Replaces nodes by others, and puts probes before them."""

    def __init__(self, instead: dict[int, ast.AST], probes: dict[int, ast.expr]) -> None:
        self._instead, self._probes = instead, probes

    def visit(self, node: ast.AST) -> Any:
        probe = self._probes.get(id(node))
        if id(node) in self._instead:
            return self._instead[id(node)]
        self.generic_visit(node)
        match node, probe:
            case _, None:
                return node
            case ((ast.FunctionDef() | ast.AsyncFunctionDef()), _):
                node.body.insert(1 if ast.get_docstring(node) and len(node.body) > 1 else 0, ast.Expr(probe))
                return node
            case ast.expr(), _:
                return ast.Subscript(ast.Tuple([probe, node], ast.Load()), ast.Constant(1), ast.Load())
            case _:
                return [ast.Expr(probe), node]


def edited(source: str, change: int) -> str:
    """Return *source* with one of its changes."""
    tree = ast.parse(source)
    for number, each in enumerate(changes(tree)):
        if number == change:
            return ast.unparse(ast.fix_missing_locations(_Edit({id(each.node): each.instead}, {}).visit(tree)))
    raise LookupError(change)


def probed(source: str, numbers: dict[int, int], log: Path) -> str:
    """Return *source* with a probe for each of *numbers*, which writes the number that the change has there."""
    tree = ast.parse(source)
    probes: dict[int, list[int]] = {}
    for number, each in enumerate(changes(tree)):
        if number in numbers:
            for node in each.probes:
                probes.setdefault(id(node), []).append(numbers[number])
    calls = {key: ast.parse(_PROBE.format(log=str(log), hits=hits), mode="eval").body for key, hits in probes.items()}
    return ast.unparse(ast.fix_missing_locations(_Edit({}, dict(calls)).visit(tree)))


_PROBE = "__import__('mutants_probe').hit('{log}', b'{hits}\\n')"


# Copies of the checkout, in which tests run


class Copies:
    """As many copies as tests may run at a time."""

    def __init__(self, count: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._copies = [Copy(self._folder / str(number)) for number in range(count)]

    def __enter__(self) -> "Copies":
        return self

    def __exit__(self, *_: object) -> None:
        for copy in self._copies:
            copy.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def each(self, work: Any, items: Any) -> Iterator[Any]:
        free: SimpleQueue[Copy] = SimpleQueue()
        for copy in self._copies:
            free.put(copy)

        def with_copy(item: Any) -> Any:
            copy = free.get()
            try:
                return work(copy, item)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(len(self._copies)) as pool:
            yield from pool.map(with_copy, items)

    def probe(self, mutants: list[Mutant], rooms: dict[str, Any]) -> dict[Mutant, list[tuple[float, str]]]:
        """Return the tests that reach each of *mutants*, with their durations; the quickest first."""
        for copy in self._copies:
            copy.set_probes(mutants)
        paths = sorted({test for room in {m.room for m in mutants} for test in rooms[room]["tests"]})
        files = sorted({str(f.relative_to(ROOT)) for path in paths for f in _test_files(ROOT / path)})
        reached: dict[Mutant, list[tuple[float, str]]] = {mutant: [] for mutant in mutants}
        for hits in self.each(Copy.hits, files):
            for number, tests in hits.items():
                room = rooms[mutants[int(number)].room]["tests"]
                reached[mutants[int(number)]] += [
                    (duration, test) for test, duration in tests.items() if test.startswith(tuple(room))
                ]
        for copy in self._copies:
            copy.restore(mutants)
        return {mutant: sorted(tests) for mutant, tests in reached.items()}


def _test_files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


class Copy:
    """A copy of the checkout, and a process in it that has imported what is slow to import and forks for each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        left_out = shutil.ignore_patterns(".*", "__pycache__", "dist", "build")
        shutil.copytree(ROOT, folder, ignore=left_out, symlinks=True)
        environment = folder / ".venv"
        venv.create(environment, symlinks=True)
        packages = next(environment.glob("lib/*/site-packages"))
        installed = [path for path in sys.path if path.endswith("site-packages")]
        lines = [str(folder / "src"), *(f"import site; site.addsitedir({path!r})" for path in installed)]
        (packages / "mutants.pth").write_text("\n".join(lines))
        shutil.copy(folder / "scripts" / "mutants_probe.py", packages)
        command = environment / "bin" / "toolcrib"
        command.write_text(f"#!{environment}/bin/python\nimport sys\nfrom toolcrib.cli import main\nsys.exit(main())\n")
        command.chmod(0o755)
        self.log = folder / "hits"
        self._server = subprocess.Popen(
            [environment / "bin" / "python", folder / "scripts" / "mutants_runner.py"],
            cwd=folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        self._server.communicate()

    def restore(self, mutants: list[Mutant]) -> None:
        for file in {mutant.file for mutant in mutants}:
            (self.folder / file).write_text(source_of(file))

    def set_probes(self, mutants: list[Mutant]) -> None:
        self.log.touch()
        for file in {mutant.file for mutant in mutants}:
            numbers = {mutant.number: place for place, mutant in enumerate(mutants) if mutant.file == file}
            (self.folder / file).write_text(probed(source_of(file), numbers, self.log))

    def hits(self, file: str) -> dict[str, dict[str, float]]:
        """Return which probes the tests of *file* reach, and how long each test takes."""
        answer = self._ask(tests=[file], log=str(self.log), limit_s=PREPARE_S)
        for test in answer["failed"]:
            print(f"left out, since it fails without a mutant: {test}", file=sys.stderr)
        return answer["hits"]

    def notices(self, mutant: Mutant, tests: list[tuple[float, str]]) -> bool:
        chosen, total_s = [], 0.0
        for duration, test in tests:
            if total_s + duration > TESTS_S and chosen:
                break
            chosen.append(test)
            total_s += duration
        changed = self.folder / mutant.file
        changed.write_text(edited(source_of(mutant.file), mutant.number))
        try:
            return bool(self._ask(tests=chosen, limit_s=20 + 3 * total_s)["status"])
        finally:
            changed.write_text(source_of(mutant.file))

    def _ask(self, **request: Any) -> Any:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


if __name__ == "__main__":
    sys.exit(main())
