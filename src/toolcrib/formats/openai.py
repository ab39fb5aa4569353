"""OpenAI Chat Completions (POST /v1/chat/completions): tools, calls, results and conversations.

    client.chat.completions.create(model=..., tools=tools(specs), **tool_choice("auto", specs),
                                   **conversation(turns, specs, instructions=...))

Mistral, Groq, Ollama, vLLM, OpenRouter and many others use this format, each a little differently: answers may lack
ids, indexes, counts and reasons, and what is sent has only what all of them accept. A tool's result is text, so images
and PDFs follow in a user message, and errors are described in the text. The Responses API takes arguments, results and
choices in the same form.
"""

import json
import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ..core import CODES, Audio, Call, Content, Data, File, Image, Result, Text, ToolError, ToolSpec
from ..machinery import text_of_file
from ..schema import JSONError, parse_json
from . import reading
from .accepts import OPENAI
from .content import arguments_of, decoded, from_data_url
from .format import Entry, Object, ReadableFormat, ReplyStream
from .history import ToolOutput
from .offer import Offer, Offered
from .turns import Reply, Stop, User

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
PDF = "application/pdf"

_THOUGHTS = "<think>", "</think>"
_PARALLEL = "multi_tool_use.parallel"
_MAX_BLANK = 100  # how much blank space may come before thoughts

_ANSWER = "OpenAI's answer"
_ERROR = re.compile(r"Error \((\w+)\): ?(.*)", re.DOTALL)  # as `result_text` writes one
_DELTA = "OpenAI's chunk (choices[0].delta)"
_STOPS: Mapping[str, Stop] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn"), "end"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "calls"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    "content_filter": "refused",
    "tool_use_failed": "malformed",
    "function_call_filter: malformed_function_call": "malformed",
    "function_call_filter: unexpected_tool_call": "malformed",
}
_USAGE: reading.UsageNames = {
    "input": ("prompt_tokens",),
    "output": ("completion_tokens",),
    "cached": ("prompt_tokens_details.cached_tokens",),
    "reasoning": ("completion_tokens_details.reasoning_tokens",),
}
# What an answer has and a request may not have, or not in the same form.
_ANSWER_ONLY = frozenset({"annotations", "audio", "function_call", "parsed", "tool_calls", "role"})


