"""What a run of an agent shows where nobody sits at a terminal: lines for people, and lines of JSON for programs."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toolcrib import Call, Image, Pending, Result, Text
from toolcrib.agent import CallEvent, CallFinished, CallStarted, ModelError, Outcome, RunEvent
from toolcrib.cli.terminal import Output
from toolcrib.cli.transcript import ChatTranscript
from toolcrib.core import Emitted, Progress, Repair
from toolcrib.formats import TextDelta, Usage
from toolcrib.record import Redactor

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITS = Pending("pending_1", "approval", "Is 'hush-hush' fine?", "d", "wipe", "local", "t", NOW)


def text_transcript() -> ChatTranscript:
    return ChatTranscript(Output(), Redactor(["hush-hush"]), is_over=lambda: False)


def ended(text: str, took_s: float = 1.234, **more: Any) -> Result[Any]:
    return Result(None, (Text(text),), started_at=NOW, finished_at=NOW + timedelta(seconds=took_s), **more)


def lines_of(*events: RunEvent, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """What these *events* put on standard output, and the lines of standard error."""
    transcript = text_transcript()
    for event in events:
        transcript.show(event)
    shown = capsys.readouterr()
    return shown.out, shown.err.splitlines()


def test_words_are_written_as_they_come_and_a_call_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    call = Call("look", '{"at": "hush-hush"}', id="1")
    out, err = lines_of(
        TextDelta("I look at hush"),
        TextDelta("-hush. \x1b[31m"),
        CallStarted(call),
        CallEvent(call, Progress(1, 2, "half")),
        CallEvent(call, Emitted((Text("one"), Image(b"PNG")))),
        CallFinished(call, ended("found\nhush-hush", repairs=(Repair("/at", "integer", "string"),))),
        TextDelta("Done.\r"),
        TextDelta("\n"),
        CallStarted(Call("next", None, id="2")),
        TextDelta("Unfinished"),
        CallStarted(Call("other", {"a": "é"}, id="3")),
        CallFinished(Call("other", {"a": "é"}, id="3"), ended("")),
        CallFinished(Call("next", b"{}", id="2"), ended("", -1)),
        capsys=capsys,
    )
    assert out == "I look at [secret]. \x1b[31m\nDone.\r\nUnfinished\n"
    assert err == [
        "[look] one",
        "[look] [image: image/png, 3 bytes]",
        '[look {"at": "[secret]"}] found … (1.23 s, 1 repaired)',
        '[other {"a": "é"}]  (1.23 s)',
        "[next]  (0.00 s)",
    ]


def test_what_comes_while_a_person_is_asked_is_shown_after_their_answer(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = text_transcript()
    call = Call("look", None, id="1")
    with transcript.held():
        transcript.show(CallStarted(call))
        assert transcript.holds(lambda: print("A line of the log."))
        transcript.show(CallFinished(call, ended("found")))
        transcript.show_event(Progress(1, 2, "half"))
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", "")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("A line of the log.\n", "[look] found (1.23 s)\n")
    assert not transcript.holds(print)


def test_a_program_gets_each_event_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    transcript = ChatTranscript(Output(), Redactor(["hush-hush"]), as_json=True, is_over=lambda: False)
    call = Call("hush-hush", {"a": ["hush-hush", 1]}, id="1")
    transcript.show(TextDelta("Half a hush"))
    transcript.show(CallStarted(call))
    transcript.show(CallEvent(call, Progress(1)))
    transcript.show(CallEvent(call, Emitted((Text("one"),))))
    transcript.show(TextDelta(""))
    transcript.show(TextDelta("hush"))
    pending = {name: value for name, value in WAITS.to_dict().items() if name != "message"}
    transcript.end(Outcome("pending", "hush-hush", "waits", pendings=(WAITS,), usage=Usage(1, 2)), Usage(3, 4))
    transcript.show(TextDelta("hush"))
    transcript.fail(ModelError("No hush-hush.", "limited", retry_after_s=1.5), Usage(3, 4))
    names = {"call_id": "1", "tool": "[secret]"}
    total = Usage(3, 4).to_dict()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"event": "words", "text": "Half a "},
        {"event": "words", "text": "hush"},
        {"event": "call", **names, "arguments": '{"a": ["[secret]", 1]}'},
        {"event": "progress", **names, "done": 1},
        {"event": "emitted", **names, "content": [{"type": "text", "text": "one"}]},
        {"event": "words", "text": "hush"},
        {
            "event": "turn",
            "status": "pending",
            "text": "[secret]",
            "why": "waits",
            "pendings": [{**pending, "message": "Is '[secret]' fine?"}],
            "usage": Usage(1, 2).to_dict(),
            "total": total,
        },
        {"event": "words", "text": "hush"},
        {"event": "error", "problem": "limited", "message": "No [secret].", "retry_after_s": 1.5, "total": total},
    ]
