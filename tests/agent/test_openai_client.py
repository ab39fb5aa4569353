"""OpenAI's models through its own SDK, against a provider on 127.0.0.1."""

import json
import subprocess
import sys
from typing import Any

import pytest

from toolcrib import Call, Result, SetupError, Text, ToolSpec, Workbench, formats
from toolcrib.agent import Agent, ModelError, OpenAIChat, OpenAIResponses, Request
from toolcrib.formats import Reply, Results, TextDelta, Usage, User

from ..held import held, seconds_of
from .wire import Answer, Wire, answer, events, raw, refusal, wire

KEY = "sk-test-0123456789"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
SPECS = [ToolSpec("add", "Add one.", SCHEMA)]
ASKED = Request((User((Text("Add 1."),)),), "Be exact.", SPECS)


def completion(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    return {**head, "choices": [choice], "usage": usage}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    head = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def tool_call(**more: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}, **more}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    head = {"id": "r", "object": "response", "created_at": 0, "model": "m", "status": "completed"}
    return {**head, "output": list(output), "usage": usage, **more}


CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "I add.", "annotations": []}],
}
CHUNKS = [
    chunk({"role": "assistant", "content": "I "}),
    chunk({"content": "add."}),
    chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
    chunk({}, "tool_calls"),
    chunk({}, choices=[], usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}),
]
EVENTS = [
    {"type": "response.created", "response": response(status="in_progress", usage=None)},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m", "delta": "I "},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m", "delta": "add."},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 1, "item": {**CALLED, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": '{"a"'},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": ": 1}"},
    {"type": "response.completed", "response": response()},
]
STREAMED = [
    TextDelta("I "),
    TextDelta("add."),
    ("I add.", (Call("add", '{"a": 1}', "c1"),), "calls", Usage(9, 2)),
]


def named(sent: list[dict[str, Any]]) -> list[Any]:
    """Events as the Responses API sends them: each under its name."""
    return [(event["type"], {"sequence_number": number, **event}) for number, event in enumerate(sent)]


def model(kind: type[OpenAIChat] | type[OpenAIResponses], provider: Wire, **more: Any) -> OpenAIChat | OpenAIResponses:
    return kind("m", base_url=f"{provider.url}/v1", api_key=KEY, max_retries=0, **more)


def message(reply: Any) -> Any:
    return (reply.text, reply.calls, reply.stop, reply.usage) if isinstance(reply, Reply) else reply


BOTH = pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])


async def test_chat_completions_whole() -> None:
    turns = (
        *ASKED.turns,
        Reply(calls=(Call("add", {"a": 0}, "c0"),)),
        Results((Result(1, (Text("1"),), call_id="c0"),)),
    )
    with wire(answer(completion({"content": "I add.", "tool_calls": [tool_call()]}, "tool_calls"))) as provider:
        asked = Request(turns, "Be exact.", SPECS, "any", parallel=False)
        reply = await model(OpenAIChat, provider, options={"temperature": 0, "seed": None}).reply(asked)
    assert message(reply) == STREAMED[-1]
    [request] = provider.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert request.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be exact."},
            {"role": "user", "content": "Add 1."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [tool_call(id="c0", function={"name": "add", "arguments": '{"a": 0}'})],
            },
            {"role": "tool", "tool_call_id": "c0", "content": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "description": "Add one.", "parameters": SCHEMA}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0,
    }


async def test_responses_whole() -> None:
    with wire(answer(response(MESSAGE, CALLED)), answer(response(MESSAGE))) as provider:
        client_model = model(OpenAIResponses, provider, options={"store": False})
        reply = await client_model.reply(ASKED)
        turns = (*ASKED.turns, reply, Results((Result(2, (Text("2"),), call_id="c1"),)))
        last = await client_model.reply(Request(turns))
    assert message(reply) == STREAMED[-1]
    assert (last.text, last.stop) == ("I add.", "end")
    first, second = provider.requests
    assert first.path == "/v1/responses"
    assert first.body == {
        "model": "m",
        "instructions": "Be exact.",
        "input": [{"role": "user", "content": "Add 1."}],
        "tools": [
            {"type": "function", "name": "add", "description": "Add one.", "parameters": SCHEMA, "strict": False}
        ],
        "store": False,
    }
    assert second.body == {
        "model": "m",
        "input": [
            {"role": "user", "content": "Add 1."},
            MESSAGE,
            CALLED,
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ],
        "store": False,
    }


async def test_without_tools_nothing_is_written_of_them() -> None:
    with wire(answer(completion({"content": "Hi."})), answer(response(MESSAGE))) as provider:
        for kind in (OpenAIChat, OpenAIResponses):
            await model(kind, provider).reply(Request(ASKED.turns, choice="none", parallel=False))
    assert [set(request.body) for request in provider.requests] == [{"model", "messages"}, {"model", "input"}]


async def test_a_stream_asks_for_its_tokens_unless_that_option_is_left_out() -> None:
    with wire(*[events(*CHUNKS, "[DONE]")] * 2) as provider:
        for options in ({}, {"stream_options": None}):
            client_model = model(OpenAIChat, provider, options=options)
            assert [message(piece) async for piece in client_model.stream(ASKED)] == STREAMED
    assert [request.body.get("stream_options") for request in provider.requests] == [{"include_usage": True}, None]


