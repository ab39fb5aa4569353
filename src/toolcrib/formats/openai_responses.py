"""OpenAI Responses (POST /v1/responses): tools, calls and results in its words.

    client.responses.create(model=..., tools=tools(specs), **tool_choice("auto", specs),
                            **conversation(turns, specs, instructions=...))

A conversation is sent whole with each request, the model's own items (reasoning too) just as they came. A tool's result
may be text, images and files; errors are told in words.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, Data, File, Image, Result, Text, ToolSpec
from ..schema.lower import Loss
from . import answers, exchange, parts
from . import openai_parts as common
from .accepts import RESPONSES
from .offer import Offer, offer
from .turns import Choice, Reply, Results, Stop, Turn, Usage, User, Written

_ANSWER = "OpenAI's response"
_EVENT = "OpenAI's event"
_OFFICE = "application/vnd.openxmlformats-officedocument."
# What the Responses API reads beside PDF and files of text.
_FILES = frozenset(
    {
        common.PDF,
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
# Calls that the client would have to answer, of tools that were never offered.
_UNANSWERED = frozenset({"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call"})
# The kinds of items that only this format has: a conversation may change its provider.
_OURS = frozenset({"message", "function_call", "reasoning"})


def tools(specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
    """OpenAI's definitions of *specs*: the request's `tools`.

    *strict* None means as each spec says. A tool that strict mode would change is sent non-strict, and `losses` says
    why.
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "parameters": tool.schema,
            "strict": tool.strict,  # said always: left out, it means strict here
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
    return common.choice({"type": "function", "name": name}, parallel)


