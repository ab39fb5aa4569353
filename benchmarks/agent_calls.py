"""One run of an agent: a model that asks for one tiny tool and then answers, as each library's own test model plays it.

What a library keeps from run to run (agent, tool, model) is made before the clock starts. Its test model is the one it
ships; where that has to be made again for each run, a smaller one over its interface for models stands beside it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cases import TINY, Loop
from pydantic import TypeAdapter
from toolcrib_calls import BARE

from toolcrib import Call
from toolcrib.agent import Agent, Request, ScriptedModel
from toolcrib.formats import Reply

TITLE = "agent turn, scripted model, one tiny tool"
PROMPT = "What is 1 + 2?"
FUNCTION, TEST = "pydantic-ai, FunctionModel", "pydantic-ai, TestModel"
SMALL, SCRIPTED = "OpenAI Agents, a Model", "OpenAI Agents, ScriptedModel"


def by_hand() -> Loop:
    """The least there is to it: a list of messages, the call by pydantic, as in the floor of a call."""
    kind: Any = TINY.takes
    validate = TypeAdapter(kind).validator.validate_json
    write = TypeAdapter(TINY.gives).serializer.to_json
    fn = TINY.fn
    asks = {"role": "assistant", "tool_calls": [{"id": "call_1", "name": "add", "arguments": TINY.text}]}
    says = {"role": "assistant", "content": "3"}

    async def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return asks if len(messages) == 1 else says

    async def once() -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
        while True:
            message = await model(messages)
            messages.append(message)
            if "tool_calls" not in message:
                return str(message["content"])
            for call in message["tool_calls"]:
                text = write(await fn(**validate(call["arguments"]))).decode()
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    return _times(once)


def toolcrib() -> Mapping[str, Loop]:
    asks, says = Reply("", (Call("add", TINY.text, "call_1"),), "calls"), Reply("3")

    def say(request: Request) -> Reply:
        return asks if len(request.turns) == 1 else says

    model = ScriptedModel(say)
    agent = Agent(model, [TINY.fn])

    async def once() -> str:
        model.requests.clear()
        return (await agent.run(PROMPT)).text

    return {BARE: _times(once)}


def pydantic_ai() -> Mapping[str, Loop]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel

    def say(messages: Any, info: Any) -> Any:
        parts = [ToolCallPart("add", TINY.text, "call_1")] if len(messages) == 1 else [TextPart("3")]
        return ModelResponse(parts=parts)

    function = Agent(FunctionModel(say), tools=[TINY.fn])
    # It makes the arguments up itself: 0 and 0.
    test = Agent(TestModel(custom_output_text="3"), tools=[TINY.fn])

    async def once() -> str:
        return str((await function.run(PROMPT)).output)

    async def once_by_test_model() -> str:
        return str((await test.run(PROMPT)).output)

    return {FUNCTION: _times(once), TEST: _times(once_by_test_model)}


def openai_agents() -> Mapping[str, Loop]:
    from agents import Agent, ModelResponse, Runner, Usage, function_tool
    from agents.models.interface import Model
    from agents.testing import ScriptedModel, assistant_message, function_call

    asks, says = [function_call("add", TINY.text, call_id="call_1")], [assistant_message("3")]
    tool = function_tool(TINY.fn)

    class Small(Model):
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:  # noqa: A002
            return ModelResponse(output=asks if len(input) == 1 else says, usage=Usage(), response_id=None)

        def stream_response(self, *rest: Any, **options: Any) -> Any:
            raise NotImplementedError

    small = Agent("bench", tools=[tool], model=Small())

    async def once() -> str:
        return str((await Runner.run(small, PROMPT)).final_output)

    async def once_by_script() -> str:
        scripted = Agent("bench", tools=[tool], model=ScriptedModel([asks, says]))
        return str((await Runner.run(scripted, PROMPT)).final_output)

    return {SMALL: _times(once), SCRIPTED: _times(once_by_script)}


PEERS: Mapping[str, Callable[[], Mapping[str, Loop]]] = {"pydantic-ai": pydantic_ai, "OpenAI Agents": openai_agents}


def _times(once: Callable[[], Any]) -> Loop:
    async def loop(times: int) -> str:
        answer = ""
        for _ in range(times):
            answer = await once()
        return answer

    return loop
