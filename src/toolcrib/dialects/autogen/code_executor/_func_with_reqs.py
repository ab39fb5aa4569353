"""Functions to source code, with the imports that they need, and source code to functions.

This is the only place of this dialect where source code runs, and only if `allow_source_code` allows it.
"""

import ast
import functools
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, Union

from .._trust import require_source_code_allowed

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Alias:
    # `import name as alias`, or `name as alias` in an ImportFromModule. These two have no docstrings, which would be in
    # the schema of a configuration.
    name: str
    alias: str


@dataclass(frozen=True)
class ImportFromModule:
    # `from module import ...`
    module: str
    imports: tuple[str | Alias, ...]

    def __init__(self, module: str, imports: Sequence[str | Alias]) -> None:
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "imports", tuple(imports))


Import = Union[str, ImportFromModule, Alias]  # noqa: UP007 - a TypeAlias that pydantic reads on every Python


def import_to_str(im: Import) -> str:
    """Return *im* as a statement."""
    if isinstance(im, ImportFromModule):
        return f"from {im.module} import {', '.join(map(_as, im.imports))}"
    return f"import {_as(im)}"


def _as(name: str | Alias) -> str:
    return f"{name.name} as {name.alias}" if isinstance(name, Alias) else name


@dataclass
class FunctionWithRequirements(Generic[T, P]):
    """A function and what it requires. Calling it calls the function."""

    func: Callable[P, T]
    python_packages: Sequence[str] = field(default_factory=list[str])
    global_imports: Sequence[Import] = field(default_factory=list[Import])

    @classmethod
    def from_callable(
        cls, func: Callable[P, T], python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
    ) -> "FunctionWithRequirements[T, P]":
        return cls(func, list(python_packages), list(global_imports))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.func(*args, **kwargs)


def with_requirements(
    python_packages: Sequence[str] = (), global_imports: Sequence[Import] = ()
) -> Callable[[Callable[P, T]], FunctionWithRequirements[T, P]]:
    """Declare the packages, by pip's names, and the imports that the decorated function needs."""

    def wrap(func: Callable[P, T]) -> FunctionWithRequirements[T, P]:
        made = FunctionWithRequirements.from_callable(func, python_packages, global_imports)
        functools.update_wrapper(made, func)
        return made

    return wrap


def to_code(func: Callable[..., Any]) -> str:
    """Return the source code of *func* from its `def` on, without decorators and indentation.

    Raises ValueError for what has none, or would not run elsewhere: a lambda, a partial, an object, a closure.
    """
    func = func.func if isinstance(func, FunctionWithRequirements) else func
    inner: Any = inspect.unwrap(func)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    if not inspect.isfunction(inner):
        raise _no_code(name, f"it is not a function but a {type(inner).__name__}")
    if inner.__name__ == "<lambda>":
        raise _no_code(name, "it is a lambda")
    if inner.__closure__:
        raise _no_code(name, f"it uses {', '.join(inner.__code__.co_freevars)} of an enclosing function")
    try:
        code = textwrap.dedent(inspect.getsource(inner))
    except OSError as error:
        raise _no_code(name, "its file cannot be read") from error
    start = ast.parse(code).body[0].lineno  # of the `def`, after the decorators
    return "".join(code.splitlines(keepends=True)[start - 1 :])


def _no_code(name: str, why: str) -> ValueError:
    return ValueError(
        f"'{name}' cannot be dumped as source code: {why}. Make it a function at the top level of a module, which can "
        "be imported by its name."
    )


def build_python_functions_file(funcs: Iterable[Callable[..., Any]]) -> str:
    """Return the source of one file with *funcs* and the imports that they declare."""
    funcs = list(funcs)
    declared = [each for func in funcs if isinstance(func, FunctionWithRequirements) for each in func.global_imports]
    imports = "\n".join(dict.fromkeys(map(import_to_str, declared)))
    return "".join((f"{imports}\n\n", *(f"{to_code(func)}\n\n" for func in funcs)))


def from_code(code: str, global_imports: Sequence[Import] = (), *, name: str) -> Callable[..., Any]:
    """Run *global_imports* and *code*, the definition of one function, and return the function.

    *name* is the tool's, for the error. Raises UntrustedError unless `allow_source_code` has allowed it;
    ModuleNotFoundError, ImportError and RuntimeError for an import that fails, ValueError for code that fails, and
    TypeError where it defines something else.
    """
    require_source_code_allowed(name)
    scope: dict[str, Any] = {"__name__": "autogen_source_code"}
    for each in global_imports:
        statement = import_to_str(each)
        try:
            exec(statement, scope)  # noqa: S102 - allowed above
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"Failed to import {statement}: Module not found. Please ensure the module is installed."
            ) from error
        except ImportError as error:
            raise ImportError(f"Failed to import {statement}: {error}") from error
        except Exception as error:
            raise RuntimeError(f"Unexpected error while importing {statement}: {error}") from error
    try:
        function_name = _first_function(code)
        exec(compile(code, _cached_file(code), "exec"), scope)  # noqa: S102 - allowed above
    except Exception as error:
        raise ValueError(f"Could not compile and load function: {error}") from error
    func: Callable[..., Any] = scope[function_name]
    if not callable(func):
        raise TypeError(f"Expected function but got {type(func)}")
    return func


def _first_function(code: str) -> str:
    """Return the name of the first function that *code* defines at its top level."""
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return statement.name
    raise ValueError("it defines no function")


def _cached_file(code: str) -> str:
    """Return a file name for which tracebacks and `inspect` find *code*, so that the function can be dumped again."""
    name = f"<source code {hashlib.sha256(code.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    return name
