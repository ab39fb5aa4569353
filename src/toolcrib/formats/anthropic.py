"""Anthropic Messages (POST /v1/messages): tools, calls, results and conversations.

    client.messages.create(model=..., max_tokens=..., tools=tools(specs), **tool_choice("auto", specs),
                           **conversation(turns, specs, instructions=...))

Anthropic accepts text, images and documents in tool results, has a flag for errors (`is_error`), and demands the
results of one turn together in the next message, before anything else in it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, Text
from ..machinery import text_of_file
from . import history, reading
from .accepts import ANTHROPIC
from .content import arguments_object, arguments_of
from .format import BlockFormat, BlockStream, Object, ReplyStream
from .offer import Offer, Offered
from .turns import Reply, Stop, Usage

_STOPS: Mapping[str, Stop] = {
    **dict.fromkeys(("end_turn", "stop_sequence"), "end"),
    "tool_use": "calls",
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    "refusal": "refused",
    **dict.fromkeys(("pause_turn", "compaction"), "paused"),
}
# Anthropic's `input_tokens` are those that are neither read from the cache nor written to it.
_USAGE: reading.UsageNames = {
    "input": ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "output": ("output_tokens",),
    "cached": ("cache_read_input_tokens",),
    "cache_writes": ("cache_creation_input_tokens",),
}
# Requests of their own, which the counts of the whole do not contain.
_COUNTED_APART = frozenset({"compaction", "advisor_message"})
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
"""The provider's own tool that searches those whose loading is deferred."""
_MESSAGE = "Anthropic's message"


