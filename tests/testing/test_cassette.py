"""Cassettes: calls recorded once, and replayed with nothing behind them."""

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretBytes, SecretStr

from toolcrib import Caller, Context, File, Image, SetupError, Text, Tool, ToolError, Workbench, tool
from toolcrib.testing import Cassette, CassetteError

pytest_plugins = ["pytester"]

SECRET = "hush-hush-1234"


class Place(BaseModel):
    name: str
    tags: set[str] = set()


class Service:
    """Something that answers each time differently, and can be switched off."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_on = True

    def answer(self) -> int:
        assert self.is_on, "nothing is behind a replayed call"
        self.asked += 1
        return self.asked


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def tools(service: Service) -> list[Any]:
    @tool
    async def weather(place: Place, days: int = 1) -> dict[str, Any]:
        """The weather."""
        number = service.answer()
        await asyncio.sleep(0.01 * (3 - number))  # so that they do not end in the order in which they began
        return {"number": number, "place": place.name, "days": days}

    @tool
    def login(user: str, password: SecretStr) -> str:
        """Log in."""
        service.answer()
        return f"{user} is in, with {SECRET}"

    @tool
    def parts(context: Context) -> list[Text | Image | File]:
        """Several things."""
        service.answer()
        return [Text(context.caller.principal), Image(b"PNG!"), File(b"RAW", "application/x-raw", "raw")]

    @tool
    def fails(how: str) -> None:
        """Fail."""
        service.answer()
        raise ToolError(how, "conflict", retry="changed", details={"at": 3})

    return [weather, login, parts, fails]


async def play(tools: list[Any], tape: Cassette) -> list[tuple[Any, ...]]:
    async with (
        Workbench(tools, middleware=[tape]) as bench,
        Workbench(tools, middleware=[tape], caller=Caller("ada")) as ada,
    ):
        every = await bench.call_many(
            [
                ("weather", '{"place": {"name": "Oslo", "tags": ["b", "a", "c"]}}'),
                ("weather", {"place": {"name": "Oslo", "tags": ["c", "b", "a"]}, "days": "1"}),
                ("weather", {"place": {"name": "Oslo"}, "days": 2}),
            ]
        )
        every += [
            await bench.call("login", {"user": SECRET, "password": "pass-word-1"}),
            await bench.call("parts"),
            await ada.call("parts"),
            await bench.call("fails", {"how": "broken"}),
            await bench.call("weather", {"plase": 1}),
        ]
    return [
        (result.value, result.content, result.repairs, result.error and result.error.to_dict(), result.tool)
        for result in every
    ]


async def test_what_was_recorded_is_replayed_with_nothing_behind_it(
    tools: list[Any], service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "tapes" / "calls.json"
    with Cassette(file, secrets=[SECRET]) as tape:
        recorded = await play(tools, tape)
    assert (tape.records, service.asked) == (True, 7)
    service.is_on = False
    with Cassette(file, record="never") as tape:
        replayed = await play(tools, tape.hide(SECRET))
    assert not tape.records
    assert [one[1:] for one in recorded[:3] + recorded[4:]] == [one[1:] for one in replayed[:3] + replayed[4:]]
    numbers = [one[0]["number"] for one in replayed[:3]]
    assert numbers == [one[0]["number"] for one in recorded[:3]]
    assert sorted(numbers) == [1, 2, 3]
    assert (recorded[3][0], replayed[3][0]) == (f"{SECRET} is in, with {SECRET}", "[secret] is in, with [secret]")
    assert [one[3] and one[3]["code"] for one in replayed[-2:]] == ["conflict", "invalid_arguments"]


async def test_the_file_is_the_same_whatever_ran_first(tools: list[Any], tmp_path: Path) -> None:
    texts: list[str] = []
    calls: list[tuple[str, Any]] = [("parts", None), ("fails", {"how": "b"}), ("fails", {"how": "a"})]
    for turn in (1, -1):
        file = tmp_path / f"{turn}.json"
        with Cassette(file) as tape:
            async with Workbench(tools, middleware=[tape]) as bench:
                await bench.call_many(calls[::turn])
        texts.append(file.read_text())
    assert texts[0] == texts[1]
    data = json.loads(texts[0])
    assert data["tools"]["fails"]["input"] == dict(Tool(tools[3]).spec.input_schema)
    assert data["calls"][0] == {
        "tool": "fails",
        "arguments": {"how": "a"},
        "error": {"code": "conflict", "message": "a", "retry": "changed", "details": {"at": 3}},
    }
    assert [call["arguments"] for call in data["calls"][1:]] == [{"how": "b"}, {}]
    assert texts[0].startswith('{\n  "version": 1,\n')


async def test_a_call_that_was_not_recorded_is_an_error_that_shows_the_nearest_one(tmp_path: Path) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    file = tmp_path / "calls.json"
    with Cassette(file) as tape:
        async with Workbench([add], middleware=[tape]) as bench:
            await bench.call(add, 1, 2)
            await bench.call(add, 40, 50)
    way_out = f"To record it again: Cassette('{file}', record=\"always\"), or delete the file."
    missing = f'{file} has no call add {{"a": 1, "b": 3}}. The nearest that it has is add {{"a": 1, "b": 2}}. {way_out}'
    again = f'{file} has add {{"a": 40, "b": 50}} once, and it was made once more. {way_out}'
    with pytest.raises(CassetteError) as raised, Cassette(file) as tape:
        async with Workbench([add], middleware=[tape]) as bench:
            results = [await bench.call("add", {"a": a, "b": b}) for a, b in ((1, 2), (1, 3), (40, 50), (40, 50))]
    assert [result.text for result in results] == ["3", missing, "90", again]
    assert results[1].error is not None
    assert (results[1].error.code, results[1].error.retry) == ("unavailable", "never")
    assert str(raised.value) == f"{missing}\n{again}"


async def test_a_changed_schema_is_noticed(tmp_path: Path) -> None:
    def one(a: int) -> int:
        return a

    def other(a: int, b: int = 2) -> int:
        return a + b

    file = tmp_path / "calls.json"
    with Cassette(file) as tape:
        await Workbench([Tool(one, name="add")], middleware=[tape]).call("add", {"a": 1})
    changed = [Tool(other, name="add")]
    with (
        pytest.raises(CassetteError, match=r"is not the one that .* /input/properties/b differs"),
        Cassette(file) as tape,
    ):
        await Workbench(changed, middleware=[tape]).call("add", {"a": 1})
    with Cassette(file, record="always") as tape:
        assert (await Workbench(changed, middleware=[tape]).call("add", {"a": 1})).value == 3
    with Cassette(file) as tape:
        assert (await Workbench(changed, middleware=[tape]).call("add", {"a": 1})).value == 3


async def test_what_waits_is_recorded_when_it_has_run_and_a_broken_block_writes_nothing(tmp_path: Path) -> None:
    @tool(destructive=True)
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    file = tmp_path / "calls.json"
    with pytest.raises(ZeroDivisionError), Cassette(file) as tape:
        await Workbench([wipe], middleware=[tape]).call("wipe")
        raise ZeroDivisionError
    assert not file.exists()
    with Cassette(file) as tape:
        result = await Workbench([wipe], middleware=[tape], policy=lambda *_: "ask").call("wipe")
    assert result.pending is not None
    assert json.loads(file.read_text())["calls"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not valid JSON: "),
        ('{"version": 2}', "its version is not 1"),
        ('{"version": 1, "tools": {}, "calls": [{"arguments": {}}]}', "calls[0] has no 'tool'"),
        (
            '{"version": 1, "tools": {}, "calls": [{"tool": "a", "arguments": {}, "content": [{"type": "video"}]}]}',
            "calls[0]: Content is an object with a 'type' of text, data, image, audio, file; the type is 'video'. To",
        ),
        (
            '{"version": 1, "tools": {}, "calls": [{"tool": "a", "arguments": 1, "error": {"code": "no"}}]}',
            "calls[0] has no 'message'",
        ),
    ],
)
def test_a_file_that_is_not_a_cassette_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "calls.json"
    file.write_text(text)
    with pytest.raises(SetupError) as raised:
        Cassette(file)
    assert str(raised.value).startswith(f"{file} is not a cassette: {problem}")
    assert str(raised.value).endswith("or delete the file.")


def test_a_cassette_that_may_not_be_recorded_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"There is no cassette .*calls\.json\. Record it: Cassette"):
        Cassette(tmp_path / "calls.json", record="never")


TESTS = """
from pathlib import Path
import pytest
from toolcrib import tool


