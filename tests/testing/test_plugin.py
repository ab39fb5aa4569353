"""The fixture `bench`, in a pytest of its own, as those who write tools would use it."""

import typing
from typing import Unpack

import pytest

from toolcrib import Workbench
from toolcrib.testing import MakeBench
from toolcrib.workbench import Options

pytest_plugins = ["pytester"]

TOOLS = '''
import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from toolcrib import Context, Depends, tool

events = []


class Pool:
    pass


async def get_pool() -> AsyncIterator[Pool]:
    events.append("open")
    opener = asyncio.current_task()
    yield Pool()
    assert asyncio.current_task() is opener
    events.append("close")


@tool
async def use(pool: Annotated[Pool, Depends(get_pool)]) -> str:
    """Use the pool."""
    events.append("use")
    return type(pool).__name__


@tool
def who(context: Context) -> str:
    """Who calls."""
    caller = context.caller
    return f"{caller.principal}/{caller.profile}/{caller.thread}"


@tool
def fails() -> None:
    """Fail."""
    raise ValueError("the reason")
'''

# The outer fixture is set up first and torn down last: what it sees at the end is what the user is left with.
CONFTEST = """
import pytest
import tools


@pytest.fixture(autouse=True)
def seen(request):
    tools.events.clear()
    yield
    print("SEEN", request.node.name.split("[")[0], *tools.events)
"""

# With `mark` and `fixture` of an async plugin.
ASYNC = """
import pytest
import pytest_asyncio
from tools import events, use


{mark}
async def test_makes_one(bench):
    assert (await bench(use).call(use)).unwrap() == "Pool"
    events.append("end")


@pytest.fixture
def made(bench):
    return bench(use)


{mark}
async def test_is_given_one(made):
    await made.call(use)
    events.append("end")


@{fixture}.fixture
async def made_and_used(bench):
    made = bench(use)
    yield made
    await made.call(use)
    events.append("end")


{mark}
async def test_is_given_one_used_later(made_and_used):
    await made_and_used.call(use)


{mark}
async def test_fails(bench):
    await bench(use).call(use)
    events.append("end")
    raise LookupError
"""

WITHOUT_SLOW_PLUGINS = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:schemathesis")
ASYNCIO = {"mark": "@pytest.mark.asyncio", "fixture": "pytest_asyncio"}
ASYNCIO_OF_A_MODULE = {"mark": '@pytest.mark.asyncio(loop_scope="module")', "fixture": "pytest_asyncio"}
ANYIO = {"mark": '@pytest.mark.anyio\n@pytest.mark.parametrize("anyio_backend", ["asyncio"])', "fixture": "pytest"}


def run(pytester: pytest.Pytester, source: str) -> tuple[pytest.RunResult, dict[str, list[str]]]:
    """The result of a test file, and what each of its tests left behind."""
    pytester.makepyfile(tools=TOOLS, conftest=CONFTEST, test_tools=source)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    options = ("-o", "asyncio_default_fixture_loop_scope=function", *WITHOUT_SLOW_PLUGINS)
    result = pytester.runpytest_subprocess("-s", *options)
    left = [line.split("SEEN")[1].split() for line in result.outlines if "SEEN" in line]
    return result, {test: events for test, *events in left}


@pytest.mark.full
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(ASYNCIO, id="pytest-asyncio"),
        pytest.param(ASYNCIO_OF_A_MODULE, id="pytest-asyncio, one loop for a module"),
        pytest.param(ANYIO, id="anyio"),
    ],
)
def test_what_an_async_test_opened_is_closed_on_its_loop_after_its_fixtures(
    pytester: pytest.Pytester, how: dict[str, str]
) -> None:
    result, seen = run(pytester, ASYNC.format(**how))
    result.assert_outcomes(passed=3, failed=1)
    used_later = ["open", "use", "use", "end", "close"]
    if how is ASYNCIO_OF_A_MODULE:
        used_later = ["open", "use", "open", "use", "end", "close", "close"]  # the fixture has a loop of its own
    assert seen == {
        "test_makes_one": ["open", "use", "end", "close"],
        "test_is_given_one": ["open", "use", "end", "close"],
        "test_is_given_one_used_later": used_later,
        "test_fails": ["open", "use", "end", "close"],
    }


def test_callers_share_the_tools_and_the_overrides_and_a_bench_takes_any_source(pytester: pytest.Pytester) -> None:
    result, seen = run(
        pytester,
        """
from toolcrib import Caller, Registry
from tools import events, fails, get_pool, use, who

class Fake:
    pass

def fake_pool():
    events.append("open-fake")
    yield Fake()
    events.append("close-fake")

def test_callers(bench):
    tools = bench([use, who], overrides={get_pool: fake_pool}, caller=Caller("carol"))
    alice = tools.as_caller("alice")
    bob = tools.as_caller("bob", profile="work", thread="t1")
    assert tools.call_sync("who").text == "carol/default/default"
    assert alice.call_sync("who").text == "alice/default/default"
    assert bob.call_sync("who").text == "bob/work/t1"
    assert alice.specs() == bob.specs() == tools.specs()
    assert [alice.call_sync(use).unwrap(), bob.call_sync(use).unwrap()] == ["Fake", "Fake"]
    events.append("end")

def test_sources_and_errors(bench):
    assert [spec.name for spec in bench("tools.py").specs()] == ["use", "who", "fails"]
    assert [spec.name for spec in bench(Registry([who])).specs()] == ["who"]
    assert "the reason" in bench(fails).call_sync("fails").text
    assert "the reason" not in bench(fails, show_errors=False).call_sync("fails").text
""",
    )
    result.assert_outcomes(passed=2)
    assert seen["test_callers"] == ["open-fake", "use", "open-fake", "use", "end", "close-fake", "close-fake"]


def test_a_bench_takes_every_option_of_a_workbench() -> None:
    options = [typing.get_type_hints(made)["options"] for made in (Workbench.__init__, MakeBench.__call__)]
    assert options == [Unpack[Options]] * 2


@pytest.mark.full
def test_a_pytest_that_uses_no_bench_loads_neither_pydantic_nor_a_workbench_for_tests(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
import sys

def test_it():
    assert "toolcrib.testing.plugin" in sys.modules
    assert [name for name in ("pydantic", "jsonschema_rs", "griffe", "mcp", "typer") if name in sys.modules] == []
"""
    )
    pytester.runpytest_subprocess(*WITHOUT_SLOW_PLUGINS).assert_outcomes(passed=1)
