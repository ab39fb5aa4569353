"""Tools as they are offered to a model: names, schemas, and the way back through a workbench."""

import re
from typing import Any

import pytest

from toolcrib import Approve, Caller, Tool, ToolSpec, Workbench, tool
from toolcrib.core import NameConflictError
from toolcrib.formats.accepts import ANTHROPIC, BEDROCK, GEMINI, MCP, OPENAI
from toolcrib.formats.offer import Offer
from toolcrib.schema.lower import Accepts
from toolcrib.workbench import Rule, Rules


def spec(name: str, *, strict: bool | None = None, **schema: Any) -> ToolSpec:
    return ToolSpec(name, f"Does {name}.", {"type": "object", "additionalProperties": False, **schema}, strict=strict)


ODD = ["math.add", "math_add", "math/add", "7zip", "größe", "a" * 80, "a" * 81, "", "ok", "math add", "a-b", "import"]
PYTHON = Accepts(name="Python", source="", names=r"(?!import\Z)[A-Za-z_][A-Za-z0-9_]{0,63}")


@pytest.mark.parametrize("accepts", [OPENAI, ANTHROPIC, GEMINI, BEDROCK, MCP, PYTHON], ids=lambda accepts: accepts.name)
def test_every_name_is_one_that_the_provider_takes_and_leads_back(accepts: Accepts) -> None:
    specs = [spec(name) for name in ODD]
    offered = Offer.of(specs, accepts)
    names = [tool.name for tool in offered.tools]
    assert all(re.fullmatch(accepts.names, name) for name in names)
    assert len(set(names)) == len(ODD)
    assert [offered.tool_of(name) for name in names] == ODD
    assert [offered.name_of(tool) for tool in ODD] == names
    assert offered.name_of("ok") == "ok"
    assert [tool.name for tool in Offer.of([spec(name) for name in ODD], accepts).tools] == names


def test_a_name_that_is_fine_stays_though_another_would_become_it() -> None:
    for order in (["a.b", "a_b"], ["a_b", "a.b"]):
        offered = Offer.of([spec(name) for name in order], OPENAI)
        assert offered.name_of("a_b") == "a_b"
        assert offered.name_of("a.b") != "a_b"


def test_the_name_of_a_tool_that_is_no_longer_offered_can_still_be_sent() -> None:
    assert Offer.of([], OPENAI).name_of("gone.tool") == "gone_tool"
    assert Offer.of([], OPENAI).tool_of("gone_tool") == "gone_tool"


@pytest.mark.parametrize(
    ("tools", "written", "tool"),
    [
        (["weather"], "functions.weather", "weather"),
        (["weather"], "functions.weather:0", "weather"),
        (["weather"], "weather:12", "weather"),
        (["weather"], "weather<|channel|>commentary", "weather"),
        (["weather"], "functions.weather<|constrain|>json", "weather"),
        # the provider's name of a tool is decorated, too
        (["files.list"], "functions.files_list", "files.list"),
        # a tool of the written name
        (["weather", "functions.weather"], "functions.weather", "functions.weather"),
        (["weather", "weather:0"], "weather:0", "weather:0"),
        # more than one tool, or none
        (["weather", "functions.weather"], "functions.weather:0", "functions.weather:0"),
        (["weather"], "functions.weathers", "functions.weathers"),
        (["weather"], "other.weather", "other.weather"),
        (["weather"], "weather:", "weather:"),
        (
            ["weather"],
            "weather<|channel|>commentary to=functions.delete",
            "weather<|channel|>commentary to=functions.delete",
        ),
        (["weather"], "functions.", "functions."),
        (["weather"], "functions." * 10_000 + ":1" * 10_000, "functions." * 10_000 + ":1" * 10_000),
    ],
    ids=range(15),
)
def test_a_name_that_a_model_decorated_is_the_one_tool_that_it_can_be(
    tools: list[str], written: str, tool: str
) -> None:
    assert Offer.of([spec(name) for name in tools], OPENAI).tool_of(written) == tool


@pytest.mark.parametrize("written", ["functions.weather", "weather:0", "weather<|channel|>commentary"])
async def test_an_approval_rule_on_a_tool_applies_to_its_decorated_name(written: str) -> None:
    runs: list[str] = []

    def weather(city: str) -> str:
        runs.append(city)
        return "sunny"

    rules = Rules([Rule(tools="weather", do="ask")])
    async with Workbench([weather], policy=rules, caller=Caller("ada")) as bench:
        call = Offer.of(bench.specs(), OPENAI).call("c1", written, '{"city": "Rome"}')
        result = await bench.call(call)
        assert (result.status, result.tool, runs) == ("pending", "weather", [])
        assert result.pending is not None
        await bench.answer(result.pending.id, Approve(), by="ada")
        assert ((await bench.call(call)).value, runs) == ("sunny", ["Rome"])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(NameConflictError, match="'add'"):
        Offer.of([spec("add"), spec("add")], OPENAI)