@tool
def count() -> int:
    log = Path("log")
    log.write_text(log.read_text() + "x" if log.exists() else "x")
    return len(log.read_text())


@pytest.mark.parametrize("name", ["a/b"])
def test_it(bench, cassette, name):
    assert bench(count, middleware=[cassette]).call_sync("count").value == 1


def test_fails(bench, cassette):
    bench(count, middleware=[cassette]).call_sync("count")
    assert False
"""


@pytest.mark.full
def test_the_fixture_records_once_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(TESTS)
    first = pytester.runpytest_inprocess("-k", "test_it")
    first.assert_outcomes(passed=1, deselected=1)
    second = pytester.runpytest_inprocess()
    second.assert_outcomes(passed=1, failed=1)
    assert [file.name for file in (pytester.path / "cassettes").iterdir()] == [
        "test_the_fixture_records_once_for_each_test.test_it-a-b.json"
    ]
    assert (pytester.path / "log").read_text() == "xx"
    always = pytester.runpytest_inprocess("-k", "test_it", "--record-cassettes=always")
    always.assert_outcomes(failed=1, deselected=1)
    never = pytester.runpytest_inprocess("-k", "test_it", "--record-cassettes=never")
    never.assert_outcomes(passed=1, deselected=1)


class Login(BaseModel):
    user: str
    password: SecretStr
    others: "list[Login]" = []


@tool
def log_in(
    login: Login,
    maybe: SecretStr | None = None,
    by_name: dict[str, SecretStr] | None = None,
    pair: tuple[SecretStr, int] | None = None,
    plain: Annotated[str, Field(json_schema_extra={"format": "password"})] = "",
    key: SecretBytes = SecretBytes(b""),
) -> list[Any]:
    """Log in."""
    named = File(b"", name=f"of {plain}.txt")
    basic = base64.b64encode(f"user:{plain}".encode()).decode()
    text = f"logged in with {plain}, as {basic}, {key.get_secret_value().decode()}"
    return [text, {"number": 12345}, File(f"the file has {plain}".encode()), named]


async def test_secrets_are_masked_wherever_the_schema_has_them_and_where_a_result_repeats_them(tmp_path: Path) -> None:
    path = tmp_path / "calls.json"
    other = {"user": "eve", "password": "secret-2", "others": []}
    arguments = {
        "login": {"user": "ada", "password": "secret-1", "others": [other]},
        "maybe": "secret-3",
        "by_name": {"a": "secret-4"},
        "pair": ["secret-5", 1],
        "plain": "secret-6",
        "key": "secret-7",
    }
    texts: list[str] = []
    for _ in range(2):
        with Cassette(path, secrets=["12345"]) as tape:
            result = await Workbench([log_in], middleware=[tape]).call("log_in", arguments)
            assert result.error is None
            texts.append(result.text)
    written = path.read_text()
    assert not re.search(r"secret-\d|12345|" + base64.b64encode(b"user:secret-6").decode(), written)
    (call,) = json.loads(written)["calls"]
    masked = {"user": "eve", "password": "[secret]", "others": []}
    assert call["arguments"] == {
        "login": {"user": "ada", "password": "[secret]", "others": [masked]},
        "maybe": "[secret]",
        "by_name": {"a": "[secret]"},
        "pair": ["[secret]", 1],
        "plain": "[secret]",
        "key": "[secret]",
    }
    assert any(
        base64.b64decode(part["data"]) == b"the file has [secret]" for part in call["content"] if part["type"] == "file"
    )
