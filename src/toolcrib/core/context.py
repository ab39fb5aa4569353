"""What a running tool may see, and what the host hands it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .call import Call, Caller

Scope = Literal["program", "session", "call"]


@dataclass(frozen=True, slots=True)
class Context:
    """What a running tool may see of its call. Injected where a parameter is annotated with it; not in the schema.

    `deadline_s` is on the clock of `time.monotonic()`, None where there is none. `variables` are the host's, for all
    tools of the workbench. `log` is the tool's own logger, `toolcrib.tool.<name>`.
    """

    call: Call
    caller: Caller
    variables: Mapping[str, Any]
    deadline_s: float | None
    log: logging.Logger


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter that the host provides: `Annotated[Pool, Depends(get_pool)]`.

    *provider* is called for the value: plain, async, or a generator of either kind that yields the value once and
    cleans up after it. It may itself have `Context` and `Depends` parameters. *scope* says how long the value lives
    and who shares it: `"call"`, `"session"` (one workbench) or `"program"` (all that a host runs;
    a workbench on its own is its own program).
    """

    provider: Callable[..., Any]
    scope: Scope = "session"
