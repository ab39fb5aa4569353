"""A model that replies from a script."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Call, SetupError, Text, ToolcribError
from toolcrib.agent import ModelError, Request, ScriptedModel, model_from_name
from toolcrib.core import LoadError
from toolcrib.formats import Reply, TextDelta, Usage, User

ASKED = Request((User((Text("Go."),)),))


async def replies(model: ScriptedModel, number: int) -> list[Reply]:
    return [await model.reply(ASKED) for _ in range(number)]


async def test_turns_are_written_one_after_the_other_and_requests_kept() -> None:
    whole = Reply("whole", usage=Usage(1, 2, 3), native={"raw": 1})
    model = ScriptedModel(
        [
            "Hello.",
            whole,
            {
                "text": "Let me see.",
                "calls": [
                    {"tool": "add", "arguments": {"a": 1}},
                    ("add", '{"a": 1'),
                    ["add", [1, 2]],
                    {"tool": "now"},
                    {"tool": "add", "id": ""},
                    Call("add", None, "own"),
                ],
                "usage": {"input": 4},
            },
            {"calls": [("now", None)], "stop": "length"},
            {},
        ]
    )
    assert await replies(model, 5) == [
        Reply("Hello."),
        whole,
        Reply(
            "Let me see.",
            (
                Call("add", {"a": 1}, "call_1"),
                Call("add", '{"a": 1', "call_2"),
                Call("add", "[1, 2]", "call_3"),
                Call("now", None, "call_4"),
                Call("add", None, ""),
                Call("add", None, "own"),
            ),
            "calls",
            Usage(4),
        ),
        Reply("", (Call("now", None, "call_6"),), "length"),
        Reply(),
    ]
    assert model.requests == [ASKED] * 5
    assert model.name == "scripted"


async def test_a_script_that_runs_out_says_so() -> None:
    model = ScriptedModel(["Hello."], name="short")
    await model.reply(ASKED)
    with pytest.raises(ModelError) as raised:
        await model.reply(ASKED)
    assert raised.value.problem == "failed"
    assert str(raised.value) == (
        "short has 1 turn, and turn 2 was requested. Add a turn to the script, or see `requests` for why the model was "
        "asked again."
    )
    assert len(model.requests) == 2


async def test_an_exception_in_a_script_is_raised() -> None:
    model = ScriptedModel(
        [ModelError("Come back.", "limited", retry_after_s=2), KeyError("bug"), {"error": "unavailable"}, "fine"]
    )
    with pytest.raises(ModelError, match="Come back"):
        await model.reply(ASKED)
    with pytest.raises(KeyError, match="bug"):
        await model.reply(ASKED)
    with pytest.raises(ModelError, match="The script fails here") as raised:
        await model.reply(ASKED)
    assert raised.value.problem == "unavailable"
    assert (await model.reply(ASKED)).text == "fine"


async def test_a_function_says_each_turn_by_what_it_is_asked() -> None:
    def count(request: Request) -> Any:
        return f"{len(request.turns)} turns"

    async def later(request: Request) -> Any:
        return {"calls": [("add", {})]}

    def whole(request: Request) -> Reply:
        return Reply("whole")

    assert await replies(ScriptedModel(count), 2) == [Reply("1 turns")] * 2
    assert [reply.calls[0].id for reply in await replies(ScriptedModel(later), 2)] == ["call_1", "call_2"]
    assert await replies(ScriptedModel(whole), 1) == [Reply("whole")]
    with pytest.raises(SetupError, match="the function's return value: a turn is text"):
        await ScriptedModel(lambda _: 7).reply(ASKED)
    with pytest.raises(ModelError, match="no"):
        await ScriptedModel(lambda _: ModelError("no", "refused")).reply(ASKED)


@pytest.mark.parametrize("text", ["", "one", "two words", "  led by\nand ended by space \n", "tab\there"])
async def test_words_are_streamed_in_pieces_that_are_the_text(text: str) -> None:
    model = ScriptedModel([text])
    pieces = [piece async for piece in model.stream(ASKED)]
    *words, reply = pieces
    assert reply == Reply(text)
    assert "".join(word.text for word in words if isinstance(word, TextDelta)) == text
    assert len(words) >= len(text.split())


def saved(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


TOML = """
[[turns]]
text = "Let me see."
usage = { input = 3, output = 4 }

