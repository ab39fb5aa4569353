"""Google Gemini (models.generateContent): tools, calls and results in its words.

As the REST interface has them; the SDK takes the same dictionaries, `contents` beside a `config` of all else:

    said = conversation(turns, specs, instructions=...)
    client.models.generate_content(
        model=..., contents=said.pop("contents"), config={**said, "tools": tools(specs), **tool_choice("auto", specs)})

Gemini takes text, images and documents in results (`functionResponse.parts`, models from Gemini 3 on). It has no flag
for errors: `response.error` stands where `response.output` would. Results of one turn go together in one message.
Older models give calls no ids; then ids are made up, are never sent back, and Gemini pairs by name and order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from ..core import Audio, Call, Content, Data, File, Image, Result, ToolSpec
from ..schema.lower import Loss
from . import answers, exchange, parts
from .accepts import GEMINI
from .offer import Offer, offer
from .turns import Choice, Reply, Stop, Turn, Usage, Written

_STOPS: Mapping[str, Stop] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
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
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
_MEDIA = ("image/", "audio/", "video/", "text/", "application/pdf")
_ANSWER = "Gemini's answer"
_MADE_UP = "toolcrib:"
# What Google documents for histories that another model wrote: Gemini 3 refuses a call without a signature.
_NO_SIGNATURE = "skip_thought_signature_validator"


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """Gemini's definitions of *specs*: the request's `tools`, which is one tool of many functions; none for none.

    Gemini has no strict mode of a tool, so *strict* changes nothing.
    """
    declared = [
        {
            "name": tool.name,
            "description": tool.description,
            **({} if _takes_nothing(tool.schema) else {"parametersJsonSchema": tool.schema}),
        }
        for tool in _offered(specs, strict).tools
    ]
    return [{"functionDeclarations": declared}] if declared else []


def losses(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
    """What `tools` could not say, by tool; only tools of which something could not be said."""
    return _offered(specs, strict).losses


def tool_choice(choice: Choice = "auto", specs: Iterable[ToolSpec] = (), *, parallel: bool = True) -> dict[str, Any]:
    """The request's parameters for *choice*; nothing where Gemini's default says it.

    Gemini cannot be told to ask for one call at a time, so *parallel* changes nothing. Raises SetupError for the name
    of no tool.
    """
    if choice == "auto":
        return {}
    config: dict[str, Any]
    if choice in ("any", "none"):
        config = {"mode": choice.upper()}
    else:
        specs = tuple(specs)
        config = {"mode": "ANY", "allowedFunctionNames": [_offered(specs).name_of(answers.chosen(choice, specs))]}
    return {"toolConfig": {"functionCallingConfig": config}}


def calls(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> list[Call]:
    """The calls that *answer* asks for, in its order.

    *answer* is a whole answer or the chunks of a streamed one, as dictionaries or as the SDK's objects.
    *strict* is what `tools` was given.

    Raises ValueError, with the place, where its shape is broken or the stream ended before the answer did.
    """
    return list(reply(answer, specs, strict=strict).calls)


def reply(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> Reply:
    """The whole of *answer*; see `calls`. Its `native` keeps thoughts and thought signatures."""
    pieces = answers.streamed(answer)
    return answers.gathered(Stream(specs, strict=strict), [answer] if pieces is None else pieces)


class Stream:
    """A reply in pieces: the chunks of a streamed answer, in their order. (A whole answer is one chunk.)"""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self._offered = _offered(specs, strict)
        self._parts: list[dict[str, Any]] = []
        self._usage: Mapping[str, Any] = {}
        self._stop: str | None = None
        self._id = ""

    def add(self, chunk: Any) -> list[Written]:
        """The words that *chunk* adds. Raises ValueError where its shape is broken, or it tells of an error."""
        answer = answers.data(chunk, _ANSWER)
        if "error" in answer:
            error = answers.at(answer, "error", dict, _ANSWER)
            told = f"{error.get('status')}: {error.get('message')}"
            raise answers.BrokenOff(f"Gemini broke off its answer: {told}", str(error.get("status")))
        self._id = answers.or_none(answer, "responseId", str, _ANSWER) or self._id
        self._usage = answers.or_none(answer, "usageMetadata", dict, _ANSWER) or self._usage
        feedback = answers.or_none(answer, "promptFeedback", dict, _ANSWER) or {}
        if feedback.get("blockReason"):
            self._stop = "PROHIBITED_CONTENT"  # the question was refused: no candidate comes
        candidates = answers.objects(answer, "candidates", _ANSWER)
        if not candidates:
            return []
        where = f"{_ANSWER} (candidates[0])"
        self._stop = answers.or_none(candidates[0], "finishReason", str, where) or self._stop
        content = answers.or_none(candidates[0], "content", dict, where) or {}
        written: list[Written] = []
        for number, part in enumerate(answers.objects(content, "parts", f"{where}.content")):
            written += self._take(part, f"{where}.content.parts[{number}]", goes_on=number == 0)
        return written

    def reply(self) -> Reply:
        """The whole. Raises ValueError where no chunk said why the model stopped: half a reply is none."""
        if self._stop is None:
            raise answers.BrokenOff("Gemini's answer ended in the middle: none of its candidates has a 'finishReason'.")
        said: list[dict[str, Any]] = answers.plain(self._parts, _ANSWER)
        asked = self._calls([part["functionCall"] for part in said if "functionCall" in part])
        cached = answers.count(self._usage, "cachedContentTokenCount")
        return Reply(
            "".join(part["text"] for part in said if "text" in part and not part.get("thought")),
            asked,
            # Gemini says "STOP" of an answer that asks for calls, too.
            "calls" if asked and self._stop == "STOP" else _STOPS.get(self._stop, "other"),
            Usage(
                answers.count(self._usage, "promptTokenCount") + answers.count(self._usage, "toolUsePromptTokenCount"),
                answers.count(self._usage, "candidatesTokenCount") + answers.count(self._usage, "thoughtsTokenCount"),
                cached,
            ),
            {"role": "model", "parts": said},
        )

    def _calls(self, told: Sequence[dict[str, Any]]) -> tuple[Call, ...]:
        made_up = f"{_MADE_UP}{answers.whole_letters(self._id) or uuid4().hex}"
        taken: set[str] = set()
        asked: list[Call] = []
        for number, call in enumerate(told):
            if call.get("id"):
                call["id"] = answers.own_id(call["id"], taken)
            asked.append(
                self._offered.call(call.get("id") or f"{made_up}:{number}", call["name"], call.get("args") or {})
            )
            call["name"] = self._offered.name_of(asked[-1].tool)  # one made up may be none that can be sent back
        return tuple(asked)

    def _take(self, told: Mapping[str, Any], where: str, *, goes_on: bool) -> list[Written]:
        part = {name: value for name, value in told.items() if value is not None}
        if "functionCall" in part:
            call = answers.at(part, "functionCall", dict, where)
            answers.at(call, "name", str, f"{where}.functionCall")
            answers.or_none(call, "args", dict, f"{where}.functionCall")
            answers.or_none(call, "id", str, f"{where}.functionCall")
            if call.get("willContinue") or call.get("partialArgs"):
                raise ValueError(
                    f"{where} is a part of a call. Ask without 'streamFunctionCallArguments': calls then come whole."
                )
        text = answers.or_none(part, "text", str, where)
        last = self._parts[-1] if self._parts else {}
        grows = goes_on and _is_words(part) and _is_words(last) and last.get("thought") == part.get("thought")
        if grows:
            last["text"] += text
        elif text != "" or len(part) > 1:
            self._parts.append(part)  # a signature may come in a part of its own, with no words
        return [] if part.get("thought") else answers.written(text)


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[Any]:
    """The results of one turn's calls, as the one content that Gemini wants next, in the given order.

    *specs* give the tools the names under which Gemini knows them.
    """
    said = _results(results, _offered(specs))
    return [{"role": "user", "parts": said}] if said else []


def conversation(turns: Iterable[Turn], specs: Iterable[ToolSpec] = (), *, instructions: str = "") -> dict[str, Any]:
    """The request's `contents`, and its `systemInstruction` where there are instructions.

    Raises ValueError where a reply's calls and the results after it do not pair.
    """
    offered = _offered(specs)
    said = exchange.messages(
        turns,
        user=lambda turn: [block for part in turn.content for block in _part(part)],
        reply=lambda turn: _native(turn) or _anew(turn, offered),
        results=lambda results: _results(results, offered),
        model="model",
        under="parts",
    )
    return {**({"systemInstruction": {"parts": [{"text": instructions}]}} if instructions else {}), "contents": said}


def _offered(specs: Iterable[ToolSpec], strict: bool | None = None) -> Offer:
    return offer(tuple(specs), GEMINI, strict=strict)


def _takes_nothing(schema: Mapping[str, Any]) -> bool:
    # Older models refuse an object without properties, so a function of no parameters goes without a schema.
    return not schema.get("properties") and schema.get("additionalProperties") is False


def _is_words(part: Mapping[str, Any]) -> bool:
    """A part of words and nothing else: one with a signature stays as it came."""
    return isinstance(part.get("text"), str) and part.keys() <= {"text", "thought"}


def _native(turn: Reply) -> list[dict[str, Any]] | None:
    """The parts of a reply that came from here; None for another provider's: a conversation may change its model."""
    match turn.native:
        case {"role": "model", "parts": [*said]}:
            asked = [part["functionCall"] for part in said if "functionCall" in part]
            ids = [call.id for call in turn.calls]
            known = [one.get("id", made_up) for one, made_up in zip(asked, ids, strict=False)] == ids
            return said if known and len(asked) == len(ids) else None
        case _:
            return None


