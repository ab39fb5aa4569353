"""What holds for the clients of all providers, each with its real SDK against a server that speaks its wire."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from toolcrib import Call, SetupError
from toolcrib.agent import Model, ModelError, OpenAIChat, OpenAIResponses
from toolcrib.formats import Reply, TextDelta

from . import test_anthropic_client as claude
from . import test_bedrock_client as bedrock
from . import test_gemini_client as gemini
from . import test_openai_client as openai
from .wire import QUESTION, Answer, answer, cut, events, heard, raw, refusal, unfinished, wire

KEY = "sk-a-very-secret-key"
WORDS = [TextDelta("I "), TextDelta("add.")]


@dataclass(frozen=True)
class Client:
    """A client and what its provider says. *pieces* are of a stream; the first *worded* of them have all its text."""

    model: str
    make: Callable[..., Any]
    package: str
    request: Any
    whole: Any
    pieces: tuple[Any, ...]
    streamed: Callable[..., Answer]
    worded: int
    error: Any
    """A piece that says that the provider is overloaded."""
    refused: Callable[[int, str], Answer]

    def __repr__(self) -> str:
        return self.model.partition(":")[0]

    def at(self, url: str, **settings: Any) -> Any:
        return self.make(base_url=url, max_retries=0, **settings)


def _says(status: int, words: str) -> Answer:
    kind = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    error = {"type": kind.get(status, "api_error"), "message": words}
    return refusal(status, {"error": error}, retry_after="7")


def _google(status: int, words: str) -> Answer:
    kinds = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}
    pause = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}
    return refusal(
        status,
        {"error": {"code": status, "message": words, "status": kinds.get(status, "INTERNAL"), "details": [pause]}},
    )


def _amazon(status: int, words: str) -> Answer:
    kinds = {400: "ValidationException", 401: "UnrecognizedClientException", 403: "AccessDeniedException"}
    kind = {**kinds, 429: "ThrottlingException"}.get(status, "ModelErrorException")
    return refusal(status, {"message": words}, retry_after="7", x_amzn_errortype=kind)


def _keyed(kind: Callable[..., Any], model: str) -> Callable[..., Any]:
    return lambda **settings: kind(model, **{"api_key": KEY, **settings})


CLIENTS = [
    Client(
        "openai:m",
        _keyed(OpenAIChat, "m"),
        "openai",
        openai.ASKED,
        openai.completion({"content": "I add.", "tool_calls": [openai.tool_call()]}, "tool_calls"),
        tuple(openai.CHUNKS),
        lambda *pieces: events(*pieces, *(["[DONE]"] if len(pieces) == len(openai.CHUNKS) else [])),
        2,
        {"error": {"message": "Overloaded", "code": "server_error", "type": "server_error"}},
        _says,
    ),
    Client(
        "responses:m",
        _keyed(OpenAIResponses, "m"),
        "openai",
        openai.ASKED,
        openai.response(openai.MESSAGE, openai.CALLED),
        tuple(openai.named(openai.EVENTS)),
        events,
        3,
        ("error", {"type": "error", "code": "server_error", "message": "Overloaded", "param": None}),
        _says,
    ),
    Client(
        "anthropic:claude-x",
        _keyed(claude.AnthropicModel, "claude-x"),
        "anthropic",
        QUESTION,
        claude.WHOLE,
        claude.PIECES,
        events,
        10,
        claude.piece("error", error={"type": "overloaded_error", "message": "Overloaded"}),
        _says,
    ),
    Client(
        "gemini:gemini-x",
        _keyed(gemini.GeminiModel, "gemini-x"),
        "google.genai",
        QUESTION,
        gemini.WHOLE,
        gemini.PIECES,
        events,
        4,
        {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}},
        _google,
    ),
    Client(
        "bedrock:claude-x",
        lambda **settings: bedrock.BedrockModel("claude-x", region="us-east-1", **settings),
        "boto3",
        QUESTION,
        bedrock.WHOLE,
        bedrock.PIECES,
        bedrock.events,
        8,
        bedrock.framed("serviceUnavailableException", {"message": "Overloaded"}, exception=True),
        _amazon,
    ),
]
EACH = pytest.mark.parametrize("client", CLIENTS, ids=repr)
WAYS = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    bedrock.as_nobody(monkeypatch, tmp_path)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)


async def ask(model: Model, client: Client, streaming: bool) -> Any:
    return await (heard(model, client.request) if streaming else model.reply(client.request))


@pytest.mark.parametrize(
    ("status", "problem", "streaming"),
    [
        (401, "unauthorized", False),
        (429, "limited", True),
        (500, "unavailable", False),
        (400, "refused", False),
        pytest.param(403, "unauthorized", False, marks=pytest.mark.full),
        pytest.param(401, "unauthorized", True, marks=pytest.mark.full),
        pytest.param(500, "unavailable", True, marks=pytest.mark.full),
    ],
)
@EACH
async def test_a_refusal_is_reported_with_its_problem_and_never_with_the_key(
    client: Client, status: int, problem: str, streaming: bool
) -> None:
    with wire(client.refused(status, f"No, not with {KEY}.")) as provider:
        model = client.at(provider.url)
        with pytest.raises(ModelError) as caught:
            await ask(model, client, streaming)
    assert (caught.value.problem, caught.value.retry_after_s, len(provider.requests)) == (problem, 7.0, 1)
    assert str(caught.value).startswith(f"Model '{client.model}' answered with status {status}: No, not with [secret].")
    assert KEY not in f"{caught.value!r} {model!r}"


@EACH
async def test_long_words_of_a_provider_are_cut_and_secrets_redacted_before_that(client: Client) -> None:
    words = "w " * 294 + f"{KEY} is long"  # a cut through the key would leave half of it
    with wire(client.refused(500, words)) as provider, pytest.raises(ModelError) as caught:
        await client.at(provider.url).reply(client.request)
    assert KEY[:8] not in str(caught.value)
    assert len(str(caught.value)) < 750


@EACH
async def test_a_streamed_reply_comes_in_words_and_then_as_the_same_whole(client: Client) -> None:
    with wire(answer(client.whole), client.streamed(*client.pieces)) as provider:
        model = client.at(provider.url)
        whole = await model.reply(client.request)
        *words, last = await heard(model, client.request)
    assert words == WORDS
    assert isinstance(last, Reply)
    assert (last.text, last.stop, last.usage, last.native) == (whole.text, whole.stop, whole.usage, whole.native)
    ((streamed,), (call,)) = (last.calls, whole.calls)
    assert (streamed.id, streamed.tool, as_object(streamed)) == (call.id, call.tool, as_object(call))


def as_object(call: Call) -> Any:
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


@EACH
async def test_a_stream_that_breaks_gives_the_words_before_and_no_half_reply(client: Client) -> None:
    begun = client.pieces[: client.worded]
    broken = {
        "cut": cut(client.streamed(*begun)),
        "ended early, and in order": client.streamed(*begun),
        "an error event": client.streamed(*begun, client.error),
    }
    with wire(*broken.values()) as provider:
        model = client.at(provider.url)
        for how in broken:
            got: list[TextDelta | Reply] = []
            with pytest.raises(ModelError) as caught:
                async for piece in model.stream(client.request):
                    got.append(piece)
            assert (how, got, caught.value.problem) == (how, WORDS, "unavailable")
            assert ("Overloaded" in str(caught.value)) == (how == "an error event")


@EACH
async def test_what_is_no_whole_answer_is_reported(client: Client) -> None:
    page = raw(b"<html>", content_type="text/html")
    half = answer(client.whole)
    half = replace(half, pieces=(half.pieces[0][:80],), cut=True)
    problems: list[str] = []
    with wire(half, page, answer({"object": "list", "data": []})) as provider:
        model = client.at(provider.url)
        for _ in range(3):
            with pytest.raises(ModelError, match=r"its answer broke off|gave an answer that cannot be used") as caught:
                await model.reply(client.request)
            problems.append(caught.value.problem)
    assert problems[0] == "unavailable"


@EACH
async def test_nobody_at_the_address(client: Client) -> None:
    with wire() as provider:
        pass
    with pytest.raises(ModelError, match="could not be reached") as caught:
        await client.at(provider.url).reply(client.request)
    assert caught.value.problem == "unavailable"


@WAYS
@EACH
async def test_cancelling_closes_the_request(client: Client, streaming: bool) -> None:
    begun = client.streamed(*client.pieces[: client.worded]) if streaming else answer({})
    with wire(unfinished(begun)) as provider:
        task = asyncio.ensure_future(ask(client.at(provider.url), client, streaming))
        assert await asyncio.to_thread(provider.asked.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if client.package != "boto3":  # whose SDK blocks
            assert await asyncio.to_thread(provider.hung_up.wait, 10)


@EACH
def test_one_model_serves_one_event_loop_after_another_and_goes_on_after_it_was_closed(client: Client) -> None:
    async def both() -> list[Reply]:
        replies = [await model.reply(client.request)]
        await model.close()
        return [*replies, await model.reply(client.request)]

    with wire(*[answer(client.whole)] * 4) as provider:
        model = client.at(provider.url)
        first, *others = [*asyncio.run(both()), *asyncio.run(both())]
    assert others == [first] * 3
    assert (first.text, len(first.calls), first.stop) == ("I add.", 1, "calls")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.* is not a valid:UserWarning")  # so Google's SDK says of words it does not know
@EACH
async def test_an_answer_of_a_strange_shape_is_a_reply_or_a_model_error(client: Client) -> None:
    shapes = [strange for value in (None, "", 1.5, [], [None], {}) for strange in _strange(client.whole, value)]
    with wire(*map(answer, shapes)) as provider:
        model = client.at(provider.url)
        for _ in shapes:
            try:
                reply = await model.reply(client.request)
            except ModelError as error:
                assert error.problem in ("failed", "unavailable")
            else:
                assert all(isinstance(call.tool, str) for call in reply.calls)


def _strange(data: Any, value: Any) -> list[Any]:
    """*data* with *value* in each place of it that the clients read, one after the other."""
    found: list[Any] = []
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        if key not in ("id", "object", "created", "created_at", "metrics", "modelVersion", "stop_sequence"):
            for inner in (value, *_strange(data[key], value)):
                changed = data.copy()
                changed[key] = inner
                found.append(changed)
    return found


@EACH
def test_a_missing_package_names_the_extra(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, client.package, None)
    with pytest.raises(SetupError, match=r"pip install 'toolcrib\[models\]'"):
        client.at("http://127.0.0.1:9")


@pytest.mark.parametrize("making", [False, True], ids=["a client", "what makes one"])
@pytest.mark.parametrize("client", CLIENTS[:4], ids=repr)
async def test_the_key_of_a_client_that_is_handed_in_is_redacted_too(client: Client, making: bool) -> None:
    other = "sk-another-secret-key"
    with wire(client.refused(401, f"No, not with {other}.")) as provider:
        its = client.at(provider.url, api_key=other)  # whose client is the SDK's own, with this address
        model = client.at(provider.url, client=its._client if making else its._client())
        with pytest.raises(ModelError) as caught:
            await model.reply(client.request)
        await its.close()
    assert "No, not with [secret]." in str(caught.value)
    assert other not in repr(caught.value)