def calls(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> list[Call]:
    """The calls that *answer* asks for, in its order.

    *answer* is a whole response or the events of a streamed one, as dictionaries or as the SDK's objects.
    *strict* is what `tools` was given.

    Raises ValueError, with the place, where its shape is broken, the response failed, or the stream ended before it
    did.
    """
    return list(reply(answer, specs, strict=strict).calls)


def reply(answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> Reply:
    """The whole of *answer*; see `calls`. Its `native` are the items of the response."""
    pieces = answers.streamed(answer)
    if pieces is not None:
        return answers.gathered(Stream(specs, strict=strict), pieces)
    response = answers.data(answer, _ANSWER)
    if "output" not in response and not response.get("error"):
        raise ValueError(f"{_ANSWER} is broken: 'output' is missing. Is this a Responses address?")
    return _reply(response, answers.objects(response, "output", _ANSWER), _offered(specs, strict))


class Stream:
    """A reply in pieces: the events of a streamed response, in their order."""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self._offered = _offered(specs, strict)
        self._items: dict[int, dict[str, Any]] = {}
        self._response: Mapping[str, Any] | None = None

    def add(self, chunk: Any) -> list[Written]:
        """The words that *chunk* adds. Raises ValueError where its shape is broken, or it tells of an error."""
        event = answers.data(chunk, _EVENT)
        # Unknown events are passed over: there are dozens, for OpenAI's own tools too.
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return answers.written(answers.at(event, "delta", str, _EVENT))
            case "response.output_item.added" | "response.output_item.done":
                self._items[self._index(event)] = dict(answers.at(event, "item", dict, _EVENT))
            case "response.function_call_arguments.delta":
                item = self._items.setdefault(self._index(event), {"type": "function_call"})
                begun = answers.or_none(item, "arguments", str, f"{_EVENT} (item)") or ""
                item["arguments"] = begun + answers.at(event, "delta", str, _EVENT)
            case "response.function_call_arguments.done":
                item = self._items.setdefault(self._index(event), {"type": "function_call"})
                item["arguments"] = answers.at(event, "arguments", str, _EVENT)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = answers.at(event, "response", dict, _EVENT)
            case "error":
                raise common.failed(event.get("error") or event)
            case _:
                pass
        return []

    def reply(self) -> Reply:
        """The whole. Raises ValueError where the response has not ended: half a reply is none."""
        if self._response is None:
            raise answers.BrokenOff("OpenAI's stream ended in the middle, before 'response.completed'.")
        # Some servers repeat the items at the end, some do not.
        output = answers.objects(self._response, "output", _ANSWER)
        return _reply(self._response, output or [self._items[n] for n in sorted(self._items)], self._offered)

    @staticmethod
    def _index(event: Mapping[str, Any]) -> int:
        return answers.at(event, "output_index", int, f"{_EVENT} {event.get('type')}")


def messages(results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[Any]:
    """The results of one turn's calls: an item each, in the given order.

    Raises ValueError where a result does not say the id of its call.
    """
    return [
        {"type": "function_call_output", "call_id": result.call_id, "output": _output(result)}
        for result in exchange.identified(results)
    ]


def conversation(turns: Iterable[Turn], specs: Iterable[ToolSpec] = (), *, instructions: str = "") -> dict[str, Any]:
    """The request's `input`, and its `instructions` where there are any.

    Raises ValueError, with the place, where a reply's calls and the results after it do not pair.
    """
    offered = _offered(specs)
    said: list[dict[str, Any]] = []
    for turn in common.in_order(turns):
        match turn:
            case User(content):
                said.append({"role": "user", "content": _user(content)})
            case Reply():
                said += turn.native if _is_ours(turn) else _anew(turn, offered)
            case Results(results):
                said += messages(results)
    return {**({"instructions": instructions} if instructions else {}), "input": said}


def _offered(specs: Iterable[ToolSpec], strict: bool | None = None) -> Offer:
    return offer(tuple(specs), RESPONSES, strict=strict)


def _reply(response: Mapping[str, Any], output: Sequence[Mapping[str, Any]], offered: Offer) -> Reply:
    status = answers.or_none(response, "status", str, _ANSWER) or "completed"
    if response.get("error") or status == "failed":
        raise common.failed(response.get("error"))
    if status not in ("completed", "incomplete"):
        raise ValueError(f"{_ANSWER} has not ended: its status is '{status}'. Ask for it again, not in the background.")
    native: list[dict[str, Any]] = []
    asked: list[Call] = []
    texts: list[str] = []
    refused = False
    taken: set[str] = set()
    for number, item in enumerate(answers.plain(output, _ANSWER)):
        where = f"{_ANSWER} (output[{number}])"
        kept = {name: value for name, value in item.items() if value is not None}
        if item.get("type") == "function_call":
            call_id = answers.own_id(answers.or_none(item, "call_id", str, where), taken)
            arguments = common.given(item.get("arguments"))
            asked.append(offered.call(call_id, answers.at(item, "name", str, where), arguments))
            # A name that the model has made up may be none that can be sent back.
            name = offered.name_of(asked[-1].tool)
            kept |= {"call_id": call_id, "name": name, "arguments": common.sent(arguments)}
        elif item.get("type") == "message":
            for place, part in enumerate(answers.objects(item, "content", where)):
                key = "refusal" if part.get("type") == "refusal" else "text"
                refused = refused or key == "refusal"
                if part.get("type") in ("output_text", "refusal"):
                    texts.append(answers.at(part, key, str, f"{where}.content[{place}]"))
        if str(item.get("type")) not in _UNANSWERED:
            native.append(kept)
    if response.get("store") is False:
        native = _unstored(native)
    return Reply("".join(texts), tuple(asked), _stop(response, bool(asked), refused), _usage(response), native)


def _unstored(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*items* of a response that OpenAI did not keep: it finds none by its id, nor reasoning that came without its
    encrypted content."""
    return [
        {name: value for name, value in item.items() if name != "id" or item.get("type") == "reasoning"}
        for item in items
        if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]


def _stop(response: Mapping[str, Any], asked: bool, refused: bool) -> Stop:
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        match details.get("reason") if isinstance(details, Mapping) else None:
            case "max_output_tokens":
                return "length"
            case "content_filter":
                return "refused"
            case _:
                return "other"
    if asked:
        return "calls"
    return "refused" if refused else "end"


def _usage(response: Mapping[str, Any]) -> Usage:
    usage = answers.or_none(response, "usage", dict, _ANSWER) or {}
    details = usage.get("input_tokens_details")
    cached = answers.count(details, "cached_tokens") if isinstance(details, Mapping) else 0
    return Usage(answers.count(usage, "input_tokens"), answers.count(usage, "output_tokens"), cached)


def _is_ours(turn: Reply) -> bool:
    """Whether `native` are items of this format, and of these calls."""
    items = turn.native
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        return False
    asked = [item.get("call_id") for item in items if item.get("type") == "function_call"]
    return any(str(item.get("type")) in _OURS for item in items) and asked == [call.id for call in turn.calls]


def _anew(turn: Reply, offered: Offer) -> list[dict[str, Any]]:
    said = [{"role": "assistant", "content": turn.text}] if turn.text else []
    return [
        *said,
        *(
            {
                "type": "function_call",
                "call_id": call.id,
                "name": offered.name_of(call.tool),
                "arguments": common.sent(call.arguments),
            }
            for call in turn.calls
        ),
    ]


def _output(result: Result[Any]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, Image | File) for part in result.content):
        return common.told(result)
    error = [_words(f"Error ({result.error.code}):")] if result.error is not None else []
    return [*error, *map(_part, result.content)]


def _user(content: Sequence[Content]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, Text) for part in content):
        return "\n".join(part.text for part in content)
    return [_sound(part) if isinstance(part, Audio) else _part(part) for part in content]


def _part(part: Content) -> dict[str, Any]:
    match part:
        case Image(_, media_type) if media_type in common.IMAGES:
            return {"type": "input_image", "image_url": common.data_url(part), "detail": "auto"}
        case File(_, media_type) if media_type in _FILES or parts.readable(part) is not None:
            return {"type": "input_file", "filename": common.file_name(part), "file_data": common.data_url(part)}
        case Text() | Data() | Image() | Audio() | File():
            return _words(part.text)


def _sound(part: Audio) -> dict[str, Any]:
    if part.media_type not in common.SOUNDS:
        return _words(part.text)
    return {"type": "input_audio", "input_audio": {"data": part.base64, "format": common.SOUNDS[part.media_type]}}


def _words(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}