FAULTS: dict[str, tuple[Answer, str, str]] = {
    "404": (refusal(404, {"detail": "Not Found"}), "refused", "Not Found (no such model, or not at base_url http"),
    "503 that is no JSON": (raw(b"<html>", content_type="text/html", status=503), "unavailable", "status 503"),
    "a page of another server": (raw(b"<html>", content_type="text/html"), "failed", "(base_url http://127.0"),
    "an error under status 200": (
        answer({"error": {"message": "Busy.", "code": "rate_limit_exceeded"}}),
        "limited",
        "Busy.",
    ),
}


@BOTH
@pytest.mark.parametrize(("script", "problem", "words"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_fault_of_a_whole_answer_is_a_model_error(kind: Any, script: Answer, problem: str, words: str) -> None:
    with wire(script) as provider, pytest.raises(ModelError) as raised:
        await model(kind, provider).reply(ASKED)
    assert (raised.value.problem, words in str(raised.value)) == (problem, True)


ERROR = {"error": {"message": f"Overloaded, {KEY}.", "code": "server_error", "type": "server_error"}}


async def test_a_response_that_failed_gives_the_words_before_and_no_reply() -> None:
    failed = {"type": "response.failed", "response": response(status="failed", **ERROR)}
    seen: list[Any] = []
    with wire(events(*named([*EVENTS[:4], failed]))) as provider, pytest.raises(ModelError) as raised:
        async for piece in model(OpenAIResponses, provider).stream(ASKED):
            seen.append(piece)
    assert seen == STREAMED[:2]
    assert (raised.value.problem, "Overloaded, [secret]" in str(raised.value)) == ("unavailable", True)


async def test_retries_are_the_sdks() -> None:
    busy = refusal(429, {"error": {"message": "Slow down."}}, retry_after_ms="1")
    with wire(busy, answer(completion({"content": "Hi."}))) as provider:
        client_model = OpenAIChat("m", base_url=provider.url, api_key=KEY, max_retries=1)
        assert (await client_model.reply(ASKED)).text == "Hi."
    assert len(provider.requests) == 2


async def test_a_client_that_is_handed_in_is_used_and_stays_open() -> None:
    from openai import AsyncOpenAI

    with wire(answer(completion({"content": "Hi."})), answer(completion({"content": "Ho."}))) as provider:
        client = AsyncOpenAI(base_url=f"{provider.url}/mine", api_key="sk-mine-4321", max_retries=0)
        client_model = OpenAIChat("m", client=client)
        assert (await client_model.reply(ASKED)).text == "Hi."
        await client_model.close()
        assert (await client_model.reply(ASKED)).text == "Ho."
        await client.close()
    assert [request.path for request in provider.requests] == ["/mine/chat/completions"] * 2
    assert provider.requests[0].headers["authorization"] == "Bearer sk-mine-4321"


async def test_a_server_of_ones_own_needs_no_key_and_openai_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with wire(answer(completion({"content": "Hi."}))) as provider:
        assert (await OpenAIChat("m", base_url=provider.url).reply(ASKED)).text == "Hi."
    with pytest.raises(ModelError, match=r"Set OPENAI_API_KEY\.\nOr pass api_key\.") as raised:
        await OpenAIChat("m").reply(ASKED)
    assert raised.value.problem == "unauthorized"


@pytest.mark.full
def test_the_package_is_loaded_with_the_first_model() -> None:
    code = (
        "import sys, toolcrib.agent\nprint('openai' in sys.modules)\n"
        "toolcrib.agent.OpenAIChat('m', base_url='http://127.0.0.1')\nprint('openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


async def test_what_the_sdk_does_not_know_is_sent_as_it_is() -> None:
    with wire(answer(completion({"content": "Done."}))) as provider:
        await model(OpenAIChat, provider, options={"top_k": 20, "temperature": 0, "n": None}).reply(ASKED)
    body = provider.requests[0].body
    assert {name: body[name] for name in ("top_k", "temperature", "n") if name in body} == {
        "top_k": 20,
        "temperature": 0,
    }


def test_what_cannot_be_an_option_is_reported_before_anything_is_asked() -> None:
    with pytest.raises(SetupError, match="max_retries"):
        OpenAIChat("m", api_key=KEY, max_retries=-1)


async def test_a_long_answer_is_read_and_traced_in_a_thread() -> None:
    """A model fills the arguments of a call with nothing but empty lists, and asks again with what it has."""
    arguments = json.dumps({"a": [[] for _ in range(300_000)]})
    whole = completion({"tool_calls": [tool_call(function={"name": "add", "arguments": arguments})]}, "tool_calls")

    async def add(a: list[list[int]]) -> int:
        return len(a)

    with wire(answer(whole), answer(completion({"content": "300,000."}))) as provider:
        agent = Agent(OpenAIChat("m", api_key=KEY, base_url=provider.url), Workbench([add], secrets=[KEY]))
        longest_s, outcome = await held(agent.run("Add them."))
    assert (outcome.text, outcome.trace[0].text) == ("300,000.", "300000")
    assert longest_s < seconds_of(lambda: formats.openai.reply(whole, SPECS)) / 2
