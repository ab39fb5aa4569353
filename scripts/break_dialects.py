"""Breaks the public symbols of the dialects, one after another, and sees whether a test notices.

A function, method or property is made to give another answer than it does, or, where it gives none, to do nothing; a
default is made another one. Each mutant lives in a fork of this process, in which the quick tests of its dialect run
up to the first failure. Prints the mutants that no test noticed, and fails where fewer than 80 % were noticed.
"""

import argparse
import functools
import importlib
import inspect
import json
import multiprocessing
import os
import pkgutil
import random
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WANTED = 0.8
PATIENCE_S = 120


@dataclass(frozen=True)
class Mutant:
    dialect: str
    module: str
    name: str
    """`function`, `Class.method`, or either with `(parameter=)` for its default."""

    def __str__(self) -> str:
        return f"{self.module.removeprefix('toolcrib.dialects.')}: {self.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the dialects' public symbols; some test must fail.")
    parser.add_argument("dialects", nargs="*", help="only these, as autogen")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sample", type=int, help="only so many of each dialect, the same ones each time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    mutants = [m for m in found() if not options.dialects or m.dialect in options.dialects]
    if options.sample:
        shuffled = random.Random(1)
        mutants = [
            m
            for dialect in sorted({m.dialect for m in mutants})
            for m in (lambda of: shuffled.sample(of, min(len(of), options.sample)))(
                [m for m in mutants if m.dialect == dialect]
            )
        ]
    for dialect in sorted({mutant.dialect for mutant in mutants}):
        if noticed(Mutant(dialect, "", "")):
            print(f"The tests of {dialect} fail as they are: nothing can be said.", file=sys.stderr)
            return 1
    survivors: list[Mutant] = []
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=None) as pool:
        for number, (mutant, caught) in enumerate(zip(mutants, pool.map(noticed, mutants), strict=True), 1):
            if not caught:
                survivors.append(mutant)
            end = "\r" if sys.stderr.isatty() and number < len(mutants) else "\n"
            if end == "\r" or number % 50 == 0 or number == len(mutants):
                print(f"{number} of {len(mutants)}, {len(survivors)} unnoticed", end=end, file=sys.stderr, flush=True)
    shares = {
        dialect: (sum(m.dialect == dialect for m in mutants), sum(m.dialect == dialect for m in survivors))
        for dialect in sorted({m.dialect for m in mutants})
    }
    if options.json:
        print(json.dumps({"mutants": shares, "unnoticed": [str(m) for m in survivors]}, indent=2))
    else:
        for mutant in survivors:
            print(f"unnoticed: {mutant}")
        for dialect, (every, lived) in shares.items():
            print(f"{dialect}: {every - lived} of {every} noticed ({1 - lived / every:.0%})")
    enough = all(1 - lived / every >= WANTED for every, lived in shares.values())
    return 0 if mutants and enough else 1


def found() -> Iterator[Mutant]:
    """What can be broken: whatever is public in a module of a dialect and was written there."""
    import toolcrib.dialects

    for info in pkgutil.walk_packages(toolcrib.dialects.__path__, "toolcrib.dialects."):
        module = importlib.import_module(info.name)
        dialect = info.name.split(".")[2]
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != info.name:
                continue
            for said in _breakable(name, value):
                yield Mutant(dialect, info.name, said)


def _breakable(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, types.FunctionType):
        yield from _of_function(name, value)
    elif isinstance(value, type) and not getattr(value, "_is_protocol", False):
        for inner, member in sorted(vars(value).items()):
            if inner.startswith("_") and inner not in ("__call__", "__init__", "__aenter__", "__aexit__"):
                continue
            plain = _plain(member)
            if plain is None or getattr(plain, "__isabstractmethod__", False) or plain.__module__ != value.__module__:
                continue
            yield from _of_function(f"{name}.{inner}", plain, answers=inner != "__init__")


def _of_function(name: str, plain: Callable[..., Any], *, answers: bool = True) -> Iterator[str]:
    if answers:
        yield name
    for parameter in inspect.signature(plain).parameters.values():
        if parameter.default is not inspect.Parameter.empty and not parameter.name.startswith("_"):
            yield f"{name}({parameter.name}=)"


