"""Amazon Bedrock Converse: tools, calls, results and conversations.

As boto3 has them, where bytes are bytes:

    client.converse(modelId=..., **conversation(turns, specs, instructions=...),
                    toolConfig={"tools": tools(specs), **tool_choice("auto", specs)})

`tool_choice` gives members of `toolConfig`. That must have at least one tool, and must be sent whenever a message has
calls or results; Converse has no choice for "no tools", see `without_tools`. Tool results may be text, JSON objects,
images and documents, have a `status`, and are together in the next message.
"""

import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, SetupError, Text, ToolError
from ..machinery import text_of_file
from . import history, reading
from .accepts import BEDROCK
from .content import arguments_object, arguments_of, decoded, json_text, json_value
from .format import BlockFormat, BlockStream, Entry, Object, ReadableFormat, ReplyStream
from .history import ToolOutput
from .offer import Offer, Offered
from .turns import Reply, Stop, User, text_of

STOPS: Mapping[str, Stop] = {
    **dict.fromkeys(("end_turn", "stop_sequence"), "end"),
    "tool_use": "calls",
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("guardrail_intervened", "content_filtered"), "refused"),
    **dict.fromkeys(("malformed_model_output", "malformed_tool_use"), "malformed"),
}
"""Why the model stopped, by Bedrock's word for it."""
# `inputTokens` are those that are neither read from the cache nor written to it.
_USAGE: reading.UsageNames = {
    "input": ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    "output": ("outputTokens",),
    "cached": ("cacheReadInputTokens",),
    "cache_writes": ("cacheWriteInputTokens",),
}
_ANSWER = "Bedrock's answer"
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_AUDIO = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/webm": "webm",
}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
_MEDIA_TYPES = {
    **{form: media_type for types in (_AUDIO, _IMAGES) for media_type, form in reversed(types.items())},
    **{form: media_type for media_type, form in _DOCUMENTS.items()},
    "txt": "text/plain",
}


