"""What a recorder sees, and what becomes of a call where the recorder hangs or raises."""

import asyncio
import json
import logging
from typing import Any, Literal

import pytest

from toolcrib import Call, Workbench, tool
from toolcrib.core import CallRecord, Recorder
from toolcrib.record import CallLog
from toolcrib.workbench import Limit

from ..held import held, seconds_of


@tool
async def add(a: int, b: int) -> int:
    return a + b


@tool
async def wait() -> None:
    await asyncio.Event().wait()


class Seen(Recorder):
    with_content = True

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str | None]] = []
        self.records: list[CallRecord] = []

    async def started(self, record: CallRecord, /) -> None:
        self.events.append(("started", record.call_id, None))

    async def finished(self, record: CallRecord, /) -> None:
        self.events.append(("finished", record.call_id, record.code))
        self.records.append(record)


async def test_a_call_whose_caller_gives_up_is_finished_as_cancelled() -> None:
    seen = Seen()
    async with Workbench([wait], recorder=seen) as bench:
        task = asyncio.create_task(bench.call(Call("wait", id="c1")))
        while not seen.events:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen.events == [("started", "c1", None), ("finished", "c1", "cancelled")]


@pytest.mark.parametrize("error", [OSError("postgres://u:s3cret-key@db is down"), asyncio.CancelledError()])
async def test_what_a_recorder_raises_is_logged_without_secrets_and_the_call_goes_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Recorder):
        async def started(self, record: CallRecord, /) -> None:
            raise error

        async def finished(self, record: CallRecord, /) -> None:
            raise error

    async with Workbench([add], recorder=Broken(), secrets=["s3cret-key"]) as bench:
        result = await bench.call(add, a=1, b=2)
    assert result.value == 3
    assert "s3cret-key" not in caplog.text
    assert "The start of a call of 'add' could not be recorded" in caplog.text
    assert "A call of 'add' could not be recorded" in caplog.text


@pytest.mark.parametrize("arguments", [[1, 2], 7, {(1, 2): 3}, {"a": "\ud800"}])
async def test_a_call_with_arguments_that_are_not_json_is_recorded(arguments: Any) -> None:
    seen = Seen()
    async with Workbench([add], recorder=seen) as bench:
        result = await bench.call(Call("add", arguments, id="c1"))
    assert result.error is not None
    assert seen.events == [("finished", "c1", "invalid_arguments")]


async def test_the_name_of_an_unknown_tool_is_redacted_and_bounded_in_a_record() -> None:
    seen = Seen()
    async with Workbench([add], recorder=seen, secrets=["s3cret-key"]) as bench:
        await bench.call("s3cret-key" + "x" * 100_000)
    assert "s3cret-key" not in seen.records[0].tool
    assert len(seen.records[0].tool) == 201


@tool
async def fails() -> None:
    raise ValueError("refused for s3cret-key")


def _raises(*_: Any) -> str:
    raise RuntimeError("no words")


def _leaks(_error: Any, raised: BaseException, _call: Call) -> str:
    return str(raised)


async def test_error_message_that_raises_or_leaks_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for words in (_raises, _leaks):
            async with Workbench([fails], error_message=words, secrets=["s3cret-key"]) as bench:
                result = await bench.call("fails")
                assert result.error is not None
                assert "s3cret-key" not in result.text
    assert "no words" in caplog.text
    assert "s3cret-key" not in caplog.text


@pytest.mark.parametrize("secrets", [[], ["s3cret-key"]])
async def test_error_message_that_returns_no_text_leaves_the_message_as_it_is(secrets: list[str]) -> None:
    words: Any = lambda *_: None  # noqa: E731
    async with Workbench([fails], error_message=words, secrets=secrets) as bench:
        result = await bench.call("fails")
    assert result.error is not None
    assert result.text.startswith("Tool 'fails' failed: ValueError")


async def test_a_check_gives_the_error_that_a_call_would_give() -> None:
    def words(error: Any, _raised: BaseException, _call: Call) -> str:
        return f"In other words: {error.message}"

    async def pick(k: Literal["x"]) -> str:
        return k

    async with Workbench([pick], error_message=words, secrets=["s3cret-key"]) as bench:
        for arguments in ({"k": "s3cret-key"}, {"s3cret-key": 1}, "{s3cret-key", ["x"]):
            checked, called = await bench.check(Call("pick", arguments)), await bench.call(Call("pick", arguments))  # type: ignore[arg-type]
            assert checked.error == called.error or checked.text == called.text
            assert "s3cret-key" not in checked.text
            assert checked.text.startswith("In other words")


