"""A function as source code, with the imports that it needs; and the function again.

The one place of this dialect where source code runs, and only where `allow_source_code` has allowed it.
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
    # `import name as alias`; or, among the names of an ImportFromModule, `name as alias`. (No docstrings in these two:
    # they would stand in the schema of a configuration.)
    name: str
    alias: str


@dataclass(frozen=True)
class ImportFromModule:
    # `from module import ...`. The names may be given as a list.
    module: str
    imports: tuple[str | Alias, ...]

    def __init__(self, module: str, imports: Sequence[str | Alias]) -> None:
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "imports", tuple(imports))


Import = Union[str, ImportFromModule, Alias]  # noqa: UP007 - a TypeAlias that pydantic reads on every Python


def import_to_str(im: Import) -> str:
    """The statement that *im* stands for."""
    if isinstance(im, ImportFromModule):
        return f"from {im.module} import {', '.join(map(_as, im.imports))}"
    return f"import {_as(im)}"


def _as(name: str | Alias) -> str:
    return f"{name.name} as {name.alias}" if isinstance(name, Alias) else name


@dataclass
class FunctionWithRequirements(Generic[T, P]):
    """A function that knows what it needs. Calling it calls the function."""

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
    """Say of the decorated function which packages, as pip knows them, and which imports it needs."""

    def wrap(func: Callable[P, T]) -> FunctionWithRequirements[T, P]:
        made = FunctionWithRequirements.from_callable(func, python_packages, global_imports)
        functools.update_wrapper(made, func)
        return made

    return wrap


def to_code(func: Callable[..., Any]) -> str:
    """The source code of *func*, from its `def` on, without decorators and at the margin.

    Raises ValueError for what has none, or would not run elsewhere: a lambda, a partial, an object, a closure.
    """
    func = func.func if isinstance(func, FunctionWithRequirements) else func
    inner: Any = inspect.unwrap(func)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    if not inspect.isfunction(inner):
        raise _no_code(name, f"it is no function but a {type(inner).__name__}")
    if inner.__name__ == "<lambda>":
        raise _no_code(name, "it is a lambda")
    if inner.__closure__:
        raise _no_code(name, f"it uses {', '.join(inner.__code__.co_freevars)} of the function around it")
    try:
        code = textwrap.dedent(inspect.getsource(inner))
    except OSError as error:
        raise _no_code(name, "its file cannot be read") from error
    start = ast.parse(code).body[0].lineno  # where the `def` is, behind the decorators
    return "".join(code.splitlines(keepends=True)[start - 1 :])


def _no_code(name: str, why: str) -> ValueError:
    return ValueError(
        f"'{name}' cannot be written down as source code: {why}. Make it a function at the top of a module, "
        "which is found by its name."
    )


def build_python_functions_file(funcs: Iterable[Callable[..., Any]]) -> str:
    """One file of *funcs* and all that those among them need which know it, their imports first."""
    funcs = list(funcs)
    needed = [each for func in funcs if isinstance(func, FunctionWithRequirements) for each in func.global_imports]
    imports = "\n".join(dict.fromkeys(map(import_to_str, needed)))
    return "".join((f"{imports}\n\n", *(f"{to_code(func)}\n\n" for func in funcs)))


def from_code(code: str, global_imports: Sequence[Import] = (), *, name: str) -> Callable[..., Any]:
    """Run *global_imports* and *code*, the definition of one function, and give the function.

    *name* is the tool's, for the error. Raises UntrustedError unless `allow_source_code` has allowed it;
    ModuleNotFoundError, ImportError and RuntimeError of an import that fails, ValueError of code that does, TypeError
    where it defines something else.
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
        function_name = _defined(code)
        exec(compile(code, _remembered(code), "exec"), scope)  # noqa: S102 - allowed above
    except Exception as error:
        raise ValueError(f"Could not compile and load function: {error}") from error
    func = scope[function_name]
    if not callable(func):
        raise TypeError(f"Expected function but got {type(func)}")
    made: Callable[..., Any] = func
    return made


def _defined(code: str) -> str:
    """The name of the first function that *code* defines at its top."""
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            return statement.name
    raise ValueError("it defines no function")


def _remembered(code: str) -> str:
    """A file name under which tracebacks and `inspect` find *code*, so that what was loaded can be dumped again."""
    name = f"<source code {hashlib.sha256(code.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    return name
