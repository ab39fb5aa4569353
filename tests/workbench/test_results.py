"""Large results: a preview is shown, the whole is stored, read in parts, and passed on by its handle.

What a model sees of them, word for word, is in `read_result.txt`. Run this file as a program to write that anew, and
read what has changed.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Base64Bytes, BaseModel, Field

from toolcrib import (
    Approve,
    Call,
    Caller,
    File,
    Handle,
    Image,
    Registry,
    SetupError,
    Text,
    Tool,
    ToolError,
    Workbench,
    tool,
)
from toolcrib.core import Ask, CallRecord, Data, DefinitionError, Recorder, Repair, ToolSpec
from toolcrib.core.result import EPOCH
from toolcrib.machinery import StoredResult
from toolcrib.workbench import MemoryResults, Stores


class Row(BaseModel):
    id: int
    name: str


@tool
async def find_rows(n: int) -> list[Row]:
    return [Row(id=i, name=f"name {i}") for i in range(n)]


@tool
async def add_up(rows: Annotated[list[Row], Handle], factor: int = 1) -> int:
    assert all(type(row) is Row for row in rows)
    return factor * sum(row.id for row in rows)


@tool
async def say(text: str, times: int = 1) -> str:
    return text * times


@tool
async def count_keys(data: dict[str, Any]) -> int:
    return len(data)


def giving(value: Any) -> Tool[..., Any]:
    """A tool `give` whose result is *value*."""

    def give() -> Any:
        return value

    return Tool(give)


async def handle_of(bench: Workbench, value: str = "find_rows", arguments: Any = '{"n": 4000}') -> str:
    result = await bench.call(value, arguments)
    assert result.error is None
    handle: str = result.metadata["handle"]
    return handle


async def read(bench: Workbench, handle: str, **how: Any) -> tuple[str, str]:
    """The line above what was read, and what was read."""
    result = await bench.call("read_result", {"handle": handle, **how})
    result.unwrap()
    assert len(result.text) <= 20_000
    head, body = result.content
    return head.text, body.text


async def refusal(bench: Workbench, tool: str, arguments: Mapping[str, Any]) -> ToolError:
    result = await bench.call(tool, arguments)
    assert result.error is not None, result.text
    return result.error


# Bounded


async def test_a_small_result_is_shown_as_it_is_and_nothing_is_kept() -> None:
    store = MemoryResults()
    async with Workbench([say, find_rows], store=Stores(results=store)) as bench:
        result = await bench.call("say", {"text": "x" * 20_000})
        assert (result.text, result.metadata) == ("x" * 20_000, {})
        assert (await bench.call("find_rows", {"n": 2})).content == (
            Data('[{"id":0,"name":"name 0"},{"id":1,"name":"name 1"}]'),
        )
        assert [spec.name for spec in bench.specs()] == ["say", "find_rows"]
    assert len(store) == 0


async def test_reading_is_offered_once_there_is_something_to_read_and_until_a_reset() -> None:
    async with Workbench([say]) as bench:
        assert [spec.name for spec in bench.specs()] == ["say"]
        handle = await handle_of(bench, "say", {"text": "word ", "times": 10_000})
        assert [spec.name for spec in bench.specs()] == ["say", "read_result"]
        spec = bench.specs()[-1]
        assert (spec.hints.read_only, spec.input_schema["required"]) == (True, ["handle"])
        await bench.reset()
        assert [spec.name for spec in bench.specs()] == ["say"]
        assert (await refusal(bench, "read_result", {"handle": handle})).code == "unavailable"


async def test_the_bound_can_be_moved_or_taken_away() -> None:
    async with Workbench([say], max_result_chars=1000) as bench:
        result = await bench.call("say", {"text": "x", "times": 1001})
        assert len(result.text) <= 1000
        assert (await bench.call("say", {"text": "x", "times": 1000})).text == "x" * 1000
    async with Workbench([say, giving(File(b"\0" * 10_000_000))], max_result_chars=None) as bench:
        assert (await bench.call("say", {"text": "x", "times": 100_000})).text == "x" * 100_000
        assert (await bench.call("give")).content == (File(b"\0" * 10_000_000),)
        assert [spec.name for spec in bench.specs()] == ["say", "give"]


@pytest.mark.parametrize("wrong", [999, 1, -1, 20_000.0, True, "many"])
def test_a_bound_that_leaves_no_room_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError, match=r"'max_result_chars': expected 0"):
        Workbench([], max_result_chars=wrong)


async def test_an_error_s_message_is_bounded_too() -> None:
    async def fail() -> None:
        raise ToolError("begin " + "x" * 1_000_000 + " end", "conflict")

    result = await Workbench([fail]).call("fail")
    assert len(result.text) <= 20_000
    assert (result.text, result.error.code) == (result.error.message, "conflict")
    assert result.text.startswith("begin ")
    assert result.text.endswith(" end")


async def test_images_beside_large_text_stay_and_large_files_do_not() -> None:
    image, large = Image(b"\x89PNG\0"), Image(b"\x89" + bytes(5 * 1024 * 1024))
    async with Workbench([giving([Text("word " * 10_000), image])]) as bench:
        result = await bench.call("give")
        assert result.content[1:] == (image,)
        assert len(result.text) <= 20_000
    async with Workbench([giving(["see:", large])]) as bench:
        result = await bench.call("give")
        assert [type(part) for part in result.content] == [Text]
        assert result.text.endswith("see:\n[image: image/png, 5242881 bytes]")
        assert result.text.startswith(
            "[This result is too large to be shown whole: 38 characters in 2 lines and 5242881 bytes"
        )
        assert (await read(bench, result.metadata["handle"], limit=3))[1] == "see"


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=200), inner, max_size=10),
    max_leaves=40,
)


@settings(max_examples=25, deadline=None)
@given(_values, st.integers(1, 40), st.integers(1000, 3000))
async def test_a_preview_is_never_longer_than_the_bound(value: Any, times: int, bound: int) -> None:
    for given_value in ([value] * times, {"a": [value] * times, "b": value}, json.dumps(value) * times):
        bench = Workbench([giving(given_value)], max_result_chars=bound)
        result = await bench.call("give")
        assert result.error is None
        assert len(result.text) <= bound
        assert ("handle" in result.metadata) == (result.metadata.get("size_chars", 0) > bound)


# Read


@settings(max_examples=15, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
    | st.lists(st.integers() | st.text(max_size=30), min_size=1, max_size=30),
    st.none() | st.integers(500, 5000),
)
async def test_the_parts_of_a_text_or_list_make_up_the_whole(piece: Any, limit: int | None) -> None:
    whole = piece * (6_000 // len(piece))
    async with Workbench([giving(whole)], max_result_chars=3000) as bench:
        handle = await handle_of(bench, "give", None)
        total, offset, header = whole[:0], 0, ""
        while "; the end]" not in header:
            header, body = await read(bench, handle, offset=offset, limit=limit)
            total += json.loads(body) if isinstance(whole, list) else body
            offset = int(header.partition("the next: offset ")[2].rstrip("]") or "0")
    assert total == whole


async def test_json_above_a_size_is_read_as_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.workbench.results.MAX_JSON_CHARS", 30_000)
    async with Workbench([giving(["x"] * 10_000)]) as bench:
        handle = await handle_of(bench, "give", None)
        assert (await read(bench, handle, offset=1, limit=3))[1] == '"x"'
        error = await refusal(bench, "read_result", {"handle": handle, "pointer": "/0"})
        assert (error.code, error.message) == (
            "too_large",
            "The result is too large to be read as JSON: it has 40001 characters. Read it without a pointer.",
        )


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ({"offset": -1}, "invalid_arguments", "offset"),
        ({"limit": 0}, "invalid_arguments", "limit"),
        ({"search": ""}, "invalid_arguments", "search"),
        ({"handle": "result_nonsense"}, "unavailable", "There is no result under this handle"),
        ({"handle": {"handle": "result_x"}}, "invalid_arguments", "expected string, got object"),
    ],
)
async def test_bad_requests_are_explained(how: dict[str, Any], code: str, message: str) -> None:
    async with Workbench([giving("word " * 10_000)]) as bench:
        handle = await handle_of(bench, "give", None)
        error = await refusal(bench, "read_result", {"handle": handle, **how})
        assert error.code == code
        assert message in error.message


async def test_a_pointer_goes_by_rfc_6901() -> None:
    value = {"a/b": {"m~n": [10, {"": "empty"}]}, "big": "x" * 30_000}
    async with Workbench([giving(value)]) as bench:
        handle = await handle_of(bench, "give", None)
        got = [(await read(bench, handle, pointer=p))[1] for p in ("/a~1b/m~0n/0", "/a~1b/m~0n/1/", "/a~1b/m~0n")]
        assert got == ["10", "empty", '[10,{"":"empty"}]']
        wrong = ["big", "/a~2b", "/bog", "/a~1b/m~0n/2", "/a~1b/m~0n/-", "/a~1b/m~0n/00", "/a~1b/m~0n/0/x", "/big/0"]
        errors = [await refusal(bench, "read_result", {"handle": handle, "pointer": p}) for p in wrong]
        assert {error.code for error in errors} == {"invalid_arguments"}
        assert [error.message for error in errors] == [
            "'big' is not a JSON pointer: one begins with '/', as in /rows/0/name.",
            "There is no 'a~2b' in the result. It has: a/b, big.",
            "There is no 'bog' in the result. Did you mean 'big'? It has: a/b, big.",
            "There is no item '2' in '/a~1b/m~0n', which is a list: its items are 0 to 1.",
            "There is no item '-' in '/a~1b/m~0n', which is a list: its items are 0 to 1.",
            "There is no item '00' in '/a~1b/m~0n', which is a list: its items are 0 to 1.",
            "The pointer goes on after '/a~1b/m~0n/0', which is a number.",
            "The pointer goes on after '/big', which is a string of 30000 characters.",
        ]


async def test_binary_is_read_in_base64_and_a_file_of_text_as_text() -> None:
    data = bytes(range(256)) * 20_000
    async with Workbench([giving(File(data, name="x.bin"))]) as bench:
        handle = await handle_of(bench, "give", None)
        head, body = await read(bench, handle, offset=1000, limit=300)
        assert head == "[bytes in base64 1000 to 1299 of 5120000; the next: offset 1300]"
        assert base64.b64decode(body) == data[1000:1300]
        assert len(base64.b64decode((await read(bench, handle))[1])) > 10_000
        for how in ({"pointer": "/0"}, {"search": "x"}):
            error = await refusal(bench, "read_result", {"handle": handle, **how})
            assert (error.code, error.message[:36]) == ("invalid_arguments", "The result is an image or a file, an")
    async with Workbench([giving(b"a line\n" * 1_000_000)]) as bench:
        handle = await handle_of(bench, "give", None)
        assert (await read(bench, handle, offset=7, limit=14))[1] == "a line\na line\n"


async def test_a_secret_across_the_edge_of_two_slices_stays_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.workbench.results.MAX_BINARY_BYTES", 30_000)
    text = "abcdefghi " * 2000 + "the hunter2hunter2 key " + "jklmnopqr " * 2000
    file = File(text.encode(), "text/plain")
    for value in (text, {"a": text}, file):
        async with Workbench([giving(value)], secrets=["hunter2hunter2"]) as bench:
            result = await bench.call("give")
            assert "hunter2" not in result.text
            handle = result.metadata["handle"]
            at = len(text.partition("hunter2")[0]) + (6 if isinstance(value, dict) else 0)
            got = ""
            for start in range(at - 20, at + 40, 5):
                got += (await read(bench, handle, offset=start, limit=5))[1]
            assert "the [secret] key" in got
            assert "hunter2" not in got
            for piece in ("hunter2hunter2", "hunter2", "unter"):
                assert (await read(bench, handle, search=piece))[0] == "[Found 0 times.]"


async def test_a_tool_of_the_user_s_own_keeps_its_name() -> None:
    async def read_result(which: str) -> str:
        return f"mine: {which}"

    async with Workbench([say, read_result]) as bench:
        result = await bench.call("say", {"text": "word ", "times": 10_000})
        assert "read on with toolcrib_read_result, by" in result.text
        assert [spec.name for spec in bench.specs()] == ["say", "read_result", "toolcrib_read_result"]
        assert (await bench.call("read_result", {"which": "x"})).text == "mine: x"
        read = await bench.call("toolcrib_read_result", {"handle": result.metadata["handle"], "limit": 4})
        assert read.content[1] == Text("word")


# Kept


async def test_a_handle_is_of_use_only_to_the_same_principal_and_thread() -> None:
    store = MemoryResults()
    registry = Registry([find_rows, add_up])

    def bench(principal: str, thread: str, profile: str = "default") -> Workbench:
        caller = Caller(principal=principal, thread=thread, profile=profile)
        return Workbench(registry, caller=caller, store=Stores(results=store))

    handle = await handle_of(bench("alice", "one"))
    unknown = {"handle": "result_" + "x" * 43}
    for principal, thread in (("bob", "one"), ("alice", "two"), ("bob", "two")):
        other = bench(principal, thread)
        for name, arguments in (("read_result", lambda of: of), ("add_up", lambda of: {"rows": of})):
            theirs = await refusal(other, name, arguments({"handle": handle}))
            nobodys = await refusal(other, name, arguments(unknown))
            assert theirs.to_dict() == nobodys.to_dict()
            assert (theirs.code, theirs.retry) == ("unavailable", "changed")
        assert "read_result" not in [spec.name for spec in other.specs()]
    again = bench("alice", "one", "work")
    assert (await again.call("add_up", {"rows": {"handle": handle}})).value == 7_998_000


class BrokenStore:
    """A store whose database is gone."""

    async def store(self, stored: StoredResult, /) -> bool:
        raise ConnectionError("postgres://user:password@host")

    async def find(self, handle: str, principal: str, thread: str, /) -> StoredResult | None:
        raise ConnectionError("postgres://user:password@host")


async def test_a_broken_store_does_not_undo_what_a_tool_has_done(caplog: pytest.LogCaptureFixture) -> None:
    async with Workbench([say], store=Stores(results=BrokenStore())) as bench:
        result = await bench.call("say", {"text": "word ", "times": 10_000})
        assert (result.status, result.metadata) == ("success", {"size_chars": 50_000})
        error = await refusal(bench, "read_result", {"handle": "result_x"})
        assert error.to_dict() == {
            "code": "unavailable",
            "message": "Stored results cannot be read at the moment. Try again later.",
            "retry": "later",
        }
    logged = [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "toolcrib"]
    assert logged == ["A result of 'say' could not be stored", "The store of results could not be read"]


async def test_a_program_gets_the_whole_without_its_secrets() -> None:
    async with Workbench([giving(["word " * 10_000 + "hunter2", 1, Image(b"x")])], secrets=["hunter2"]) as bench:
        handle = (await bench.call("give")).metadata["handle"]
        assert await bench.stored_result(handle) == (Text("word " * 10_000 + "[secret]"), Data("1"), Image(b"x"))
        with pytest.raises(ToolError, match="There is no result under this handle"):
            await bench.stored_result("result_x")


# Handed on


async def test_a_handle_is_replaced_by_its_value_which_is_checked() -> None:
    async with Workbench([find_rows, add_up]) as bench:
        handle = await handle_of(bench)
        for given_rows in ({"handle": handle}, {"handle": handle, "pointer": ""}):
            result = await bench.call("add_up", {"rows": given_rows, "factor": 2})
            assert (result.value, result.repairs) == (15_996_000, ())
        text = json.dumps({"factor": 1, "rows": {"handle": handle}})
        assert (await bench.call("add_up", text)).value == 7_998_000
        assert (await bench.call("add_up", text.encode())).value == 7_998_000
        assert (await bench.call(Call("add_up", text))).value == 7_998_000
        rows: Any = {"handle": handle}
        assert (await bench.call(add_up, rows)).value == 7_998_000
        assert (await bench.call(add_up, [Row(id=7, name="x")])).value == 7


async def test_a_reference_sent_as_text_is_repaired_where_repairs_are_allowed() -> None:
    arguments = '{"rows": %s}'
    async with Workbench([find_rows, add_up]) as bench:
        written = json.dumps(json.dumps({"handle": await handle_of(bench, "find_rows", {"n": 2000})}))
        result = await bench.call("add_up", arguments % written)
        assert (result.value, result.repairs) == (1_999_000, (Repair("/rows", "string", "object"),))
    async with Workbench([find_rows, add_up], repair=False) as bench:
        written = json.dumps(json.dumps({"handle": await handle_of(bench, "find_rows", {"n": 2000})}))
        assert (await refusal(bench, "add_up", arguments % written)).code == "invalid_arguments"  # type: ignore[arg-type]


async def test_a_part_of_a_result_can_be_handed_on() -> None:
    rows = [{"id": i, "name": "x" * 20} for i in range(1000)]
    async with Workbench([giving({"found": {"rows": rows}, "next": None}), add_up]) as bench:
        handle = await handle_of(bench, "give", None)
        assert (await bench.call("add_up", {"rows": {"handle": handle, "pointer": "/found/rows"}})).value == 499_500
        error = await refusal(bench, "add_up", {"rows": {"handle": handle, "pointer": "/found/row"}})
        assert error.message == (
            "Tool 'add_up', 'rows': There is no 'row' in '/found'. Did you mean 'rows'? It has: rows."
        )
        wrong_kind = await refusal(bench, "add_up", {"rows": {"handle": handle}})
        assert wrong_kind.code == "invalid_arguments"
        assert "'rows': expected array" in wrong_kind.message


async def test_a_handle_where_none_is_taken_is_refused_with_the_way_out() -> None:
    async with Workbench([find_rows, add_up, count_keys]) as bench:
        handle = await handle_of(bench)
        errors = [
            await refusal(bench, "count_keys", {"data": {"handle": handle}}),
            await refusal(bench, "add_up", {"rows": [], "factor": {"handle": handle}}),
            await refusal(bench, "add_up", {"rows": handle}),
            await refusal(bench, "add_up", {"rows": {"handle": handle, "pointer": 5}}),
        ]
        assert [(error.code, error.message) for error in errors] == [
            (
                "invalid_arguments",
                "Tool 'count_keys': 'data' does not take the handle of a result. Read what you need with read_result "
                "and send that.",
            ),
            (
                "invalid_arguments",
                "Tool 'add_up': 'factor' does not take the handle of a result. These do: rows. Read what you need with "
                "read_result and send that.",
            ),
            (
                "invalid_arguments",
                "Tool 'add_up': 'rows' takes a handle only in the form {\"handle\": \"result_...\"}, not as text.",
            ),
            ("invalid_arguments", "Tool 'add_up', 'rows': The pointer is text, a JSON pointer as in /rows."),
        ]
        assert (await bench.call("count_keys", {"data": {"handle": "of a door", "x": 1}})).value == 2


async def test_the_schema_says_what_may_stand_in_the_place_of_the_value() -> None:
    async def both(
        a: Annotated[list[int], Handle, Field(description="Numbers.")],
        b: Annotated[dict[str, int], Handle] | None = None,
        c: Annotated[str, Handle, Field(alias="see")] = "x",
    ) -> None:
        """Take both."""

    properties = Tool(both).spec.input_schema["properties"]
    reference = properties["a"]["anyOf"][1]
    assert (reference["required"], set(reference["properties"])) == (["handle"], {"handle", "pointer"})
    assert properties == {
        "a": {"description": "Numbers.", "anyOf": [{"type": "array", "items": {"type": "integer"}}, reference]},
        "b": {
            "default": None,
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": "integer"}},
                {"type": "null"},
                reference,
            ],
        },
        "see": {"default": "x", "anyOf": [{"type": "string"}, reference]},
    }
    async with Workbench([both, giving([1] * 20_000)]) as bench:
        handle = await handle_of(bench, "give", None)
        assert (await bench.call("both", {"a": {"handle": handle}, "see": "y"})).error is None


async def test_a_mark_where_no_handle_is_looked_for_is_refused_at_definition() -> None:
    def inside(rows: list[Annotated[Row, Handle]]) -> None: ...
    def many(*rows: Annotated[Row, Handle]) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"Handle of 'rows' is inside another type.*rows: Annotated\[..., Handle\]"
    ):
        Tool(inside)
    with pytest.raises(DefinitionError, match=r"'rows' takes any number of values.*Annotated\[list\[...\], Handle\]"):
        Tool(many)


async def test_files_are_handed_on_where_base64_is_taken() -> None:
    data = bytes(range(256)) * 20_000

    async def measure(data: Annotated[Base64Bytes, Handle]) -> int:
        return len(data)

    async def print_it(text: Annotated[str, Handle]) -> int:
        return len(text)

    big = Workbench([giving(data[:2_560_000] * 2), measure, print_it])
    async with big as bench:
        handle = await handle_of(bench, "give", None)
        too_large = await refusal(bench, "measure", {"data": {"handle": handle}})
        assert (too_large.code, too_large.message) == (
            "too_large",
            "Tool 'measure', 'data': The result has 6826670 characters of JSON, and arguments have at most 4194304. "
            "Use a part of it, with a JSON pointer.",
        )
        error = await refusal(bench, "print_it", {"text": {"handle": handle}})
        assert "The result is an image or a file, and this argument takes none." in error.message
    store = MemoryResults()
    await store.store(StoredResult("result_f", "local", "default", "t", (File(data[:300_000]),), EPOCH))
    async with Workbench([measure], store=Stores(results=store)) as bench:
        assert (await bench.call("measure", {"data": {"handle": "result_f"}})).value == 300_000


async def test_text_that_a_tool_calls_json_cannot_add_other_arguments() -> None:
    rows = json.dumps([{"id": i, "name": "x" * 20} for i in range(1000)])
    async with Workbench([giving(Data(rows + ', "factor": 1000')), add_up]) as bench:
        handle = await handle_of(bench, "give", None)
        error = await refusal(bench, "add_up", {"rows": {"handle": handle}})
        assert (error.code, error.message[:56]) == (
            "invalid_arguments",
            "Tool 'add_up', 'rows': The result is not valid JSON, so ",
        )


async def test_a_policy_sees_the_value_and_the_log_what_was_sent() -> None:
    seen: list[Mapping[str, Any]] = []
    written: list[Any] = []

    class Log(Recorder):
        with_content = True

        async def finished(self, record: CallRecord, /) -> None:
            written.append(json.loads(record.arguments or ""))

    def policy(spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Any:
        seen.append(arguments)
        return "allow"

    async with Workbench([find_rows, add_up], policy=policy, recorder=Log()) as bench:
        handle = await handle_of(bench, "find_rows", {"n": 2000})
        await bench.call("add_up", {"rows": {"handle": handle}})
    assert seen[1] == {"rows": [Row(id=i, name=f"name {i}") for i in range(2000)]}
    assert written[1] == {"rows": {"handle": handle}}


async def test_an_approval_holds_for_the_value_and_not_for_its_handle() -> None:
    def policy(spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> Any:
        return Ask() if spec.name == "add_up" else "allow"

    async with Workbench([find_rows, add_up], policy=policy, max_result_chars=1000) as bench:
        first = {"rows": {"handle": await handle_of(bench, "find_rows", {"n": 100})}}
        same = {"rows": {"handle": await handle_of(bench, "find_rows", {"n": 100})}}
        other = {"rows": {"handle": await handle_of(bench, "find_rows", {"n": 101})}}
        waiting = await bench.call("add_up", first)
        assert '"name":"name 7"' in waiting.pending.arguments.replace(" ", "").replace("name7", "name 7")
        await bench.answer(waiting.pending.id, Approve(), by="alice")
        assert (await bench.call("add_up", other)).status == "pending"
        assert (await bench.call("add_up", same)).value == 4950
        assert (await bench.call("add_up", first)).status == "pending"


# Previews, and answers to every way of reading on

WORDS = Path(__file__).with_name("read_result.txt")

ROWS = [{"id": n, "name": f"name {n}", "tags": ["a"] * (n % 3), "note": None if n % 2 else "é"} for n in range(60)]
LOG = "\n".join(f"{n:03} GET /orders/{n * 7}, status {200 if n % 10 else 500}" for n in range(80))
RESULTS: dict[str, Any] = {
    "rows": ROWS,
    "mixed": [1, 2.5, "x" * 30, None, True, [1], {"a": 1}] * 40,
    "big items": ["y" * 900, "z" * 900],
    "big first item": ["y" * 900, *range(200)],
    "big last item": [*range(200), "z" * 900],
    "object": {f"key {n}": [n] * n for n in range(40)} | {"deep": {"rows": ROWS[:3], "text": LOG[:300]}},
    "log": LOG,
    "one word": "abcdefghi\u00e9" * 200,
    "commas": ",".join(f"{n},{n * n}" for n in range(300)),
    "quoted": f'"{"q" * 2000}"',
    "parts": [Text("first " * 200), Text("second " * 100), Image(bytes(range(200)))],
    "picture": Image(bytes(range(256)) * 20_000),
}
READS: dict[str, list[dict[str, Any]]] = {
    "rows": [
        {},
        {"offset": 3, "limit": 2},
        {"offset": 59},
        {"offset": 60},
        {"pointer": "/7"},
        {"pointer": "/7/name", "offset": 2, "limit": 3},
        {"pointer": "/8/tags"},
        {"pointer": "/60"},
        {"pointer": "/7/nothing"},
        {"search": "name 5"},
        {"search": "name 5", "offset": 9, "limit": 1},
        {"search": "name 5", "offset": 11},
        {"search": "nowhere"},
        {"search": "a", "pointer": "/5", "limit": 3},
        {"search": "a", "pointer": "/5/name"},
    ],
    "big items": [{}, {"offset": 1}, {"pointer": "/1", "offset": 890}],
    "object": [{"pointer": "/deep/text", "offset": 2}],
    "log": [{}, {"offset": 2500}, {"pointer": "/0"}, {"search": "status 500"}, {"search": "", "limit": 1}],
    "picture": [{}, {"offset": 5_119_999}, {"limit": 4}, {"search": "x"}],
}


async def words() -> str:
    """The previews and the answers, each after what was asked."""
    written = ""
    for name, value in RESULTS.items():
        for limit in (1000, 1500):
            async with Workbench([giving(value)], max_result_chars=limit) as bench:
                result = await bench.call("give")
                handle = result.metadata.get("handle", "none")
                written += f"\n=== {name}, at most {limit} characters\n\n{result.text.replace(handle, 'HANDLE')}\n"
                for request in READS.get(name, ()) if limit == 1000 else ():
                    answer = await bench.call("read_result", {"handle": handle, **request})
                    assert len(answer.text) <= limit
                    written += f"\n--- {name} {json.dumps(request)}\n\n{answer.text.replace(handle, 'HANDLE')}\n"
    return written


async def test_what_a_model_sees_of_large_results() -> None:
    assert await words() == WORDS.read_text()


if __name__ == "__main__":
    import asyncio

    WORDS.write_text(asyncio.run(words()))
