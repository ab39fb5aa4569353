"""OpenAI Chat Completions (POST /v1/chat/completions): tools, calls, results and conversations.

    client.chat.completions.create(model=..., tools=tools(specs), **tool_choice("auto", specs),
                                   **conversation(turns, specs, instructions=...))

Mistral, Groq, Ollama, vLLM, OpenRouter and many others use this format, each a little differently: answers may lack
ids, indexes, counts and reasons, and what is sent has only what all of them accept. A tool's result is text, so images
and PDFs follow in a user message, and errors are described in the text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, Text, ToolSpec
from . import openai_parts as shared
from . import reading
from .accepts import OPENAI
from .content import from_data_url
from .format import Entry, Object, ReadableFormat
from .history import ToolOutput
from .offer import Offer, Offered, offer
from .turns import Reply, Stop, TextDelta, Usage, User

_ANSWER = "OpenAI's answer"
_DELTA = "OpenAI's chunk (choices[0].delta)"
_STOPS: Mapping[str, Stop] = {
    "stop": "end",
    "eos": "end",
    "eos_token": "end",
    "stop_sequence": "end",
    "end_turn": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "tool_use": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refused",
    "tool_use_failed": "malformed",
    "function_call_filter: malformed_function_call": "malformed",
    "function_call_filter: unexpected_tool_call": "malformed",
}
# What an answer has and a request may not have, or not in the same form.
_ANSWER_ONLY = frozenset({"annotations", "audio", "function_call", "parsed", "tool_calls", "role"})


class MessageDeltas:
    """A message, as far as it has been streamed.

    OpenAI sends one index for each call, with id and name in its first delta only. Servers that imitate it break each
    part of that rule, so one function decides which call a delta belongs to: `_call_for`.
    """

    def __init__(self) -> None:
        self._thoughts = shared.LeadingThoughts()
        self._message: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []

    def add(self, delta: Mapping[str, Any]) -> str:
        """Return the text that *delta* adds, without thoughts. Raises ValueError where it is malformed."""
        for number, delta_call in enumerate(reading.object_list(delta, "tool_calls", _DELTA)):
            self._add_to_call(delta_call, f"{_DELTA}.tool_calls[{number}]")
        _merge(self._message, {name: value for name, value in delta.items() if name not in ("tool_calls", "role")})
        content = delta.get("content")
        refusal = delta.get("refusal")
        if isinstance(content, list):
            parts = reading.object_list(delta, "content", _DELTA)
            texts = [part for part in parts if part.get("type") == "text"]
            content = "".join(reading.optional(part, "text", str, _DELTA) or "" for part in texts)
        if isinstance(content, str) and content:
            return self._thoughts.add(content)
        return refusal if isinstance(refusal, str) else ""

    def end(self) -> str:
        """Return the text that was held back, as it could have been the beginning of a thought."""
        return self._thoughts.end()

    def message(self) -> dict[str, Any]:
        """Return the message, as a whole answer has it."""
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
        """Return the call that *delta_call* continues; None where it begins a new one."""
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


class Stream:
    """A reply read from the chunks of a streamed completion, in their order."""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self._offer = offer(specs, OPENAI, strict=strict)
        self._deltas = MessageDeltas()
        self._finish: str | None = None
        self._failure = ""
        self._done = False
        self._usage: Mapping[str, Any] | None = None

    def add(self, chunk: Any) -> list[TextDelta]:
        """Return the text that *chunk* adds. Raises ValueError where it is malformed or reports an error."""
        if chunk == "[DONE]":
            self._done = True
            return reading.deltas(self._deltas.end())
        where = "OpenAI's chunk"
        data = reading.as_mapping(chunk, where)
        if failure := _failed_call(data):
            self._finish, self._failure = "tool_use_failed", failure
            return []
        # The last count is the total, also where a server sends one with every chunk.
        self._usage = reading.optional(data, "usage", dict, where) or self._usage
        for choice in reading.object_list(data, "choices", where):
            if choice.get("index"):
                continue  # of several choices, the first
            self._finish = reading.optional(choice, "finish_reason", str, f"{where} (choices[0])") or self._finish
            delta = reading.optional(choice, "delta", dict, f"{where} (choices[0])")
            text = self._deltas.add(delta) if delta else ""
            return reading.deltas(text + self._deltas.end() if self._finish else text)
        return []

    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where the stream ended before the answer did."""
        if self._finish is None and not self._done:  # some servers give no reason, but all end with "[DONE]"
            raise reading.IncompleteReply("OpenAI's stream ended in the middle, before any 'finish_reason'.")
        message, where = self._deltas.message(), "OpenAI's streamed message"
        return _reply(message, self._finish, self._usage, self._offer, where, self._failure)


# An answer as a Reply