@pytest.mark.parametrize("moment", ["started", "finished"])
async def test_giving_up_while_a_recorder_is_busy_is_giving_up_the_call(moment: str) -> None:
    busy, ran = asyncio.Event(), []

    class Slow(Recorder):
        async def started(self, record: CallRecord) -> None:
            await self._wait("started")

        async def finished(self, record: CallRecord) -> None:
            await self._wait("finished")

        async def _wait(self, now: str) -> None:
            if now == moment and not busy.is_set():
                busy.set()
                await asyncio.Event().wait()

    async def work() -> None:
        ran.append(1)

    call = asyncio.create_task(Workbench([work], recorder=Slow()).call("work"))
    await busy.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ran == ([] if moment == "started" else [1])


@pytest.mark.parametrize("with_content", [True, False])
async def test_a_recorder_that_awaits_sees_the_start_and_the_end_with_content_where_it_asks_for_it(
    with_content: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    class Awaiting(Recorder):
        async def started(self, record: CallRecord, /) -> None:
            await asyncio.sleep(0)
            seen.append((record.status, record.arguments, record.result))

        async def finished(self, record: CallRecord, /) -> None:
            await self.started(record)

    recorder = Awaiting()
    recorder.with_content = with_content
    async with Workbench([add], recorder=recorder) as bench:
        await bench.call("add", {"a": 1, "b": 2})
        await bench.call("add", '{"a": 1, "b": ' + "2" * 20_000 + "}")
    if with_content:
        text = '{"a": 1, "b": ' + "2" * 9_986 + "…"
        assert seen[:2] == [("started", '{"a": 1, "b": 2}', None), ("success", '{"a": 1, "b": 2}', "3")]
        assert {arguments for _, arguments, _ in seen[2:]} == {text}
    else:
        assert {(arguments, result) for _, arguments, result in seen} == {(None, None)}
    assert caplog.messages == []


async def test_a_check_gives_the_arguments_as_the_tool_would_get_them() -> None:
    async with Workbench([add]) as bench:
        checked = await bench.check(Call("add", {"a": "1", "b": 2}, id="c1"))
        assert (checked.value, checked.content, checked.call_id, checked.tool) == ({"a": 1, "b": 2}, (), "c1", "add")
        assert [(repair.path, repair.from_kind, repair.to_kind) for repair in checked.repairs] == [
            ("/a", "string", "integer")
        ]


@pytest.mark.parametrize("text", ["ü", "\ud800"])
async def test_the_arguments_of_a_record_are_as_they_were_written(text: str) -> None:
    async def echo(text: str) -> str:
        return text

    seen = Seen()
    async with Workbench([echo], recorder=seen) as bench:
        await bench.call("echo", {"text": text})
    shown = text.encode(errors="replace").decode()
    assert seen.records[0].arguments == f'{{"text": "{shown}"}}'


CIRCULAR: dict[str, Any] = {}
CIRCULAR["text"] = CIRCULAR


@pytest.mark.parametrize(
    ("sent", "size"),
    [(None, 0), ({}, 0), ({"text": "ø"}, 14), ('{"text":"ø"}', 13), (b'{"text":"\xc3\xb8"}', 13), (CIRCULAR, None)],
    ids=["none", "empty", "object", "text", "bytes", "no JSON"],
)
async def test_arguments_are_measured_in_bytes_as_they_were_sent(sent: Any, size: int | None) -> None:
    log = CallLog()
    async with Workbench([add], recorder=log) as bench:
        await bench.call("add", sent)
    assert [*log][-1].arguments_bytes == size


async def test_long_arguments_are_measured_in_a_thread() -> None:
    """Providers and MCP clients send arguments as objects."""
    log = CallLog()
    arguments = {"rows": [{"a": number} for number in range(300_000)]}

    async def count(rows: Any) -> int:
        return len(rows)

    async with Workbench([count], recorder=log) as bench:
        await bench.call("count", {"rows": []})
        longest_s, result = await held(bench.call("count", arguments))
    assert (result.value, [*log][-1].arguments_bytes) == (300_000, len(json.dumps(arguments)))
    assert longest_s < seconds_of(lambda: json.dumps(arguments)) / 2


async def test_names_of_unknown_tools_above_a_limit_are_one_name() -> None:
    seen = Seen()
    async with Workbench([add], recorder=seen, limits=[Limit("*", rate="1/h", wait_s=0)]) as bench:
        for name in ("a", "b", "c"):
            await bench.call(name)
    assert [(record.tool, record.code) for record in seen.records] == [
        ("a", "unknown_tool"),
        ("tools/call", "limited"),
        ("tools/call", "limited"),
    ]
