"""The agents of smolagents with our tools, and its tools with us. See test_frameworks.py."""

import io
from typing import Any, Literal

import pytest
from bridged_tools import (  # noqa: F401 - no_events is for each test
    LISTED,
    PNG,
    add,
    check_needed,
    draw,
    events,
    no_events,
    searched,
    wipe,
)
from PIL import Image as Pillow
from pydantic import BaseModel
from smolagents import ActionStep, CodeAgent, Model, Tool, ToolCallingAgent, ToolCollection
from smolagents import tool as their_tool
from smolagents.agent_types import AgentImage
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_tool_json_schema,
)

from toolcrib import Image, ToolError, ToolSpec, Workbench, tool
from toolcrib.bridges import smolagents as bridge
from toolcrib.tools import from_work


class Scripted(Model):
    """A model that makes *replies*, one a turn: calls, as (name, arguments), or code. Then it says "done"."""

    def __init__(self, *replies: Any) -> None:
        super().__init__()
        self.replies = list(replies)
        self.offered: list[Any] = []

    def generate(self, messages: Any, tools_to_call_from: Any = None, **_: Any) -> ChatMessage:
        self.offered = [each.name for each in tools_to_call_from or ()]
        reply = self.replies.pop(0) if self.replies else None
        if tools_to_call_from is None:
            code = reply or 'final_answer("done")'
            return ChatMessage(MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>")
        name, arguments = reply or ("final_answer", {"answer": "done"})
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"call_{len(self.replies)}", type="function", function=function)
        return ChatMessage(MessageRole.ASSISTANT, content="", tool_calls=[call])


def run(agent: Any) -> list[str]:
    """What the model reads of each step but the last."""
    assert agent.run("Go.") == "done"
    steps = [step for step in agent.memory.steps if isinstance(step, ActionStep)]
    return [f"{step.observations or ''}{step.error.message if step.error else ''}" for step in steps[:-1]]


def calling(*calls: Any, bench: Workbench) -> ToolCallingAgent:
    return ToolCallingAgent(tools=bridge.tools(bench), model=Scripted(*calls), verbosity_level=0)


def test_an_agent_calls_through_the_whole_pipeline() -> None:
    agent = calling(
        ("add", {"numbers": [1, "2"]}), ("add", {"numbrs": [1]}), ("add", {"numbers": ["x"]}), bench=Workbench([add])
    )
    added, misspelt, wrong = run(agent)
    assert agent.model.offered == ["add", "read_result", "final_answer"]  # type: ignore[attr-defined]
    assert added == "3"
    assert "numbrs is not in the tool's input schema" in misspelt  # as smolagents checks it
    assert "Tool 'add': 'numbers[0]': expected integer, got string." in wrong


def test_the_code_of_an_agent_has_values_and_errors_that_it_can_catch() -> None:
    @tool
    async def measure(text: str) -> dict[str, int]:
        """Measure."""
        return {"length": len(text)}

    code = """
total = add("[1, 2]") + measure(text="four")["length"]
print(total)
try:
    wipe("/")
except Exception as error:
    print(error)
add(numbrs=[1])
"""
    bench = Workbench([add, measure, wipe], policy=lambda spec, *_: "ask" if spec.name == "wipe" else "allow")
    agent = CodeAgent(tools=bridge.tools(bench), model=Scripted(code), verbosity_level=0)
    (seen,) = run(agent)
    assert "7\n" in seen
    assert "it waits for approval" in seen
    assert "Did you mean 'numbers'?" in seen
    assert events == []


def test_an_image_is_one_of_the_agents() -> None:
    @tool
    async def paint() -> Image:
        """Paint."""
        return Image(PNG)

    agent = calling(("paint", {}), ("draw", {}), bench=Workbench([paint, draw]))
    painted, drawn = run(agent)
    assert painted == "Stored 'image.png' in memory."
    assert isinstance(agent.state["image.png"], AgentImage)
    assert drawn == f"Here:\n[image: image/png, {len(PNG)} bytes]"


def test_what_a_large_result_brings_is_offered_within_the_run() -> None:
    check_needed(run(calling(*LISTED, bench=searched())))


class Place(BaseModel):
    city: str
    parts: list["Place"] = []


