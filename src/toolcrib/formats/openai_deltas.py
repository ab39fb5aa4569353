"""Merges the deltas of a streamed Chat Completion into one message.

OpenAI sends one index for each call, with id and name in its first delta only. Servers that imitate it break each part
of that rule, so one function decides which call a delta belongs to: `_call_for`.
"""

import json
from collections.abc import Mapping
from typing import Any

from . import reading
from .openai_parts import LeadingThoughts

_WHERE = "OpenAI's chunk (choices[0].delta)"


class MessageDeltas:
    """A message, as far as it has been streamed."""

    def __init__(self) -> None:
        self._thoughts = LeadingThoughts()
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []

    def add(self, delta: Mapping[str, Any]) -> str:
        """The text that *delta* adds, without thoughts. Raises ValueError where it is malformed."""
        for number, delta_call in enumerate(reading.object_list(delta, "tool_calls", _WHERE)):
            self._add_to_call(delta_call, f"{_WHERE}.tool_calls[{number}]")
        _merge(self._message, {name: value for name, value in delta.items() if name not in ("tool_calls", "role")})
        content = delta.get("content")
        refusal = delta.get("refusal")
        if isinstance(content, list):
            parts = reading.object_list(delta, "content", _WHERE)
            texts = [part for part in parts if part.get("type") == "text"]
            content = "".join(reading.optional(part, "text", str, _WHERE) or "" for part in texts)
        if isinstance(content, str) and content:
            return self._thoughts.add(content)
        return refusal if isinstance(refusal, str) else ""

    def end(self) -> str:
        """The text that was held back, as it could have been the beginning of a thought."""
        return self._thoughts.end()

    def message(self) -> dict[str, Any]:
        """The message, as a whole answer has it."""
        calls = [{name: value for name, value in call.items() if name != "index"} for call in self._calls]
        return {**self._message, **({"tool_calls": calls} if calls else {})}

    def _add_to_call(self, delta_call: Mapping[str, Any], where: str) -> None:
        function = reading.optional(delta_call, "function", dict, where) or {}
        call = self._call_for(delta_call, function) or self._new_call(delta_call)
        # The first id counts: some servers make a new one for each delta.
        _merge(call, {n: v for n, v in delta_call.items() if n not in ("function", "index", "id", "type")})
        for once in ("id", "type"):
            call[once] = call.get(once) or reading.optional(delta_call, once, str, where)
        whole: dict[str, Any] = call["function"]
        name = reading.optional(function, "name", str, where) or ""
        if name != whole.get("name"):  # some servers repeat it
            whole["name"] = whole.get("name", "") + name
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            whole["arguments"] = json.dumps(reading.json_data(arguments, where))
        else:
            piece = reading.optional(function, "arguments", str, where) or ""
            reading.append_text(whole, "arguments", piece)
        _merge(whole, {n: v for n, v in function.items() if n not in ("name", "arguments")})

    def _new_call(self, delta_call: Mapping[str, Any]) -> dict[str, Any]:
        self._calls.append({"index": delta_call.get("index"), "function": {}})
        return self._calls[-1]

    def _call_for(self, delta_call: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any] | None:
        """The call that *delta_call* continues; None where it begins a new one."""
        index, call_id = delta_call.get("index"), delta_call.get("id")
        if index is None:
            if call_id:
                return next((call for call in self._calls if call.get("id") == call_id), None)
            # Without index and id, a delta with a name begins a call.
            return None if function.get("name") or not self._calls else self._calls[-1]
        call = next((call for call in reversed(self._calls) if call["index"] == index), None)
        is_new = call and function.get("name") and call_id and call.get("id") not in (None, "", call_id)
        if call and is_new and _is_whole(call["function"].get("arguments", "")):
            return None  # all calls under one index, each in one delta
        return call


def _is_whole(arguments: str | reading.Pieces) -> bool:
    last = (arguments.pieces[-1] if isinstance(arguments, reading.Pieces) else arguments).rstrip()
    try:
        # The last piece alone decides nearly always, however many there are.
        return last[-1:] in ("", "}") and isinstance(json.loads(str(arguments)), dict)
    except (ValueError, RecursionError):
        return False


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Append text and lists, set anything else. This merges thoughts too, under whichever name a server has."""
    for name, value in delta.items():
        current = message.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            if not isinstance(current, list):
                reading.append_text(message, name, value)
            elif value:
                current.append({"type": "text", "text": value})
        elif isinstance(value, list):
            if not isinstance(current, list):
                text = str(current) if isinstance(current, reading.Pieces) else ""
                message[name] = current = [{"type": "text", "text": text}] if text else []
            current.extend(value)
        else:
            message[name] = value
