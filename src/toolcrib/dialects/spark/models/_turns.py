"""Spark's messages and our turns, in both directions. Pure functions.

A message is `{"role": ..., "content": [block, ...]}`. What history has lost is made good here: every call has its
result, and a result whose call is gone is told in words, since providers refuse anything else.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....core import Call, Hints, Result, Text, ToolError, ToolSpec
from ....formats import Choice, Reply, Results, Stop, Turn, User
from ..tools import _content
from ..tools.types import ToolSpec as SparkSpec

_STOPS: Mapping[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "content_filtered": "refused",
    "guardrail_intervened": "refused",
}
_REASONS: Mapping[Stop, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refused": "content_filtered",
    "other": "end_turn",
}


def message_of(message: Any) -> dict[str, Any]:
    """*message*, in whichever form it was written, as a role and a list of blocks."""
    if not isinstance(message, Mapping):
        return {"role": "user", "content": _content.blocks_of(message)}
    role = message.get("role")
    content = message["content"] if "content" in message or role is not None else dict(message)
    return {
        "role": role if role in ("user", "assistant", "system") else "user",
        "content": _content.blocks_of(content),
    }


def turns_of(messages: Iterable[Any]) -> tuple[str, list[Turn]]:
    """*messages* as turns; and what the system says in them, which has no place among turns."""
    system: list[str] = []
    turns: list[Turn] = []
    waiting: tuple[Call, ...] = ()
    for message in map(message_of, messages):
        blocks = message["content"]
        if message["role"] == "system":
            system.append(_content.words_of(blocks))
            continue
        if message["role"] == "assistant":
            turns += _closed(waiting)
            reply = _reply(blocks)
            waiting = reply.calls
            if reply.text or reply.calls:
                turns.append(reply)
            continue
        told = {str(block["toolResult"].get("toolUseId")): block["toolResult"] for block in blocks if _tells(block)}
        if waiting:
            turns.append(Results(tuple(_result(call, told.pop(call.id, None)) for call in waiting)))
            waiting = ()
        late = tuple(Text(f"A tool's result: {_content.words_of(each.get('content'))}") for each in told.values())
        if said := late + _content.parts_of(block for block in blocks if not _tells(block)):
            turns.append(User(said))
    return "\n\n".join(filter(None, system)), [*turns, *_closed(waiting)]


def messages_of(turns: Iterable[Turn]) -> list[dict[str, Any]]:
    """*turns* as messages."""
    made: list[dict[str, Any]] = []
    for turn in turns:
        match turn:
            case User(content):
                made.append({"role": "user", "content": _content.blocks_from(content)})
            case Reply(text, calls):
                uses = [{"toolUse": {"toolUseId": c.id, "name": c.tool, "input": arguments_of(c)}} for c in calls]
                made.append({"role": "assistant", "content": [*([{"text": text}] if text else []), *uses]})
            case Results(results):
                made.append({"role": "user", "content": [{"toolResult": _told(result)} for result in results]})
    return made


def arguments_of(call: Call) -> Any:
    """The arguments of *call* as JSON values; as they are written where they are none."""
    given = call.arguments
    if isinstance(given, bytes):
        given = given.decode(errors="replace")
    if isinstance(given, str):
        try:
            return json.loads(given) if given.strip() else {}
        except ValueError:
            return given
    return {} if given is None else dict(given)


def reply_of(said: Mapping[str, Any]) -> Reply:
    """What a Spark model said. Arguments that are text stay as they are written: what is wrong in them is told."""
    calls = [_call(asked) for asked in said.get("tool_calls") or ()]
    stop = _STOPS.get(str(said.get("stop_reason")), "other" if said.get("stop_reason") else "end")
    if calls:
        stop = "calls"
    elif stop == "calls":
        stop = "end"
    return Reply(_content.words_of(said.get("content")), tuple(calls), stop)


def completion_of(reply: Reply) -> dict[str, Any]:
    """*reply* as a Spark model gives it."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.tool,
                "arguments": call.arguments if isinstance(call.arguments, str) else json.dumps(arguments_of(call)),
            },
        }
        for call in reply.calls
    ]
    said = {"role": "assistant", "content": reply.text, "stop_reason": _REASONS[reply.stop], "raw": reply.native}
    return {**said, **({"tool_calls": calls} if calls else {})}