class Stream(BlockStream):
    """A reply read from the events of a streamed message, in their order."""

    accepts = BEDROCK
    _reason: str | None = None
    _usage: Any = None

    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where the stream ended before the message did."""
        if self._reason is None:
            raise reading.IncompleteReply("Bedrock's stream ended in the middle, before 'messageStop'.")
        message = {"role": "assistant", "content": [_whole_block(block) for block in self._ordered_blocks() if block]}
        return _reply(message, self.tools, reason=self._reason, usage=self._usage)

    def _add(self, chunk: Any) -> Any:
        event = reading.as_mapping(chunk, "Bedrock's event")
        for name in event:
            where = f"Bedrock's {name}"
            if str(name).endswith("Exception"):
                error = event[name] if isinstance(event[name], Mapping) else {"message": event[name]}
                raise reading.broken_off("Bedrock", {**error, "code": name}, "code")
            match name:
                case "messageStart":  # a gateway that asks again begins again
                    self._blocks.clear()
                    self._reason = self._usage = None
                case "contentBlockStart":
                    start = reading.require(event, name, dict, where)
                    block = _first_block(reading.require(start, "start", dict, where), where)
                    self._blocks[reading.require(start, "contentBlockIndex", int, where)] = block
                case "contentBlockDelta":
                    change = reading.require(event, name, dict, where)
                    delta = reading.require(change, "delta", dict, where)
                    # Only calls, and what Bedrock's own tools did, have a start.
                    block = self._blocks.setdefault(reading.require(change, "contentBlockIndex", int, where), {})
                    _add_delta(block, delta, where)
                    return delta.get("text")
                case "messageStop":
                    self._reason = reading.require(reading.require(event, name, dict, where), "stopReason", str, where)
                case "metadata":
                    self._usage = reading.require(event, name, dict, where).get("usage")
                case _:
                    pass
        return None


def _first_block(start: Mapping[str, Any], where: str) -> Object:
    block: Object = reading.json_data(start, where)
    if "toolResult" in block:  # of a tool of Bedrock's own
        result = reading.require(block, "toolResult", dict, where)
        result["content"] = reading.object_list(result, "content", where)
    return block


def _add_delta(block: Object, delta: Mapping[str, Any], where: str) -> None:
    """Add *delta* to *block*, as far as it has been streamed. Raises ValueError, with the place."""
    match delta:
        case {"toolUse": _}:
            use = reading.require(block, "toolUse", dict, f"{where} of a call that was never started")
            change = reading.require(delta, "toolUse", dict, where)
            reading.append_text(use, "input", reading.require(change, "input", str, where))
        case {"text": _}:
            reading.append_text(block, "text", reading.require(delta, "text", str, where))
        case {"citation": _}:
            block.setdefault("citations", []).append(reading.require(delta, "citation", dict, where))
        case {"image": _} if "image" in block:
            image = reading.require(block, "image", dict, where)
            block["image"] = {**image, **reading.require(delta, "image", dict, where)}
        case {"toolResult": _} if "toolResult" in block:
            _add_output(block["toolResult"]["content"], delta, where)
        case {"reasoningContent": _}:
            reasoning = reading.require(delta, "reasoningContent", dict, where)
            _add_reasoning(block.setdefault("reasoningContent", {}), reasoning, where)
        case _:
            pass


def _add_output(content: list[Object], delta: Mapping[str, Any], where: str) -> None:
    for part in reading.object_list(delta, "toolResult", where):
        if "text" in part and content and "text" in content[-1]:
            reading.append_text(content[-1], "text", reading.require(part, "text", str, where))
        else:
            content.append(dict(part))


def _add_reasoning(block: Object, delta: Mapping[str, Any], where: str) -> None:
    """Add reasoning, which is flat in a stream and nested in a message: text and its signature together."""
    for key in ("text", "signature"):
        if isinstance(delta.get(key), str):
            reading.append_text(block.setdefault("reasoningText", {"text": ""}), key, delta[key])
    if isinstance(delta.get("redactedContent"), str | bytes):
        block.setdefault("redactedContent", bytearray()).extend(decoded(delta, "redactedContent", where))


def _whole_block(block: Object) -> Object:
    """Return a streamed *block* as it is in a message: text that has citations is a block of another kind."""
    if "citations" not in block:
        return block
    text = [{"text": block["text"]}] if "text" in block else []
    return {"citationsContent": {"content": text, "citations": block["citations"]}}


# An answer as a Reply


def _reply(
    message: Mapping[str, Any], tools: Offer, place: str = _ANSWER, *, reason: Any = None, usage: Any = None
) -> Reply:
    content = reading.object_list(reading.json_data(message, place), "content", place)
    texts: list[str] = []
    calls: list[Call] = []
    used_ids: set[str] = set()
    for number, block in enumerate(content):
        where = f"{place} (content[{number}])"
        if "text" in block:
            texts.append(reading.require(block, "text", str, where))
        elif "citationsContent" in block:
            parts = reading.object_list(reading.require(block, "citationsContent", dict, where), "content", where)
            texts += [reading.require(part, "text", str, where) for part in parts]
        elif "toolUse" in block:
            use = reading.require(block, "toolUse", dict, where)
            # Converse lets the model write any JSON here; the check of the call explains what is not an object.
            arguments = "{}" if (value := use.get("input", {})) == "" else value
            use["input"] = arguments_object(arguments)
            if _is_call(block):
                reading.require(use, "name", str, where)
                use["toolUseId"] = reading.unique_id(reading.require(use, "toolUseId", str, where), used_ids)
                text = arguments if isinstance(arguments, (str, dict)) else json_text(arguments)
                calls.append(tools.read_call(use, use["toolUseId"], text))
    return reading.finished_reply(
        "".join(texts),
        calls,
        reading.stop_reason(reason, STOPS),
        reading.read_usage(usage, _USAGE),
        {"role": "assistant", "content": content},
        reason=str(reason or ""),
    )


# Turns as messages, and messages as turns


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and "type" not in block


def _is_call(block: Mapping[str, Any]) -> bool:
    use = block.get("toolUse")
    return isinstance(use, Mapping) and use.get("type") != "server_tool_use"


def without_tools(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return *messages* with their calls and results as text: for a request without `toolConfig`."""
    return [
        {"role": message["role"], "content": [text for block in message["content"] for text in _as_text(block)]}
        for message in messages
    ]


