"""What a policy may decide over a call."""

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
class Decision:
    """What to *do* with a call: by which *rule*, with which *message*, and, where a person was asked, *by* whom."""

    do: Do
    rule: str | None = None
    message: str = ""
    others_only: bool = False
    by: str | None = None


PolicyAnswer = Do | Ask | Deny | Decision
