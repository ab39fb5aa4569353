"""Conversion between Spark's messages and the turns, calls and specs of Toolcrib. Pure functions.

A message is `{"role": ..., "content": [block, ...]}`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ....core import Call, Hints, Result, ToolSpec
from ....formats import Choice, Reply, Results, Stop, Turn, User, bedrock
from ..tools._core_tool import arguments_of, as_blocks, as_json, blocks_from, readable_blocks, schema_in, text_of
from ..tools.types import ToolSpec as SparkSpec

_STOP_REASONS: Mapping[Stop, str] = {"calls": "tool_use", "length": "max_tokens", "refused": "content_filtered"}


def to_message(value: Any) -> dict[str, Any]:
    """Return *value*, a message in any form or its content, as a role and a list of blocks."""
    if not isinstance(value, Mapping):
        return {"role": "user", "content": as_blocks(value)}
    role = value.get("role")
    content = value["content"] if "content" in value or role is not None else dict(value)
    return {"role": role if role in ("assistant", "system") else "user", "content": as_blocks(content)}


def turns_from(messages: Iterable[Any]) -> tuple[str, list[Turn]]:
    """Return the text of the system messages in *messages*, and the turns of the others.

    Providers refuse a call without a result and a result without a call, so a conversation that lost one of them is
    completed. Raises ValueError for a call or a result that is malformed.
    """
    system: list[str] = []
    conversation: list[dict[str, Any]] = []
    for message in map(to_message, messages):
        if message["role"] == "system":
            system.append(text_of(message["content"]))
        elif blocks := readable_blocks(message["content"]):
            conversation.append({**message, "content": blocks})
    return "\n\n".join(filter(None, system)), list(bedrock.read_conversation(conversation, repair=True).turns)


def messages_from(turns: Iterable[Turn]) -> list[dict[str, Any]]:
    """Return *turns* as messages. The results of tools are text, JSON text for structured values."""
    return [_message(turn) for turn in turns]


def reply_from(answer: Mapping[str, Any]) -> Reply:
    """Return the Reply for the *answer* of a Spark model. Arguments that are text stay, for the call to check."""
    calls = tuple(map(_call, answer.get("tool_calls") or ()))
    reason = answer.get("stop_reason")
    stop = bedrock.STOPS.get(str(reason), "other") if reason else "end"
    if calls or stop == "calls":
        stop = "calls" if calls else "end"
    return Reply(text_of(answer.get("content")), calls, stop)


def answer_from(reply: Reply) -> dict[str, Any]:
    """Return *reply* as the answer of a Spark model."""
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": reply.text,
        "stop_reason": _STOP_REASONS.get(reply.stop, "end_turn"),
        "raw": reply.native,
    }
    if reply.calls:
        answer["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments_of(call)}}
            for call in reply.calls
        ]
    return answer


def to_spark_spec(spec: ToolSpec) -> SparkSpec:
    """Return *spec* in Spark's form."""
    spark_spec: SparkSpec = {
        "name": spec.name,
        "description": spec.description,
        "parameters": {"json": dict(spec.input_schema)},
    }
    if spec.output_schema is not None:
        spark_spec["response_schema"] = dict(spec.output_schema)
    if spec.hints.long_running:
        spark_spec["x_spark"] = {"long_running": True}
    return spark_spec


def to_core_spec(spec: Mapping[str, Any]) -> ToolSpec:
    """Return Spark's *spec* in Toolcrib's form."""
    schema = schema_in(spec.get("parameters") or {}) or {"type": "object"}
    hints = Hints(long_running=(spec.get("x_spark") or {}).get("long_running"))
    return ToolSpec(spec["name"], spec.get("description", ""), schema, hints=hints)


def to_spark_choice(choice: Choice) -> dict[str, Any] | None:
    """Return *choice* as Spark's dictionary; None for "none", which Spark cannot express."""
    if choice == "none":
        return None
    return {choice: {}} if choice in ("auto", "any") else {"tool": {"name": choice}}


def to_core_choice(choice: Any) -> Choice:
    """Return Spark's *choice*, text or a dictionary, as Toolcrib's. Raises ValueError for an invalid one."""
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


def _message(turn: Turn) -> dict[str, Any]:
    blocks: list[dict[str, Any]]
    match turn:
        case User(content):
            blocks = blocks_from(content)
        case Reply(text, calls):
            blocks = [{"text": text}] if text else []
            blocks += [
                {"toolUse": {"toolUseId": call.id, "name": call.tool, "input": arguments_of(call)}} for call in calls
            ]
        case Results(results):
            blocks = [{"toolResult": _tool_result(result)} for result in results]
    return {"role": "assistant" if isinstance(turn, Reply) else "user", "content": blocks}


def _tool_result(result: Result[Any]) -> dict[str, Any]:
    status = "error" if result.error is not None else "success"
    return {"toolUseId": result.call_id, "content": blocks_from(result.content), "status": status}


def _call(tool_call: Any) -> Call:
    function = tool_call.get("function") if isinstance(tool_call, Mapping) else None
    if not isinstance(function, Mapping):
        return Call("", as_json(tool_call), "")
    return Call(str(function.get("name") or ""), _arguments(function.get("arguments")), str(tool_call.get("id") or ""))


def _arguments(value: Any) -> str | Mapping[str, Any] | None:
    return value if value is None or isinstance(value, str | Mapping) else as_json(value)