def test_schemas_are_those_that_smolagents_takes() -> None:
    @tool
    async def find(
        place: Place,
        kind: Literal["shop", "bar"],
        near: int | str = 5,
        tags: list[str] | None = None,
        anything: Any = None,
    ) -> str:
        """Find.

        Args:
            place: Where.
        """
        return f"{place.city} {kind} {near} {tags}"

    async def work(arguments: dict[str, Any], context: Any) -> str:
        return "read"

    strange = ("files.read", "files-read", "import", "1st")
    named = [from_work(ToolSpec(name, "Read.", {"type": "object"}), work, home="here") for name in strange]
    found, *others, _ = bridge.tools(Workbench([find, *named]))
    parameters = get_tool_json_schema(found)["function"]["parameters"]
    assert parameters["required"] == ["place", "kind"]
    assert parameters["properties"]["place"]["properties"]["city"]["type"] == "string"
    assert parameters["properties"]["place"]["description"] == "Where."
    assert parameters["properties"]["kind"]["enum"] == ["shop", "bar"]
    assert parameters["properties"]["near"]["type"] == ["integer", "string"]
    assert (parameters["properties"]["tags"]["type"], parameters["properties"]["tags"]["items"]) == (
        "array",
        {"type": "string"},
    )
    assert found({"place": {"city": "Oslo"}, "kind": "bar", "tags": None}) == "Oslo bar 5 None"
    assert [each.name for each in others[2:]] == ["import_", "_1st"]
    assert all(each.name.isidentifier() and each() == "read" for each in others)


# In


@their_tool
def shout(text: str, times: int | None = None) -> str:
    """Shout.

    Args:
        text: What.
        times: How often.
    """
    if not text:
        raise KeyError("inside")
    return text.upper() * (times or 1)


class Measure(Tool):
    name = "measure"
    description = "Measure."
    inputs = {"text": {"type": "string", "description": "What."}, "as_is": {"type": "any", "description": "Any."}}
    output_type = "object"
    output_schema = {"type": "object", "properties": {"length": {"type": "integer"}}, "required": ["length"]}

    def forward(self, text: str, as_is: Any) -> dict[str, Any]:
        return {"length": len(text)} if text else {}


class Paint(Tool):
    name = "paint"
    description = "Paint."
    inputs: dict[str, Any] = {}
    output_type = "image"

    def forward(self) -> Any:
        return Pillow.open(io.BytesIO(PNG))


class Describe(Tool):
    name = "describe"
    description = "Describe."
    inputs = {"picture": {"type": "image", "description": "Which."}}
    output_type = "string"

    def forward(self, picture: Any) -> str:
        return ""


async def test_their_tools_are_sources() -> None:
    bench = Workbench([shout, ToolCollection([Measure(), Paint()])])
    _, measures, _ = bench.specs()
    assert [spec.name for spec in bench.specs()] == ["shout", "measure", "paint"]
    assert measures.output_schema == Measure.output_schema
    assert (await bench.call("shout", '{"text": "a", "times": "2"}')).text == "AA"
    assert (await bench.call("shout", {"text": "a", "times": None})).text == "A"
    assert "takes no argument 'volume'" in (await bench.call("shout", {"text": "a", "volume": 1})).text
    failed = (await bench.call("shout", {"text": ""})).shown()
    assert (failed.code, "inside" in failed.text) == ("failed", False)
    assert (await bench.call("measure", {"text": "four", "as_is": [1]})).value == {"length": 4}
    assert (await bench.call("measure", {"text": "", "as_is": 1})).shown().code == "invalid_result"
    (painted,) = (await bench.call("paint")).content
    assert isinstance(painted, Image) and Pillow.open(io.BytesIO(painted.data)).size == (1, 1)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


def test_a_union_of_models_is_one_object_whose_members_the_model_reads() -> None:
    """Also beside a type that is no model, and where it may be null."""

    @tool
    async def feed(pet: Cat | Dog, other: Cat | Dog | None = None, third: Dog | str = "none") -> str:
        """Feed."""
        return f"{type(pet).__name__} {type(other).__name__} {third}"

    agent = calling(
        ("feed", {"pet": {"kind": "cat", "lives": 9}, "other": {"kind": "dog", "name": "Rex"}}),
        ("feed", {"pet": {"kind": "dog", "name": "Rex"}, "third": "me"}),
        bench=Workbench([feed]),
    )
    assert run(agent) == ["Cat Dog none", "Dog NoneType me"]
    parameters = get_tool_json_schema(agent.tools["feed"])["function"]["parameters"]
    assert [each["type"] for each in parameters["properties"].values()] == ["object", "object", ["object", "string"]]
    assert all('"name"' in each["description"] for each in parameters["properties"].values())
    assert parameters["required"] == ["pet"]


def test_none_is_given_for_an_argument_that_is_required_and_left_out_for_another() -> None:
    @tool
    async def note(due: int | None, tags: list[str] = ["a"]) -> str:
        """Note."""
        return f"{due} {tags}"

    made, _ = bridge.tools(Workbench([note]))
    assert made(due=None, tags=None) == "None ['a']"


def test_an_argument_too_many_is_refused() -> None:
    made, _ = bridge.tools(Workbench([add]))
    with pytest.raises(ToolError, match="takes no argument 'argument 1'"):
        made([1], 2)
