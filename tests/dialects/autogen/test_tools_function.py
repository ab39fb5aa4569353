"""Functions as tools, and the configurations of such tools."""

import asyncio
import functools
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

import toolcrib
from toolcrib import Workbench
from toolcrib.dialects.autogen import (
    CancellationToken,
    UntrustedError,
    allow_source_code,
)
from toolcrib.dialects.autogen.tools import FunctionTool
from toolcrib.workbench.settings import unknown_variables


def add(a: int, b: Annotated[int, "The second."] = 2) -> int:
    return a + b


async def add_async(a: int, b: int = 2) -> int:
    return a + b


def run(tool: FunctionTool, /, **args: Any) -> Any:
    return asyncio.run(tool.run_json(args, CancellationToken()))


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


def test_source_code_runs_only_where_that_is_allowed_and_with_a_warning():
    tool = FunctionTool(root_of, "Root.", name="root", global_imports=["math"], strict=True)
    data = tool.dump_component().model_dump()
    with pytest.raises(UntrustedError, match=r"tool 'root' carries source code.*allow_source_code"):
        FunctionTool.load_component(data)
    with allow_source_code(), pytest.warns(UserWarning, match="SECURITY WARNING"):
        loaded = FunctionTool.load_component(data)
    assert run(loaded, number=9) == 3.0
    assert loaded.schema == tool.schema
    assert loaded.dump_component().model_dump() == data


def test_the_variable_for_source_code_is_a_known_setting() -> None:
    assert unknown_variables({"TOOLCRIB_ALLOW_SOURCE_CODE": "1"}) == []


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
    with pytest.raises(ValueError, match=r"cannot be dumped as source code.*that stands alone"):
        tool.dump_component()


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
