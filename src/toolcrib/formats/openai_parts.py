"""What OpenAI's two formats have in common: ids, arguments as text, results in words, the order of a conversation."""

import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..core import Audio, Call, Content, File, Image, Result
from . import answers, exchange, parts
from .turns import Reply, Results, Turn

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
PDF = "application/pdf"
CHOICES = {"auto": None, "any": "required", "none": "none"}


def failed(error: Any) -> answers.BrokenOff:
    """What an answer says went wrong, where it should have an answer."""
    said = error if isinstance(error, Mapping) else {"message": error}
    code = said.get("code") or said.get("type") or ""
    return answers.BrokenOff(
        f"OpenAI broke off its answer: {f'{code}: ' if code else ''}{str(said.get('message'))[:500]}", str(code)
    )


def choice(said: Any, parallel: bool) -> dict[str, Any]:
    """The request's parameters for a choice of tools, in OpenAI's words for it; None is its default."""
    return {
        **({} if said is None else {"tool_choice": said}),
        **({} if parallel else {"parallel_tool_calls": False}),
    }


def given(arguments: Any) -> Mapping[str, Any] | str:
    """Arguments as a provider sent them: JSON text, an object, or nothing in any of its spellings."""
    if arguments is None or isinstance(arguments, Mapping):
        return arguments or {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {} if text.strip() in ("", "null") else text


def sent(arguments: str | bytes | Mapping[str, Any] | None) -> str:
    """Arguments to send back: the JSON text of an object, as it was written where it is one.

    vLLM and Ollama read them before the model does, and refuse the whole conversation for one call that is not JSON.
    """
    mapping = parts.arguments(Call("", arguments))
    if isinstance(arguments, str) and arguments.strip() and "INVALID_JSON" not in mapping:
        return arguments
    return json.dumps(mapping, ensure_ascii=False)


def words(part: Content) -> str:
    """*part* in words: a file of text is its text, under its name."""
    text = parts.readable(part)
    return part.text if text is None else f"{part.text}\n{text}"


def told(result: Result[Any]) -> str:
    """A result in words. OpenAI has no flag for errors, so the words say it."""
    text = "\n".join(map(words, result.content))
    return text if result.error is None else f"Error ({result.error.code}): {text}"


def data_url(part: Image | Audio | File) -> str:
    return f"data:{part.media_type};base64,{part.base64}"


def file_name(part: File) -> str:
    """OpenAI tells kinds of files by the ends of their names."""
    return part.name or f"file{mimetypes.guess_extension(part.media_type) or ''}"


def in_order(turns: Iterable[Turn]) -> Iterator[Turn]:
    """*turns*, with the results of each reply in the order of its calls.

    Raises ValueError, with the place, where a call has no result or a result no call.
    """
    asked: Sequence[Call] = ()
    for number, turn in enumerate(map(exchange.require_turn, turns)):
        if isinstance(turn, Results):
            try:
                yield Results(tuple(exchange.paired(asked, turn.results)))
            except ValueError as error:
                raise ValueError(f"turns[{number}]: {error}") from None
            asked = ()
            continue
        if asked:
            break
        asked = turn.calls if isinstance(turn, Reply) else ()
        yield turn
    if asked:
        ids = ", ".join(call.id for call in asked)
        raise ValueError(f"The calls {ids} have no results. Put their Results next after the Reply.")
