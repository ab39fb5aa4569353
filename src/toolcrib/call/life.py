"""The life of one call, in the order in which it runs: check, approve, authorize, execute, normalize, record."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from time import time
from typing import Any

from ..core import Call, Caller, Policy, Recorder, Redaction, Result, Text, Tool, ToolError, ToolSpec
from .depends import Overrides, Provided
from .execute import execute
from .fail import told
from .normalize import normalize

_log = logging.getLogger("toolcrib")


@dataclass(slots=True, kw_only=True)
class Scene:
    """What all calls of a workbench have in common. `session` gives the values held on the running event loop."""

    session: Callable[[], Provided]
    caller: Caller = field(default_factory=Caller)
    repair: bool = True
    policy: Policy | None = None
    timeout_s: float | None = None
    redaction: Redaction | None = None
    recorder: Recorder | None = None
    overrides: Overrides = field(default_factory=dict[Callable[..., Any], Callable[..., Any]])
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    show_errors: bool = False


async def run(tool: Tool, call: Call, scene: Scene) -> Result[Any]:
    """Run *call* on *tool*. Whatever happens in the tool, there is a Result; only the caller's own giving up raises."""
    started = time()
    repairs: tuple[Any, ...] = ()
    try:
        arguments, repairs = tool.check(call.arguments, scene.repair)
        if scene.policy is not None:
            await _approve(scene.policy, tool.spec, arguments, scene.caller)
        if tool.spec.auth is not None:
            _authorize(tool.spec)
        value = await execute(tool, arguments, call, scene)
        content = normalize(tool, value, scene.redaction)
        result = Result(value, content, None, repairs, started, time(), call.id)
    except BaseException as raised:
        error = told(raised, tool.spec.name, show=scene.show_errors, redaction=scene.redaction)
        result = Result(None, (Text(error.message),), error, repairs, started, time(), call.id)
    if scene.recorder is not None:
        _record(scene.recorder, call, scene.caller, result)
    return result


def refuse(call: Call, error: ToolError, scene: Scene) -> Result[Any]:
    """The result of a call that was not begun."""
    now = time()
    result: Result[Any] = Result(None, (Text(error.message),), error, (), now, now, call.id)
    if scene.recorder is not None:
        _record(scene.recorder, call, scene.caller, result)
    return result


async def _approve(policy: Policy, spec: ToolSpec, arguments: Mapping[str, Any], caller: Caller) -> None:
    decision = policy(spec, arguments, caller)
    if isawaitable(decision):
        decision = await decision
    if decision != "allow":
        raise ToolError(f"Tool '{spec.name}' may not be used here in this way: a policy denies it.", "denied")


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
