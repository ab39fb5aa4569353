"""Functions to source code, and source code to functions, for the configurations of tools. There is no executor.

This is the only place of this dialect where source code runs, and only if `allow_source_code` allows it.
"""

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ._trust import require_source_code_allowed

__all__ = ["Alias", "Import", "ImportFromModule"]


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


def to_code(func: Callable[..., Any]) -> str:
    """Return the source code of *func* from its `def` on, without decorators and indentation.

    Raises ValueError for what has none, or would not run elsewhere: a lambda, a partial, an object, a closure.
    """
    inner: Any = inspect.unwrap(func)
    if not inspect.isfunction(inner):
        problem = f"it is not a function but a {type(inner).__name__}"
    elif inner.__name__ == "<lambda>":
        problem = "it is a lambda"
    elif inner.__closure__:
        problem = f"it uses {', '.join(inner.__code__.co_freevars)} of an enclosing function"
    else:
        try:
            code = textwrap.dedent(inspect.getsource(inner))
        except OSError:
            problem = "its file cannot be read"
        else:
            start = ast.parse(code).body[0].lineno  # of the `def`, after the decorators
            return "".join(code.splitlines(keepends=True)[start - 1 :])
    name = getattr(inner, "__qualname__", type(inner).__name__)
    raise ValueError(f"'{name}' cannot be dumped as source code: {problem}. Make it a function that stands alone.")


def from_code(code: str, global_imports: Sequence[Import] = (), *, name: str) -> Callable[..., Any]:
    """Run *global_imports* and *code*, the definition of one function, and return the function.

    *name* is the tool's, for the error. Raises UntrustedError unless `allow_source_code` has allowed it;
    ModuleNotFoundError, ImportError and RuntimeError for an import that fails, ValueError for code that fails, and
    TypeError where it defines something else.
    """
    require_source_code_allowed(name)
    scope: dict[str, Any] = {"__name__": "autogen_source_code"}
    for statement in map(import_to_str, global_imports):
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
    # Under a file name of its own, `inspect` finds the code again: the function can be dumped once more.
    file = f"<source code {hashlib.sha256(code.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    try:
        functions = [part for part in ast.parse(code).body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
        if not functions:
            raise ValueError("it defines no function")
        exec(compile(code, file, "exec"), scope)  # noqa: S102 - allowed above
    except Exception as error:
        raise ValueError(f"Could not compile and load function: {error}") from error
    func: Callable[..., Any] = scope[functions[0].name]
    if not callable(func):
        raise TypeError(f"Expected function but got {type(func)}")
    return func
