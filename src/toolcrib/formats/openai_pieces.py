"""The deltas of a streamed Chat Completion, put together to one message.

OpenAI's own rule is one index a call, with id and name in its first piece only. Servers that speak its format break
each part of that, so which call a piece belongs to is decided in one place, `_belongs`.
"""

import json
from collections.abc import Mapping
from typing import Any

from . import answers

_WHERE = "OpenAI's chunk (choices[0].delta)"


class Pieces:
    """A message as far as it has come."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []

    def add(self, delta: Mapping[str, Any]) -> str:
        """The words that *delta* adds. Raises ValueError where its shape is broken."""
        for number, piece in enumerate(answers.objects(delta, "tool_calls", _WHERE)):
            self._grow(piece, f"{_WHERE}.tool_calls[{number}]")
        _merge(self._message, {name: value for name, value in delta.items() if name not in ("tool_calls", "role")})
        content = delta.get("content")
        refusal = delta.get("refusal")
        if isinstance(content, list):
            said = answers.objects(delta, "content", _WHERE)
            words = [part for part in said if part.get("type") == "text"]
            content = "".join(answers.or_none(part, "text", str, _WHERE) or "" for part in words)
        return content if isinstance(content, str) and content else refusal if isinstance(refusal, str) else ""

    def message(self) -> dict[str, Any]:
        """The message, as a whole answer has it."""
        calls = [{name: value for name, value in call.items() if name != "index"} for call in self._calls]
        return {**self._message, **({"tool_calls": calls} if calls else {})}

    def _grow(self, piece: Mapping[str, Any], where: str) -> None:
        function = answers.or_none(piece, "function", dict, where) or {}
        call = self._belongs(piece, function) or self._begin(piece)
        # An id holds: some servers make a new one for each piece.
        _merge(call, {n: v for n, v in piece.items() if n not in ("function", "index", "id", "type")})
        for once in ("id", "type"):
            call[once] = call.get(once) or answers.or_none(piece, once, str, where)
        kept: dict[str, Any] = call["function"]
        name = answers.or_none(function, "name", str, where) or ""
        if name != kept.get("name"):  # some servers repeat it
            kept["name"] = kept.get("name", "") + name
        arguments = function.get("arguments")
        if isinstance(arguments, Mapping):
            kept["arguments"] = json.dumps(answers.plain(arguments, where))
        else:
            kept["arguments"] = kept.get("arguments", "") + (answers.or_none(function, "arguments", str, where) or "")
        _merge(kept, {n: v for n, v in function.items() if n not in ("name", "arguments")})

    def _begin(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        self._calls.append({"index": piece.get("index"), "function": {}})
        return self._calls[-1]

    def _belongs(self, piece: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any] | None:
        """The call that *piece* goes on with; None where it begins a new one."""
        index, call_id = piece.get("index"), piece.get("id")
        if index is None:
            if call_id:
                return next((call for call in self._calls if call.get("id") == call_id), None)
            # Neither index nor id: a piece with a name begins a call.
            return None if function.get("name") or not self._calls else self._calls[-1]
        call = next((call for call in reversed(self._calls) if call["index"] == index), None)
        begins_anew = call and function.get("name") and call_id and call.get("id") not in (None, "", call_id)
        if call and begins_anew and _is_whole(call["function"].get("arguments", "")):
            return None  # all calls under one index, each in one piece
        return call


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Text and lists go on, anything else is set. So thoughts come together too, under whichever name a server has."""
    for name, value in delta.items():
        before = message.get(name)
        if value is None:
            continue
        if isinstance(value, str) and isinstance(before, str):
            message[name] = before + value
        elif isinstance(value, list) and isinstance(before, list):
            message[name] = [*before, *value]
        elif isinstance(value, list) and isinstance(before, str):
            message[name] = [{"type": "text", "text": before}, *value] if before else value
        elif isinstance(value, str) and isinstance(before, list):
            message[name] = [*before, {"type": "text", "text": value}] if value else before
        else:
            message[name] = value
