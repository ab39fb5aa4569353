"""Break the public symbols of the dialects, one at a time, and check that a test fails.

A function, method or property returns another value, or does nothing if it returns none; a default changes. Each
mutant exists in a fork of this process, which runs the quick tests of its dialect up to the first failure. Prints the
mutants that no test detected, and fails if fewer than 80 % were detected.
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
MINIMUM = 0.8
TIMEOUT_S = 120


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
    parser.add_argument("dialects", nargs="*", help="only these, such as autogen")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sample", type=int, help="only this many of each dialect, the same ones each time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    mutants = [m for m in all_mutants() if not options.dialects or m.dialect in options.dialects]
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
        if detected(Mutant(dialect, "", "")):
            print(f"The tests of {dialect} fail without a mutant.", file=sys.stderr)
            return 1
    survivors: list[Mutant] = []
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=None) as pool:
        for number, (mutant, caught) in enumerate(zip(mutants, pool.map(detected, mutants), strict=True), 1):
            if not caught:
                survivors.append(mutant)
            end = "\r" if sys.stderr.isatty() and number < len(mutants) else "\n"
            if end == "\r" or number % 50 == 0 or number == len(mutants):
                print(f"{number} of {len(mutants)}, {len(survivors)} undetected", end=end, file=sys.stderr, flush=True)
    shares = {
        dialect: (sum(m.dialect == dialect for m in mutants), sum(m.dialect == dialect for m in survivors))
        for dialect in sorted({m.dialect for m in mutants})
    }
    if options.json:
        print(json.dumps({"mutants": shares, "undetected": [str(m) for m in survivors]}, indent=2))
    else:
        for mutant in survivors:
            print(f"undetected: {mutant}")
        for dialect, (total, survived) in shares.items():
            print(f"{dialect}: {total - survived} of {total} detected ({1 - survived / total:.0%})")
    enough = all(1 - survived / total >= MINIMUM for total, survived in shares.values())
    return 0 if mutants and enough else 1


def all_mutants() -> Iterator[Mutant]:
    """A mutant for each public symbol that is defined in a module of a dialect."""
    import toolcrib.dialects

    for info in pkgutil.walk_packages(toolcrib.dialects.__path__, "toolcrib.dialects."):
        module = importlib.import_module(info.name)
        dialect = info.name.split(".")[2]
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != info.name:
                continue
            for symbol in _breakable(name, value):
                yield Mutant(dialect, info.name, symbol)


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
            yield from _of_function(f"{name}.{inner}", plain, returns=inner != "__init__")


def _of_function(name: str, plain: Callable[..., Any], *, returns: bool = True) -> Iterator[str]:
    if returns:
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


def detected(mutant: Mutant) -> bool:
    """Whether some test fails for *mutant*; without a module, for the dialect as it is. The tests run in a fork."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        import signal

        signal.alarm(TIMEOUT_S)  # a mutant that hangs counts as detected
        os._exit(_run_tests(mutant))
    _, status = os.waitpid(child, 0)
    if status == _NOT_TESTED << 8:
        raise RuntimeError(f"The mutant could not be tested: {mutant}.")
    return status != 0


_NOT_TESTED = 70


def _run_tests(mutant: Mutant) -> int:
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        import pytest

        if mutant.module:
            replace_symbol(mutant)
    except BaseException:
        return _NOT_TESTED
    folders = [f"tests/dialects/{mutant.dialect}", f"tests/seeds/{mutant.dialect}"]
    existing = [folder for folder in folders if (ROOT / folder).exists()]
    try:
        with tempfile.TemporaryDirectory() as folder:  # parallel runs would delete each other's folders
            options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", f"--basetemp={folder}/tests"]
            return int(pytest.main([*options, "-m", "not full", *existing]))
    except BaseException:  # pytest raises for warnings that come after the last test, as for an unawaited coroutine
        return 1


def replace_symbol(mutant: Mutant) -> None:
    """Replace the original of *mutant* in every module of ours."""
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
            for alias, value in list(vars(other).items()):
                if value is original:
                    setattr(other, alias, broken)


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

        async def yields_other_values(*args: Any, **kwargs: Any) -> Any:
            async for item in fn(*args, **kwargs):
                yield _other(item)

        return functools.wraps(fn)(yields_other_values)
    if inspect.iscoroutinefunction(fn):

        async def returns_other_value_async(*args: Any, **kwargs: Any) -> Any:
            return _other(await fn(*args, **kwargs))

        return functools.wraps(fn)(returns_other_value_async)

    def returns_other_value(*args: Any, **kwargs: Any) -> Any:
        return _other(fn(*args, **kwargs))

    return functools.wraps(fn)(returns_other_value)


def _with_default(fn: Any, parameter: str, other: Any) -> Any:
    copied = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copied.__dict__.update(fn.__dict__)
    copied.__annotations__ = fn.__annotations__
    copied.__qualname__, copied.__module__, copied.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
    copied.__kwdefaults__ = fn.__kwdefaults__ and dict(fn.__kwdefaults__)
    if copied.__kwdefaults__ and parameter in copied.__kwdefaults__:
        copied.__kwdefaults__[parameter] = other
    else:
        names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
        position = names.index(parameter) - (len(names) - len(fn.__defaults__))
        copied.__defaults__ = tuple(
            other if index == position else value for index, value in enumerate(fn.__defaults__)
        )
    return copied


def _other(value: Any) -> Any:
    """Another value of the same type, if there is one."""
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
