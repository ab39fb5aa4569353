"""One request, and who makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import getrandbits
from typing import Any

from .cancel import CancellationToken


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls (principal), as which of their selves (profile), in which conversation (thread).

    The host says this; a model never does.
    """

    principal: str = "local"
    profile: str = "default"
    thread: str = "default"


def _new_id() -> str:
    # Ids name calls in logs and pair them with answers; nothing is guarded by them, so they need not be secret.
    return f"call_{getrandbits(63)}"


@dataclass(slots=True)
class Call:
    """One request: which tool, with which arguments as they were written, under which id.

    *arguments* is JSON text or a mapping of JSON values; None means no arguments. *timeout_s* is the longest it may
    take, in seconds, beside the limits of the tool and the workbench. *cancellation* lets anybody give up on it.
    Treat it as a value. (Not frozen: one is made for every call, and freezing makes that three times as slow.)
    """

    tool: str
    arguments: str | bytes | Mapping[str, Any] | None = None
    id: str = field(default_factory=_new_id)
    timeout_s: float | None = None
    cancellation: CancellationToken | None = None