class Stream(BlockStream):
    """A reply read from the events of a streamed message, in their order."""

    accepts = ANTHROPIC
    _message: Object | None = None
    _is_whole = False

    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where the stream ended before the message did."""
        if not self._is_whole:
            raise reading.IncompleteReply("Anthropic's stream ended in the middle, before 'message_stop'.")
        return _reply({**self._begun_message(_MESSAGE), "content": self._ordered_blocks()}, self.tools)

    def _add(self, chunk: Any) -> Any:
        event = reading.as_mapping(chunk, "Anthropic's event")
        kind = event.get("type")
        where = f"Anthropic's {kind}"
        # Unknown events are ignored, as Anthropic asks of its clients; the SDK's own ones repeat what came.
        match kind:
            case "message_start":
                # A gateway that asks again, or asks another model, begins again: what came before does not count.
                self._message = dict(reading.require(event, "message", dict, where))
                self._blocks.clear()
                self._is_whole = False
            case "content_block_start":
                block = reading.json_data(reading.require(event, "content_block", dict, where), where)
                self._blocks[reading.require(event, "index", int, where)] = block
                return block.get("text") if block.get("type") == "text" else None
            case "content_block_delta":
                return self._grow(event, where)
            case "message_delta":
                self._update(self._begun_message(where), event, where)
            case "message_stop":
                self._begun_message(where)
                self._is_whole = True
            case "error":
                raise reading.broken_off("Anthropic", event.get("error"), "type")
            case _:
                pass
        return None

    def _begun_message(self, where: str) -> Object:
        if self._message is None:
            raise ValueError(f"{where} came before 'message_start'.")
        return self._message

    @staticmethod
    def _update(message: Object, event: Mapping[str, Any], where: str) -> None:
        message.update(reading.require(event, "delta", dict, where))
        # Its counts are sums so far, not additions.
        usage = reading.optional(event, "usage", dict, where) or {}
        before = reading.optional(message, "usage", dict, _MESSAGE) or {}
        message["usage"] = before | {key: value for key, value in usage.items() if value is not None}

    def _grow(self, event: Mapping[str, Any], where: str) -> Any:
        index = reading.require(event, "index", int, where)
        delta = reading.require(event, "delta", dict, where)
        if index not in self._blocks:
            raise ValueError(f"{where} is broken: block {index} was never started.")
        block = self._blocks[index]
        match delta.get("type"):
            case "input_json_delta":  # of a call, or of Anthropic's own tools
                reading.append_text(block, "input", reading.require(delta, "partial_json", str, where))
            case "citations_delta":
                if not isinstance(block.get("citations"), list):
                    block["citations"] = []
                block["citations"].append(delta.get("citation"))
            case kind:
                # Text, thinking, signatures, and kinds to come: text is appended, anything else is set.
                for key, value in delta.items():
                    if isinstance(value, str) and key != "type":
                        reading.append_text(block, key, value)
                    elif key != "type":
                        block[key] = value
                return delta.get("text") if kind == "text_delta" else None
        return None


# An answer as a Reply


def _reply(message: Mapping[str, Any], tools: Offer) -> Reply:
    message = reading.json_data(message, _MESSAGE)
    reading.require(message, "content", list, _MESSAGE)
    content = reading.object_list(message, "content", _MESSAGE)
    texts: list[str] = []
    calls: list[Call] = []
    used_ids: set[str] = set()
    for number, block in enumerate(content):
        where = f"{_MESSAGE} (content[{number}])"
        arguments = block.get("input")
        if isinstance(arguments, str):  # as it was streamed
            block["input"] = arguments_object(arguments)
        if block.get("type") == "text":
            texts.append(reading.require(block, "text", str, where))
        elif block.get("type") == "tool_use":
            reading.require(block, "name", str, where)
            block["id"] = reading.unique_id(reading.require(block, "id", str, where), used_ids)
            whole = reading.optional(block, "input", dict, where) or {}
            calls.append(tools.read_call(block, block["id"], arguments if isinstance(arguments, str) else whole))
    reason = message.get("stop_reason")
    return reading.finished_reply(
        "".join(texts),
        calls,
        reading.stop_reason(reason, _STOPS),
        _usage(message.get("usage")),
        {"role": "assistant", "content": content},
        reason=str(reason or ""),
    )


def _usage(counts: Any) -> Usage:
    iterations = counts.get("iterations") if isinstance(counts, Mapping) else None
    parts = [part for part in iterations if isinstance(part, dict)] if isinstance(iterations, list) else []
    apart = [part for part in parts if str(part.get("type")) in _COUNTED_APART]
    return sum((reading.read_usage(part, _USAGE) for part in (counts, *apart)), Usage())


# Turns as messages


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and "type" in block


def _base64(part: Image | File) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.media_type, "data": part.base64}


def _title(name: str | None) -> dict[str, str]:
    return {"title": name} if name else {}


def _id(call_id: str) -> str:
    return history.fitting_id(r"[a-zA-Z0-9_-]+", call_id)


class _Anthropic(BlockFormat):
    stream = Stream

    def definitions(self, tools: Sequence[Offered]) -> list[Object]:
        search = [_SEARCH] if any(tool.spec.deferred for tool in tools) else []
        return [*search, *({**tool.definition("input_schema"), **tool.deferral} for tool in tools)]

    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        single = {} if parallel or kind == "none" else {"disable_parallel_tool_use": True}
        if kind == "auto" and parallel:
            return {}
        return {"tool_choice": {"type": kind, **({"name": name} if name else {}), **single}}

    def read_answer(self, answer: Any, stream: ReplyStream) -> Reply:
        return _reply(reading.as_mapping(answer, _MESSAGE), stream.tools)

    def text_block(self, text: str) -> Object:
        return {"type": "text", "text": text}

    def content_blocks(self, part: Content, *, in_result: bool = False) -> list[Object]:
        match part:
            case Image(_, media_type) if media_type in _IMAGES:
                return [{"type": "image", "source": _base64(part)}]
            case File(_, "application/pdf", name):
                return [{"type": "document", "source": _base64(part), **_title(name)}]
            case File(_, _, name) if (text := text_of_file(part)) is not None:
                source = {"type": "text", "media_type": "text/plain", "data": text}
                return [{"type": "document", "source": source, **_title(name)}]
            case Text() | Data() | Image() | Audio() | File():
                return [self.text_block(part.text)] if part.text.strip() else []

    def native_blocks(self, turn: Reply) -> list[Object] | None:
        match turn.native:
            case {"role": "assistant", "content": [*blocks]} if all(map(_is_block, blocks)):
                ids = [block.get("id") for block in blocks if block["type"] == "tool_use"]
                if ids != [call.id for call in turn.calls]:
                    return None
                # An answer may be empty, and may end in a blank text; neither can be sent.
                return [block for block in blocks if block["type"] != "text" or str(block.get("text")).strip()]
            case _:
                return None

    def call_blocks(self, calls: Sequence[Call], offered: Offer) -> list[Object]:
        return [
            {"type": "tool_use", "id": _id(c.id), "name": offered.name_of(c.tool), "input": arguments_of(c)}
            for c in calls
        ]

    def result_block(self, result: Result[Any], offered: Offer) -> Object:
        return {
            "type": "tool_result",
            "tool_use_id": _id(result.call_id),
            # No content at all is allowed, empty text is not.
            **({"content": blocks} if (blocks := self.result_content(result)) else {}),
            **({"is_error": True} if result.status == "error" else {}),
        }

    def request(self, messages: list[Object], instructions: str) -> Object:
        return {**({"system": instructions} if instructions else {}), "messages": messages}


_FORMAT = _Anthropic()
tools, losses, tool_choice = _FORMAT.tools, _FORMAT.losses, _FORMAT.tool_choice
calls, reply = _FORMAT.calls, _FORMAT.reply
messages, conversation = _FORMAT.messages, _FORMAT.conversation
