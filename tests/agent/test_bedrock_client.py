"""Models on Bedrock, through AWS's real SDK, against a server that speaks Converse."""

import asyncio
import json
import struct
import threading
import zlib
from typing import Any

import pytest

from toolcrib import Call, Image, Result, SetupError, Text
from toolcrib.agent import ModelError, Request
from toolcrib.agent.bedrock import BedrockModel
from toolcrib.formats import Reply, Results, TextDelta, Usage
from toolcrib.machinery import loops

from .wire import ADD, QUESTION, Answer, answer, heard, raw, unfinished, wire

SECRET = "wJalr-a-very-secret-key"
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Let me add.", "signature": "EqQB+/=="}}}
HIDDEN = {"reasoningContent": {"redactedContent": "//79"}}
USE = {"toolUse": {"toolUseId": "tooluse_1", "name": "add", "input": {"a": 2, "b": 3}}}
CONTENT = [THOUGHT, HIDDEN, {"text": "I add."}, USE]
USAGE = {"inputTokens": 10, "outputTokens": 7, "totalTokens": 17, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 2}
WHOLE = {
    "output": {"message": {"role": "assistant", "content": CONTENT}},
    "stopReason": "tool_use",
    "usage": USAGE,
    "metrics": {"latencyMs": 1},
}
REPLY = Reply(
    "I add.",
    (Call("add", {"a": 2, "b": 3}, "tooluse_1"),),
    "calls",
    Usage(17, 7, 5, 2),
    {"role": "assistant", "content": CONTENT},
)


def framed(kind: str, data: Any, *, exception: bool = False) -> bytes:
    """A message of AWS's event stream: lengths, a checksum of them, headers, JSON, a checksum of all."""
    named = {":message-type": "exception", ":exception-type": kind} if exception else {":event-type": kind}
    headers = {":message-type": "event", ":content-type": "application/json", **named}
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    payload = json.dumps(data).encode()
    begun = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    begun += struct.pack("!I", zlib.crc32(begun)) + head + payload
    return begun + struct.pack("!I", zlib.crc32(begun))


def events(*frames: bytes) -> Answer:
    return raw(*frames, content_type="application/vnd.amazon.eventstream")


def delta(index: int, **data: Any) -> bytes:
    return framed("contentBlockDelta", {"contentBlockIndex": index, "delta": data})


PIECES = (
    framed("messageStart", {"role": "assistant"}),
    delta(0, reasoningContent={"text": "Let me "}),
    delta(0, reasoningContent={"text": "add."}),
    delta(0, reasoningContent={"signature": "EqQB+/=="}),
    framed("contentBlockStop", {"contentBlockIndex": 0}),
    delta(1, reasoningContent={"redactedContent": "//79"}),
    delta(2, text="I "),
    delta(2, text="add."),
    framed("contentBlockStop", {"contentBlockIndex": 2}),
    framed(
        "contentBlockStart", {"contentBlockIndex": 3, "start": {"toolUse": {"toolUseId": "tooluse_1", "name": "add"}}}
    ),
    delta(3, toolUse={"input": '{"a": 2,'}),
    delta(3, toolUse={"input": ' "b": 3}'}),
    framed("contentBlockStop", {"contentBlockIndex": 3}),
    framed("messageStop", {"stopReason": "tool_use"}),
    framed("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}),
)


def as_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Credentials that are nobody's, and none of those that this machine may have."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


credentials = pytest.fixture(autouse=True)(as_nobody)


def model(url: str, **options: Any) -> BedrockModel:
    return BedrockModel("claude-x", region="us-east-1", base_url=url, max_retries=0, **options)


async def test_a_whole_reply_and_what_was_asked_for_it() -> None:
    with wire(answer(WHOLE)) as provider:
        assert await model(provider.url, options={"inferenceConfig": {"maxTokens": 100}}).reply(QUESTION) == REPLY
        (asked,) = provider.requests
    assert asked.path == "/model/claude-x/converse"
    assert asked.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA-nobody/")
    spec = {"name": "add", "description": "Add two numbers.", "inputSchema": {"json": dict(ADD.input_schema)}}
    assert asked.body == {
        "inferenceConfig": {"maxTokens": 100},
        "messages": [{"role": "user", "content": [{"text": "2 and 3?"}]}],
        "toolConfig": {"tools": [{"toolSpec": spec}]},
    }


async def test_the_next_turn_sends_reasoning_back_as_it_came_and_the_results() -> None:
    done = Result(5, (Text("5"), Image(b"\xff\xfe\xfd")), call_id="tooluse_1", tool="add")
    turns = [*QUESTION.turns, REPLY, Results((done,))]
    with wire(answer(WHOLE), answer(WHOLE)) as provider:
        bedrock = model(provider.url)
        await bedrock.reply(Request(turns, instructions="Be short.", specs=[ADD], choice="any"))
        await bedrock.reply(Request(turns, specs=[ADD], choice="none"))
        first, second = (asked.body for asked in provider.requests)
    assert first["system"] == [{"text": "Be short."}]
    assert first["toolConfig"]["toolChoice"] == {"any": {}}
    image = {"image": {"format": "png", "source": {"bytes": "//79"}}}
    assert first["messages"][1:] == [
        {"role": "assistant", "content": CONTENT},
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "5"}, image], "status": "success"}}
            ],
        },
    ]
    assert "toolConfig" not in second
    assert second["messages"][1:] == [
        {
            "role": "assistant",
            "content": [THOUGHT, HIDDEN, {"text": "I add."}, {"text": '[I called the tool add with {"a": 2, "b": 3}]'}],
        },
        {"role": "user", "content": [{"text": "[The tool answered:]"}, {"text": "5"}, image]},
    ]


