"""The turns of a conversation with a model, independent of any provider. Values; `turn_data` has their JSON form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ..core import Call, Content, Result

Stop = Literal["end", "calls", "length", "refused", "paused", "malformed", "other"]
"""Why a model stopped.

It was done; it waits for its calls; it ran out of tokens; it refused; it continues when its message is sent back; it
wrote what the provider could not read; anything else.
"""

Choice = Literal["auto", "any", "none"] | str
"""Which tools a model may or must use: any or none of them, at least one, none, or the one of this name."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counts them.

    Part of `input` are those read from a cache (`cached`) and those written to one (`cache_writes`); part of `output`
    is the model's `reasoning`.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class User:
    """A message of a person."""

    content: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the model.

    `calls` are in the model's order, under the tools' own names, with arguments as the tools' own schemas describe
    them. `native` is the provider's message as JSON data, to be sent back as it came (with reasoning and signatures);
    None where there is none. `reason` is the provider's own word for a stop that is
    `malformed` or `other`. `server` identifies the server that gave `native`, where a client knows it.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)
    native: Any = None
    reason: str = ""
    server: str = field(default="", compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether it has no text and no calls, and `native` nothing beside reasoning. Providers refuse it as a message.

        What a provider's own tools did, images and audio are not nothing.
        """
        match self.native:
            case {"content": [*blocks]} | {"parts": [*blocks]} | [*blocks]:
                has_more = not all(map(_is_text_or_reasoning, blocks))
            case _:
                has_more = isinstance(self.native, Mapping) and "audio" in self.native
        return not (self.text.strip() or self.calls or has_more)


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the calls of the reply before: one for each, in the order of the calls."""

    results: tuple[Result[Any], ...]


def _is_text_or_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    if "type" in block:
        return block["type"] in ("text", "thinking", "redacted_thinking", "reasoning", "message", "refusal")
    return block.keys() <= {"text", "thought", "thoughtSignature", "reasoningContent", "role", "content"}


Turn = User | Reply | Results
"""A conversation is a sequence of these: after a Reply that has calls, their Results."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text of a reply that is still being generated."""

    text: str


class Conversation(NamedTuple):
    """What `read_conversation` found in a provider's messages: the system's instructions, and the turns."""

    instructions: str
    turns: tuple[Turn, ...]


def text_of(content: Sequence[Content]) -> str:
    """Return *content* as text, a line for each part."""
    return "\n".join(part.text for part in content)
