"""What is not done is not `done`: replies that pause, cannot be read or are empty, and why a run then ends."""

from typing import Any

import pytest

from toolcrib import Text
from toolcrib.agent import Agent, Model, ModelError, OpenAIChat, ScriptedModel
from toolcrib.agent.anthropic import AnthropicModel
from toolcrib.agent.bedrock import BedrockModel
from toolcrib.agent.gemini import GeminiModel
from toolcrib.formats import Reply, TextDelta, Turn, User, anthropic, turn_from_dict, turn_to_dict

from .test_bedrock_client import as_nobody
from .test_openai_client import chunk, completion
from .wire import add, answer, events, refusal, wire

NOT_READ = Reply(stop="malformed", reason="MALFORMED_FUNCTION_CALL: Malformed function call: print(add(1, 2))")
EMPTY = Reply(native={"role": "assistant", "content": ""})
UNREADABLE = (
    "Your last reply could not be used: the provider could not read it "
    "(MALFORMED_FUNCTION_CALL: Malformed function call: print(add(1, 2))). Reply again."
)


def shown(turns: Any) -> list[Any]:
    return [turn.content[0].text if isinstance(turn, User) else type(turn).__name__ for turn in turns]


# Any model


async def test_a_reply_that_pauses_is_sent_back_as_it_is_until_the_model_is_done() -> None:
    native = {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "x", "input": {}}]}
    paused = Reply("Searching.", stop="paused", native=native)
    model = ScriptedModel([paused, paused, "It is 3."])
    outcome = await Agent(model).run("What is 1 + 2?")
    assert (outcome.status, outcome.text) == ("done", "It is 3.")
    assert model.requests[2].turns == (User((Text("What is 1 + 2?"),)), paused, paused)
    stopped = await Agent(ScriptedModel([paused] * 3), max_steps=3).run("Go.")
    assert (stopped.status, stopped.why) == ("stopped", "The model was asked 3 times and was not done (max_steps=3).")


async def test_the_model_learns_of_a_reply_that_could_not_be_read() -> None:
    model = ScriptedModel([NOT_READ, {"calls": [("add", {"a": 1, "b": 2})]}, NOT_READ, "It is 3."])
    outcome = await Agent(model, [add]).run("What is 1 + 2?")
    assert (outcome.status, outcome.text, len(outcome.trace)) == ("done", "It is 3.", 1)
    assert shown(model.requests[1].turns) == ["What is 1 + 2?", "Reply", UNREADABLE]
    assert shown(outcome.turns) == [
        "What is 1 + 2?",
        "Reply",
        UNREADABLE,
        "Reply",
        "Results",
        "Reply",
        UNREADABLE,
        "Reply",
    ]


async def test_replies_that_can_never_be_read_end_the_run_with_the_reason() -> None:
    model = ScriptedModel([NOT_READ] * 9)
    outcome = await Agent(model, [add], max_errors=2).run("What is 1 + 2?")
    assert (outcome.status, len(model.requests)) == ("stopped", 2)
    assert outcome.why == (
        "No call succeeded in 2 turns in a row (max_errors=2). The last reply could not be used: the provider could "
        "not read it (MALFORMED_FUNCTION_CALL: Malformed function call: print(add(1, 2)))."
    )
    # The next run goes on where this one ended, and its model is told, too.
    again = ScriptedModel(["It is 3."])
    assert (await Agent(again, [add]).run(outcome.turns)).status == "done"
    assert shown(again.requests[0].turns)[-2:] == ["Reply", UNREADABLE]


async def test_an_empty_reply_is_not_done() -> None:
    model = ScriptedModel([EMPTY, "It is 3."])
    assert (await Agent(model).run("What is 1 + 2?")).text == "It is 3."
    assert shown(model.requests[1].turns)[-1] == "Your last reply could not be used: it was empty. Reply again."
    outcome = await Agent(ScriptedModel([EMPTY] * 9)).run("What is 1 + 2?")
    assert (outcome.status, outcome.why.partition(". ")[2]) == (
        "stopped",
        "The last reply could not be used: it was empty.",
    )
    # Without a provider's message there is nothing to tell.
    outcome = await Agent(ScriptedModel([""])).run("What is 1 + 2?")
    assert (outcome.status, outcome.why) == ("stopped", "The model's reply was empty.")


