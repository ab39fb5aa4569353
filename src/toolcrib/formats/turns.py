"""The turns of a conversation with a model, independent of any provider. Values; `turn_data` has their JSON form."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from ..core import Call, Content, Result

Stop = Literal["end", "calls", "length", "refused", "other"]
"""Why a model stopped: it was done, it waits for its calls, it ran out of tokens, it refused, anything else."""

Choice = Literal["auto", "any", "none"] | str
"""Which tools a model may or must use: any or none of them, at least one, none, or the one of this name."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counts them. `cached` ones are part of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)

    def to_dict(self) -> dict[str, int]:
        return {"input": self.input, "output": self.output, "cached": self.cached}


@dataclass(frozen=True, slots=True)
class User:
    """A message of a person."""

    content: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the model.

    `calls` are in the model's order, under the tools' own names, with arguments as the tools' own schemas describe
    them. `native` is the provider's message as JSON data, to be sent back as it came (with reasoning and signatures);
    None where there is none.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)
    native: Any = None


@dataclass(frozen=True, slots=True)
class Results:
    """The results of the calls of the reply before: one for each, in the order of the calls."""

    results: tuple[Result[Any], ...]


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


class ReplyStream(Protocol):
    """Reads a reply while it is streamed. Each format's `Stream` is one."""

    def add(self, chunk: Any) -> list[TextDelta]:
        """The text that *chunk* adds. Raises ValueError where it is malformed or reports an error."""
        ...

    def reply(self) -> Reply:
        """The whole reply. Raises ValueError where the stream ended before the reply did."""
        ...


def text_of(content: Sequence[Content]) -> str:
    """*content* as text, a line for each part."""
    return "\n".join(part.text for part in content)
