"""AutoGen's document on `autogen_core.tools`: its example, its schemas, its classes and signatures."""

import json
import random
import runpy
from abc import ABC
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

import pytest
from pydantic import BaseModel, ValidationError

from toolcrib.dialects.autogen import CancellationToken, Component, ComponentBase, allow_source_code
from toolcrib.dialects.autogen.code_executor import Alias, ImportFromModule
from toolcrib.dialects.autogen.tools import (
    BaseTool,
    BaseToolWithState,
    FunctionTool,
    FunctionToolConfig,
    ImageResultContent,
    ParametersSchema,
    StaticWorkbench,
    StaticWorkbenchConfig,
    TextResultContent,
    Tool,
    ToolResult,
    ToolSchema,
    Workbench,
)

from .counter import Count, Counter, Nothing

SEED = Path(__file__).parents[2] / "seeds" / "autogen"


class Args(BaseModel):
    a: int


class Answer(BaseModel):
    b: int


class Double(BaseTool[Args, Answer]):
    def __init__(self, **options: Any) -> None:
        super().__init__(Args, Answer, "double", "Twice as much.", **options)

    async def run(self, args: Args, cancellation_token: CancellationToken) -> Answer:
        return Answer(b=2 * args.a)


def test_the_example_of_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    random.seed(1)
    names = runpy.run_path(str(SEED / "get_stock_price.py"))
    random.seed(1)
    assert capsys.readouterr().out == f"{random.uniform(10, 200)}\n"
    tool = FunctionTool(names["get_stock_price"], description="Fetch the stock price for a given ticker.")
    assert tool.schema == {
        "name": "get_stock_price",
        "description": "Fetch the stock price for a given ticker.",
        "parameters": {
            "type": "object",
            "properties": {
                "ticker": {"description": "ticker", "title": "Ticker", "type": "string"},
                "date": {"description": "Date in YYYY/MM/DD", "title": "Date", "type": "string"},
            },
            "required": ["ticker", "date"],
            "additionalProperties": False,
        },
        "strict": False,
    }


async def test_a_function_tool_runs_validates_serializes_and_describes_a_function() -> None:
    def weight(kilos: float, count: int = 1) -> dict[str, float]:
        return {"total": kilos * count}

    async def later(kilos: float) -> float:
        return kilos

    tool, token = FunctionTool(weight, "How heavy."), CancellationToken()
    assert await tool.run_json({"kilos": "1.5", "count": 2}, token) == {"total": 3.0}
    assert await FunctionTool(later, "Later.").run_json({"kilos": 1}, token) == 1.0
    with pytest.raises(ValidationError):
        await tool.run_json({"kilos": "heavy"}, token)
    assert tool.return_value_as_string({"total": 3.0}) == '{"total": 3.0}'
    schema = tool.schema
    assert (schema["name"], schema.get("description")) == ("weight", "How heavy.")
    assert schema["parameters"]["required"] == ["kilos"]  # type: ignore[typeddict-item]
    count = {"default": 1, "description": "count", "title": "Count", "type": "integer"}
    assert schema["parameters"]["properties"]["count"] == count  # type: ignore[typeddict-item]
    assert tool.args_type().model_validate({"kilos": 2}).model_dump() == {"kilos": 2.0, "count": 1}


def test_the_return_annotation_of_a_function_is_the_return_type() -> None:
    def plain() -> dict[str, float]: ...  # type: ignore[empty-body]

    def described() -> Annotated[float, "Kilos"]: ...  # type: ignore[empty-body]

    async def later() -> Answer: ...  # type: ignore[empty-body]

    assert [FunctionTool(each, "Weigh.").return_type() for each in (plain, described, later)] == [
        dict[str, float],
        float,
        Answer,
    ]


def total(paths: list[str]) -> str:  # its imports are those of its tool
    parts = (math.floor(2.5), pathlib.Path(paths[0]).name, dumps(j.loads("[1]")), sep(1))  # type: ignore[name-defined]  # noqa: F821
    return " ".join(map(str, parts))


async def test_global_imports_are_texts_modules_names_of_modules_and_aliases() -> None:
    named, renamed = ImportFromModule("json", ["dumps"]), ImportFromModule("builtins", [Alias("str", "sep")])
    imports: list[Any] = ["math", "pathlib", Alias("json", "j"), named, renamed]
    tool = FunctionTool(total, "Sum up.", global_imports=imports)
    config = tool.dump_component()
    assert config.config["global_imports"] == [
        "math",
        "pathlib",
        {"name": "json", "alias": "j"},
        {"module": "json", "imports": ("dumps",)},
        {"module": "builtins", "imports": ({"name": "str", "alias": "sep"},)},
    ]
    with allow_source_code(), pytest.warns(UserWarning, match="SECURITY"):
        loaded = FunctionTool.load_component(config)
    assert await loaded.run_json({"paths": ["/a/b"]}, CancellationToken()) == "2 b [1] 1"


@pytest.mark.parametrize("kind", [ImageResultContent, TextResultContent, ToolResult], ids=lambda kind: kind.__name__)
def test_the_json_schemas_are_those_of_the_document(kind: type[BaseModel]) -> None:
    assert kind.model_json_schema() == json.loads((SEED / "schemas.json").read_text())[kind.__name__]


def test_the_shapes_of_schemas_have_the_documented_keys() -> None:
    assert (ParametersSchema.__required_keys__, ParametersSchema.__optional_keys__) == (
        {"type", "properties"},
        {"required", "additionalProperties"},
    )
    assert (ToolSchema.__required_keys__, ToolSchema.__optional_keys__) == (
        {"name"},
        {"description", "parameters", "strict"},
    )