@pytest.mark.parametrize(
    "native",
    [
        {"role": "model", "parts": [{"inlineData": {"mimeType": "image/png", "data": "eA=="}}]},
        {"role": "assistant", "content": "", "audio": {"id": "a"}},
        [{"type": "image_generation_call", "id": "i", "result": "eA=="}],
        {"role": "assistant", "content": [{"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]},
        {"role": "assistant", "content": [{"image": {"format": "png", "source": {"bytes": "eA=="}}}]},
    ],
)
async def test_a_reply_without_text_that_has_something_else_is_done(native: Any) -> None:
    assert (await Agent(ScriptedModel([Reply(native=native)])).run("Draw.")).status == "done"


async def test_another_reason_of_the_provider_ends_the_run_as_stopped() -> None:
    reply = Reply("So far", stop="other", reason="TOO_MANY_TOOL_CALLS")
    outcome = await Agent(ScriptedModel([reply])).run("Go.")
    assert (outcome.status, outcome.text, outcome.why) == (
        "stopped",
        "So far",
        "The model stopped before it was done: TOO_MANY_TOOL_CALLS.",
    )


async def test_a_reply_that_announces_a_call_and_has_none_is_not_done() -> None:
    announced = anthropic.reply(claude_says("tool_use", {"type": "text", "text": "I add them."}))
    model = ScriptedModel([announced, {"calls": [("add", {"a": 1, "b": 2})]}, "It is 3."])
    outcome = await Agent(model, [add]).run("What is 1 + 2?")
    assert (outcome.status, outcome.text, len(outcome.trace)) == ("done", "It is 3.", 1)
    assert shown(model.requests[1].turns) == [
        "What is 1 + 2?",
        "Reply",
        "Your last reply could not be used: it announced a call, and had none. Reply again.",
    ]
    assert (await Agent(ScriptedModel([announced] * 9), [add]).run("What is 1 + 2?")).status == "stopped"


@pytest.mark.parametrize("turn", [NOT_READ, Reply("a", stop="other", reason="b", server="c")])
def test_the_reason_and_the_server_are_stored(turn: Reply) -> None:
    stored = turn_from_dict(turn_to_dict(turn))
    assert isinstance(stored, Reply)
    assert (stored, stored.server) == (turn, turn.server)


# The providers' own


def gemini_says(reason: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "finishReason": reason}]}


def claude_says(reason: str, *content: dict[str, Any]) -> dict[str, Any]:
    head = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_sequence": None}
    return {**head, "content": [*content], "stop_reason": reason, "usage": {"input_tokens": 1, "output_tokens": 1}}


def converse_says(reason: str, *content: dict[str, Any]) -> dict[str, Any]:
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    message = {"role": "assistant", "content": [*content]}
    return {"output": {"message": message}, "stopReason": reason, "usage": usage, "metrics": {"latencyMs": 1}}


keys = pytest.fixture(as_nobody)


def model_at(provider: str, url: str) -> Model:
    if provider == "bedrock":
        return BedrockModel("b", region="us-east-1", base_url=url, max_retries=0)
    kind: Any = {"gemini": GeminiModel, "anthropic": AnthropicModel, "openai": OpenAIChat}[provider]
    model: Model = kind("m", api_key="key-0123456789", base_url=url, max_retries=0)
    return model


DONE = {
    "gemini": gemini_says("STOP", {"text": "Done."}),
    "anthropic": claude_says("end_turn", {"type": "text", "text": "Done."}),
    "bedrock": converse_says("end_turn", {"text": "Done."}),
    "openai": completion({"content": "Done."}),
}
ADD = {"name": "add", "args": {"a": 1, "b": 2}}
UNUSABLE: list[tuple[str, dict[str, Any], str]] = [
    ("gemini", gemini_says("MALFORMED_FUNCTION_CALL"), "MALFORMED_FUNCTION_CALL"),
    ("gemini", gemini_says("MALFORMED_RESPONSE", {"text": "So"}), "MALFORMED_RESPONSE"),
    ("gemini", gemini_says("UNEXPECTED_TOOL_CALL"), "UNEXPECTED_TOOL_CALL"),
    ("gemini", gemini_says("STOP"), "empty"),
    ("gemini", gemini_says("STOP", {"text": "Hm.", "thought": True}), "empty"),
    ("anthropic", claude_says("end_turn"), "empty"),
    ("anthropic", claude_says("end_turn", {"type": "thinking", "thinking": "Hm.", "signature": "s"}), "empty"),
    ("bedrock", converse_says("malformed_model_output", {"text": "So"}), "malformed_model_output"),
    (
        "bedrock",
        converse_says("malformed_tool_use", {"toolUse": {"toolUseId": "t", "name": "add", "input": {"a": 1, "b": 2}}}),
        "malformed_tool_use",
    ),
    ("bedrock", converse_says("end_turn", {"text": " "}), "empty"),
    ("openai", completion({"reasoning_content": "Hm."}), "empty"),
    ("openai", completion({"content": "<think>Hm.</think>"}), "empty"),
]


@pytest.mark.usefixtures("keys")
async def test_gemini_calls_of_tools_that_it_was_not_offered_are_explained_to_it() -> None:
    """Beside one of a tool that it was offered, which runs: Gemini has one reason for the whole answer."""
    calls = [{"functionCall": {"name": "ad", "args": {"a": 1, "b": 2}}}, {"functionCall": ADD}]
    with wire(answer(gemini_says("UNEXPECTED_TOOL_CALL", *calls)), answer(DONE["gemini"])) as server:
        outcome = await Agent(model_at("gemini", server.url), [add]).run("What is 1 + 2?")
    unknown, known = outcome.trace
    assert (outcome.status, unknown.code, known.text) == ("done", "unknown_tool", "3")
    assert "Did you mean 'add'?" in unknown.text


@pytest.mark.parametrize(("provider", "first", "reason"), UNUSABLE)
@pytest.mark.usefixtures("keys")
async def test_a_model_learns_what_its_provider_could_not_use(
    provider: str, first: dict[str, Any], reason: str
) -> None:
    with wire(answer(first), answer(DONE[provider])) as server:
        outcome = await Agent(model_at(provider, server.url), [add]).run("What is 1 + 2?")
    assert (outcome.status, outcome.text, outcome.trace) == ("done", "Done.", ())
    last = str(server.requests[1].body)
    assert "Your last reply could not be used" in last
    assert reason in last
    assert "Hm." not in last  # reasoning alone is refused by all of them


@pytest.mark.parametrize("reason", ["TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "OTHER", "NO_IMAGE"])
async def test_a_reason_of_gemini_that_the_model_cannot_change_ends_the_run(reason: str) -> None:
    with wire(answer(gemini_says(reason))) as server:
        outcome = await Agent(model_at("gemini", server.url), [add]).run("What is 1 + 2?")
    assert (outcome.status, outcome.why) == ("stopped", f"The model stopped before it was done: {reason}.")


async def test_a_turn_that_claude_pauses_goes_on() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    with wire(answer(claude_says("pause_turn", search)), answer(DONE["anthropic"])) as server:
        outcome = await Agent(model_at("anthropic", server.url), [add]).run("Search.")
    assert (outcome.status, outcome.text) == ("done", "Done.")
    assert server.requests[1].body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Search."}]},
        {"role": "assistant", "content": [search]},
    ]


FAILED = {
    "message": "Failed to call a function. Please adjust your prompt.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": "<function=add>{one} key-0123456789</function>",
}


async def test_the_model_learns_of_a_call_that_groq_could_not_read() -> None:
    with wire(refusal(400, {"error": FAILED}), answer(DONE["openai"])) as server:
        outcome = await Agent(model_at("openai", server.url), [add]).run("What is 1 + 2?")
    assert (outcome.status, outcome.text) == ("done", "Done.")
    message = server.requests[1].body["messages"][-1]["content"]
    assert "tool_use_failed: Failed to call a function" in message
    assert "<function=add>{one}" in message
    assert "key-0123456789" not in message


async def last_of(agent: Agent, prompt: str) -> tuple[str, Any]:
    text = ""
    event: Any = None
    async for event in agent.stream(prompt):
        text += event.text if isinstance(event, TextDelta) else ""
    return text, event


async def test_the_model_learns_of_a_streamed_call_that_groq_could_not_read() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    broken = events(
        chunk({"content": "So. "}), chunk({"tool_calls": [call]}), {"error": {**FAILED, "status_code": 400}}
    )
    with wire(broken, events(chunk({"content": "Done."}), chunk({}, "stop"), "[DONE]")) as server:
        text, outcome = await last_of(Agent(model_at("openai", server.url), [add]), "What is 1 + 2?")
    assert (text, outcome.status, outcome.trace) == ("So. Done.", "done", ())
    assert "tool_use_failed" in server.requests[1].body["messages"][-1]["content"]


async def test_a_stream_of_chat_completions_that_ends_with_done_alone_is_whole() -> None:
    with wire(events(chunk({"content": "It is "}), chunk({"content": "3."}), "[DONE]")) as server:
        text, outcome = await last_of(Agent(model_at("openai", server.url)), "What is 1 + 2?")
    assert (text, outcome.status, outcome.text) == ("It is 3.", "done", "It is 3.")


@pytest.mark.parametrize("content", ["It is ", '\ndata: [DONE]\n\n, "data: [DONE]'])
async def test_a_stream_that_ends_without_done_is_still_cut(content: str) -> None:
    with wire(events(chunk({"content": content}))) as server, pytest.raises(ModelError, match="ended in the middle"):
        await last_of(Agent(model_at("openai", server.url)), "What is 1 + 2?")


# Another server of the same format


async def test_what_only_the_first_server_takes_is_left_behind_at_another() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    message = {"content": "<think>Hm.</think>So.", "reasoning_content": "Hm.", "tool_calls": [call]}
    thoughtful = completion(message, "tool_calls")
    question = {"role": "user", "content": "What is 1 + 2?"}
    result = {"role": "tool", "tool_call_id": "c", "content": "3"}
    with wire(answer(thoughtful), answer(DONE["openai"])) as first, wire(answer(DONE["openai"])) as second:
        one, other = model_at("openai", first.url), model_at("openai", second.url)
        outcome = await Agent(one, [add]).run("What is 1 + 2?")
        stored = [turn_from_dict(turn_to_dict(turn)) for turn in outcome.turns]
        await Agent(other, [add]).run("Sure?", after=stored)
    own = first.requests[1].body["messages"]
    assert own == [question, thoughtful["choices"][0]["message"], result]
    plain = {"role": "assistant", "content": "So.", "tool_calls": [call]}
    assert second.requests[0].body["messages"] == [
        question,
        plain,
        result,
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Sure?"},
    ]


async def test_signatures_of_one_server_of_anthropics_format_are_left_behind_at_another() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    text = {"type": "text", "text": "Done."}
    with wire(answer(claude_says("end_turn", thought, text))) as first, wire(answer(DONE["anthropic"])) as second:
        outcome = await Agent(model_at("anthropic", first.url)).run("Go.")
        await Agent(model_at("anthropic", second.url)).run("On.", after=outcome.turns)
    assert second.requests[0].body["messages"][1] == {"role": "assistant", "content": [text]}


async def test_a_message_of_an_unknown_server_is_sent_as_it_came() -> None:
    native = {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": []}
    turns: list[Turn] = [User((Text("Go."),)), Reply("Hm.", native=native)]
    with wire(answer(DONE["openai"])) as server:
        await Agent(model_at("openai", server.url)).run("On.", after=turns)
    assert server.requests[0].body["messages"][1] == native
