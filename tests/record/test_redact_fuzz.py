"""Random secrets in random encodings, at random places, cut at random: none is seen, and cuts change nothing."""

import json
import random
import time
from typing import Any

import pytest

from toolcrib import Context, File, ToolError, Workbench, tool
from toolcrib.core import Data, Emitted
from toolcrib.record import CallLog, Redactor

from .. import fuzz
from .encodings import ENCODINGS, MARK, some_secrets


@pytest.mark.nightly
async def test_random_secrets_are_seen_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    seed = fuzz.seed(8)
    rnd = random.Random(seed)
    given: list[str] = []

    @tool
    async def leak(ctx: Context, how: str, of: dict[str, Any] | None = None) -> Any:
        text = given[0]
        match how:
            case "text":
                return text
            case "data":
                return {text: [text, {"in": text}], "number": int("".join(filter(str.isdigit, text)) or 0)}
            case "json":
                return Data(json.dumps({"a": {text: 1}, "b": [text]}))
            case "file":
                return File(b"", "text/plain", text)
            case "error":
                raise ToolError(text, details={text: text, "pair": {(text, 1): [text]}})
            case "exception":
                raise ValueError(text)
            case "cause":
                raise RuntimeError from KeyError(text)
            case "group":
                raise ExceptionGroup(text, [OSError(text), ToolError(text)])
            case "emit":
                for at in range(0, len(text), 3):
                    await ctx.emit(text[at : at + 3])
                await ctx.emit({"in": text})
                await ctx.emit(Emitted((Data(json.dumps([text])),)))
                ctx.progress(1, message=text)
            case _:
                return await ctx.ask(text, str, text)
        return None

    ways = ["text", "data", "json", "file", "error", "exception", "cause", "group", "emit", "ask", text_tool := "tool"]
    for _ in range(fuzz.cases(5000)):
        secrets = [each for each in some_secrets(rnd) if may_be_sought(each)] or ["hunter2 hunter2"]
        secret, how = rnd.choice(secrets), rnd.choice(ways)
        # What looks like an escape in the encodings of others is a way of its own; here the place is what matters.
        name = rnd.choice(("as it is", "quote", "JSON", "hex", "html.escape", "encodeURIComponent"))
        given[:] = [ENCODINGS[name](secret, rnd)]
        caplog.clear()
        log = CallLog(with_content=True)
        async with Workbench([leak], secrets=secrets, recorder=log, show_errors=True) as bench:
            called, arguments = ("leak", {"how": how, "of": {given[0]: "x"}}) if how != text_tool else (given[0], None)
            events = [event async for event in bench.stream(called, arguments)]
        result = events[-1]
        emitted = "".join(part.text for event in events if isinstance(event, Emitted) for part in event.content)
        shown: dict[str, Any] = {
            "text": result.text,
            "result": result.to_dict(),
            "repr": repr(result),
            "events": [repr(event) for event in events],
            "emitted": emitted,
            "records": [str(each) for each in log],
            "log": [line for each in caplog.records for line in (each.getMessage(), each.exc_text or "")],
        }
        if how in ("data", "json") and result.error is None:
            json.loads(result.text)
        for place, value in shown.items():
            for text in strings(value):
                assert given[0] not in text, (seed, how, name, secrets, given, place, text)
                assert secret not in text, (seed, how, name, secrets, given, place, text)


def may_be_sought(secret: str) -> bool:
    """Whether *secret* is in no time, id or mark."""
    by_chance = secret.isdecimal() or set(secret) <= set("0123456789abcdef")
    return not any(character in MARK for character in secret) and not (by_chance and len(secret) < 10)


def strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in value.items() for each in item for text in strings(each)]
        case list():
            return [text for each in value for text in strings(each)]
        case _:
            return [str(value)]


@pytest.mark.nightly
def test_hostile_text_takes_linear_time() -> None:
    redactor = Redactor(["a" * 200, "%41%42", "\\\\\\\\", "&amp;&amp;", "abab" * 20])
    for unit in ("a", "ab", "%41", "%25", "\\\\", "\\u005c", "&amp;", "&#38;", "&", "~0", "YWFh", "\n", "&a", "%", '"'):
        text = unit * (2**18 // len(unit))
        began = time.process_time()  # that of the processor, whatever else runs on it
        redactor.redact(text)
        tail = ""
        for at in range(0, 2**14, 64):
            tail, _ = redactor.split(tail + text[at : at + 64])
        assert time.process_time() - began < 20, unit
