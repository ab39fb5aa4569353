"""What OpenAI's two formats have in common: choices, arguments as text, results as text, files."""

import json
import mimetypes
from collections.abc import Mapping
from typing import Any, Literal

from ..core import Audio, Call, Content, File, Image, Result
from ..machinery import text_of_file
from ..schema import JSONError, parse_json
from . import reading
from .content import arguments_of
from .offer import Offer

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
PDF = "application/pdf"

_THOUGHTS = "<think>", "</think>"
_PARALLEL = "multi_tool_use.parallel"
_MAX_BLANK = 100  # how much blank space may come before thoughts


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