def _failed_call(whole: Mapping[str, Any]) -> str:
    """Return what Groq reports of a call that its model wrote wrong.

    Raises IncompleteReply for any other error in *whole*.

    Some gateways answer with status 200 and an error inside.
    """
    error = whole.get("error")
    if isinstance(error, Mapping) and error.get("code") == "tool_use_failed":
        return f"{error.get('message')} {error.get('failed_generation') or ''}".strip()
    if error:
        raise shared.error_from(error)
    return ""


def _reply(
    message: Mapping[str, Any],
    finish: Any,
    usage: Mapping[str, Any] | None,
    offered: Offer,
    where: str,
    failure: str = "",
) -> Reply:
    message = reading.json_data(message, where)
    native_calls, made = _calls(message, offered, where)
    text = shared.without_thoughts(_text(message.get("content"), where))
    refusal = reading.optional(message, "refusal", str, where)
    stop = reading.stop_reason(str(finish).lower(), _STOPS) if finish else "end"
    if made and stop in ("end", "other"):
        stop = "calls"  # several servers say "stop" beside calls
    elif refusal or (stop == "calls" and not made):
        stop = "refused" if refusal else "end"
    native = {name: value for name, value in message.items() if name not in _ANSWER_ONLY and value is not None}
    if audio := reading.optional(message, "audio", dict, where):
        native["audio"] = {"id": audio.get("id")}
    native = {"role": "assistant", "content": None if made else "", **native}
    if native_calls:
        native["tool_calls"] = native_calls
    return reading.finished_reply(
        text or refusal or "",
        made,
        stop,
        _usage(usage or {}),
        native,
        reason=f"{finish}: {failure}" if failure else str(finish or ""),
    )


def _calls(message: Mapping[str, Any], offered: Offer, where: str) -> tuple[list[dict[str, Any]], list[Call]]:
    """Return the calls as they are to be sent back, and as they are to be made.

    Calls of other kinds than functions are left out: they are for tools that were not offered.
    """
    native: list[dict[str, Any]] = []
    made: list[Call] = []
    used_ids: set[str] = set()
    for number, call in enumerate(reading.object_list(message, "tool_calls", where)):
        place = f"{where}.tool_calls[{number}]"
        if call.get("type") not in (None, "", "function"):
            continue
        function = reading.require(call, "function", dict, place)
        reading.require(function, "name", str, f"{place}.function")
        call_id = reading.unique_id(reading.optional(call, "id", str, place), used_ids)
        arguments = shared.read_arguments(function.get("arguments"))
        made.append(offered.read_call(function, call_id, arguments))
        function["arguments"] = shared.arguments_text(arguments)
        native.append({**call, "id": call_id, "type": "function", "function": function})
        native[-1].pop("index", None)
    return native, made


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    # Mistral sends its thoughts and its text in parts.
    parts = reading.object_list({"content": content}, "content", where)
    return "".join(reading.require(part, "text", str, where) for part in parts if part.get("type") == "text")


def _usage(usage: Mapping[str, Any]) -> Usage:
    return reading.openai_usage(usage, "prompt_tokens", "completion_tokens")


# Turns as messages


def _has_native(turn: Reply) -> bool:
    """Return whether `native` is a message of this format with these calls: a conversation may change its provider."""
    match turn.native:
        case {"role": "assistant", "content": None | str()}:
            pass
        case {"role": "assistant", "content": [*parts]} if all(map(_is_native_part, parts)):
            pass
        case _:
            return False
    native_calls: list[Any] = list(turn.native.get("tool_calls", ()))
    return [call.get("id") for call in native_calls] == [call.id for call in turn.calls]


def _is_native_part(part: Any) -> bool:
    match part:
        case {"type": "text" | "refusal"} | {"type": "thinking", "thinking": [*_]}:  # the last is Mistral's
            return True
        case _:
            return False


def _from_reply(turn: Reply, offered: Offer) -> dict[str, Any]:
    if not turn.calls:
        return {"role": "assistant", "content": turn.text}
    tool_calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": offered.name_of(call.tool), "arguments": shared.arguments_text(call.arguments)},
        }
        for call in turn.calls
    ]
    return {"role": "assistant", "content": turn.text or None, "tool_calls": tool_calls}


def _is_media(part: Content) -> bool:
    # Only some models accept audio, and the others refuse the request: a tool's audio is described in the text.
    match part:
        case Image(_, media_type):
            return media_type in shared.IMAGES
        case File(_, media_type):
            return media_type == shared.PDF
        case _:
            return False


def _part(part: Content) -> dict[str, Any]:
    """Return a part of a user message. PDF is the only kind of file that Chat Completions accepts."""
    match part:
        case Image(_, media_type) if media_type in shared.IMAGES:
            return {"type": "image_url", "image_url": {"url": shared.data_url(part)}}
        case Audio(_, media_type) if media_type in shared.AUDIO:
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": shared.AUDIO[media_type]}}
        case File() if part.media_type == shared.PDF:
            return {"type": "file", "file": {"filename": shared.file_name(part), "file_data": shared.data_url(part)}}
        case Text() | Data() | Image() | Audio() | File():
            return {"type": "text", "text": shared.text_of(part)}


