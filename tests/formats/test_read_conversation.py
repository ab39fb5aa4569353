"""Conversations read back from messages of Chat Completions and Converse: the inverse of writing them, and errors."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib import Call, File, Image, Result, Text, ToolError, ToolSpec
from toolcrib.core import Audio, Data
from toolcrib.formats import (
    Conversation,
    Reply,
    Results,
    Turn,
    User,
    anthropic,
    bedrock,
    gemini,
    openai,
    openai_responses,
)

OTHERS = (anthropic, gemini, openai_responses)

FORMATS: dict[str, Any] = {
    "openai": openai,
    "bedrock": bedrock,
}
SPECS = [
    ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}}),
    ToolSpec("2d.plot", "Plot.", {"type": "object", "properties": {"x": {"type": "string"}}}),
]
each_format = pytest.mark.parametrize("name", list(FORMATS))

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(str.strip)
values = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | words, st.lists, max_leaves=4)
arguments = st.dictionaries(words, values, max_size=3)
content = st.one_of(
    words.map(Text),
    values.map(lambda value: Data(json.dumps(value, ensure_ascii=False, separators=(",", ":")))),
    st.binary(min_size=1, max_size=4).map(Image),
    st.binary(min_size=1, max_size=4).map(Audio),
    st.binary(min_size=1, max_size=4).map(lambda data: File(data, "application/pdf", "plan.pdf")),
    words.map(lambda text: File(text.encode(), "text/plain", "a.txt")),
)


@st.composite
def conversations(draw: st.DrawFn, part: Any = content, media_in_results: bool = True) -> tuple[Turn, ...]:
    """Turns as a program makes them, with calls, results of every kind, and errors."""
    turns: list[Turn] = []
    for number in range(draw(st.integers(1, 3))):
        turns.append(User(tuple(draw(st.lists(part, min_size=1, max_size=3)))))
        names = draw(st.lists(st.sampled_from(["add", "2d.plot"]), max_size=3))
        calls = tuple(Call(name, draw(arguments), f"c{number}_{n}") for n, name in enumerate(names))
        turns.append(Reply(draw(words), calls, "calls" if calls else "end"))
        if calls:
            results: list[Result[Any]] = []
            for call in calls:
                text = draw(words)
                failed = draw(st.booleans())
                error = ToolError(text, "failed") if failed else None
                shown = (Text(text),) if failed else tuple(draw(st.lists(part, min_size=1, max_size=3)))
                results.append(Result(None, shown, error, call_id=call.id, tool=call.tool))
            turns.append(Results(tuple(results)))
            turns.append(Reply(draw(words)))
    return tuple(turns)


def without_native(conversation: Conversation) -> tuple[Any, ...]:
    """What every format keeps, and JSON text of arguments as values."""
    found: list[Any] = []
    for turn in conversation.turns:
        match turn:
            case User(parts):
                found.append(("user", parts))
            case Reply(text, calls, stop):
                found.append(("reply", text, [(c.tool, as_values(c.arguments), c.id) for c in calls], stop))
            case Results(results):
                found.append(
                    ("results", [(r.call_id, r.tool, r.content, r.error and r.error.message) for r in results])
                )
    return conversation.instructions, *found


def as_values(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


@each_format
@settings(max_examples=25, deadline=None)
@given(turns=conversations(), instructions=st.just("") | words)
def test_what_is_read_back_is_sent_again_as_it_was(name: str, turns: tuple[Turn, ...], instructions: str) -> None:
    module = FORMATS[name]
    request = module.conversation(turns, SPECS, instructions=instructions)
    read = module.read_conversation(deepcopy(request), SPECS)
    assert read.instructions == instructions
    assert module.conversation(read.turns, SPECS, instructions=read.instructions) == request
    for other in (*FORMATS.values(), *OTHERS):  # a conversation of one provider goes on with another
        other.conversation(read.turns, SPECS)


@each_format
@settings(max_examples=25, deadline=None)
@given(turns=conversations(words.map(Text)), instructions=st.just("") | words)
def test_turns_of_text_come_back_as_they_were(name: str, turns: tuple[Turn, ...], instructions: str) -> None:
    module = FORMATS[name]
    read = module.read_conversation(module.conversation(turns, SPECS, instructions=instructions), SPECS)
    assert joined(without_native(read)) == joined(without_native(Conversation(instructions, turns)))


def joined(turns: tuple[Any, ...]) -> tuple[Any, ...]:
    """*turns* with adjacent texts as one: OpenAI has no parts in a result."""
    return tuple(_joined(turn) for turn in turns)


def _joined(turn: Any) -> Any:
    match turn:
        case ("user", parts):
            return "user", "\n".join(part.text for part in parts)
        case ("results", results):
            return "results", [(*rest, "\n".join(p.text for p in parts), error) for *rest, parts, error in results]
        case _:
            return turn


@each_format
def test_a_list_of_messages_is_read_without_the_request_around_it(name: str) -> None:
    module = FORMATS[name]
    request = module.conversation([User((Text("Hello"),)), Reply("Hi")])
    assert without_native(module.read_conversation(request["messages"])) == (
        "",
        ("user", (Text("Hello"),)),
        ("reply", "Hi", [], "end"),
    )


@each_format
def test_the_calls_of_the_last_message_may_be_open_and_are_closed_by_a_repair(name: str) -> None:
    module = FORMATS[name]
    result = Result(None, (Text("1"),), call_id="c1", tool="add")
    turns = [User((Text("x"),)), Reply(calls=(Call("add", {"a": 1}, "c1"),)), Results((result,))]
    request = module.conversation(turns, SPECS)
    request["messages"].pop()
    (_, reply) = module.read_conversation(request, SPECS).turns
    assert [(call.tool, as_values(call.arguments), call.id) for call in reply.calls] == [("add", {"a": 1}, "c1")]
    assert reply.stop == "calls"
    *_, last = module.read_conversation(request, SPECS, repair=True).turns
    assert [result.error.code for result in last.results] == ["lost"]


def lossy(name: str) -> dict[str, Any]:
    """A history without the result of one call and without the call of one result."""
    module = FORMATS[name]
    calls = (Call("add", {"a": 1}, "c1"), Call("add", {"a": 2}, "c2"))
    results = tuple(Result(None, (Text(call.id),), call_id=call.id, tool="add") for call in calls)
    request: dict[str, Any] = module.conversation(
        [User((Text("x"),)), Reply("y", calls), Results(results), User((Text("z"),))], SPECS
    )
    messages = request["messages"]
    match name:
        case "openai":
            messages[2]["tool_call_id"] = "c9"
        case _:
            messages[2]["content"][0]["toolResult"]["toolUseId"] = "c9"
    return request


@each_format
def test_a_result_without_its_call_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(ValueError, match=r"\[\d+\].* is the result of a call 'c9' that does not wait for one"):
        FORMATS[name].read_conversation(lossy(name), SPECS)


@each_format
def test_what_a_history_has_lost_can_be_repaired(name: str) -> None:
    module = FORMATS[name]
    turns = module.read_conversation(lossy(name), SPECS, repair=True).turns
    _, _, results, *users = turns
    assert [(r.call_id, r.error and r.error.code, r.text) for r in results.results] == [
        ("c1", "lost", "The result of this call is not known."),
        ("c2", None, "c2"),
    ]
    assert [part.text for user in users for part in user.content] == ["A tool's result: c1", "z"]
    module.conversation(turns, SPECS)


@pytest.mark.parametrize(
    ("name", "request_", "message"),
    [
        ("openai", "Hello", "A conversation must be a list of messages, or an object with one as 'messages'."),
        ("openai", {"input": []}, "A conversation must be a list of messages, or an object with one as 'messages'."),
        ("openai", ["Hello"], "messages[0] must be an object"),
        ("openai", [{"role": "usr"}], "messages[0].role is 'usr'; it must be system,"),
        ("openai", [{"role": "user"}], "messages[0] is malformed: 'content' must be a list, and it is missing."),
        ("openai", [{"role": "user", "content": [{"type": "video"}]}], "messages[0].content[0].type is 'video'"),
        (
            "openai",
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]}],
            "messages[0].content[0] is malformed: 'url' must be a base64 data URL; other URLs are not fetched.",
        ),
        ("openai", [{"role": "tool", "content": "3"}], "messages[0] is malformed: 'tool_call_id' must be text"),
        ("bedrock", [{"role": "user", "content": [{"video": {}}]}], "messages[0].content[0] must have one of text,"),
        (
            "bedrock",
            [{"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": "?"}}}]}],
            "messages[0].content[0].image.source is malformed: 'bytes' is not valid base64.",
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(name: str, request_: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        FORMATS[name].read_conversation(request_)
    assert message in str(raised.value)
