"""What two threads do at the same moment: one is stopped at each of its instructions, while the other goes on."""

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

BLOCKED_S = 0.01
"""A thread that does not end within this time waits for a lock; where it is only slow, that moment is not tried."""


def meet(file: str, work: Callable[[], Any], meanwhile: Callable[[], Any], moment: int) -> bool:
    """Do *work*, and at its instruction *moment* in *file*, *meanwhile* in another thread; whether it has as many."""
    other = threading.Thread(target=meanwhile)
    count = -1

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != file:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
            if count == moment:
                other.start()
                other.join(BLOCKED_S)
        return trace

    def traced() -> None:
        sys.settrace(trace)
        work()

    one = threading.Thread(target=traced)
    one.start()
    for each in (one, other):
        if each.ident is not None:
            each.join(20)
            assert not each.is_alive()
    return count >= moment


Prepared = tuple[Callable[[], Any], Callable[[], Any], Callable[[], None]]
"""The work, what another thread does meanwhile, and what is asserted after both."""


def each_moment(file: str | None, prepare: Callable[[], Prepared]) -> None:
    """For each instruction of the work: prepare it, do both, and look at what came of it."""
    assert file is not None
    for moment in range(10_000):
        work, meanwhile, look = prepare()
        if not meet(file, work, meanwhile, moment):
            assert moment > 10, "The work is in another file."
            return
        look()
