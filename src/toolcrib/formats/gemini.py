"""Google Gemini (models.generateContent): tools, calls, results and conversations.

As in the REST API; the SDK takes the same dictionaries, `contents` beside a `config` of everything else:

    request = conversation(turns, specs, instructions=...)
    client.models.generate_content(
        model=..., contents=request.pop("contents"), config={**request, "tools": tools(specs), **tool_choice("auto")})

Gemini accepts text, images and documents in results (`functionResponse.parts`, models from Gemini 3 on). It has no flag
for errors: `response.error` is in the place of `response.output`. Results of one turn are together in one message.
Older models give calls no ids; then ids are made up, are never sent back, and Gemini pairs by name and order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from ..core import Audio, Call, Content, Data, File, Image, Result, ToolSpec
from ..machinery import text_of_file
from . import history, reading
from .accepts import GEMINI
from .content import arguments_of, json_value
from .format import BlockFormat, Object, ReplyStream
from .offer import Offer, Offered
from .turns import Reply, Stop, text_of

_STOPS: Mapping[str, Stop] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"), "malformed"),
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "ESCALATION",
            "MODEL_ARMOR",
        ),
        "refused",
    ),
}
_USAGE: reading.UsageNames = {
    "input": ("promptTokenCount", "toolUsePromptTokenCount"),
    "output": ("candidatesTokenCount", "thoughtsTokenCount"),
    "cached": ("cachedContentTokenCount",),
    "reasoning": ("thoughtsTokenCount",),
}
_RESULT_MEDIA = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
_USER_MEDIA = ("image/", "audio/", "video/", "text/", "application/pdf")
_ANSWER = "Gemini's answer"
_OWN_ID = "toolcrib:"
# Google documents this for histories of another model: Gemini 3 refuses a call without a signature.
_NO_SIGNATURE = "skip_thought_signature_validator"


class Stream(ReplyStream):
    """A reply read from the chunks of a streamed answer, in their order. (A whole answer is one chunk.)"""

    accepts = GEMINI
    _usage: Any = None
    _stop: str | None = None
    _message = ""
    _id = ""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        super().__init__(specs, strict=strict)
        self._parts: list[Object] = []

    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where no chunk had a reason why the model stopped."""
        if self._stop is None:
            raise reading.IncompleteReply(
                "Gemini's answer ended in the middle: none of its candidates has a 'finishReason'."
            )
        native: list[Object] = reading.json_data(self._parts, _ANSWER)
        calls = self._calls(native)
        return reading.finished_reply(
            "".join(part["text"] for part in native if "text" in part and not part.get("thought")),
            calls,
            # Gemini gives "STOP" for an answer with calls, too; the other for calls of tools that it was not offered.
            "calls" if calls and self._stop in ("STOP", "UNEXPECTED_TOOL_CALL") else _STOPS.get(self._stop, "other"),
            reading.read_usage(self._usage, _USAGE),
            {"role": "model", "parts": native},
            reason=f"{self._stop}: {self._message}" if self._message else self._stop,
        )

    def _add(self, chunk: Any) -> str:
        answer = reading.as_mapping(chunk, _ANSWER)
        if "error" in answer:
            raise reading.broken_off("Gemini", answer["error"], "status")
        self._id = reading.optional(answer, "responseId", str, _ANSWER) or self._id
        self._usage = answer.get("usageMetadata") or self._usage
        feedback = reading.optional(answer, "promptFeedback", dict, _ANSWER) or {}
        if feedback.get("blockReason"):
            self._stop = "PROHIBITED_CONTENT"  # the prompt was refused: no candidate follows
        candidates = reading.object_list(answer, "candidates", _ANSWER)
        return self._add_candidate(candidates[0], f"{_ANSWER} (candidates[0])") if candidates else ""

    def _add_candidate(self, candidate: Mapping[str, Any], where: str) -> str:
        """Return the text that *candidate* adds."""
        self._stop = reading.optional(candidate, "finishReason", str, where) or self._stop
        self._message = reading.optional(candidate, "finishMessage", str, where) or self._message
        content = reading.optional(candidate, "content", dict, where) or {}
        texts: list[str] = []
        for number, data in enumerate(reading.object_list(content, "parts", f"{where}.content")):
            part = _checked_part(data, f"{where}.content.parts[{number}]")
            self._append(part, continues=number == 0)
            texts += [] if part.get("thought") else [part.get("text") or ""]
        return "".join(map(str, texts))

    def _calls(self, native: Sequence[Object]) -> list[Call]:
        """Return the calls in the parts *native*. One without an id gets one that marks it as made up."""
        prefix = f"{_OWN_ID}{reading.join_surrogates(self._id) or uuid4().hex}"
        used_ids: set[str] = set()
        calls: list[Call] = []
        for number, call in enumerate(part["functionCall"] for part in native if "functionCall" in part):
            if call.get("id"):
                call["id"] = reading.unique_id(call["id"], used_ids)
            calls.append(self.tools.read_call(call, call.get("id") or f"{prefix}:{number}", call.get("args") or {}))
        return calls

    def _append(self, part: dict[str, Any], *, continues: bool) -> None:
        last = self._parts[-1] if self._parts else {}
        text = part.get("text")
        if continues and _is_text(part) and _is_text(last) and last.get("thought") == part.get("thought"):
            reading.append_text(last, "text", part["text"])
        elif text != "" or len(part) > 1:
            self._parts.append(part)  # a signature may come in a part of its own, without text


