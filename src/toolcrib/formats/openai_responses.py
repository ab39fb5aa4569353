"""OpenAI Responses (POST /v1/responses): tools, calls, results and conversations.

    client.responses.create(model=..., tools=tools(specs), **tool_choice("auto", specs),
                            **conversation(turns, specs, instructions=...))

A conversation is sent whole with each request, the model's own items (reasoning too) as they came. A tool's result may
be text, images and files; errors are described in the text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, Text
from ..machinery import text_of_file
from . import openai as shared
from . import reading
from .accepts import RESPONSES
from .format import BlockStream, Format, Object, ReplyStream
from .offer import Offer, Offered
from .turns import Reply, Stop

_ANSWER = "OpenAI's response"
_EVENT = "OpenAI's event"
_OFFICE = "application/vnd.openxmlformats-officedocument."
# What the Responses API reads beside PDF and text files.
_FILES = frozenset(
    {
        shared.PDF,
        "application/msword",
        "application/rtf",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.oasis.opendocument.text",
        f"{_OFFICE}presentationml.presentation",
        f"{_OFFICE}spreadsheetml.sheet",
        f"{_OFFICE}wordprocessingml.document",
    }
)
_USAGE: reading.UsageNames = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "cached": ("input_tokens_details.cached_tokens",),
    "reasoning": ("output_tokens_details.reasoning_tokens",),
}
# Calls that the client would have to answer, of tools that were never offered.
_UNANSWERED = frozenset({"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call"})
_INCOMPLETE: Mapping[str, Stop] = {"max_output_tokens": "length", "content_filter": "refused"}
# The kinds of items that only this format has: a conversation may change its provider.
_NATIVE = frozenset({"message", "function_call", "reasoning"})


class Stream(BlockStream):
    """A reply read from the events of a streamed response, in their order."""

    accepts = RESPONSES
    _response: Mapping[str, Any] | None = None

    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where the stream ended before the response did."""
        if self._response is None:
            raise reading.IncompleteReply("OpenAI's stream ended in the middle, before 'response.completed'.")
        # Some servers repeat the items at the end, some do not.
        output = reading.object_list(self._response, "output", _ANSWER)
        return _reply(self._response, output or self._ordered_blocks(), self.tools)

    def _add(self, chunk: Any) -> Any:
        if chunk == "[DONE]":  # some gateways end every stream with it
            return None
        event = reading.as_mapping(chunk, _EVENT)
        # Unknown events are ignored: there are dozens, for OpenAI's own tools too.
        match event.get("type"):
            case "response.created":  # a gateway that asks again begins again
                self._blocks.clear()
                self._response = None
            case "response.output_text.delta" | "response.refusal.delta":
                return reading.require(event, "delta", str, _EVENT)
            case "response.output_item.added" | "response.output_item.done":
                self._blocks[self._index(event)] = dict(reading.require(event, "item", dict, _EVENT))
            case "response.function_call_arguments.delta":
                item = self._blocks.setdefault(self._index(event), {"type": "function_call"})
                reading.append_text(item, "arguments", reading.require(event, "delta", str, _EVENT))
            case "response.function_call_arguments.done":
                item = self._blocks.setdefault(self._index(event), {"type": "function_call"})
                item["arguments"] = reading.require(event, "arguments", str, _EVENT)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = reading.require(event, "response", dict, _EVENT)
            case "error":
                raise shared.broken_off(event.get("error") or event)
            case _:
                pass
        return None

    @staticmethod
    def _index(event: Mapping[str, Any]) -> int:
        return reading.require(event, "output_index", int, f"{_EVENT} {event.get('type')}")


# A response as a Reply


def _reply(response: Mapping[str, Any], output: Sequence[Mapping[str, Any]], tools: Offer) -> Reply:
    is_complete = _is_complete(response)
    items: list[Object] = [part for item in reading.json_data(output, _ANSWER) for part in _separate(item, tools)]
    calls, parts = _calls_and_texts(items, tools)
    stop: Stop = "calls" if calls else "refused" if "refusal" in dict(parts) else "end"
    reason = None
    if not is_complete:
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        stop = reading.stop_reason(reason, _INCOMPLETE)
    return reading.finished_reply(
        "".join(text for _, text in parts),
        calls,
        stop,
        reading.read_usage(response.get("usage"), _USAGE),
        _native(items, is_stored=response.get("store") is not False),
        reason=str(reason or "incomplete"),
    )


def _is_complete(response: Mapping[str, Any]) -> bool:
    """Return whether *response* is whole, or has ended early. Raises ValueError for one that failed or goes on."""
    status = reading.optional(response, "status", str, _ANSWER) or "completed"
    if response.get("error") or status == "failed":
        raise shared.broken_off(response.get("error"))
    if status not in ("completed", "incomplete"):
        raise ValueError(f"{_ANSWER} has not ended: its status is '{status}'. Ask for it again, not in the background.")
    return status == "completed"


def _calls_and_texts(items: Sequence[Object], tools: Offer) -> tuple[list[Call], list[tuple[str, str]]]:
    """Return the calls in *items*, and their texts, each with its kind."""
    calls: list[Call] = []
    texts: list[tuple[str, str]] = []
    used_ids: set[str] = set()
    for number, item in enumerate(items):
        where = f"{_ANSWER} (output[{number}])"
        if item.get("type") == "function_call":
            calls.append(_call(item, used_ids, tools, where))
        elif item.get("type") == "message" or item.get("role") == "assistant":
            texts += _text_parts(item, where)
    return calls, texts