def test_the_same_tools_are_offered_once() -> None:
    bench = Workbench([Tool(lambda: None, name="a"), Tool(lambda: None, name="b")])
    assert Offer.of(bench.specs(), OPENAI) is Offer.of(bench.specs(), OPENAI)
    assert Offer.of(bench.specs(), OPENAI) is not Offer.of(bench.specs(), ANTHROPIC)


def test_losses_are_reported_by_tool() -> None:
    specs = [spec("free"), spec("bound", properties={"n": {"type": "integer", "multipleOf": 2}})]
    offered = Offer.of(specs, GEMINI)
    assert [(name, [loss.keyword for loss in losses]) for name, losses in offered.losses.items()] == [
        ("bound", ["multipleOf"])
    ]


def test_the_heaviest_losses_come_first() -> None:
    far = {"$ref": "https://example.com/a.json", "type": "string"}
    open_object = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 2}, "far": far}}
    properties = {"a": open_object, "tags": {"type": "array", "items": {"type": "string"}}}
    losses = Offer.of([spec("bound", properties=properties)], ANTHROPIC, strict=True).losses["bound"]
    assert [(loss.weight, loss.keyword) for loss in losses] == [
        ("high", "$ref"),
        ("medium", "minimum"),
        ("low", "additionalProperties"),
    ]


@pytest.mark.parametrize(
    ("asked", "by_spec", "strict"),
    [
        (None, None, False),
        (None, True, True),
        (None, False, False),
        (True, None, True),
        (True, False, False),
        (False, True, False),
    ],
)
def test_strict_mode_is_asked_for_by_the_tool_or_the_host(
    asked: bool | None, by_spec: bool | None, strict: bool
) -> None:
    (offered,) = Offer.of([spec("a", strict=by_spec)], OPENAI, strict=asked).tools
    assert (offered.strict, offered.losses) == (strict, ())


def test_anthropic_takes_only_so_many_strict_tools_in_one_request() -> None:
    specs = [spec(f"t{number}") for number in range(22)]
    offered = Offer.of(specs, ANTHROPIC, strict=True)
    assert [tool.strict for tool in offered.tools] == [True] * 20 + [False] * 2
    assert list(offered.losses) == ["t20", "t21"]
    assert "at most 20 tools" in offered.losses["t20"][0].meaning
    optional = {f"m{number}": {"type": "string"} for number in range(20)}
    small, large = Offer.of(
        [spec("a", properties=optional), spec("b", properties=optional)], ANTHROPIC, strict=True
    ).tools
    assert (small.strict, large.strict) == (True, False)


async def test_a_call_goes_back_with_its_arguments_lifted() -> None:
    @tool(strict=True)
    def add(a: int, b: int = 5, weights: list[int] | None = None) -> int:
        return a + b + sum(weights or ())

    async with Workbench([add]) as bench:
        offered = Offer.of(bench.specs(), OPENAI)
        name = offered.name_of("add")
        assert offered.tools[0].strict
        text = '{"a": 1, "b": null, "weights": [10]}'
        call = offered.call("call_1", name, text)
        assert (call.tool, call.id, call.arguments) == ("add", "call_1", {"a": 1, "weights": [10]})
        assert (await bench.call(call)).value == 16
        given = offered.call("call_2", name, {"a": 1, "b": None, "weights": None})
        assert (await bench.call(given)).value == 6
        untouched = '{"a": 1, "b": 2, "weights": null}'
        assert offered.call("call_3", name, untouched).arguments is untouched


async def test_what_cannot_be_lifted_is_left_for_the_workbench_to_explain() -> None:
    @tool(strict=True)
    def add(a: int, b: int = 5) -> int:
        return a + b

    async with Workbench([add]) as bench:
        offered = Offer.of(bench.specs(), OPENAI)
        for broken in ('{"a": 1', '{"a": 1, "a": null}', "[1]", '{"a": NaN}', "[" * 100_000):
            call = offered.call("c", "add", broken)
            assert call.arguments is broken
            result = await bench.call(call)
            assert result.error is not None and result.error.code == "invalid_arguments"
        missing = await bench.call(offered.call("c", "subtract", "{}"))
        assert missing.error is not None and missing.error.code == "unknown_tool"
        assert offered.call("c", "add", None).arguments is None