[[turns.calls]]
tool = "add"
arguments = { a = 1, b = 2 }

[[turns]]
text = "3"
"""
JSON = '["Hello", {"text": "Let me see.", "calls": [["add", {"a": 1, "b": 2}]]}]'


async def test_a_script_may_be_a_file(tmp_path: Path) -> None:
    toml = ScriptedModel.from_file(saved(tmp_path, "script.toml", TOML))
    call = Call("add", {"a": 1, "b": 2}, "call_1")
    assert await replies(toml, 2) == [Reply("Let me see.", (call,), "calls", Usage(3, 4)), Reply("3")]
    assert toml.name == f"scripted:{tmp_path / 'script.toml'}"

    for name, text in (("list.json", JSON), ("object.json", f'{{"turns": {JSON}}}')):
        model = model_from_name(f"scripted:{saved(tmp_path, name, text)}")
        assert isinstance(model, ScriptedModel)
        assert await replies(model, 2) == [Reply("Hello"), Reply("Let me see.", (call,), "calls")]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", '{"turns": [', "a.json: the script is not valid JSON: Expecting value: line 1 column 12"),
        ("a.toml", "[[turns]\n", "a.toml: the script is not valid TOML: "),
        ("a.json", '"Hello"', "a.json: a script must have a list of turns under `turns`."),
        ("a.json", '{"turn": []}', "a.json: a script has no member 'turn', only `turns`."),
        ("a.toml", "", "a.toml: a script must have a list of turns under `turns`."),
        ("a.yaml", "turns: []", "a.yaml: a script must be a .json or a .toml file."),
        ("a.json", "[7]", "a.json: turns[0]: a turn is text, an object with `text` and `calls`, a Reply or an exc"),
        (
            "a.json",
            '["", {"txt": ""}]',
            "a.json: turns[1]: There is no key 'txt'. Did you mean 'text'? It takes: text,",
        ),
        ("a.json", '[{"text": 1}]', "a.json: turns[0]: 'text': expected string, got integer."),
        ("a.json", '[{"stop": "done"}]', 'a.json: turns[0]: \'stop\': expected one of "end", "calls", "length",'),
        ("a.json", '[{"error": "late"}]', 'a.json: turns[0]: \'error\': expected one of "unauthorized", "limited",'),
        ("a.json", '[{"calls": ["add"]}]', 'a.json: turns[0].calls[0]: a call is {"tool": "add",'),
        ("a.json", '[{"calls": [{"arguments": {}}]}]', "a.json: turns[0].calls[0]: 'tool' is missing."),
        ("a.json", '[{"calls": [[1, {}]]}]', "a.json: turns[0].calls[0]: 'tool': expected string, got integer."),
        ("a.json", '[{"usage": {"input": "1"}}]', "a.json: turns[0].usage: 'input': expected integer, got string."),
    ],
)
def test_a_bad_file_is_reported_with_the_place(name: str, text: str, says: str, tmp_path: Path) -> None:
    file = saved(tmp_path, name, text)
    with pytest.raises(LoadError) as raised:
        ScriptedModel.from_file(file)
    assert str(raised.value).startswith(f"{tmp_path}/{says}")


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="the script cannot be read: No such file"):
        model_from_name(f"scripted:{tmp_path / 'none.json'}")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(LoadError, match="the script cannot be read: Is a directory"):
        model_from_name(f"scripted:{tmp_path / 'folder.json'}")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LoadError, match="the script is not valid JSON"):
        model_from_name(f"scripted:{tmp_path / 'binary.json'}")


@pytest.mark.parametrize("script", ["Hello", {"text": "Hello"}, 7, [7]])
def test_what_is_no_script_is_refused(script: Any) -> None:
    with pytest.raises(ToolcribError, match=r"script|turn"):
        ScriptedModel(script)
