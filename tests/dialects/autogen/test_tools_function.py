"""Functions as tools, and the configurations of such tools."""

import asyncio
import functools
import json
import math
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

import toolcrib
from toolcrib import Workbench
from toolcrib.dialects.autogen import (
    CancellationToken,
    ComponentModel,
    UntrustedError,
    allow_source_code,
    trust_namespaces,
)
from toolcrib.dialects.autogen.code_executor import Alias, ImportFromModule
from toolcrib.dialects.autogen.tools import BaseTool, FunctionTool, StaticWorkbench


def add(a: int, b: Annotated[int, "The second."] = 2) -> int:
    return a + b


async def add_async(a: int, b: int = 2) -> int:
    return a + b


class Item(BaseModel):
    name: str
    price: float = 1.0


def run(tool: FunctionTool, /, **args: Any) -> Any:
    return asyncio.run(tool.run_json(args, CancellationToken()))


def test_the_schema_of_a_function_is_autogens():
    tool = FunctionTool(add, description="Add.")
    assert tool.schema == {
        "name": "add",
        "description": "Add.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"description": "a", "title": "A", "type": "integer"},
                "b": {"default": 2, "description": "The second.", "title": "B", "type": "integer"},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        "strict": False,
    }
    assert (tool.name, tool.return_type(), tool.args_type().__name__) == ("add", int, "addargs")
    assert FunctionTool(add, "Add.", name="plus").schema["name"] == "plus"


def test_strict_functions_have_no_defaults():
    def both(a: int, b: int) -> int:
        return a + b

    assert FunctionTool(both, "Add.", strict=True).schema["strict"] is True
    with pytest.raises(ValueError, match="Default arguments are not allowed in strict mode"):
        _ = FunctionTool(add, "Add.", strict=True).schema


@pytest.mark.parametrize("function", [add, add_async, functools.partial(add, b=2), functools.partial(add_async)])
def test_sync_async_and_partial_functions_run(function: Callable[..., Any]):
    assert run(FunctionTool(function, "Add."), a="40") == 42


def test_odd_parameters_work():
    def odd(
        first: int, /, _hidden: int, copy: int, *rest: int, schema: str = "s", model_x: int = 0, **more: int
    ) -> Any:
        return [first, _hidden, copy, rest, schema, model_x, more]

    tool = FunctionTool(odd, "Odd.")
    assert run(tool, first=1, _hidden=2, copy=3) == [1, 2, 3, (), "s", 0, {}]
    assert run(tool, first=1, _hidden=2, copy=3, rest=["4", 5], schema="t", model_x=6, z="7") == [
        *(1, 2, 3, (4, 5), "t", 6, {"z": 7})
    ]
    result = Workbench([tool]).call_sync("odd", {"first": 1, "_hidden": 2, "copy": 3, "rest": [4], "z": 5})
    assert result.value == [1, 2, 3, (4,), "s", 0, {"z": 5}]


def test_a_parameter_without_an_annotation_is_an_error_with_the_way_out():
    def bare(a, b: int) -> int: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ValueError, match=r"The parameter 'a' has no annotation.*such as 'a: str'"):
        FunctionTool(bare, "Bare.")


def test_an_unknown_argument_is_refused():
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        run(FunctionTool(add, "Add."), a=1, c=2)


def test_sync_functions_run_in_a_thread_with_the_context_of_the_call():
    name: ContextVar[str] = ContextVar("name")

    def where() -> list[Any]:
        return [name.get(), threading.current_thread() is threading.main_thread()]

    async def main() -> Any:
        name.set("here")
        return await FunctionTool(where, "Where.").run_json({}, CancellationToken())

    assert asyncio.run(main()) == ["here", False]