class Stream(ReplyStream):
    """A reply read from the chunks of a streamed completion, in their order.

    OpenAI sends one index for each call, with id and name in its first delta only. Servers that imitate it break each
    part of that rule, so one function decides which call a delta belongs to: `_call_for`.
    """

    accepts = OPENAI
    _finish: str | None = None
    _failure = ""
    _is_done = False
    _usage: Any = None

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        super().__init__(specs, strict=strict)
        self._thoughts = LeadingThoughts()
        self._message: Object = {}
        self._calls: list[Object] = []

    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where the stream ended before the answer did."""
        if self._finish is None and not self._is_done:  # some servers give no reason, but all end with "[DONE]"
            raise reading.IncompleteReply("OpenAI's stream ended in the middle, before any 'finish_reason'.")
        message = {**self._message, "tool_calls": self._calls}
        return _reply(message, self.tools, "OpenAI's streamed message", self._finish, self._usage, self._failure)

    def _add(self, chunk: Any) -> str:
        if chunk == "[DONE]":
            self._is_done = True
            return self._thoughts.end()
        where = "OpenAI's chunk"
        data = reading.as_mapping(chunk, where)
        if failure := _failed_call(data):
            self._finish, self._failure = "tool_use_failed", failure
            return ""
        # The last count is the total, also where a server sends one with every chunk.
        self._usage = data.get("usage") or self._usage
        text = ""
        for choice in reading.object_list(data, "choices", where):
            if not choice.get("index"):  # of several choices, the first
                self._finish = reading.optional(choice, "finish_reason", str, f"{where} (choices[0])") or self._finish
                text += self._add_delta(reading.optional(choice, "delta", dict, f"{where} (choices[0])") or {})
        return text + self._thoughts.end() if self._finish else text

    def _add_delta(self, delta: Mapping[str, Any]) -> str:
        """Return the text that *delta* adds, without thoughts."""
        for number, call_delta in enumerate(reading.object_list(delta, "tool_calls", _DELTA)):
            self._add_to_call(call_delta, f"{_DELTA}.tool_calls[{number}]")
        _merge(self._message, delta, without=("tool_calls", "role"))
        if text := _text(delta.get("content"), _DELTA):
            return self._thoughts.add(text)
        refusal = delta.get("refusal")
        return refusal if isinstance(refusal, str) else ""

    def _add_to_call(self, delta: Mapping[str, Any], where: str) -> None:
        function_delta = reading.optional(delta, "function", dict, where) or {}
        call = self._call_for(delta, function_delta)
        if call is None:
            self._calls.append(call := {"index": delta.get("index"), "function": {}})
        _merge(call, delta, without=("function", "index", "id", "type"))
        for key in ("id", "type"):  # the first one counts: some servers make a new id for each delta
            call[key] = call.get(key) or reading.optional(delta, key, str, where)
        function: Object = call["function"]
        name = reading.optional(function_delta, "name", str, where) or ""
        if name != function.get("name"):  # some servers repeat it
            function["name"] = function.get("name", "") + name
        arguments = function_delta.get("arguments")
        if isinstance(arguments, Mapping):
            function["arguments"] = json.dumps(reading.json_data(arguments, where))
        else:
            reading.append_text(function, "arguments", reading.optional(function_delta, "arguments", str, where) or "")
        _merge(function, function_delta, without=("name", "arguments"))

    def _call_for(self, delta: Mapping[str, Any], function: Mapping[str, Any]) -> Object | None:
        """Return the call that *delta* continues; None where it begins a new one."""
        index, call_id, name = delta.get("index"), delta.get("id"), function.get("name")
        if index is None:
            return self._call_without_index(call_id, name)
        call = next((call for call in reversed(self._calls) if call["index"] == index), None)
        if call and name and call_id and call.get("id") not in (None, "", call_id):
            # Perhaps all calls are under one index, each whole in one delta.
            return None if _is_whole(call["function"].get("arguments", "")) else call
        return call

    def _call_without_index(self, call_id: Any, name: Any) -> Object | None:
        if call_id:
            return next((call for call in self._calls if call.get("id") == call_id), None)
        # A delta with a name, and nothing else that tells it from others, begins a call.
        return None if name or not self._calls else self._calls[-1]


def _is_whole(arguments: str | reading.Pieces) -> bool:
    last = (arguments.pieces[-1] if isinstance(arguments, reading.Pieces) else arguments).rstrip()
    try:
        # The last piece alone decides nearly always, however many there are.
        return last[-1:] in ("", "}") and isinstance(json.loads(str(arguments)), dict)
    except (ValueError, RecursionError):
        return False


def _merge(message: Object, delta: Mapping[str, Any], *, without: Sequence[str]) -> None:
    """Append text and lists, set anything else. This merges thoughts too, under whichever name a server has."""
    for name, value in delta.items():
        current = message.get(name)
        if value is None or name in without:
            continue
        if isinstance(current, list) and isinstance(value, str):
            value = _as_parts(value)
        if isinstance(value, str):
            reading.append_text(message, name, value)
        elif isinstance(value, list):
            message[name] = parts = _as_parts(current)
            parts.extend(value)
        else:
            message[name] = value


def _as_parts(content: Any) -> list[Any]:
    """Return *content*, text or a list of parts, as a list; an empty one for anything else."""
    if isinstance(content, list):
        return content
    text = str(content) if isinstance(content, str | reading.Pieces) else ""
    return [{"type": "text", "text": text}] if text else []


# An answer as a Reply


def _failed_call(answer: Mapping[str, Any]) -> str:
    """Return what Groq reports of a call that its model wrote wrong; empty where *answer* has no error.

    Some gateways answer with status 200 and an error inside: that raises IncompleteReply.
    """
    error = answer.get("error")
    if isinstance(error, Mapping) and error.get("code") == "tool_use_failed":
        return f"{error.get('message')} {error.get('failed_generation') or ''}".strip()
    if error:
        raise broken_off(error)
    return ""


def _reply(
    message: Mapping[str, Any],
    tools: Offer,
    where: str,
    finish: Any = None,
    usage: Any = None,
    failure: str = "",
    is_stored: bool = False,
) -> Reply:
    message = reading.json_data(message, where)
    native_calls, calls = _calls(message, tools, where, is_stored)
    refusal = reading.optional(message, "refusal", str, where)
    native = _native(message, native_calls, where)
    return reading.finished_reply(
        without_thoughts(_text(message.get("content"), where)) or refusal or "",
        calls,
        _stop(finish, bool(calls), bool(refusal)),
        reading.read_usage(usage, _USAGE),
        native,
        reason=f"{finish}: {failure}" if failure else str(finish or ""),
    )


def _native(message: Mapping[str, Any], calls: Sequence[Object], where: str) -> Object:
    """Return *message* as it can be sent back, with *calls*."""
    native = {name: value for name, value in message.items() if name not in _ANSWER_ONLY and value is not None}
    if audio := reading.optional(message, "audio", dict, where):
        native["audio"] = {"id": audio.get("id")}
    native = {"role": "assistant", "content": None if calls else "", **native}
    return {**native, "tool_calls": calls} if calls else native


def _stop(finish: Any, has_calls: bool, is_refused: bool) -> Stop:
    stop = reading.stop_reason(str(finish).lower(), _STOPS) if finish else "end"
    if has_calls and stop in ("end", "other"):
        return "calls"  # several servers say "stop" beside calls
    if is_refused:
        return "refused"
    return "end" if stop == "calls" and not has_calls else stop


def _calls(message: Mapping[str, Any], tools: Offer, where: str, is_stored: bool) -> tuple[list[Object], list[Call]]:
    """Return the calls as they are to be sent back, and as they are to be made.

    Calls of other kinds than functions are left out: they are for tools that were not offered. A stored call is not
    separated: it has one result.
    """
    native: list[Object] = []
    calls: list[Call] = []
    used_ids: set[str] = set()
    for number, call in enumerate(reading.object_list(message, "tool_calls", where)):
        place = f"{where}.tool_calls[{number}]"
        if call.get("type") not in (None, "", "function"):
            continue
        whole = reading.require(call, "function", dict, place)
        reading.require(whole, "name", str, f"{place}.function")
        for function in [whole] if is_stored else separate_calls(whole, tools):
            call_id = reading.unique_id(reading.optional(call, "id", str, place), used_ids)
            arguments = read_arguments(function.get("arguments"))
            calls.append(tools.read_call(function, call_id, arguments))
            function["arguments"] = arguments_text(arguments)
            native.append({**call, "id": call_id, "type": "function", "function": function})
            native[-1].pop("index", None)
    return native, calls


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    # Mistral sends its thoughts and its text in parts.
    parts = reading.object_list({"content": content}, "content", where)
    return "".join(reading.require(part, "text", str, where) for part in parts if part.get("type") == "text")


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
            "function": {"name": offered.name_of(call.tool), "arguments": arguments_text(call.arguments)},
        }
        for call in turn.calls
    ]
    return {"role": "assistant", "content": turn.text or None, "tool_calls": tool_calls}


def _is_media(part: Content) -> bool:
    # Only some models accept audio, and the others refuse the request: a tool's audio is described in the text.
    if isinstance(part, Image):
        return part.media_type in IMAGES
    return isinstance(part, File) and part.media_type == PDF


def _part(part: Content) -> dict[str, Any]:
    """Return a part of a user message. PDF is the only kind of file that Chat Completions accepts."""
    match part:
        case Image(_, media_type) if media_type in IMAGES:
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        case Audio(_, media_type) if media_type in AUDIO:
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": AUDIO[media_type]}}
        case File() if part.media_type == PDF:
            return {"type": "file", "file": {"filename": file_name(part), "file_data": data_url(part)}}
        case Text() | Data() | Image() | Audio() | File():
            return {"type": "text", "text": text_of(part)}


# Messages as turns


def _read_content(message: Mapping[str, Any], where: str) -> tuple[Content, ...]:
    if isinstance(text := message.get("content"), str):
        return (Text(text),)
    reading.require(message, "content", list, where)
    parts = reading.object_list(message, "content", where)
    return tuple(_read_part(part, f"{where}.content[{number}]") for number, part in enumerate(parts))


def _read_part(part: Mapping[str, Any], where: str) -> Content:
    match kind := part.get("type"):
        case "text":
            return Text(reading.require(part, "text", str, where))
        case "image_url":
            media_type, data = from_data_url(reading.require(part, "image_url", dict, where), "url", where)
            return Image(data, media_type)
        case "input_audio":
            audio = reading.require(part, "input_audio", dict, where)
            form = reading.require(audio, "format", str, f"{where}.input_audio")
            media_type = {"wav": "audio/wav", "mp3": "audio/mpeg"}.get(form, f"audio/{form}")
            return Audio(decoded(audio, "data", f"{where}.input_audio"), media_type)
        case "file":  # whose bytes are in the message, and not stored at OpenAI
            file = reading.require(part, "file", dict, where)
            media_type, data = from_data_url(file, "file_data", where)
            return File(data, media_type, reading.optional(file, "filename", str, where))
        case _:
            raise ValueError(f"{where}.type is {kind!r:.40}; it must be text, image_url, input_audio or file.")


# What the Responses API has in common


def broken_off(error: Any) -> reading.IncompleteReply:
    """Return the error that stands in an answer's place."""
    return reading.broken_off("OpenAI", error, "code", "type")