def _plain(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member if isinstance(member, types.FunctionType) else None


def noticed(mutant: Mutant) -> bool:
    """Whether some test fails on *mutant*, which without a module is none. The tests run in a fork that this awaits."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        import signal

        signal.alarm(PATIENCE_S)  # one that hangs is noticed
        os._exit(_tested(mutant))
    _, status = os.waitpid(child, 0)
    if status == _NOT_TESTED << 8:
        raise RuntimeError(f"The mutant could not be tested: {mutant}.")
    return status != 0


_NOT_TESTED = 70


def _tested(mutant: Mutant) -> int:
    try:
        import pytest

        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        if mutant.module:
            shatter(mutant)
        places = [f"tests/dialects/{mutant.dialect}", f"tests/seeds/{mutant.dialect}"]
        there = [place for place in places if (ROOT / place).exists()]
        with tempfile.TemporaryDirectory() as own:  # else the runs tidy up after one another
            options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", f"--basetemp={own}/tests"]
            return int(pytest.main([*options, "-m", "not full", *there]))
    except BaseException:
        return _NOT_TESTED


def shatter(mutant: Mutant) -> None:
    """Put *mutant* in the place of what it is made of, wherever a module of ours has it."""
    module = importlib.import_module(mutant.module)
    name, _, parameter = mutant.name.removesuffix("=)").partition("(")
    owner, _, attribute = name.rpartition(".")
    if owner:
        kind = getattr(module, owner)
        member = vars(kind)[attribute]
        broken = _broken(_plain(member), parameter)
        if isinstance(member, property):
            setattr(kind, attribute, property(broken, member.fset, member.fdel, member.__doc__))
        elif isinstance(member, classmethod | staticmethod):
            setattr(kind, attribute, type(member)(broken))
        else:
            setattr(kind, attribute, broken)
        return
    original = getattr(module, attribute)
    broken = _broken(original, parameter)
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("toolcrib."):
            for held, value in list(vars(other).items()):
                if value is original:
                    setattr(other, held, broken)


def _broken(fn: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    if parameter:
        default = inspect.signature(fn).parameters[parameter].default
        return _with_default(fn, parameter, _other(default))
    if inspect.signature(fn).return_annotation in (None, "None"):
        if inspect.iscoroutinefunction(fn):

            async def does_nothing_async(*args: Any, **kwargs: Any) -> None: ...

            return functools.wraps(fn)(does_nothing_async)

        def does_nothing(*args: Any, **kwargs: Any) -> None: ...

        return functools.wraps(fn)(does_nothing)
    if inspect.isasyncgenfunction(fn):

        async def yields_others(*args: Any, **kwargs: Any) -> Any:
            async for item in fn(*args, **kwargs):
                yield _other(item)

        return functools.wraps(fn)(yields_others)
    if inspect.iscoroutinefunction(fn):

        async def answers_other_async(*args: Any, **kwargs: Any) -> Any:
            return _other(await fn(*args, **kwargs))

        return functools.wraps(fn)(answers_other_async)

    def answers_other(*args: Any, **kwargs: Any) -> Any:
        return _other(fn(*args, **kwargs))

    return functools.wraps(fn)(answers_other)


def _with_default(fn: Any, parameter: str, other: Any) -> Any:
    made = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__dict__.update(fn.__dict__)
    made.__annotations__ = fn.__annotations__
    made.__qualname__, made.__module__, made.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
    made.__kwdefaults__ = fn.__kwdefaults__ and dict(fn.__kwdefaults__)
    if made.__kwdefaults__ and parameter in made.__kwdefaults__:
        made.__kwdefaults__[parameter] = other
    else:
        named = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        place = named.index(parameter) - (len(named) - len(fn.__defaults__))
        made.__defaults__ = tuple(other if index == place else value for index, value in enumerate(fn.__defaults__))
    return made


def _other(value: Any) -> Any:
    """Another value of the same kind, where there is one."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "~"
        case dict():
            return {} if value else {"broken": True}
        case list():
            return [] if value else ["broken"]
        case tuple():
            return () if value else ("broken",)
        case None:
            return "broken"
        case _:
            return None


if __name__ == "__main__":
    sys.exit(main())
