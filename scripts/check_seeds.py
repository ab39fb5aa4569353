"""Check that every item of the documents that the dialects follow has a test, as tests/seeds/coverage.toml lists them.

Fails for an item without a test, for a test that does not exist, and for a public part of the code that the table lacks
although a document names its class or function: constructor parameters with their defaults, methods, properties and
fields. These are read from the code, so a changed name or default there must be compared to the document.
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import sys
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "seeds" / "coverage.toml"


def main() -> int:
    table = tomllib.loads(TABLE.read_text())
    wrong = list(problems(table))
    for problem in wrong:
        print(problem, file=sys.stderr)
    items = sum(len(dialect["items"]) for dialect in table.values())
    print(f"{items} items of {len(table)} documents, {len(wrong)} problems")
    return 1 if wrong else 0


def problems(table: dict[str, Any]) -> Iterator[str]:
    for dialect, about in table.items():
        items = about["items"]
        for item, tests in items.items():
            if not tests:
                yield f"{dialect}: {item}: no test holds it"
            for test in [tests] if isinstance(tests, str) else tests:
                if not is_there(test):
                    yield f"{dialect}: {item}: there is no test {test}"
        for name in about["names"]:
            for item in parts(name):
                if item not in items:
                    yield f"{dialect}: {item} is in the code, and the document names it; it is not in the table"


def is_there(test: str) -> bool:
    file, _, name = test.partition("::")
    return name.partition("[")[0] in _tests(ROOT / file)


@functools.cache
def _tests(file: Path) -> frozenset[str]:
    if not file.is_file() or not file.name.startswith("test_"):
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node.name for node in ast.parse(file.read_text()).body if isinstance(node, kinds))
    return frozenset(name for name in found if name.startswith("test_"))


# What there is of a name, as the table writes it


def parts(name: str) -> Iterator[str]:
    """`module:Name` as items: `Name`, `Name(parameter=default)`, `Name.method(...)`, `Name.field: default`."""
    module, _, attribute = name.partition(":")
    value = getattr(importlib.import_module(module), attribute)
    yield attribute
    if not isinstance(value, type):
        if callable(value) and typing.get_origin(value) is None:
            yield from (f"{attribute}({each})" for each in _parameters(value))
        return
    fields = dict(_fields(value))
    yield from (f"{attribute}.{field}{default}" for field, default in fields.items())
    if not fields and "__init__" in vars(value) and not getattr(value, "_is_protocol", False):
        yield from (f"{attribute}({each})" for each in _parameters(vars(value)["__init__"]) if each != "self")
    for member, how in vars(value).items():
        if member not in fields and (not member.startswith("_") or member == "__call__"):
            yield from _member(f"{attribute}.{member}", how)


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    if typing.is_typeddict(kind) or hasattr(kind, "__required_keys__"):
        for name in kind.__annotations__:
            yield name, "" if name in kind.__required_keys__ else "?"  # type: ignore[attr-defined]
    elif hasattr(kind, "model_fields"):
        for name, field in kind.model_fields.items():
            yield name, "" if field.is_required() else f": {field.get_default(call_default_factory=True)!r}"
    elif dataclasses.is_dataclass(kind):
        for each in dataclasses.fields(kind):
            yield each.name, "" if each.default is dataclasses.MISSING else f": {each.default!r}"


def _member(name: str, how: Any) -> Iterator[str]:
    if isinstance(how, property | functools.cached_property):
        yield name
    elif isinstance(how, classmethod | staticmethod):
        yield f"{name}({', '.join(each for each in _parameters(how.__func__) if each != 'cls')})"
    elif inspect.isfunction(how) and not name.endswith(".model_post_init"):  # which pydantic writes
        yield f"{name}({', '.join(each for each in _parameters(how) if each != 'self')})"
    elif isinstance(how, str | bool | int | None | type) and not name.endswith((".model_config", ".model_fields")):
        yield f"{name}: {how.__name__ if isinstance(how, type) else repr(how)}"


def _parameters(fn: Any) -> list[str]:
    return [
        f"{'*' * (each.kind is each.VAR_POSITIONAL)}{'**' * (each.kind is each.VAR_KEYWORD)}{each.name}"
        + ("" if each.default is each.empty else f"={each.default!r}")
        for each in inspect.signature(fn).parameters.values()
    ]


if __name__ == "__main__":
    sys.exit(main())