def _checked_part(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    part = {name: value for name, value in data.items() if value is not None}
    if "functionCall" in part:
        call = reading.require(part, "functionCall", dict, where)
        reading.require(call, "name", str, f"{where}.functionCall")
        reading.optional(call, "args", dict, f"{where}.functionCall")
        reading.optional(call, "id", str, f"{where}.functionCall")
        if call.get("willContinue") or call.get("partialArgs"):
            raise ValueError(
                f"{where} is a part of a call. Ask without 'streamFunctionCallArguments': calls are then whole."
            )
    reading.optional(part, "text", str, where)
    return part


def _is_text(part: Mapping[str, Any]) -> bool:
    """Return whether *part* is text and nothing else: one with a signature stays as it came."""
    return isinstance(part.get("text"), str | reading.Pieces) and part.keys() <= {"text", "thought"}


# Turns as contents


def _takes_no_arguments(schema: Mapping[str, Any]) -> bool:
    # Older models refuse an object without properties, so a function without parameters is sent without a schema.
    return not schema.get("properties") and schema.get("additionalProperties") is False


def _response(result: Result[Any]) -> dict[str, Any]:
    if result.status == "error":
        return {"response": {"error": result.text}}
    media = [part for part in result.content if isinstance(part, (Image, File)) and part.media_type in _RESULT_MEDIA]
    match result.content:
        case (Data() as only,):
            output = json_value(only)
        case content:
            output = text_of(content)
    return {"response": {"output": output}, **({"parts": [_inline(part) for part in media]} if media else {})}


def _inline(part: Image | Audio | File) -> dict[str, Any]:
    return {"inlineData": {"mimeType": part.media_type, "data": part.base64}}


def _id(call_id: str) -> dict[str, str]:
    """Return the id to send: none that was made up here, and no form of another provider's that Gemini may refuse."""
    if call_id.startswith(_OWN_ID):
        return {}
    return {"id": history.fitting_id(r"[a-zA-Z0-9_.-]{1,64}", call_id)}


class _Gemini(BlockFormat):
    stream = Stream
    content_key = "parts"
    model_role = "model"

    def definitions(self, tools: Sequence[Offered]) -> list[Object]:
        """Return one tool of many functions, and none of none."""
        functions = [
            {
                "name": tool.name,
                "description": tool.description,
                **({} if _takes_no_arguments(tool.schema) else {"parametersJsonSchema": tool.schema}),
            }
            for tool in tools
        ]
        return [{"functionDeclarations": functions}] if functions else []

    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        if kind == "auto":
            return {}
        config = {"mode": "ANY", "allowedFunctionNames": [name]} if kind == "tool" else {"mode": kind.upper()}
        return {"toolConfig": {"functionCallingConfig": config}}

    def choice_among(self, names: Sequence[str], parallel: bool) -> Object:
        return {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [*names]}}}

    def read_answer(self, answer: Any, stream: ReplyStream) -> Reply:
        stream.add(answer)
        return stream.reply()

    def content_blocks(self, part: Content, *, in_result: bool = False) -> list[Object]:
        if isinstance(part, File) and (text := text_of_file(part)) is not None:
            return [{"text": part.text}, {"text": text}] if part.name else [{"text": text}]
        if isinstance(part, (Image, Audio, File)) and part.media_type.startswith(_USER_MEDIA):
            return [_inline(part)]
        return [{"text": part.text}] if part.text else []

    def native_blocks(self, turn: Reply) -> list[Object] | None:
        match turn.native:
            case {"role": "model", "parts": [*parts]}:
                native_calls = [part["functionCall"] for part in parts if "functionCall" in part]
                ids = [call.id for call in turn.calls]
                if len(native_calls) != len(ids):
                    return None
                native_ids = [call.get("id", own_id) for call, own_id in zip(native_calls, ids, strict=True)]
                return parts if native_ids == ids else None
            case _:
                return None

    def call_blocks(self, calls: Sequence[Call], offered: Offer) -> list[Object]:
        functions = [{**_id(c.id), "name": offered.name_of(c.tool), "args": arguments_of(c)} for c in calls]
        signatures: list[Object] = [{"thoughtSignature": _NO_SIGNATURE}, *({} for _ in calls)]
        return [{"functionCall": function, **sig} for function, sig in zip(functions, signatures, strict=False)]

    def result_block(self, result: Result[Any], offered: Offer) -> Object:
        return {"functionResponse": {**_id(result.call_id), "name": offered.name_of(result.tool), **_response(result)}}

    def request(self, messages: list[Object], instructions: str) -> Object:
        system = {"systemInstruction": {"parts": [{"text": instructions}]}} if instructions else {}
        return {**system, "contents": messages}


_FORMAT = _Gemini()
tools, losses, tool_choice = _FORMAT.tools, _FORMAT.losses, _FORMAT.tool_choice
calls, reply = _FORMAT.calls, _FORMAT.reply
messages, conversation = _FORMAT.messages, _FORMAT.conversation
