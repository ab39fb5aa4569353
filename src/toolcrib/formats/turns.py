"""What a conversation with a model is made of, in no provider's words. Values, all of which have a JSON form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..core import Call, Content, Result

Stop = Literal["end", "calls", "length", "refused", "other"]
"""Why a model stopped: it was done, it waits for its calls, it ran out of tokens, it would not, anything else."""

Choice = Literal["auto", "any", "none"] | str
"""Which tools a model may or must use: as it likes, at least one, none, or the one of this name."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counts them. `cached` ones are part of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)


@dataclass(frozen=True, slots=True)
class User:
    """What a person said."""

    content: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said in one turn.

    `calls` are in the order in which they were asked for, under the tools' own names, arguments lifted to what the
    tools' own schemas describe. `native` is the provider's message as JSON data, to be sent back just as it came
    (reasoning, signatures); None where the format can say everything anew.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop = "end"
    usage: Usage = field(default_factory=Usage)
    native: Any = None


@dataclass(frozen=True, slots=True)
class Results:
    """How the calls of the reply before ended: one for each, in the order of the calls."""

    results: tuple[Result[Any], ...]


Turn = User | Reply | Results
"""A conversation is a sequence of these: after a Reply that has calls, their Results."""


@dataclass(frozen=True, slots=True)
class Written:
    """A piece of a reply that is still being written: words for whoever watches."""

    text: str


def to_data(turn: Turn) -> dict[str, Any]:
    """*turn* as JSON data. Of results it has what may be shown, not the program's `value`."""
    raise NotImplementedError


def from_data(data: Mapping[str, Any]) -> Turn:
    """The turn that `to_data` wrote. Raises ValueError, with the place, for anything else."""
    raise NotImplementedError


def text_of(content: Sequence[Content]) -> str:
    """*content* in words, a line a part."""
    return "\n".join(part.text for part in content)