def spec_of(spec: ToolSpec) -> SparkSpec:
    """Our spec in Spark's form."""
    made: SparkSpec = {
        "name": spec.name,
        "description": spec.description,
        "parameters": {"json": dict(spec.input_schema)},
    }
    if spec.output_schema is not None:
        made["response_schema"] = dict(spec.output_schema)
    if spec.hints.long_running:
        made["x_spark"] = {"long_running": True}
    return made


def our_spec(spec: Mapping[str, Any]) -> ToolSpec:
    """Spark's spec in our form."""
    parameters = spec.get("parameters") or {}
    schema = parameters["json"] if isinstance(parameters.get("json"), Mapping) else parameters
    hints = Hints(long_running=(spec.get("x_spark") or {}).get("long_running"))
    return ToolSpec(spec["name"], spec.get("description", ""), schema or {"type": "object"}, hints=hints)


def choice_of(choice: Choice) -> dict[str, Any] | None:
    """Our choice as Spark's dictionary; it has none for "none"."""
    match choice:
        case "none":
            return None
        case "auto" | "any":
            return {choice: {}}
        case name:
            return {"tool": {"name": name}}


def our_choice(choice: Any) -> Choice:
    """Spark's choice, text or a dictionary, as ours. Raises ValueError for what is none."""
    match choice:
        case None:
            return "auto"
        case str() if choice:
            return choice
        case {"auto": Mapping() | None, **rest} if not rest:
            return "auto"
        case {"any": Mapping() | None, **rest} if not rest:
            return "any"
        case {"tool": {"name": str(name)}, **rest} if name and not rest:
            return name
        case _:
            raise ValueError(
                'tool_choice is "auto", "any", "none" or the name of a tool; or {"auto": {}}, {"any": {}} or '
                '{"tool": {"name": ...}}.'
            )


def _reply(blocks: Iterable[Mapping[str, Any]]) -> Reply:
    calls = [
        Call(str(use.get("name", "")), _arguments(use.get("input")), str(use.get("toolUseId", "")))
        for block in blocks
        if isinstance(use := block.get("toolUse"), Mapping)
    ]
    return Reply(_content.words_of(list(blocks)), tuple(calls), "calls" if calls else "end")


def _call(asked: Any) -> Call:
    function = asked.get("function") if isinstance(asked, Mapping) else None
    if not isinstance(function, Mapping):
        return Call("", _content.as_json(asked), "")
    return Call(str(function.get("name") or ""), _arguments(function.get("arguments")), str(asked.get("id") or ""))


def _arguments(given: Any) -> str | Mapping[str, Any] | None:
    return given if given is None or isinstance(given, str | Mapping) else _content.as_json(given)


def _result(call: Call, told: Mapping[str, Any] | None) -> Result[Any]:
    if told is None:
        error = ToolError("What became of this call is not known.", "lost")
        return Result(None, (Text(error.message),), error, call_id=call.id, tool=call.tool)
    content = _content.parts_of(_content.blocks_of(told.get("content")))
    failed = told.get("status") == "error"
    told_error = ToolError(_content.words_of(told.get("content")) or "The tool failed.") if failed else None
    return Result(None, content or (Text(""),), told_error, call_id=call.id, tool=call.tool)


def _closed(waiting: Sequence[Call]) -> list[Turn]:
    return [Results(tuple(_result(call, None) for call in waiting))] if waiting else []


def _told(result: Result[Any]) -> dict[str, Any]:
    status = "error" if result.error is not None else "success"
    return {"toolUseId": result.call_id, "content": _content.blocks_from(result.content), "status": status}


def _tells(block: Mapping[str, Any]) -> bool:
    return isinstance(block.get("toolResult"), Mapping)


def without_calls(reply: Reply) -> Reply:
    """*reply* as if it had asked for nothing."""
    return replace(reply, calls=(), stop="other", native=None)