class LeadingThoughts:
    """Removes the thoughts that some servers put before a text, as `<think>...</think>`, whole or in pieces."""

    def __init__(self) -> None:
        self._place: Literal["before", "inside", "after", "text"] = "before"
        self._buffer = ""

    def add(self, piece: str) -> str:
        """Return the text that *piece* adds."""
        begin_tag, end_tag = _THOUGHTS
        text, self._buffer = self._buffer + piece, ""
        if self._place == "before":
            start = text.lstrip()
            if start.startswith(begin_tag):
                self._place = "inside"
            elif len(text) > _MAX_BLANK or not begin_tag.startswith(start):
                self._place = "text"
            else:
                self._buffer = text
        if self._place == "inside":
            thoughts, tag, text = text.partition(end_tag)
            if tag:
                self._place = "after"
            else:
                self._buffer = thoughts[-len(end_tag) :]
        if self._place == "after":
            text = text.lstrip()
            self._place = "text" if text else "after"
        return text if self._place == "text" else ""

    def end(self) -> str:
        """Return the text that was held back, as it could have become a tag."""
        text = self._buffer if self._place == "before" else ""
        self._buffer = ""
        return text


def without_thoughts(text: str) -> str:
    """Return *text* without the thoughts that it begins with."""
    thoughts = LeadingThoughts()
    return thoughts.add(text) + thoughts.end()


