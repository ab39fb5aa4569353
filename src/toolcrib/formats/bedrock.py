"""Amazon Bedrock Converse: tools, calls and results in its words.

As boto3 has them, where bytes are bytes:

    client.converse(modelId=..., **conversation(turns, specs, instructions=...),
                    toolConfig={"tools": tools(specs), **tool_choice("auto", specs)})

What `tool_choice` gives belongs inside `toolConfig`. That has at least one tool, and has to be there whenever a message
has calls or results; Converse has no word for "no tools", see `without_tools`.
Tool results take text, JSON objects, images and documents, have a `status`, and come together in the next message.
"""

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, SetupError, Text, ToolSpec
from ..schema.lower import Loss
from . import answers, exchange, parts
from .accepts import BEDROCK
from .offer import Offer, offer
from .turns import Choice, Reply, Stop, Turn, Usage, User, Written, text_of

_STOPS: Mapping[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "refused",
    "content_filtered": "refused",
}
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_SOUNDS = {
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
_ANSWER = "Bedrock's answer"


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """Bedrock's definitions of *specs*: `toolConfig`'s `tools`.

    *strict* None means as each spec says. A tool that strict mode would change is sent non-strict, and `losses` says
    why.
    """
    return [
        {
            "toolSpec": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "inputSchema": {"json": tool.schema},
                **({"strict": True} if tool.strict else {}),
            }
        }
        for tool in _offered(specs, strict).tools
    ]


