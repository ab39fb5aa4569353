"""OpenAI Chat Completions (POST /v1/chat/completions): tools, calls and results in its words.

    client.chat.completions.create(model=..., tools=tools(specs), **tool_choice("auto", specs),
                                   **conversation(turns, specs, instructions=...))

Mistral, Groq, Ollama, vLLM, OpenRouter and many others speak this format, each a little differently: what is read here
may lack ids, indexes, counts and reasons, and what is sent has only what all of them take. A tool's result is text, so
images and PDFs follow in a message of the user; errors are told in words.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, Text, ToolSpec
from ..schema.lower import Loss
from . import answers, exchange
from . import openai_parts as common
from .accepts import OPENAI
from .offer import Offer, offer
from .openai_pieces import Pieces
from .turns import Choice, Reply, Results, Stop, Turn, Usage, User, Written

_ANSWER = "OpenAI's answer"
_STOPS: Mapping[str, Stop] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "refused",
}
# What an answer has and a request may not have, or not in the same form.
_ANSWER_ONLY = frozenset({"annotations", "audio", "function_call", "parsed", "tool_calls", "role"})


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """OpenAI's definitions of *specs*: the request's `tools`.

    *strict* None means as each spec says. A tool that strict mode would change is sent non-strict, and `losses` says
    why.
    """
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "parameters": tool.schema,
                **({"strict": True} if tool.strict else {}),
            },
        }
        for tool in _offered(specs, strict).tools
    ]


def losses(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
    """What `tools` could not say, by tool; only tools of which something could not be said."""
    return _offered(specs, strict).losses


def tool_choice(choice: Choice = "auto", specs: Iterable[ToolSpec] = (), *, parallel: bool = True) -> dict[str, Any]:
    """The request's parameters for *choice*; nothing where OpenAI's default says it.

    Send it with tools only: OpenAI refuses a choice among none. Raises SetupError for the name of no tool.
    """
    if choice in common.CHOICES:
        return common.choice(common.CHOICES[choice], parallel)
    specs = tuple(specs)
    name = _offered(specs).name_of(answers.chosen(choice, specs))
    return common.choice({"type": "function", "function": {"name": name}}, parallel)


def calls(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> list[Call]:
    """The calls that *answer* asks for, in its order.

    *answer* is a whole completion or the chunks of a streamed one, as dictionaries or as the SDK's objects.
    *strict* is what `tools` was given.

    Raises ValueError, with the place, where its shape is broken or the stream ended before the answer did.
    """
    return list(reply(answer, specs, strict=strict).calls)


def reply(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> Reply:
    """The whole of *answer*; see `calls`. Of several choices, the first."""
    pieces = answers.streamed(answer)
    if pieces is not None:
        return answers.gathered(Stream(specs, strict=strict), pieces)
    whole = answers.data(answer, _ANSWER)
    _refuse_error(whole)
    choices = answers.objects(whole, "choices", _ANSWER)
    if not choices:
        raise ValueError(f"{_ANSWER} is broken: 'choices' is empty or missing. Is this a Chat Completions address?")
    where = f"{_ANSWER} (choices[0])"
    message = answers.at(choices[0], "message", dict, where)
    usage = answers.or_none(whole, "usage", dict, _ANSWER)
    return _reply(message, choices[0].get("finish_reason"), usage, _offered(specs, strict), f"{where}.message")


class Stream:
    """A reply in pieces: the chunks of a streamed completion, in their order."""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self._offered = _offered(specs, strict)
        self._pieces = Pieces()
        self._finish: str | None = None
        self._usage: Mapping[str, Any] | None = None

    def add(self, chunk: Any) -> list[Written]:
        """The words that *chunk* adds. Raises ValueError where its shape is broken, or it tells of an error."""
        if chunk == "[DONE]":
            return []
        where = "OpenAI's chunk"
        piece = answers.data(chunk, where)
        _refuse_error(piece)
        # The last count is the whole one, also where a server tells it with every chunk.
        self._usage = answers.or_none(piece, "usage", dict, where) or self._usage
        for choice in answers.objects(piece, "choices", where):
            if choice.get("index"):
                continue  # of several choices, the first
            self._finish = answers.or_none(choice, "finish_reason", str, f"{where} (choices[0])") or self._finish
            delta = answers.or_none(choice, "delta", dict, f"{where} (choices[0])")
            return answers.written(self._pieces.add(delta)) if delta else []
        return []

    def reply(self) -> Reply:
        """The whole. Raises ValueError where the answer has not ended: half a reply is none."""
        if self._finish is None:
            raise answers.BrokenOff("OpenAI's stream ended in the middle, before any 'finish_reason'.")
        return _reply(self._pieces.message(), self._finish, self._usage, self._offered, "OpenAI's streamed message")


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[Any]:
    """The results of one turn's calls: a message each, in the given order, and one more for what is not text.

    Raises ValueError where a result does not say the id of its call.
    """
    answered = [
        {"role": "tool", "tool_call_id": result.call_id, "content": common.told(result)}
        for result in exchange.identified(results)
    ]
    seen: list[dict[str, Any]] = []
    for result in results:
        if media := [_part(part) for part in result.content if _is_media(part)]:
            seen += [{"type": "text", "text": f"From the result of '{result.tool}' ({result.call_id}):"}, *media]
    return [*answered, *([{"role": "user", "content": seen}] if seen else [])]


def conversation(turns: Iterable[Turn], specs: Iterable[ToolSpec] = (), *, instructions: str = "") -> dict[str, Any]:
    """The request's `messages`, of which the instructions are the first.

    Raises ValueError, with the place, where a reply's calls and the results after it do not pair.
    """
    offered = _offered(specs)
    said: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for turn in common.in_order(turns):
        match turn:
            case User(content):
                said.append({"role": "user", "content": _user(content)})
            case Reply():
                said.append(turn.native if _is_ours(turn) else _anew(turn, offered))
            case Results(results):
                said += messages(results)
    return {"messages": said}


def _offered(specs: Iterable[ToolSpec], strict: bool | None = None) -> Offer:
    return offer(tuple(specs), OPENAI, strict=strict)


def _refuse_error(whole: Mapping[str, Any]) -> None:
    # Some gateways answer with status 200 and an error inside.
    if error := whole.get("error"):
        raise common.failed(error)


def _reply(
    message: Mapping[str, Any], finish: Any, usage: Mapping[str, Any] | None, offered: Offer, where: str
) -> Reply:
    message = answers.plain(message, where)
    kept, asked = _asked(message, offered, where)
    text = _text(message.get("content"), where)
    refusal = answers.or_none(message, "refusal", str, where)
    stop = "end" if finish is None else answers.stop(finish, _STOPS)
    if asked and stop in ("end", "other"):
        stop = "calls"  # several servers say "stop" beside calls
    elif refusal or (stop == "calls" and not asked):
        stop = "refused" if refusal else "end"
    native = {name: value for name, value in message.items() if name not in _ANSWER_ONLY and value is not None}
    if sound := answers.or_none(message, "audio", dict, where):
        native["audio"] = {"id": sound.get("id")}
    said = {"role": "assistant", "content": None if asked else "", **native, **({"tool_calls": kept} if kept else {})}
    return Reply(text or refusal or "", tuple(asked), stop, _usage(usage or {}), said)


def _asked(message: Mapping[str, Any], offered: Offer, where: str) -> tuple[list[dict[str, Any]], list[Call]]:
    """The calls as they are to be sent back, and as they are to be made. Calls of other kinds than functions are left
    out: they are for tools that were not offered."""
    kept: list[dict[str, Any]] = []
    asked: list[Call] = []
    taken: set[str] = set()
    for number, call in enumerate(answers.objects(message, "tool_calls", where)):
        place = f"{where}.tool_calls[{number}]"
        if call.get("type") not in (None, "", "function"):
            continue
        function = answers.at(call, "function", dict, place)
        name = answers.at(function, "name", str, f"{place}.function")
        call_id = answers.own_id(answers.or_none(call, "id", str, place), taken)
        arguments = common.given(function.get("arguments"))
        asked.append(offered.call(call_id, name, arguments))
        # A name that the model has made up may be none that can be sent back.
        told = {**function, "name": offered.name_of(asked[-1].tool), "arguments": common.sent(arguments)}
        kept.append({**call, "id": call_id, "type": "function", "function": told})
        kept[-1].pop("index", None)
    return kept, asked


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    # Mistral says its thoughts and its words in parts.
    said = answers.objects({"content": content}, "content", where)
    return "".join(answers.at(part, "text", str, where) for part in said if part.get("type") == "text")


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = answers.count(details, "cached_tokens") if isinstance(details, Mapping) else 0
    return Usage(answers.count(usage, "prompt_tokens"), answers.count(usage, "completion_tokens"), cached)


def _is_ours(turn: Reply) -> bool:
    """Whether `native` is a message of this format, and of these calls: a conversation may change its provider."""
    match turn.native:
        case {"role": "assistant", "content": None | str()}:
            pass
        case {"role": "assistant", "content": [*said]} if all(map(_is_said, said)):
            pass
        case _:
            return False
    asked: list[Any] = list(turn.native.get("tool_calls", ()))
    return [call.get("id") for call in asked] == [call.id for call in turn.calls]


def _is_said(part: Any) -> bool:
    match part:
        case {"type": "text" | "refusal"} | {"type": "thinking", "thinking": [*_]}:  # the last is Mistral's
            return True
        case _:
            return False


def _anew(turn: Reply, offered: Offer) -> dict[str, Any]:
    if not turn.calls:
        return {"role": "assistant", "content": turn.text}
    asked = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": offered.name_of(call.tool), "arguments": common.sent(call.arguments)},
        }
        for call in turn.calls
    ]
    return {"role": "assistant", "content": turn.text or None, "tool_calls": asked}


def _user(content: Sequence[Content]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in content):
        return "\n".join(part.text for part in content)
    return [_part(part) for part in content]


def _is_media(part: Content) -> bool:
    # Sound is only for the models that hear, and the others refuse the request: a tool's is told in words.
    match part:
        case Image(_, media_type):
            return media_type in common.IMAGES
        case File(_, media_type):
            return media_type == common.PDF
        case _:
            return False


def _part(part: Content) -> dict[str, Any]:
    """A part of a user's message. PDF is the only kind of file that Chat Completions takes."""
    match part:
        case Image(_, media_type) if media_type in common.IMAGES:
            return {"type": "image_url", "image_url": {"url": common.data_url(part)}}
        case Audio(_, media_type) if media_type in common.SOUNDS:
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": common.SOUNDS[media_type]}}
        case File() if part.media_type == common.PDF:
            return {"type": "file", "file": {"filename": common.file_name(part), "file_data": common.data_url(part)}}
        case Text() | Data() | Image() | Audio() | File():
            return {"type": "text", "text": common.words(part)}
