import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolcrib import LoadError
from toolcrib.dialects.autogen import CancellationToken, UntrustedError, allow_source_code
from toolcrib.dialects.autogen.code_executor import (
    Alias,
    CodeBlock,
    CodeExecutor,
    CodeResult,
    Import,
    ImportFromModule,
    with_requirements,
)
from toolcrib.dialects.autogen.code_executor._func_with_reqs import (
    build_python_functions_file,
    from_code,
    import_to_str,
    to_code,
)

LOUD = 'def shout(text: str) -> str:\n    """Loud."""\n    return text.upper()\n'
REFUSED = (
    "The configuration of the tool 'shout' carries source code, which loading it would run. If you trust where it "
    "comes from, load it in `with toolcrib.dialects.autogen.allow_source_code():`, or set "
    "TOOLCRIB_ALLOW_SOURCE_CODE=1. A function that can be imported is better dumped by reference."
)


def shout(text: str) -> str:
    """Loud."""
    return text.upper()


@functools.lru_cache(
    maxsize=1,
)
@functools.lru_cache
def cached(text: str) -> str:
    return text


class Holder:
    @staticmethod
    def quiet(
        text: str,
    ) -> str:
        return text.lower()

    def method(self) -> None: ...


@pytest.fixture
def allowed() -> Any:
    with allow_source_code():
        yield


# Imports


def test_imports_are_written_as_statements() -> None:
    imports: list[Import] = ["os.path", Alias("numpy", "np"), ImportFromModule("m", ["x", Alias("y", "z")])]
    assert [import_to_str(each) for each in imports] == [
        "import os.path",
        "import numpy as np",
        "from m import x, y as z",
    ]


def test_the_names_of_an_import_may_be_a_list_and_are_a_tuple() -> None:
    assert ImportFromModule("m", ["x"]) == ImportFromModule("m", ("x",))
    assert ImportFromModule("m", ["x"]).imports == ("x",)
    assert len({ImportFromModule("m", ["x"]), ImportFromModule("m", ("x",)), Alias("a", "b"), Alias("a", "b")}) == 2


def test_imports_are_json_and_back() -> None:
    adapter = TypeAdapter(list[Import])
    imports: list[Import] = ["os", Alias("a", "b"), ImportFromModule("m", ("x", Alias("y", "z")))]
    text = b'["os",{"name":"a","alias":"b"},{"module":"m","imports":["x",{"name":"y","alias":"z"}]}]'
    assert adapter.dump_json(imports) == text
    assert adapter.validate_json(text) == imports


# Functions to source code


def test_source_code_is_the_definition_without_decorators_at_the_margin() -> None:
    assert to_code(shout) == LOUD
    assert to_code(cached) == "def cached(text: str) -> str:\n    return text\n"
    assert to_code(Holder.quiet) == "def quiet(\n    text: str,\n) -> str:\n    return text.lower()\n"


def unreadable() -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec("def made(): ...", scope)
    scope["made"].__qualname__ = "unreadable.<locals>.made"
    made: Callable[..., Any] = scope["made"]
    return made


def closure() -> Callable[..., Any]:
    outer = 1

    def inner(a: int) -> int:
        return a + outer

    return inner


@pytest.mark.parametrize(
    ("func", "name", "why"),
    [
        (lambda a: a, "<lambda>", "it is a lambda"),
        (functools.partial(shout, "a"), "partial", "it is not a function but a partial"),
        (Holder().method, "Holder.method", "it is not a function but a method"),
        (len, "len", "it is not a function but a builtin_function_or_method"),
        (closure(), "closure.<locals>.inner", "it uses outer of an enclosing function"),
        (unreadable(), "unreadable.<locals>.made", "its file cannot be read"),
    ],
)
def test_what_has_no_source_code_of_its_own_is_refused(func: Callable[..., Any], name: str, why: str) -> None:
    with pytest.raises(ValueError) as raised:
        to_code(func)
    assert str(raised.value) == (
        f"'{name}' cannot be dumped as source code: {why}. Make it a function at the top level of a module, which can "
        "be imported by its name."
    )


def test_a_function_with_requirements_is_the_function() -> None:
    made = with_requirements(python_packages=["p>=1"], global_imports=["os", Alias("json", "j")])(shout)
    assert (made("a"), made.__name__, made.python_packages) == ("A", "shout", ["p>=1"])
    assert to_code(made) == LOUD
    assert build_python_functions_file([made, cached, made]) == (
        f"import os\nimport json as j\n\n{LOUD}\n\ndef cached(text: str) -> str:\n    return text\n\n\n{LOUD}\n\n"
    )