def losses(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
    """What `tools` could not say, by tool; only tools of which something could not be said."""
    return _offered(specs, strict).losses


def tool_choice(choice: Choice = "auto", specs: Iterable[ToolSpec] = (), *, parallel: bool = True) -> dict[str, Any]:
    """What `toolConfig` has for *choice* beside its tools; nothing where Bedrock's default says it.

    Converse cannot be told to ask for one call at a time, so *parallel* changes nothing. Raises SetupError for "none",
    which Converse cannot be told either, and for the name of no tool.
    """
    match choice:
        case "auto":
            return {}
        case "any":
            return {"toolChoice": {"any": {}}}
        case "none":
            raise SetupError(
                "Bedrock's Converse cannot be told to use no tool. Leave 'toolConfig' out of the request, and "
                "send its messages through toolcrib.formats.bedrock.without_tools, as calls and results need it."
            )
        case name:
            specs = tuple(specs)
            return {"toolChoice": {"tool": {"name": _offered(specs).name_of(answers.chosen(name, specs))}}}


def calls(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> list[Call]:
    """The calls that *answer* asks for, in its order.

    *answer* is what `converse` or `converse_stream` returned, or the events of the latter's stream.
    *strict* is what `tools` was given.

    Raises ValueError,
    with the place, where its shape is broken or the stream ended before the message did.
    """
    return list(reply(answer, specs, strict=strict).calls)


def reply(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> Reply:
    """The whole of *answer*; see `calls`. Its `native` keeps reasoning and its signatures; bytes are base64 there."""
    pieces = answers.streamed(answer)
    if pieces is None:
        whole = answers.data(answer, _ANSWER)
        if "stream" not in whole:
            output = answers.at(whole, "output", dict, _ANSWER)
            message = answers.at(output, "message", dict, f"{_ANSWER} (output)")
            return _reply(message, whole, _offered(specs, strict), {})
        pieces = whole["stream"]
    return answers.gathered(Stream(specs, strict=strict), pieces)


class Stream:
    """A reply in pieces: the events of a streamed message, in their order."""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self._offered = _offered(specs, strict)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}  # arguments as JSON text, by block, as far as it has come
        self._end: dict[str, Any] = {}

    def add(self, chunk: Any) -> list[Written]:
        """The words that *chunk* adds. Raises ValueError where its shape is broken, or it tells of an error."""
        event = answers.data(chunk, "Bedrock's event")
        for name, told in event.items():
            where = f"Bedrock's {name}"
            if str(name).endswith("Exception"):
                message = told.get("message") if isinstance(told, Mapping) else told
                raise answers.BrokenOff(f"Bedrock broke off its answer: {name}: {message}", name)
            if name == "contentBlockStart":
                started = answers.at(event, name, dict, where)
                start = answers.at(started, "start", dict, where)
                self._blocks[answers.at(started, "contentBlockIndex", int, where)] = answers.plain(start, where)
            elif name == "contentBlockDelta":
                return self._grow(answers.at(event, name, dict, where), where)
            elif name == "messageStop":
                self._end |= {"stopReason": answers.at(answers.at(event, name, dict, where), "stopReason", str, where)}
            elif name == "metadata":
                self._end |= {"usage": answers.at(event, name, dict, where).get("usage")}
        return []

    def reply(self) -> Reply:
        """The whole. Raises ValueError where the message has not ended: half a reply is none."""
        if "stopReason" not in self._end:
            raise answers.BrokenOff("Bedrock's stream ended in the middle, before 'messageStop'.")
        order = sorted(self._blocks)
        inputs = {number: answers.whole_letters(self._inputs.get(index, "")) for number, index in enumerate(order)}
        message = {"role": "assistant", "content": [self._blocks[index] for index in order]}
        return _reply(message, self._end, self._offered, inputs)

    def _grow(self, told: Mapping[str, Any], where: str) -> list[Written]:
        index = answers.at(told, "contentBlockIndex", int, where)
        delta = answers.at(told, "delta", dict, where)
        block = self._blocks.setdefault(index, {})  # only calls are announced by a start
        if "toolUse" in delta:
            if "toolUse" not in block:
                raise ValueError(f"{where} is broken: the call of block {index} was never started.")
            piece = answers.at(answers.at(delta, "toolUse", dict, where), "input", str, where)
            self._inputs[index] = self._inputs.get(index, "") + piece
        elif "text" in delta:
            text = answers.at(delta, "text", str, where)
            block["text"] = block.get("text", "") + text
            return answers.written(text)
        elif "reasoningContent" in delta:
            _reason(block.setdefault("reasoningContent", {}), answers.at(delta, "reasoningContent", dict, where))
        return []


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[Any]:
    """The results of one turn's calls, as the one message that Bedrock wants next, in the given order."""
    said = _results(results)
    return _named_apart([{"role": "user", "content": said}]) if said else []


def conversation(turns: Iterable[Turn], specs: Iterable[ToolSpec] = (), *, instructions: str = "") -> dict[str, Any]:
    """The request's `messages`, and its `system` where there are instructions.

    Raises ValueError where a reply's calls and the results after it do not pair.
    """
    offered = _offered(specs)
    said = exchange.messages(
        turns,
        user=_user,
        reply=lambda turn: _native(turn) or _anew(turn, offered),
        results=_results,
        model="assistant",
        under="content",
    )
    return {**({"system": [{"text": instructions}]} if instructions else {}), "messages": _named_apart(said)}


def without_tools(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """*messages* with their calls and results in words: for a request without `toolConfig`."""
    return [
        {"role": message["role"], "content": [plain for block in message["content"] for plain in _plain(block)]}
        for message in messages
    ]


def _offered(specs: Iterable[ToolSpec], strict: bool | None = None) -> Offer:
    return offer(tuple(specs), BEDROCK, strict=strict)


def _reply(message: Mapping[str, Any], whole: Mapping[str, Any], offered: Offer, inputs: Mapping[int, str]) -> Reply:
    content = answers.objects(answers.plain(message, _ANSWER), "content", _ANSWER)
    texts: list[str] = []
    asked: list[Call] = []
    taken: set[str] = set()
    for number, block in enumerate(content):
        where = f"{_ANSWER} (content[{number}])"
        if "text" in block:
            texts.append(answers.at(block, "text", str, where))
        elif "citationsContent" in block:
            cited = answers.at(block, "citationsContent", dict, where)
            texts += [answers.at(piece, "text", str, where) for piece in answers.objects(cited, "content", where)]
        elif "toolUse" in block:
            use = answers.at(block, "toolUse", dict, where)
            # Converse lets the model write any JSON here; what is no object is for the check of the call to explain.
            given = (inputs.get(number) or "{}") if number in inputs else use.get("input", {})
            use["input"] = parts.told(given)
            if _is_call(block):
                name = answers.at(use, "name", str, where)
                written = given if isinstance(given, (str, dict)) else parts.json_text(given)
                use["toolUseId"] = answers.own_id(answers.at(use, "toolUseId", str, where), taken)
                asked.append(offered.call(use["toolUseId"], name, written))
                use["name"] = offered.name_of(asked[-1].tool)  # one that was made up may be none that can be sent back
    usage = answers.or_none(whole, "usage", dict, _ANSWER) or {}
    cached = answers.count(usage, "cacheReadInputTokens")
    return Reply(
        "".join(texts),
        tuple(asked),
        answers.stop(whole.get("stopReason"), _STOPS),
        Usage(
            # `inputTokens` are those that are neither read from the cache nor written to it.
            answers.count(usage, "inputTokens") + answers.count(usage, "cacheWriteInputTokens") + cached,
            answers.count(usage, "outputTokens"),
            cached,
        ),
        {"role": "assistant", "content": content},
    )


def _reason(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Reasoning is streamed flat, and told as a whole: words and their signature together."""
    for key in ("text", "signature"):
        if isinstance(delta.get(key), str):
            whole = block.setdefault("reasoningText", {"text": ""})
            whole[key] = whole.get(key, "") + delta[key]
    hidden = delta.get("redactedContent")
    if isinstance(hidden, str | bytes):
        block["redactedContent"] = block.get("redactedContent", b"") + (
            hidden if isinstance(hidden, bytes) else b64decode(hidden)
        )


def _native(turn: Reply) -> list[dict[str, Any]] | None:
    """The blocks of a reply that came from here, with bytes as boto3 wants them; None for another provider's."""
    match turn.native:
        case {"role": "assistant", "content": [*blocks]} if all(
            isinstance(b, dict) and "type" not in b for b in blocks
        ):
            if [block["toolUse"].get("toolUseId") for block in blocks if _is_call(block)] != [c.id for c in turn.calls]:
                return None
            # An answer may have empty text; it cannot be sent.
            return [_sendable(block) for block in blocks if block.get("text") != ""]
        case _:
            return None


def _is_call(block: Mapping[str, Any]) -> bool:
    use = block.get("toolUse")
    return isinstance(use, Mapping) and use.get("type") != "server_tool_use"


def _sendable(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"reasoningContent": {"redactedContent": str(text)}}:
            return {"reasoningContent": {"redactedContent": b64decode(text)}}
        case {"image": {"format": form, "source": {"bytes": str(text)}}}:
            return {"image": {"format": form, "source": {"bytes": b64decode(text)}}}
        case _:
            return block


def _anew(turn: Reply, offered: Offer) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    for call in turn.calls:
        use = {"toolUseId": _id(call.id), "name": offered.name_of(call.tool), "input": parts.arguments(call)}
        said.append({"toolUse": use})
    return said


def _results(results: Sequence[Result[Any]]) -> list[dict[str, Any]]:
    return [
        {
            "toolResult": {
                "toolUseId": _id(result.call_id),
                # Neither no content nor empty text is taken by every model.
                "content": _shown(result) or [{"text": "(no output)"}],
                "status": "error" if result.status == "error" else "success",
            }
        }
        for result in exchange.identified(results)
    ]


def _shown(result: Result[Any]) -> list[dict[str, Any]]:
    if result.status == "error":  # of which Claude takes words only
        return [{"text": result.text}] if result.text.strip() else []
    return [block for part in result.content for block in _block(part, in_result=True)]


def _user(turn: User) -> list[dict[str, Any]]:
    blocks = [block for part in turn.content for block in _block(part)]
    # A document needs words beside it.
    alone = any("document" in block for block in blocks) and not any("text" in block for block in blocks)
    return [*([{"text": text_of(turn.content)}] if alone else []), *blocks]


def _block(part: Content, *, in_result: bool = False) -> list[dict[str, Any]]:
    match part:
        case Data() if in_result and isinstance(value := parts.json_value(part), dict):
            return [{"json": value}]  # many models take no other JSON than objects
        case Image(data, media_type) if data and media_type in _IMAGES:
            return [{"image": {"format": _IMAGES[media_type], "source": {"bytes": data}}}]
        case Audio(data, media_type) if data and media_type in _SOUNDS and not in_result:
            return [{"audio": {"format": _SOUNDS[media_type], "source": {"bytes": data}}}]
        case File(data, media_type, name) if data:
            form = _DOCUMENTS.get(media_type.partition(";")[0], "txt" if parts.readable(part) else None)
            if form is not None:
                return [{"document": {"format": form, "name": _named(name), "source": {"bytes": data}}}]
        case Text() | Data() | Image() | Audio() | File():
            pass
    return [{"text": part.text}] if part.text.strip() else []


def _named(name: str | None) -> str:
    """A name that Bedrock takes: letters, digits, single spaces, hyphens, brackets."""
    return " ".join(re.sub(r"[^a-zA-Z0-9\-()\[\]]+", " ", name or "").split())[:180].strip() or "document"


def _named_apart(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*said*, in which no two documents have one name: Bedrock refuses that, in a whole request."""
    seen: dict[str, int] = {}
    for message in said:
        for block in message["content"]:
            for inner in block["toolResult"]["content"] if "toolResult" in block else [block]:
                if "document" in inner:
                    name = inner["document"]["name"]
                    seen[name] = number = seen.get(name, 0) + 1
                    if number > 1:
                        inner["document"]["name"] = f"{name} ({number})"
    return said


def _plain(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    match block:
        case {"toolUse": {"name": name, "input": given}}:
            return [{"text": f"[I called the tool {name} with {parts.json_text(given)}]"}]
        case {"toolResult": {"content": [*inner], "status": status}}:
            told = "failed" if status == "error" else "answered"
            shown = [{"text": parts.json_text(block["json"])} if "json" in block else block for block in inner]
            return [{"text": f"[The tool {told}:]"}, *shown]
        case _:
            return [dict(block)]


def _id(call_id: str) -> str:
    return exchange.id_within(r"[a-zA-Z0-9_.:-]{1,64}", call_id)