def _anew(turn: Reply, offered: Offer) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    for number, call in enumerate(turn.calls):
        function = {**_id(call.id), "name": offered.name_of(call.tool), "args": parts.arguments(call)}
        signature = {"thoughtSignature": _NO_SIGNATURE} if number == 0 else {}
        said.append({"functionCall": function, **signature})
    return said


def _results(results: Sequence[Result[Any]], offered: Offer) -> list[dict[str, Any]]:
    return [
        {"functionResponse": {**_id(result.call_id), "name": offered.name_of(result.tool), **_response(result)}}
        for result in exchange.identified(results)
    ]


def _response(result: Result[Any]) -> dict[str, Any]:
    if result.status == "error":
        return {"response": {"error": result.text}}
    shown = [part for part in result.content if isinstance(part, (Image, File)) and part.media_type in _IN_RESULTS]
    match result.content:
        case (Data() as only,):
            output = parts.json_value(only)
        case content:
            output = "\n".join(part.text for part in content)
    return {"response": {"output": output}, **({"parts": [_inline(part) for part in shown]} if shown else {})}


def _part(part: Content) -> list[dict[str, Any]]:
    if isinstance(part, File) and (text := parts.readable(part)) is not None:
        return [{"text": part.text}, {"text": text}] if part.name else [{"text": text}]
    if isinstance(part, (Image, Audio, File)) and part.media_type.startswith(_MEDIA):
        return [_inline(part)]
    return [{"text": part.text}] if part.text else []


def _inline(part: Image | Audio | File) -> dict[str, Any]:
    return {"inlineData": {"mimeType": part.media_type, "data": part.base64}}


def _id(call_id: str) -> dict[str, str]:
    """The id to send: none that was made up here, and no form of another provider's that Gemini may refuse."""
    if call_id.startswith(_MADE_UP):
        return {}
    return {"id": exchange.id_within(r"[a-zA-Z0-9_.-]{1,64}", call_id)}
