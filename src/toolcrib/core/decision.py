"""What a policy may say of a call."""

from dataclasses import dataclass
from typing import Literal

from .pending import Deny

Do = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Let a person decide. *message* is shown to them; *others_only*: whoever made the call may not answer it."""

    message: str = ""
    others_only: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision with its reason: by which *rule*, in which words, and, where a person was asked, *by* whom."""

    do: Do
    rule: str | None = None
    message: str = ""
    others_only: bool = False
    by: str | None = None


Decision = Do | Ask | Deny | Decided