# Source code to functions


def test_source_code_is_refused_unless_it_is_allowed() -> None:
    with pytest.raises(ValueError) as raised:
        from_code("import nowhere_a", ["nowhere_b"], name="shout")
    assert isinstance(raised.value, LoadError)
    assert str(raised.value) == REFUSED


def runs() -> bool:
    try:
        return from_code(LOUD, name="shout")("a") == "A"
    except UntrustedError:
        return False


def test_a_with_allows_source_code_in_the_block_and_a_call_from_then_on() -> None:
    with allow_source_code():
        assert runs()
        with allow_source_code():
            pass
        assert runs()
    assert not runs()
    permission = allow_source_code()
    assert runs()
    with permission:
        assert runs()
    assert not runs()


@pytest.mark.parametrize(
    ("value", "allowed"), [("1", True), ("true", True), (" Yes ", True), ("0", False), ("false", False), ("", False)]
)
def test_the_environment_allows_source_code(value: str, allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_ALLOW_SOURCE_CODE", value)
    assert runs() is allowed


@pytest.mark.usefixtures("allowed")
def test_a_function_is_made_with_its_imports() -> None:
    code = "async def where(a: int) -> str:\n    def inner(): return j.dumps([a, sep, os.curdir])\n    return inner()\n"
    imports: list[Import] = ["os", Alias("json", "j"), ImportFromModule("os", ["sep"])]
    made = from_code(code, imports, name="where")
    assert inspect.iscoroutinefunction(made)
    assert made.__name__ == "where"
    with pytest.raises(StopIteration) as stopped:
        made(1).send(None)
    assert stopped.value.value == '[1, "/", "."]'


@pytest.mark.usefixtures("allowed")
def test_a_function_loaded_from_source_code_can_be_dumped_again_and_traced() -> None:
    made = from_code("def fails(a: int) -> int:\n    return a // 0\n", name="fails")
    assert to_code(made) == "def fails(a: int) -> int:\n    return a // 0\n"
    with pytest.raises(ZeroDivisionError) as failed:
        made(1)
    assert "return a // 0" in "".join(traceback.format_exception(failed.value))


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("code", "imports", "kind", "message"),
    [
        (
            LOUD,
            ["nowhere_a"],
            ModuleNotFoundError,
            "Failed to import import nowhere_a: Module not found. Please ensure the module is installed.",
        ),
        (
            LOUD,
            [ImportFromModule("os", ["nothing"])],
            ImportError,
            r"Failed to import from os import nothing: cannot import name 'nothing' from 'os'",
        ),
        (LOUD, ["os; 1/0"], RuntimeError, "Unexpected error while importing import os; 1/0: division by zero"),
        ("def f(:", [], ValueError, "Could not compile and load function: invalid syntax"),
        ("def f(): ...\n1/0", [], ValueError, "Could not compile and load function: division by zero"),
        ("a = 1", [], ValueError, "Could not compile and load function: it defines no function"),
        ("def f(): ...\nf = 1", [], TypeError, "Expected function but got <class 'int'>"),
    ],
)
def test_what_goes_wrong_raises_what_autogen_raises(
    code: str, imports: list[Import], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as failed:
        from_code(code, imports, name="f")
    assert type(failed.value) is kind
    assert str(failed.value).startswith(message)


async def test_a_programs_own_executor_starts_and_stops_itself() -> None:
    class Echoing(CodeExecutor):
        def __init__(self) -> None:
            self.log: list[str] = []

        async def execute_code_blocks(
            self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
        ) -> CodeResult:
            return CodeResult(0, "".join(f"{block.language}: {block.code}" for block in code_blocks))

        async def start(self) -> None:
            self.log.append("start")

        async def stop(self) -> None:
            self.log.append("stop")

        async def restart(self) -> None:
            self.log.append("restart")

    async with Echoing() as executor:
        done = await executor.execute_code_blocks([CodeBlock(code="1", language="python")], CancellationToken())
    assert (done, executor.log, executor.component_type) == (
        CodeResult(exit_code=0, output="python: 1"),
        ["start", "stop"],
        "code_executor",
    )
