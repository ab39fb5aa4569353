"""Anthropic Messages (POST /v1/messages): tools, calls and results in its words.

    client.messages.create(model=..., max_tokens=..., tools=tools(specs), **tool_choice("auto", specs),
                           **conversation(turns, specs, instructions=...))

Anthropic takes text, images and documents in tool results, has a flag for errors (`is_error`), and demands the results
of one turn together in the next message, before anything else in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, Text, ToolSpec
from ..schema.lower import Loss
from . import answers, exchange, parts
from .accepts import ANTHROPIC
from .offer import Offer, offer
from .turns import Choice, Reply, Stop, Turn, Usage, Written

_STOPS: Mapping[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_MESSAGE = "Anthropic's message"


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """Anthropic's definitions of *specs*: the request's `tools`.

    *strict* None means as each spec says. A tool that strict mode would change is sent non-strict, and `losses` says
    why.
    """
    return [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "input_schema": tool.schema,
            **({"strict": True} if tool.strict else {}),
        }
        for tool in _offered(specs, strict).tools
    ]


def losses(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
    """What `tools` could not say, by tool; only tools of which something could not be said."""
    return _offered(specs, strict).losses


def tool_choice(choice: Choice = "auto", specs: Iterable[ToolSpec] = (), *, parallel: bool = True) -> dict[str, Any]:
    """The request's parameters for *choice*; nothing where Anthropic's default says it.

    Send it with tools only: Anthropic refuses a choice among none. Raises SetupError for the name of no tool.
    """
    specs = tuple(specs)
    alone = {} if parallel or choice == "none" else {"disable_parallel_tool_use": True}
    if choice == "auto" and parallel:
        return {}
    if choice in ("auto", "any", "none"):
        return {"tool_choice": {"type": choice, **alone}}
    name = _offered(specs).name_of(answers.chosen(choice, specs))
    return {"tool_choice": {"type": "tool", "name": name, **alone}}


def calls(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> list[Call]:
    """The calls that *answer* asks for, in its order.

    *answer* is a whole message or the events of a streamed one, as dictionaries or as the SDK's objects.
    *strict* is what `tools` was given.

    Raises ValueError, with the place, where its shape is broken or the stream ended before the message did.
    """
    return list(reply(answer, specs, strict=strict).calls)


def reply(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> Reply:
    """The whole of *answer*; see `calls`. Its `native` keeps thinking and its signatures."""
    pieces = answers.streamed(answer)
    if pieces is not None:
        return answers.gathered(Stream(specs, strict=strict), pieces)
    return _reply(answers.data(answer, _MESSAGE), _offered(specs, strict), {})


class Stream:
    """A reply in pieces: the events of a streamed message, in their order."""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self._offered = _offered(specs, strict)
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}  # arguments as JSON text, by block, as far as it has come
        self._ended = False

    def add(self, chunk: Any) -> list[Written]:
        """The words that *chunk* adds. Raises ValueError where its shape is broken, or it tells of an error."""
        event = answers.data(chunk, "Anthropic's event")
        # Unknown events are passed over, as Anthropic asks of its clients; the SDK's own ones repeat what came.
        match event.get("type"):
            case "message_start":
                self._message = answers.at(event, "message", dict, "Anthropic's message_start")
            case "content_block_start":
                where = "Anthropic's content_block_start"
                block = answers.at(event, "content_block", dict, where)
                self._blocks[answers.at(event, "index", int, where)] = dict(block)
                return answers.written(block.get("text")) if block.get("type") == "text" else []
            case "content_block_delta":
                return self._grow(event)
            case "message_delta":
                where = "Anthropic's message_delta"
                message = self._begun(where)
                message.update(answers.at(event, "delta", dict, where))
                # Its counts are sums so far, not additions.
                usage = answers.or_none(event, "usage", dict, where) or {}
                before = answers.or_none(message, "usage", dict, _MESSAGE) or {}
                message["usage"] = before | {key: value for key, value in usage.items() if value is not None}
            case "message_stop":
                self._begun("Anthropic's message_stop")
                self._ended = True
            case "error":
                error = answers.or_none(event, "error", dict, "Anthropic's error event") or {}
                told = f"{error.get('type')}: {error.get('message')}"
                raise answers.BrokenOff(f"Anthropic broke off its answer: {told}", str(error.get("type")))
            case _:
                pass
        return []

    def reply(self) -> Reply:
        """The whole. Raises ValueError where the message has not ended: half a reply is none."""
        if not self._ended:
            raise answers.BrokenOff("Anthropic's stream ended in the middle, before 'message_stop'.")
        order = sorted(self._blocks)
        blocks = [self._blocks[index] for index in order]
        inputs = {number: answers.whole_letters(self._inputs.get(index, "")) for number, index in enumerate(order)}
        return _reply({**self._begun(_MESSAGE), "content": blocks}, self._offered, inputs)

    def _begun(self, where: str) -> dict[str, Any]:
        if self._message is None:
            raise ValueError(f"{where} came before 'message_start'.")
        return self._message

    def _grow(self, event: Mapping[str, Any]) -> list[Written]:
        where = "Anthropic's content_block_delta"
        index = answers.at(event, "index", int, where)
        delta = answers.at(event, "delta", dict, where)
        if index not in self._blocks:
            raise ValueError(f"{where} is broken: block {index} was never started.")
        block = self._blocks[index]
        match delta.get("type"):
            case "input_json_delta":
                self._inputs[index] = self._inputs.get(index, "") + answers.at(delta, "partial_json", str, where)
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
            case kind:
                # Text, thinking, signatures, and whatever comes to be streamed: words go on, anything else is set.
                for key, value in delta.items():
                    if key != "type":
                        grown = isinstance(value, str) and isinstance(block.get(key), str)
                        block[key] = block[key] + value if grown else value
                return answers.written(delta.get("text")) if kind == "text_delta" else []
        return []


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[Any]:
    """The results of one turn's calls, as the one message that Anthropic wants next, in the given order."""
    blocks = _results(results)
    return [{"role": "user", "content": blocks}] if blocks else []


