"""A model that is bound by Spark's `max_steps`: rounds of calls, and then an answer without tools."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ....agent import Model, Request
from ....core import Call, Result
from ....formats import Reply, Results, TextDelta, Turn

logger = logging.getLogger(__name__)


class BoundedModel:
    """Asks *model* for an answer without tools after *max_rounds* rounds of calls; 0 for no bound.

    *on_result* receives each call with its result, when its round has ended. The first *reported* turns are of earlier
    runs. `stop_reason` is set when the bound was reached.
    """

    def __init__(
        self, model: Model, max_rounds: int, on_result: Callable[[Call, Result[Any]], None], *, reported: int
    ) -> None:
        self._model = model
        self._max_rounds = max_rounds
        self._on_result = on_result
        self._reported = reported
        self._rounds = 0
        self.stop_reason = ""

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(self, request: Request, /) -> Reply:
        self.report(request.turns)
        is_last = 0 < self._max_rounds <= self._rounds
        # In Spark a request does not depend on whether calls run in parallel.
        request = replace(request, parallel=True, choice="none" if is_last else request.choice)
        reply = await self._model.reply(request)
        if not (is_last and reply.calls):
            self._rounds += 1
            return reply
        self.stop_reason = f"The model asked for more than max_steps={self._max_rounds} rounds of calls."
        logger.warning("max_steps (%d) reached: %d calls were not executed", self._max_rounds, len(reply.calls))
        return replace(reply, calls=(), stop="other", native=None)

    async def stream(self, request: Request, /) -> AsyncIterator[TextDelta | Reply]:
        yield await self.reply(request)

    def report(self, turns: Sequence[Turn]) -> None:
        """Report the results in *turns* that were not reported yet."""
        for turn, following in pairwise(turns[max(self._reported - 1, 0) :]):
            if isinstance(turn, Reply) and isinstance(following, Results):
                for call, result in zip(turn.calls, following.results, strict=True):
                    self._on_result(call, result)
        self._reported = len(turns)