def test_the_classes_have_the_documented_bases_and_types() -> None:
    assert issubclass(BaseTool, ABC)
    assert issubclass(BaseTool, ComponentBase)
    assert Tool in BaseTool.__mro__
    assert Protocol in Tool.__mro__
    assert issubclass(BaseToolWithState, BaseTool)
    assert issubclass(FunctionTool, BaseTool)
    assert issubclass(FunctionTool, Component)
    assert issubclass(Workbench, ABC)
    assert issubclass(Workbench, ComponentBase)
    assert issubclass(StaticWorkbench, Workbench)
    assert issubclass(StaticWorkbench, Component)


async def test_a_tool_has_what_the_protocol_of_the_document_asks_for() -> None:
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    tools: list[Tool] = [Double(), Counter(), FunctionTool(add, "Add up.")]
    assert [isinstance(each, Tool) for each in tools] == [True, True, True]
    assert [(each.name, each.description) for each in tools] == [
        ("double", "Twice as much."),
        ("counter", "Count up."),
        ("add", "Add up."),
    ]
    assert [each.schema["name"] for each in tools] == ["double", "counter", "add"]
    assert [each.args_type() for each in tools[:2]] == [Args, Nothing]
    assert [each.return_type() for each in tools] == [Answer, Count, int]
    assert [each.state_type() for each in tools] == [None, None, None]  # a tool with state included, as in the original
    token = CancellationToken()
    values = [await each.run_json(args, token) for each, args in zip(tools, [{"a": 3}, {}, {"a": 3}], strict=True)]
    assert values == [Answer(b=6), Count(count=1), 5]
    shown = [each.return_value_as_string(value) for each, value in zip(tools, values, strict=True)]
    assert shown == ['{"b": 6}', '{"count": 1}', "5"]
    saved = [await each.save_state_json() for each in tools]
    assert saved == [{}, {"count": 1}, {}]
    for each, state in zip(tools, [{}, {"count": 10}, {}], strict=True):
        assert await each.load_state_json(state) is None
    assert await tools[1].run_json({}, token) == Count(count=11)


async def test_run_takes_the_model_of_the_arguments() -> None:
    token = CancellationToken()
    assert await Double().run(Args(a=2), token) == Answer(b=4)

    def add(a: int) -> int:
        return a + 1

    tool = FunctionTool(add, "Add.")
    assert await tool.run(tool.args_type()(a=2), token) == 3


async def test_a_tools_output_is_the_users_responsibility() -> None:
    def wrong() -> int:
        return "text"  # type: ignore[return-value]

    assert await FunctionTool(wrong, "Wrong.").run_json({}, CancellationToken()) == "text"


def test_a_function_tool_is_loaded_from_its_configuration() -> None:
    tool = FunctionTool(weight, "How heavy.", name="heavy", global_imports=["math"])
    config = tool._to_config()
    assert isinstance(config, FunctionToolConfig)
    assert (config.name, config.description, config.global_imports) == ("heavy", "How heavy.", ["math"])
    with allow_source_code(), pytest.warns(UserWarning, match="SECURITY"):
        assert FunctionTool._from_config(config).schema == tool.schema
        loaded = BaseTool.load_component(tool.dump_component())
    assert isinstance(loaded, FunctionTool)
    assert loaded.schema == tool.schema


def weight(size: int) -> float:
    return size * 2.5


async def test_a_static_workbench_does_what_the_document_describes() -> None:
    bench = StaticWorkbench([Double(), Counter()])
    assert [schema["name"] for schema in await bench.list_tools()] == ["double", "counter"]
    assert await bench.start() is None
    result = await bench.call_tool("double", {"a": 4}, CancellationToken())
    assert result == ToolResult(name="double", result=[TextResultContent(content='{"b": 8}')], is_error=False)
    assert (await bench.call_tool("double", None)).is_error
    assert (await bench.call_tool("counter", arguments={}, cancellation_token=None)).to_text() == '{"count": 1}'
    saved = await bench.save_state()
    other = StaticWorkbench([Double(), Counter()])
    assert await other.load_state(json.loads(json.dumps(saved))) is None
    assert (await other.call_tool("counter")).to_text() == '{"count": 2}'
    assert await bench.reset() is None
    assert (await bench.call_tool("counter")).to_text() == '{"count": 1}'
    assert await bench.stop() is None
    config = StaticWorkbench([FunctionTool(weight, "How heavy.")])._to_config()
    assert isinstance(config, StaticWorkbenchConfig)
    with allow_source_code(), pytest.warns(UserWarning, match="SECURITY"):
        made = StaticWorkbench._from_config(config)
    assert (await made.call_tool("weight", {"size": 2})).to_text() == "5.0"


class Growing(Workbench):
    """A workbench whose tools change after each call."""

    def __init__(self) -> None:
        self.names = ["first"]
        self.events: list[str] = []

    async def list_tools(self) -> list[ToolSchema]:
        return [{"name": name} for name in self.names]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        self.names.append(f"after_{name}")
        return ToolResult(name=name, result=[TextResultContent(content="done")])

    async def start(self) -> None:
        self.events.append("start")

    async def stop(self) -> None:
        self.events.append("stop")

    async def reset(self) -> None:
        self.names = ["first"]

    async def save_state(self) -> Mapping[str, Any]:
        return {"names": self.names}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.names = list(state["names"])


async def test_a_workbench_subclass_starts_and_stops_as_a_context_manager_and_may_change_its_tools() -> None:
    bench = Growing()
    async with bench as entered:
        assert entered is bench
        assert bench.events == ["start"]
        assert (await bench.call_tool("first")).to_text() == "done"
        assert [schema["name"] for schema in await bench.list_tools()] == ["first", "after_first"]
    assert bench.events == ["start", "stop"]
