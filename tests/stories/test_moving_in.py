"""Story 6, moving in: programs for other tool layers run after `sed` has changed their import root.

The examples of the other systems' documents stand in tests/seeds with the root changed; here they get it back first.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ..agent.wire import answer, wire
from ..dialects.spark.test_agent_models import THREE, completion
from .running import run

HERE = Path(__file__).parent
SEEDS = HERE.parent / "seeds"

EXAMPLES = {
    "get_stock_price.py": ("autogen", "autogen_core"),
    "decorator_patterns.py": ("spark", "spark"),
    "custom_tool.py": ("spark", "spark"),
    "registry.py": ("spark", "spark"),
    "values.py": ("spark", "spark"),
    "complete_example.py": ("spark", "spark"),
    "myapp/tools.py": ("spark", "spark"),
}
"""The examples of the documents, and where they are from."""

SED = [
    r"s/^( *)(from|import) autogen_core\b/\1\2 toolcrib.dialects.autogen/",
    r"s/^( *)(from|import) spark\b/\1\2 toolcrib.dialects.spark/",
    r"s/^( *)(from|import) agent_swarm_kit\b/\1\2 toolcrib.dialects.swarm/",
]

User = Callable[..., str]


@pytest.fixture(scope="module")
def programs(clean_env: Callable[..., Path]) -> Path:
    return clean_env("--extra", "serve", "--extra", "models")


@pytest.fixture
def user(programs: Path, tmp_path: Path, user_environ: Callable[[Path], dict[str, str]]) -> User:
    """Runs a command in the folder of the programs as they were, and gives what it printed."""
    shutil.copytree(HERE / "moving_in", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "__init__.py").touch()
    for name, (dialect, root) in EXAMPLES.items():
        text = (SEEDS / dialect / name).read_text().replace(f"toolcrib.dialects.{dialect}", root)
        assert re.search(rf"^from {root}\b", text, re.M), name
        assert "toolcrib" not in text
        (tmp_path / name).write_text(text)
    environ = user_environ(programs)

    def user(*command: str, fails: bool = False, **more: str) -> str:
        done = run(tmp_path, {**environ, **more}, *command)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    return user


def change_roots(user: User) -> None:
    files = user("find", ".", "-name", "*.py").split()
    user("sed", "-E", "-i", *(part for change in SED for part in ("-e", change)), *files)


@pytest.mark.full
def test_the_programs_do_not_run_before(user: User) -> None:
    for name, root in [
        ("get_stock_price.py", "autogen_core"),
        ("registry.py", "spark"),
        ("shop.py", "agent_swarm_kit"),
    ]:
        assert f"No module named '{root}'" in user("python", name, fails=True)


@pytest.mark.full
def test_the_documents_examples_run(user: User) -> None:
    change_roots(user)
    price = float(user("python", "-W", "error", "get_stock_price.py"))
    assert 10 <= price <= 200
    assert user("python", "-W", "error", "registry.py") == "Registered tools: ['search_tool', 'calculator_tool']\n"
    for name in ("decorator_patterns.py", "custom_tool.py", "values.py"):
        assert user("python", "-W", "error", name) == ""
    assert user("python", "-W", "error", "turn.py") == (
        "success\nresults for bolts, not the last of 2\nresults for nuts, the last of 2\nrefused 0\n"
    )
    # The configuration of AutoGen's carries source code, which runs where that was allowed, with AutoGen's warning.
    assert "set TOOLCRIB_ALLOW_SOURCE_CODE=1" in user("python", "stock.py", fails=True)
    assert user("python", "stock.py", TOOLCRIB_ALLOW_SOURCE_CODE="1") == (
        "{\"AAPL\": 12.5}\nTool 'get_stock_price': 'date' is missing. Expected string.\n['add'] 3\n"
    )


@pytest.mark.full
def test_the_complete_example_of_sparks_document_runs_with_its_agent(
    clean_env: Callable[..., Path], tmp_path: Path, user_environ: Callable[[Path], dict[str, str]]
) -> None:
    text = (SEEDS / "spark" / "complete_example.py").read_text().replace("toolcrib.dialects.spark", "spark")
    (tmp_path / "complete_example.py").write_text(text)
    assert "toolcrib" not in text
    programs = clean_env("--extra", "serve", "--extra", "models")
    with wire(answer(THREE), answer(completion({"content": "There are two."}))) as provider:
        environ = {**user_environ(programs), "OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "none"}
        sed = ["sed", "-E", "-i", *(part for change in SED for part in ("-e", change)), "complete_example.py"]
        subprocess.run(sed, cwd=tmp_path, check=True)
        done = run(tmp_path, environ, "python", "-W", "error", "complete_example.py")
    assert (done.stdout, done.stderr) == ("There are two.\n", "")
    ids = [message["tool_call_id"] for message in provider.requests[1].body["messages"] if message["role"] == "tool"]
    assert ids == ["c1", "c2", "c3"]


@pytest.mark.full
def test_their_tools_are_listed_called_and_served_beside_each_other(user: User) -> None:
    change_roots(user)
    listed = user("toolcrib", "list", "stock.py", "complete_example.py", "shop.py").splitlines()
    assert [line.split("\t")[0] for line in listed] == [
        *("get_stock_price", "search_database", "contextual_search", "async_api_call", "search")
    ]
    for source, *call, output in [
        ("stock.py", "get_stock_price", "ticker=AAPL", "date=2021/01/01", '{"AAPL":12.5}\n'),
        ("decorator_patterns.py", "calculate", "operation=divide", "a=1", "b=3", "0.33\n"),
        ("decorator_patterns.py", "async_search", "query=x", "found x\n"),
        ("registry.py", "calculator_tool", "a=1", "b=2", "3\n"),
        ("shop.py", "search", "query=bolts", "results for bolts, the last of 1\n"),
    ]:
        assert user("toolcrib", "call", "-s", source, *call).endswith(output)
    price = user(
        "toolcrib", "call", "-s", "get_stock_price.py:get_stock_price", "get_stock_price", "ticker=A", "date=B"
    )
    assert 10 <= float(price.splitlines()[-1]) <= 200
    assert user("python", "client.py", "stock.py", "complete_example.py", "shop.py") == (
        "async_api_call contextual_search get_stock_price read_result search search_database\n"
        'success {"AAPL":12.5}\n'
        "success Found 1 results: ['bolt']\n"
        'success {"endpoint":"/x","ok":true}\n'
        "success results for nuts, the last of 1\n"
        "error Tool 'search' does not accept these arguments.\n"
        "error Tool 'search_database': 'query' is missing. Expected string.\n"
    )