# Messages as turns


def _read_part(part: Mapping[str, Any], where: str) -> Content:
    match kind := part.get("type"):
        case "text":
            return Text(reading.require(part, "text", str, where))
        case "image_url":
            media_type, data = from_data_url(reading.require(part, "image_url", dict, where), "url", where)
            return Image(data, media_type)
        case "input_audio":
            return shared.read_audio(part, where)
        case "file":
            return shared.read_file(reading.require(part, "file", dict, where), where)
        case _:
            raise ValueError(f"{where}.type is {kind!r:.40}; it must be text, image_url, input_audio or file.")


class _Chat(ReadableFormat):
    accepts = OPENAI
    stream = Stream

    def definitions(self, tools: Sequence[Offered]) -> list[Object]:
        return [{"type": "function", "function": tool.definition("parameters")} for tool in tools]

    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        return shared.choice_parameters(kind, {"type": "function", "function": {"name": name}}, parallel)

    def read_answer(self, answer: Any, specs: Iterable[ToolSpec], strict: bool | None) -> Reply:
        whole = reading.as_mapping(answer, _ANSWER)
        offered = offer(specs, OPENAI, strict=strict)
        if failure := _failed_call(whole):
            return _reply({}, "tool_use_failed", None, offered, _ANSWER, failure)
        choices = reading.object_list(whole, "choices", _ANSWER)  # of several, the first
        if not choices:
            raise ValueError(
                f"{_ANSWER} is malformed: 'choices' is empty or missing. Is this a Chat Completions address?"
            )
        where = f"{_ANSWER} (choices[0])"
        finish = choices[0].get("finish_reason")
        if finish == "content_filter":  # Azure leaves the message out
            message = reading.optional(choices[0], "message", dict, where) or {}
        else:
            message = reading.require(choices[0], "message", dict, where)
        usage = reading.optional(whole, "usage", dict, _ANSWER)
        return _reply(message, finish, usage, offered, f"{where}.message")

    def user_messages(self, content: Sequence[Content]) -> list[Object]:
        parts = [_part(part) for part in content]
        only_text = all(part["type"] == "text" for part in parts)
        return [{"role": "user", "content": "\n".join(part["text"] for part in parts) if only_text else parts}]

    def reply_messages(self, turn: Reply, offered: Offer) -> list[Object]:
        return [turn.native if _has_native(turn) else _from_reply(turn, offered)]

    def result_messages(self, results: Sequence[Result[Any]], offered: Offer) -> list[Object]:
        """Return a message for each result, and one more for images and PDFs."""
        messages: list[Object] = [
            {"role": "tool", "tool_call_id": result.call_id, "content": shared.result_text(result)}
            for result in results
        ]
        media_parts: list[Object] = []
        for result in results:
            if media := [_part(part) for part in result.content if _is_media(part)]:
                header = f"From the result of '{result.tool}' ({result.call_id}):"
                media_parts += [{"type": "text", "text": header}, *media]
        return [*messages, *([{"role": "user", "content": media_parts}] if media_parts else [])]

    def request(self, messages: list[Object], instructions: str) -> Object:
        system = [{"role": "system", "content": instructions}] if instructions else []
        return {"messages": [*system, *messages]}

    def read_messages(
        self, messages: Sequence[Object], parameters: Mapping[str, Any], offered: Offer
    ) -> tuple[str, list[Entry]]:
        instructions: list[str] = []
        entries: list[Entry] = []
        for number, message in enumerate(messages):
            where = f"messages[{number}]"
            match message.get("role"):
                case "system" | "developer":
                    instructions.append(_text(message.get("content"), where))
                case "user":
                    entries.append(User(shared.read_content(message, "content", _read_part, where)))
                case "assistant":
                    entries.append(_reply(message, None, None, offered, where))
                case "tool":
                    text = _text(message.get("content"), where)
                    error = shared.read_error(text)
                    output = (Text(text if error is None else error.message),)
                    call_id = reading.require(message, "tool_call_id", str, where)
                    entries.append(ToolOutput(where, output, call_id, error=error))
                case role:
                    raise ValueError(
                        f"{where}.role is {role!r:.40}; it must be system, developer, user, assistant or tool."
                    )
        return "\n\n".join(instructions), entries


_FORMAT = _Chat()
tools, losses, tool_choice = _FORMAT.tools, _FORMAT.losses, _FORMAT.tool_choice
calls, reply, messages = _FORMAT.calls, _FORMAT.reply, _FORMAT.messages
conversation, read_conversation = _FORMAT.conversation, _FORMAT.read_conversation
