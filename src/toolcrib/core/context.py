"""What a running tool may see and do, and what the host hands it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from .call import Call, Caller
from .cancel import CancellationToken
from .errors import ToolcribError
from .events import Progress

T = TypeVar("T")

Scope = Literal["program", "session", "call"]


class Port(Protocol):
    """Carries what a running tool says to whoever waits for its result."""

    def progress(self, progress: Progress, /) -> None: ...
    async def emit(self, content: Any, /) -> None: ...
    async def ask(self, key: str, schema: Any, message: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a running tool may see and do. Injected where a parameter is annotated with it; not in the schema.

    `deadline_s` is on the clock of `time.monotonic()`, None where there is none. `variables` are the host's, for all
    tools of the workbench. `cancellation` is cancelled when the caller gives up or the deadline has passed: what blocks
    in a thread should look at it. `log` is the tool's own logger, `toolcrib.tool.<name>`.
    """

    call: Call
    caller: Caller
    variables: Mapping[str, Any]
    deadline_s: float | None
    cancellation: CancellationToken
    log: logging.Logger
    port: Port
    loop: asyncio.AbstractEventLoop

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is. Never waits; works from threads too; only the newest matters."""
        self.port.progress(Progress(done, total, message))

    async def emit(self, content: Any) -> None:
        """Give content (text, an Image, any value) while the work goes on. Waits while the reader is slow."""
        await self.port.emit(content)

    async def ask(self, key: str, schema: type[T], message: str) -> T:
        """A person's answer to *message*, as a *schema* (any type that pydantic describes).

        Asks at once where the door can. Else the call ends here, pending, and runs again from its first line when the
        answer is there: ask before effects. *key* tells one question of a call from another. The call's deadline goes
        on while a person thinks. Raises ToolError `denied` where they refuse to answer.
        """
        answer: T = await self.port.ask(key, schema, message)
        return answer

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The value of *work*, for sync tools: `ctx.wait(ctx.emit("half way"))`.

        Raises ToolcribError on the event loop itself, where `await` is the word.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result()
        work.close()
        raise ToolcribError(f"ctx.wait() is for sync tools in threads; here, on {running!r}, await it.")


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