def choice_parameters(kind: str, tool: Any, parallel: bool) -> dict[str, Any]:
    """Return the request's parameters for a choice; *tool* is OpenAI's form of a tool's name. "auto" is its default."""
    choice = {"any": "required", "none": "none", "tool": tool}.get(kind)
    return {
        **({"tool_choice": choice} if choice else {}),
        **({} if parallel else {"parallel_tool_calls": False}),
    }


def read_arguments(arguments: Any) -> Mapping[str, Any] | str:
    """Return arguments as a provider sent them: JSON text, an object, or nothing in any of its spellings."""
    if arguments is None or isinstance(arguments, Mapping):
        return arguments or {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {} if text.strip() in ("", "null") else text


def separate_calls(function: dict[str, Any], tools: Offer) -> list[dict[str, Any]]:
    """Return the calls that *function* is: itself, or those in a `multi_tool_use.parallel`.

    That is a tool in OpenAI's own prompts, which its models call though it was not offered.
    """
    if function.get("name") != _PARALLEL or tools.offers(_PARALLEL):
        return [function]
    arguments = read_arguments(function.get("arguments"))
    try:
        whole = parse_json(arguments) if isinstance(arguments, str) else arguments
    except JSONError:
        return [function]
    calls: list[dict[str, Any]] = []
    uses = whole.get("tool_uses") if isinstance(whole, Mapping) else None
    for use in uses if isinstance(uses, list) else ():
        match use:
            case {"recipient_name": str(name), "parameters": dict(parameters)}:
                calls.append({**function, "name": name, "arguments": parameters})
            case _:
                return [function]
    return calls or [function]


def arguments_text(arguments: str | bytes | Mapping[str, Any] | None) -> str:
    """Return arguments to send back: the JSON text of an object, unchanged where they are one already.

    vLLM and Ollama parse them before the model sees them, and refuse the whole conversation for invalid JSON.
    """
    mapping = arguments_of(Call("", arguments))
    if isinstance(arguments, str) and arguments.strip() and "INVALID_JSON" not in mapping:
        return arguments
    return json.dumps(mapping, ensure_ascii=False)


def text_of(part: Content) -> str:
    """Return *part* as text; of a text file its text, under its name."""
    text = text_of_file(part)
    return part.text if text is None else f"{part.text}\n{text}"


def result_text(result: Result[Any]) -> str:
    """Return a result as text. OpenAI has no flag for errors, so the text names the error's code."""
    text = "\n".join(map(text_of, result.content))
    return text if result.error is None else f"Error ({result.error.code}): {text}"


def data_url(part: Image | Audio | File) -> str:
    return f"data:{part.media_type};base64,{part.base64}"


def file_name(part: File) -> str:
    """Return the name of *part*, with an extension: OpenAI recognizes the kinds of files by these."""
    return part.name or f"file{mimetypes.guess_extension(part.media_type) or ''}"


class _Chat(ReadableFormat):
    stream = Stream

    def definitions(self, tools: Sequence[Offered]) -> list[Object]:
        return [{"type": "function", "function": tool.definition("parameters")} for tool in tools]

    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        return choice_parameters(kind, {"type": "function", "function": {"name": name}}, parallel)

    def choice_among(self, names: Sequence[str], parallel: bool) -> Object:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}
        return choice_parameters("tool", allowed, parallel)

    def read_answer(self, answer: Any, stream: ReplyStream) -> Reply:
        whole = reading.as_mapping(answer, _ANSWER)
        if failure := _failed_call(whole):
            return _reply({}, stream.tools, _ANSWER, "tool_use_failed", failure=failure)
        choices = reading.object_list(whole, "choices", _ANSWER)  # of several, the first
        if not choices:
            raise ValueError(
                f"{_ANSWER} is malformed: 'choices' is empty or missing. Is this a Chat Completions address?"
            )
        where = f"{_ANSWER} (choices[0])"
        finish = choices[0].get("finish_reason")
        # Azure leaves out the message that it filters.
        read_message = reading.optional if finish == "content_filter" else reading.require
        message: Any = read_message(choices[0], "message", dict, where) or {}
        return _reply(message, stream.tools, f"{where}.message", finish, whole.get("usage"))

    def user_messages(self, content: Sequence[Content]) -> list[Object]:
        parts = [_part(part) for part in content]
        only_text = all(part["type"] == "text" for part in parts)
        return [{"role": "user", "content": "\n".join(part["text"] for part in parts) if only_text else parts}]

    def reply_messages(self, turn: Reply, offered: Offer) -> list[Object]:
        return [turn.native if _has_native(turn) else _from_reply(turn, offered)]

    def result_messages(self, results: Sequence[Result[Any]], offered: Offer) -> list[Object]:
        """Return a message for each result, and one more for images and PDFs."""
        messages: list[Object] = [
            {"role": "tool", "tool_call_id": result.call_id, "content": result_text(result)} for result in results
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
                    entries.append(User(_read_content(message, where)))
                case "assistant":
                    entries.append(_reply(message, offered, where, is_stored=True))
                case "tool":
                    text = _text(message.get("content"), where)
                    call_id = reading.require(message, "tool_call_id", str, where)
                    match = _ERROR.fullmatch(text)
                    error = ToolError(match[2], match[1]) if match and match[1] in CODES else None
                    entries.append(ToolOutput(where, (Text(error.message if error else text),), call_id, error))
                case role:
                    raise ValueError(
                        f"{where}.role is {role!r:.40}; it must be system, developer, user, assistant or tool."
                    )
        return "\n\n".join(instructions), entries


_FORMAT = _Chat()
tools, losses, tool_choice = _FORMAT.tools, _FORMAT.losses, _FORMAT.tool_choice
calls, reply, messages = _FORMAT.calls, _FORMAT.reply, _FORMAT.messages
conversation, read_conversation = _FORMAT.conversation, _FORMAT.read_conversation
