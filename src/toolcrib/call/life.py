"""The life of one call, in the order in which it runs: check, approve, authorize, execute, normalize, record."""

import logging
from dataclasses import replace
from time import time
from typing import Any

from ..core import (
    Call,
    Caller,
    Data,
    Decided,
    Pending,
    Recorder,
    Repair,
    Result,
    Shelf,
    Text,
    Tool,
    ToolError,
    ToolSpec,
)
from .approve import approve, decide, recorded
from .execute import execute
from .fail import told
from .feed import Feed
from .inside import retried
from .normalize import normalize
from .scene import Scene
from .waiting import Asking, in_words, waits_for

_log = logging.getLogger("toolcrib")


async def run(tool: Tool, call: Call, scene: Scene, feed: Feed | None = None) -> Result[Any]:
    """Run *call* on *tool*. Whatever happens in the tool, there is a Result; only the caller's own giving up raises."""
    started = time()
    made = call
    repairs: tuple[Any, ...] = ()
    followed: tuple[Any, ...] = ()
    decided: Decided | None = None
    asking: Asking | None = None
    tried: list[dict[str, Any]] | None = None
    try:
        if (shelf := scene.shelf) is not None and (tool.handles is not None or shelf.issued):
            call, followed = await _followed(shelf, tool, call, scene.repair)
        arguments, repairs = tool.check(call.arguments, scene.repair)
        if followed:
            repairs = followed + repairs
        if scene.policy is not None:
            decided = await decide(scene.policy, tool.spec, arguments, scene.caller, scene.redaction)
            if decided.do != "allow":
                asking = scene.asking(tool, call)
                decided = await approve(decided, tool.spec.name, asking)
        if tool.spec.auth is not None:
            _authorize(tool.spec)
        if tool.retries is None and scene.retries is None:
            value = await execute(tool, arguments, call, scene, feed)
        else:
            value = await retried(tool, arguments, call, replace(scene, asked=[]), feed, tried := [])
        content = normalize(tool, value, scene.redaction)
        if type(value) is Result:
            value = value.value  # it said how to show it
        result = Result(value, content, None, repairs, started, time(), call.id, call.tool)
        if shelf is not None:
            part = content[0] if len(content) == 1 else None
            shown = part.json if type(part) is Data else part.text if type(part) is Text else None
            if shown is None or len(shown) > shelf.limit_chars:
                await shelf.bound(result, tool.spec.name)
    except BaseException as raised:
        pending = waits_for(raised)
        if pending is None:
            error = told(raised, tool.spec.name, show=scene.show_errors, redaction=scene.redaction)
            if scene.shelf is not None:
                error = scene.shelf.shorten(error)
            result = Result(None, (Text(error.message),), error, repairs, started, time(), call.id, call.tool)
        else:
            words = await _suspend(tool.spec.name, pending, asking)
            result = Result(None, (Text(words),), None, repairs, started, time(), call.id, call.tool, pending)
    if decided is not None:
        result.metadata["decision"] = recorded(decided, result.error)
    if tried:
        result.metadata["retries"] = tried
    if scene.recorder is not None:
        _record(scene.recorder, made, scene.caller, result)
    return result


def refuse(call: Call, error: ToolError, scene: Scene) -> Result[Any]:
    """The result of a call that was not begun."""
    now = time()
    result: Result[Any] = Result(None, (Text(error.message),), error, (), now, now, call.id, call.tool)
    if scene.recorder is not None:
        _record(scene.recorder, call, scene.caller, result)
    return result


async def _followed(shelf: Shelf, tool: Tool, call: Call, repair: bool) -> tuple[Call, tuple[Repair, ...]]:
    """*call* with the values that the handles in it stand for: so everybody who looks at it sees what will run."""
    given, repairs = await shelf.follow(tool, call.arguments, repair)
    return call if given is call.arguments else replace(call, arguments=given), repairs


async def _suspend(tool: str, pending: Pending, asking: Asking | None) -> str:
    """What is told of a call that waits. Its approval is kept for when it is made again."""
    if asking is not None:
        try:
            await asking.give_back()
        except Exception:
            _log.exception("The approval of a call of '%s' could not be kept; it will be asked for again", tool)
    return in_words(tool, pending)


def _authorize(spec: ToolSpec) -> None:
    assert spec.auth is not None
    raise ToolError(
        f"Tool '{spec.name}' needs credentials of '{spec.auth.provider}', and nobody here can provide them.",
        "unauthorized",
    )


def _record(recorder: Recorder, call: Call, caller: Caller, result: Result[Any]) -> None:
    try:
        recorder.record(call, caller, result)
    except Exception:
        _log.exception("A call of '%s' could not be recorded", call.tool)