def _separate(item: Object, tools: Offer) -> list[Object]:
    """Return the items that *item* is: several without its id, where it is a call of several."""
    items = shared.separate_calls(item, tools) if item.get("type") == "function_call" else [item]
    return items if len(items) == 1 else [{**part, "id": None} for part in items]


def _call(item: Object, used_ids: set[str], tools: Offer, where: str) -> Call:
    """Return the call in *item*, which gets what can be sent back."""
    item["call_id"] = reading.unique_id(reading.optional(item, "call_id", str, where), used_ids)
    arguments = shared.read_arguments(item.get("arguments"))
    reading.require(item, "name", str, where)
    item["arguments"] = shared.arguments_text(arguments)
    return tools.read_call(item, item["call_id"], arguments)


def _text_parts(item: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    """Return the texts of a message, each with its kind."""
    keys = {"output_text": "text", "refusal": "refusal"}
    return [
        (kind, reading.require(part, keys[kind], str, f"{where}.content[{number}]"))
        for number, part in enumerate(reading.object_list(item, "content", where))
        if isinstance(kind := part.get("type"), str) and kind in keys
    ]


def _native(items: Sequence[Object], *, is_stored: bool) -> list[Object]:
    """Return *items* as they can be sent back: without calls that get no answer, and members that are null.

    Of a response that OpenAI has not stored, there are no ids, and no reasoning without its encrypted content.
    """
    return [
        {
            name: value
            for name, value in item.items()
            if value is not None and (is_stored or name != "id" or item.get("type") == "reasoning")
        }
        for item in items
        if str(item.get("type")) not in _UNANSWERED and (is_stored or not _is_lost(item))
    ]


def _is_lost(item: Object) -> bool:
    """Return whether *item* is reasoning that OpenAI alone could know."""
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


# Turns as items


def _has_native(turn: Reply) -> bool:
    """Return whether `native` are items of this format with these calls."""
    items = turn.native
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        return False
    ids = [item.get("call_id") for item in items if item.get("type") == "function_call"]
    return any(str(item.get("type")) in _NATIVE for item in items) and ids == [call.id for call in turn.calls]


def _from_reply(turn: Reply, offered: Offer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"role": "assistant", "content": turn.text}] if turn.text else []
    for call in turn.calls:
        arguments = shared.arguments_text(call.arguments)
        name = offered.name_of(call.tool)
        items.append({"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments})
    return items


def _output(result: Result[Any]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, Image | File) for part in result.content):
        return shared.result_text(result)
    error = [_text_part(f"Error ({result.error.code}):")] if result.error is not None else []
    return [*error, *(_part(part, in_result=True) for part in result.content)]


def _part(part: Content, *, in_result: bool = False) -> dict[str, Any]:
    match part:
        case Audio(_, media_type) if media_type in shared.AUDIO and not in_result:
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": shared.AUDIO[media_type]}}
        case Image(_, media_type) if media_type in shared.IMAGES:
            return {"type": "input_image", "image_url": shared.data_url(part), "detail": "auto"}
        case File(_, media_type) if media_type in _FILES or text_of_file(part) is not None:
            return {"type": "input_file", "filename": shared.file_name(part), "file_data": shared.data_url(part)}
        case Text() | Data() | Image() | Audio() | File():
            return _text_part(part.text)


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


class _Responses(Format):
    stream = Stream

    def definitions(self, tools: Sequence[Offered]) -> list[Object]:
        # `strict` always: left out, it means strict here.
        search = [{"type": "tool_search"}] if any(tool.spec.deferred for tool in tools) else []
        functions = (
            {"type": "function", **tool.definition("parameters"), "strict": tool.strict, **tool.deferral}
            for tool in tools
        )
        return [*search, *functions]

    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        return shared.choice_parameters(kind, {"type": "function", "name": name}, parallel)

    def choice_among(self, names: Sequence[str], parallel: bool) -> Object:
        tools = [{"type": "function", "name": name} for name in names]
        return shared.choice_parameters("tool", {"type": "allowed_tools", "mode": "required", "tools": tools}, parallel)

    def read_answer(self, answer: Any, stream: ReplyStream) -> Reply:
        response = reading.as_mapping(answer, _ANSWER)
        if "output" not in response and not response.get("error"):
            raise ValueError(f"{_ANSWER} is malformed: 'output' is missing. Is this a Responses address?")
        return _reply(response, reading.object_list(response, "output", _ANSWER), stream.tools)

    def user_messages(self, content: Sequence[Content]) -> list[Object]:
        parts = [_part(part) for part in content]
        only_text = all(part["type"] == "input_text" for part in parts)
        return [{"role": "user", "content": "\n".join(part["text"] for part in parts) if only_text else parts}]

    def reply_messages(self, turn: Reply, offered: Offer) -> list[Object]:
        return list(turn.native) if _has_native(turn) else _from_reply(turn, offered)

    def result_messages(self, results: Sequence[Result[Any]], offered: Offer) -> list[Object]:
        return [
            {"type": "function_call_output", "call_id": result.call_id, "output": _output(result)} for result in results
        ]

    def request(self, messages: list[Object], instructions: str) -> Object:
        return {**({"instructions": instructions} if instructions else {}), "input": messages}


_FORMAT = _Responses()
tools, losses, tool_choice = _FORMAT.tools, _FORMAT.losses, _FORMAT.tool_choice
calls, reply = _FORMAT.calls, _FORMAT.reply
messages, conversation = _FORMAT.messages, _FORMAT.conversation