async def test_while_one_reply_is_awaited_the_event_loop_goes_on() -> None:
    with wire(unfinished(events(*PIECES[:8]))) as provider:
        got: asyncio.Queue[TextDelta | Reply] = asyncio.Queue()

        async def listen() -> None:
            async for written in model(provider.url).stream(QUESTION):
                got.put_nowait(written)

        listening = asyncio.create_task(listen())
        async with asyncio.timeout(60):
            assert [await got.get(), await got.get()] == [TextDelta("I "), TextDelta("add.")]  # and the server holds on
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening


async def test_an_error_in_the_middle_of_a_stream_is_reported_by_its_kind() -> None:
    throttled = framed("throttlingException", {"message": "Too many tokens"}, exception=True)
    with wire(events(*PIECES[:7], throttled)) as provider, pytest.raises(ModelError, match="Too many tokens") as caught:
        await heard(model(provider.url))
    assert caught.value.problem == "limited"


async def test_without_credentials_or_a_region_the_way_to_them_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SetupError, match=r"set AWS_REGION\.\nOr pass region\."):
        await BedrockModel("claude-x").reply(QUESTION)
    with pytest.raises(ModelError, match="Set AWS's credentials") as caught:
        await model("http://127.0.0.1:9").reply(QUESTION)
    assert caught.value.problem == "unauthorized"


@pytest.mark.parametrize("method", ["reply", "stream"])
async def test_a_request_for_which_there_is_no_thread_is_to_be_made_later(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = loops._Threads(1)
    pool._parked = loops.MAX_PARKED
    monkeypatch.setattr(loops, "_threads", lambda _: pool)
    with wire() as provider, pytest.raises(ModelError, match="no thread is left") as raised:
        bedrock = model(provider.url)
        await (bedrock.reply(QUESTION) if method == "reply" else heard(bedrock))
    assert raised.value.problem == "unavailable"


async def test_a_request_for_which_the_system_starts_no_thread_is_to_be_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = loops._Threads(1)
    monkeypatch.setattr(loops, "_threads", lambda _: pool)
    with wire(answer(WHOLE)) as provider:
        bedrock = model(provider.url)
        size = threading.stack_size(1 << 47)  # there is no memory for a stack of this size
        try:
            with pytest.raises(ModelError, match="Try again later") as raised:
                await bedrock.reply(QUESTION)
        finally:
            threading.stack_size(size)
        assert raised.value.problem == "unavailable"
        assert await bedrock.reply(QUESTION) == REPLY