@pytest.mark.parametrize("takes_token", [True, False])
async def test_cancelling_the_token_abandons_a_sync_function(takes_token: bool):
    token, begun, end = CancellationToken(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[bool] = []

    def wait(cancellation_token: CancellationToken | None = None) -> None:
        loop.call_soon_threadsafe(begun.set)
        end.wait(60)
        seen.append(cancellation_token is token)
        loop.call_soon_threadsafe(begun.clear)

    def wait_without() -> None:
        wait()

    tool = FunctionTool(wait if takes_token else wait_without, "Wait.")
    task = asyncio.create_task(tool.run_json({}, token))
    await begun.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    end.set()
    while begun.is_set():
        await asyncio.sleep(0.001)
    assert seen == [takes_token]
    assert tool.schema["parameters"]["properties"] == {}


async def test_the_token_of_a_sync_function_is_cancelled_when_its_call_in_a_workbench_is_given_up():
    token, loop, begun = CancellationToken(), asyncio.get_running_loop(), asyncio.Event()
    cancelled = threading.Event()

    def wait(cancellation_token: CancellationToken) -> None:
        cancellation_token.add_callback(cancelled.set)
        loop.call_soon_threadsafe(begun.set)
        assert cancelled.wait(60)

    task = asyncio.create_task(StaticWorkbench([FunctionTool(wait, "Wait.")]).call_tool("wait", {}, token))
    await begun.wait()
    token.cancel()
    result = await task
    assert (result.is_error, result.to_text()) == (
        True,
        "Tool 'wait' was cancelled. Its work may still be running.",
    )
    assert await asyncio.to_thread(cancelled.wait, 10)


async def test_a_function_works_beside_those_of_toolcrib():
    @toolcrib.tool
    def native(n: int) -> int:
        """Give it back."""
        return n

    async def with_token(n: int, cancellation_token: CancellationToken, context: str = "c") -> str:
        return f"{n} {cancellation_token.is_cancelled()} {context}"

    bench = Workbench([native, FunctionTool(add, "Add."), FunctionTool(with_token, "With a token.", strict=True)])
    assert [(spec.name, spec.strict) for spec in bench.specs()] == [
        ("native", None),
        ("add", None),
        ("with_token", True),
    ]
    assert (await bench.call("add", '{"a": "1"}')).value == 3
    assert (await bench.call("with_token", '{"n": 1}')).text == "1 False c"
    assert (await bench.call("add", '{"a": 1, "bb": 3}')).text == (
        "Tool 'add' takes no argument 'bb'. Did you mean 'b'? It takes: a, b."
    )


# As data


def root_of(number: float) -> float:
    return math.sqrt(number)


def test_a_tool_is_dumped_as_autogen_dumps_it_with_a_reference_to_its_function():
    tool = FunctionTool(
        root_of,
        "Root.",
        name="root",
        strict=True,
        global_imports=["math", ImportFromModule("os", ["path", Alias("sep", "s")])],
    )
    assert tool.dump_component() == ComponentModel(
        provider="autogen_core.tools.FunctionTool",
        component_type="tool",
        version=1,
        component_version=1,
        description="Create custom tools by wrapping standard Python functions.",
        label="FunctionTool",
        config={
            "source_code": "def root_of(number: float) -> float:\n    return math.sqrt(number)\n",
            "name": "root",
            "description": "Root.",
            "global_imports": ["math", {"module": "os", "imports": ("path", {"name": "sep", "alias": "s"})}],
            "has_cancellation_support": False,
            "strict": True,
            "reference": f"{__name__}:root_of",
        },
    )


def without_reference(tool: FunctionTool) -> dict[str, Any]:
    data = tool.dump_component().model_dump()
    data["config"].pop("reference", None)
    return data


def test_source_code_runs_only_where_that_is_allowed_and_with_a_warning():
    tool = FunctionTool(root_of, "Root.", name="root", global_imports=["math"], strict=True)
    data = without_reference(tool)
    with pytest.raises(UntrustedError, match=r"tool 'root' carries source code.*allow_source_code"):
        FunctionTool.load_component(data)
    with allow_source_code(), pytest.warns(UserWarning, match="SECURITY WARNING"):
        loaded = FunctionTool.load_component(data)
    assert run(loaded, number=9) == 3.0
    assert loaded.schema == tool.schema
    assert without_reference(loaded) == data


def test_a_function_that_the_program_offers_is_found_again_without_running_source_code():
    tool = FunctionTool(root_of, "Root.", name="root")
    loaded = BaseTool.load_component(tool.dump_component())
    assert isinstance(loaded, FunctionTool)
    assert (loaded.name, run(loaded, number=9)) == ("root", 3.0)


PROGRAM = """\
import sys

from toolcrib.dialects.autogen.tools import FunctionTool, StaticWorkbench


def double(n: int) -> int:
    return 2 * n


offered = FunctionTool(double, "Double.") if sys.argv[1:] != ["bare"] else None
text = sys.stdin.read()
data = text or StaticWorkbench([offered]).dump_component().model_dump_json()
try:
    StaticWorkbench.load_component(__import__("json").loads(data))
    print(data)
except ValueError as error:
    print(type(error).__name__)
"""


def test_a_program_loads_its_own_function_again_and_not_one_of_another_program(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "other.py").write_text(PROGRAM.replace("2 * n", "3 * n"))

    def output(file: str, stdin: str = "", *arguments: str) -> str:
        command = [sys.executable, file, *arguments]
        return subprocess.run(command, input=stdin, cwd=tmp_path, stdout=subprocess.PIPE, text=True).stdout.strip()

    written = output("program.py")
    assert json.loads(written)["config"]["tools"][0]["config"]["reference"] == "__main__:double"
    assert output("program.py", written) == written
    assert (output("other.py", written), output("program.py", written, "bare")) == ("UntrustedError", "UntrustedError")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package on the path that nobody has imported."""
    name = "a_package_of_tools"
    (tmp_path / f"{name}.py").write_text(
        "import os\nfrom os.path import join\n\ndef double(n: int) -> int:\n    return 2 * n\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def config(reference: str, source_code: str = "def double(n: int) -> int:\n    return 2 * n\n") -> dict[str, Any]:
    return {
        "provider": "autogen_core.tools.FunctionTool",
        "config": {
            "source_code": source_code,
            "name": "double",
            "description": "Double.",
            "global_imports": [],
            "has_cancellation_support": False,
            "reference": reference,
        },
    }


def test_a_reference_is_followed_into_trusted_namespaces_only(package: str):
    with pytest.raises(UntrustedError, match="allow_source_code"):
        FunctionTool.load_component(config(f"{package}:double"))
    with pytest.raises(UntrustedError, match=rf"refers to the function .*trust_namespaces\('{package}'\)"):
        FunctionTool.load_component(config(f"{package}:double", source_code=""))
    assert package not in sys.modules
    with trust_namespaces(package):
        assert run(FunctionTool.load_component(config(f"{package}:double")), n=2) == 4
        assert run(FunctionTool.load_component(config(f"{package}:double", source_code="")), n=2) == 4
    with pytest.raises(UntrustedError):  # what was loaded in the block is nobody's offer
        FunctionTool.load_component(config(f"{package}:double", source_code=""))


@pytest.mark.parametrize("path", ["os.system", "join", "double.__globals__", "nothing", ""])
def test_a_reference_to_what_is_not_defined_there_is_refused_even_where_the_namespace_is_trusted(
    package: str, path: str
):
    with trust_namespaces(package), pytest.raises(UntrustedError):
        FunctionTool.load_component(config(f"{package}:{path}", source_code=""))


def test_a_function_that_is_not_offered_is_not_loaded_even_if_it_is_imported_already():
    for reference in ("os:system", "shutil:rmtree", "toolcrib.tools.load:load", "toolcrib.tools:load"):
        with pytest.raises(UntrustedError):
            FunctionTool.load_component(config(reference, source_code=""))


def test_other_source_code_than_that_of_the_function_is_source_code(package: str):
    with trust_namespaces(package), pytest.raises(UntrustedError, match="allow_source_code"):
        FunctionTool.load_component(
            config(f"{package}:double", source_code="def double(n: int) -> int:\n    return 3 * n\n")
        )


def test_a_function_marked_as_a_tool_is_offered():
    module = types.ModuleType("a_module_of_tools")
    exec("def double(n: int) -> int:\n    return 2 * n\n", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        with pytest.raises(UntrustedError):
            FunctionTool.load_component(config("a_module_of_tools:double", source_code=""))
        toolcrib.tool(module.double)
        assert run(FunctionTool.load_component(config("a_module_of_tools:double", source_code="")), n=2) == 4
    finally:
        del sys.modules[module.__name__]


class Callable_:
    def __call__(self, n: int) -> int:
        return n


def closure() -> Callable[..., Any]:
    secret = 3

    def inside(n: int) -> int:
        return n + secret

    return inside


@pytest.mark.parametrize("odd", [lambda: 1, functools.partial(add, b=1), Callable_(), closure()])
def test_what_has_no_source_code_of_its_own_cannot_be_dumped(odd: Any):
    tool = FunctionTool(odd, "Odd.", name="odd")
    assert run(
        tool, **({} if getattr(odd, "__name__", "") == "<lambda>" else {tool.schema["parameters"]["required"][0]: 1})
    )
    with pytest.raises(ValueError, match=r"cannot be dumped as source code.*at the top level of a module"):
        tool.dump_component()


async def test_a_function_can_be_called_by_itself_where_its_tool_is():
    bench = Workbench([FunctionTool(add, "Add.", name="plus")])
    assert (await bench.call(add, 1, b=3)).value == 4


def test_a_file_offers_the_tools_that_it_makes(tmp_path: Path):
    file = tmp_path / "my_tools.py"
    file.write_text(
        "from os.path import basename\n"
        "from pydantic import BaseModel\n"
        "from toolcrib.dialects.autogen.tools import BaseTool, FunctionTool, StaticWorkbench\n"
        "def last(path: str) -> str:\n"
        "    return basename(path)\n"
        "class Nothing(BaseModel): ...\n"
        "class Last(BaseTool):\n"
        "    def __init__(self, name):\n"
        "        super().__init__(Nothing, str, name, 'Nothing.')\n"
        "    async def run(self, args, cancellation_token): ...\n"
        "one, two = FunctionTool(last, 'Last.'), Last('two')\n"
        "bench = StaticWorkbench([FunctionTool(last, 'Last.', name='three')])\n"
    )
    assert [spec.name for spec in Workbench([file]).specs()] == ["last", "two"]
    assert [spec.name for spec in Workbench([f"{file}:bench"]).specs()] == ["three"]