def _as_text(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    match block:
        case {"toolUse": {"name": name, "input": arguments}}:
            return [{"text": f"[I called the tool {name} with {json_text(arguments)}]"}]
        case {"toolResult": {"content": [*inner], **rest}}:
            verb = "failed" if rest.get("status") == "error" else "answered"
            output = [{"text": json_text(block["json"])} if "json" in block else block for block in inner]
            return [{"text": f"[The tool {verb}:]"}, *output]
        case _:
            return [dict(block)]


def _id(call_id: str) -> str:
    return history.fitting_id(r"[a-zA-Z0-9_.:-]{1,64}", call_id)


def _document_format(file: File) -> str | None:
    """Return Bedrock's word for what *file* is; None where it has none."""
    return _DOCUMENTS.get(file.media_type.partition(";")[0]) or ("txt" if text_of_file(file) else None)


def _document_name(name: str | None) -> str:
    """Return a name that Bedrock accepts: letters, digits, single spaces, hyphens, brackets."""
    return " ".join(re.sub(r"[^a-zA-Z0-9\-()\[\]]+", " ", name or "").split())[:180].strip() or "document"


def read_block(block: Mapping[str, Any], where: str) -> Content:
    """Return the content of *block*. Raises ValueError, with the place, where it is malformed."""
    if "text" in block:
        return Text(reading.require(block, "text", str, where))
    if "json" in block:
        return Data(json.dumps(reading.json_data(block["json"], where), ensure_ascii=False, separators=(",", ":")))
    kind = next((kind for kind in ("image", "audio", "document") if kind in block), None)
    if kind is None:
        raise ValueError(f"{where} must have one of text, json, image, audio, document or toolResult.")
    media = reading.require(block, kind, dict, where)
    where = f"{where}.{kind}"
    data = decoded(reading.require(media, "source", dict, where), "bytes", f"{where}.source")
    form = reading.require(media, "format", str, where)
    media_type = _MEDIA_TYPES.get(form, f"{'application' if kind == 'document' else kind}/{form}")
    if kind == "document":
        return File(data, media_type, reading.optional(media, "name", str, where))
    return Image(data, media_type) if kind == "image" else Audio(data, media_type)


def _with_bytes(value: Any) -> Any:
    """Return *value*, a block of JSON data, with bytes where Converse has them."""
    match value:
        case list():
            return [_with_bytes(inner) for inner in value]
        case dict():
            return {name: _member(name, inner) for name, inner in value.items()}
        case _:
            return value


def _member(name: str, value: Any) -> Any:
    if name in ("bytes", "redactedContent") and isinstance(value, str):
        try:
            return b64decode(value)
        except ValueError:
            return value
    return value if name in ("input", "json") else _with_bytes(value)  # these are a model's and a tool's own JSON


def _rename_documents(blocks: Iterable[Any], counts: Counter[str]) -> None:
    """Add numbers to repeated names of documents: Bedrock refuses them in a request."""
    for block in blocks:
        match block:
            case {"toolResult": {"content": [*inner]}}:
                _rename_documents(inner, counts)
            case {"document": {"name": str(name)} as document}:
                counts[name] += 1
                if counts[name] > 1:
                    document["name"] = f"{name} ({counts[name]})"
            case _:
                pass


class _Bedrock(BlockFormat, ReadableFormat):
    stream = Stream

    def definitions(self, tools: Sequence[Offered]) -> list[Object]:
        definitions = [{**tool.definition("inputSchema"), "inputSchema": {"json": tool.schema}} for tool in tools]
        return [{"toolSpec": definition} for definition in definitions]

    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        match kind:
            case "auto":
                return {}
            case "any":
                return {"toolChoice": {"any": {}}}
            case "tool":
                return {"toolChoice": {"tool": {"name": name}}}
            case _:
                raise SetupError(
                    "Bedrock's Converse has no tool choice 'none'. Leave 'toolConfig' out of the request, and pass its "
                    "messages through toolcrib.formats.bedrock.without_tools: calls and results need a 'toolConfig'."
                )

    def read_answer(self, answer: Any, stream: ReplyStream) -> Reply:
        whole = reading.as_mapping(answer, _ANSWER)
        output = reading.require(whole, "output", dict, _ANSWER)
        message = reading.require(output, "message", dict, f"{_ANSWER} (output)")
        return _reply(message, stream.tools, reason=whole.get("stopReason"), usage=whole.get("usage"))

    def content_blocks(self, part: Content, *, in_result: bool = False) -> list[Object]:
        match part:
            case Data() if in_result and isinstance(value := json_value(part), dict):
                return [{"json": value}]  # many models accept no other JSON than objects
            case Image(data, media_type) if data and media_type in _IMAGES:
                return [{"image": {"format": _IMAGES[media_type], "source": {"bytes": data}}}]
            case Audio(data, media_type) if data and media_type in _AUDIO and not in_result:
                return [{"audio": {"format": _AUDIO[media_type], "source": {"bytes": data}}}]
            case File(data, _, name) if data and (form := _document_format(part)):
                return [{"document": {"format": form, "name": _document_name(name), "source": {"bytes": data}}}]
            case Text() | Data() | Image() | Audio() | File():
                pass
        return [{"text": part.text}] if part.text.strip() else []

    def user_blocks(self, content: Sequence[Content]) -> list[Object]:
        blocks = super().user_blocks(content)
        # A document needs text beside it.
        alone = any("document" in block for block in blocks) and not any("text" in block for block in blocks)
        return [*([{"text": text_of(content)}] if alone else []), *blocks]

    def native_blocks(self, turn: Reply) -> list[Object] | None:
        match turn.native:
            case {"role": "assistant", "content": [*blocks]} if all(map(_is_block, blocks)):
                ids = [block["toolUse"].get("toolUseId") for block in blocks if _is_call(block)]
                if ids != [call.id for call in turn.calls]:
                    return None
                # An answer may have blank text; it cannot be sent.
                return [_with_bytes(block) for block in blocks if str(block.get("text", "-")).strip()]
            case _:
                return None

    def call_blocks(self, calls: Sequence[Call], offered: Offer) -> list[Object]:
        return [
            {"toolUse": {"toolUseId": _id(c.id), "name": offered.name_of(c.tool), "input": arguments_of(c)}}
            for c in calls
        ]

    def result_block(self, result: Result[Any], offered: Offer) -> Object:
        return {
            "toolResult": {
                "toolUseId": _id(result.call_id),
                # Not every model accepts empty content or empty text.
                "content": self.result_content(result) or [{"text": "(no output)"}],
                "status": "error" if result.status == "error" else "success",
            }
        }

    def joined(self, messages: list[Object]) -> list[Object]:
        messages = super().joined(messages)
        _rename_documents((block for message in messages for block in message["content"]), Counter())
        return messages

    def request(self, messages: list[Object], instructions: str) -> Object:
        return {**({"system": [{"text": instructions}]} if instructions else {}), "messages": messages}

    def read_messages(
        self, messages: Sequence[Object], parameters: Mapping[str, Any], offered: Offer
    ) -> tuple[str, list[Entry]]:
        entries: list[Entry] = []
        for number, message in enumerate(messages):
            where = f"messages[{number}]"
            reading.require(message, "content", list, where)
            blocks, role = reading.object_list(message, "content", where), message.get("role")
            if role == "assistant":
                entries.append(_reply({**message, "content": blocks}, offered, where))
            elif role != "user":
                raise ValueError(f"{where}.role is {role!r:.40}; it must be user or assistant.")
            else:
                entries += _read_user(blocks, f"{where}.content")
        system = reading.object_list(parameters, "system", "The conversation")
        return "\n".join(reading.require(block, "text", str, f"system[{n}]") for n, block in enumerate(system)), entries


def _read_user(blocks: Sequence[Object], where: str) -> list[Entry]:
    """Return what a message of the user has: results, and then the rest."""
    places = [(block, f"{where}[{at}]") for at, block in enumerate(blocks)]
    results = [_read_result(block, place) for block, place in places if "toolResult" in block]
    content = tuple(read_block(block, place) for block, place in places if "toolResult" not in block)
    return [*results, User(content)] if content else [*results]


def _read_result(block: Object, where: str) -> ToolOutput:
    output = reading.require(block, "toolResult", dict, where)
    where = f"{where}.toolResult"
    inner = reading.object_list(output, "content", where)
    parts = tuple(read_block(part, f"{where}.content[{at}]") for at, part in enumerate(inner))
    error = ToolError(text_of(parts)) if output.get("status") == "error" else None
    return ToolOutput(where, parts, reading.require(output, "toolUseId", str, where), error=error)


_FORMAT = _Bedrock()
tools, losses, tool_choice = _FORMAT.tools, _FORMAT.losses, _FORMAT.tool_choice
calls, reply, messages = _FORMAT.calls, _FORMAT.reply, _FORMAT.messages
conversation, read_conversation = _FORMAT.conversation, _FORMAT.read_conversation
