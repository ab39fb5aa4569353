"""Every item of the documents that the dialects follow has a test, and the script reports one that has none."""

import copy
import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_seeds.py"


@pytest.fixture
def script() -> Any:
    spec = importlib.util.spec_from_file_location("check_seeds", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def table(script: Any) -> dict[str, Any]:
    return copy.deepcopy(tomllib.loads(script.TABLE.read_text()))


def test_every_item_of_the_documents_is_held_by_a_test(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main() == 0
    assert capsys.readouterr().out.endswith(" items of 4 documents, 0 problems\n")


def test_an_item_without_a_test_is_reported(script: Any, table: dict[str, Any]) -> None:
    table["spark"]["items"]["ToolUse.input"] = []
    assert list(script.problems(table)) == ["spark: ToolUse.input: no test holds it"]


@pytest.mark.parametrize(
    "test",
    [
        "tests/dialects/spark/test_tools.py::test_that_nobody_wrote",
        "tests/dialects/spark/test_nowhere.py::test_the_roots_names_are_there",
        "tests/dialects/spark/test_tools.py",
        "scripts/check_seeds.py::main",
    ],
)
def test_a_missing_test_is_reported(test: str, script: Any, table: dict[str, Any]) -> None:
    table["autogen"]["items"]["ToolResult.name"] = test
    assert list(script.problems(table)) == [f"autogen: ToolResult.name: there is no test {test}"]


@pytest.mark.parametrize(
    ("dialect", "item"),
    [
        ("autogen", "StaticWorkbench.list_tools()"),
        ("autogen", "FunctionTool(strict=False)"),
        ("spark", "tool(context=False)"),
        ("spark", "ToolSpec.x_spark?"),
        ("swarm", "IToolCallDto.is_last"),
        ("hyperpocket", "Tool.default_tool_vars: {}"),
    ],
)
def test_an_item_that_is_missing_in_the_table_is_reported(
    dialect: str, item: str, script: Any, table: dict[str, Any]
) -> None:
    del table[dialect]["items"][item]
    message = f"{dialect}: {item} is in the code, and the document names it; it is not in the table"
    assert list(script.problems(table)) == [message]