def conversation(turns: Iterable[Turn], specs: Iterable[ToolSpec] = (), *, instructions: str = "") -> dict[str, Any]:
    """The request's `messages`, and its `system` where there are instructions.

    Raises ValueError where a reply's calls and the results after it do not pair.
    """
    offered = _offered(specs)
    said = exchange.messages(
        turns,
        user=lambda turn: [block for part in turn.content for block in _blocks(part)],
        reply=lambda turn: _native(turn) or _anew(turn, offered),
        results=_results,
        model="assistant",
        under="content",
    )
    return {**({"system": instructions} if instructions else {}), "messages": said}


def _offered(specs: Iterable[ToolSpec], strict: bool | None = None) -> Offer:
    return offer(tuple(specs), ANTHROPIC, strict=strict)


def _reply(message: Mapping[str, Any], offered: Offer, inputs: Mapping[int, str]) -> Reply:
    message = answers.plain(message, _MESSAGE)
    answers.at(message, "content", list, _MESSAGE)
    content = answers.objects(message, "content", _MESSAGE)
    texts: list[str] = []
    asked: list[Call] = []
    taken: set[str] = set()
    for number, block in enumerate(content):
        where = f"{_MESSAGE} (content[{number}])"
        if block.get("type") == "text":
            texts.append(answers.at(block, "text", str, where))
        elif block.get("type") == "tool_use":
            given: Mapping[str, Any] | str
            if written := inputs.get(number):
                given, block["input"] = written, parts.told(written)
            else:
                given = answers.or_none(block, "input", dict, where) or {}
            name = answers.at(block, "name", str, where)
            block["id"] = answers.own_id(answers.at(block, "id", str, where), taken)
            asked.append(offered.call(block["id"], name, given))
            block["name"] = offered.name_of(asked[-1].tool)  # a name that was made up may be none that can be sent back
    usage = answers.or_none(message, "usage", dict, _MESSAGE) or {}
    cached = answers.count(usage, "cache_read_input_tokens")
    return Reply(
        "".join(texts),
        tuple(asked),
        answers.stop(message.get("stop_reason"), _STOPS),
        Usage(
            # Anthropic's `input_tokens` are those that are neither read from the cache nor written to it.
            answers.count(usage, "input_tokens") + answers.count(usage, "cache_creation_input_tokens") + cached,
            answers.count(usage, "output_tokens"),
            cached,
        ),
        {"role": "assistant", "content": content},
    )


def _native(turn: Reply) -> list[dict[str, Any]] | None:
    """The blocks of a reply that came from here; None for another provider's: a conversation may change its model."""
    match turn.native:
        case {"role": "assistant", "content": [*blocks]} if all(isinstance(b, dict) and "type" in b for b in blocks):
            if [block.get("id") for block in blocks if block["type"] == "tool_use"] != [call.id for call in turn.calls]:
                return None
            # An answer may be empty, and may end in an empty text; neither can be sent.
            return [block for block in blocks if block["type"] != "text" or block.get("text")]
        case _:
            return None


def _anew(turn: Reply, offered: Offer) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": turn.text}] if turn.text else []
    return [
        *said,
        *(
            {
                "type": "tool_use",
                "id": _id(call.id),
                "name": offered.name_of(call.tool),
                "input": parts.arguments(call),
            }
            for call in turn.calls
        ),
    ]


def _results(results: Sequence[Result[Any]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "tool_result",
            "tool_use_id": _id(result.call_id),
            # No content at all is allowed, empty text is not.
            **({"content": blocks} if (blocks := _shown(result)) else {}),
            **({"is_error": True} if result.status == "error" else {}),
        }
        for result in exchange.identified(results)
    ]


def _shown(result: Result[Any]) -> list[dict[str, Any]]:
    if result.status == "error":  # of which Anthropic takes words only
        return [{"type": "text", "text": result.text}] if result.text.strip() else []
    return [block for part in result.content for block in _blocks(part)]


def _blocks(part: Content) -> list[dict[str, Any]]:
    match part:
        case Image(_, media_type) if media_type in _IMAGES:
            return [{"type": "image", "source": _base64(part)}]
        case File(_, "application/pdf", name):
            return [{"type": "document", "source": _base64(part), **_title(name)}]
        case File(_, _, name) if (text := parts.readable(part)) is not None:
            return [
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": text},
                    **_title(name),
                }
            ]
        case Text() | Data() | Image() | Audio() | File():
            return [{"type": "text", "text": part.text}] if part.text.strip() else []


def _base64(part: Image | File) -> dict[str, Any]:
    return {"type": "base64", "media_type": part.media_type, "data": part.base64}


def _title(name: str | None) -> dict[str, str]:
    return {"title": name} if name else {}


def _id(call_id: str) -> str:
    return exchange.id_within(r"[a-zA-Z0-9_-]+", call_id)
