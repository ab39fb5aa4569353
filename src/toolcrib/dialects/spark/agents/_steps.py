"""The model of one run, as Spark counts: so many rounds of calls, and then an answer without tools."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ....agent import Model, Request
from ....core import Call, Result
from ....formats import Reply, Results, Turn, Written
from ..models._turns import without_calls

logger = logging.getLogger(__name__)


class Steps:
    """A model that is asked for an answer without tools after *most* rounds of calls; 0 for no bound.

    *trace* is told of each call when its round has ended. `why` says that the bound was reached.
    """

    def __init__(self, model: Model, most: int, trace: Callable[[Call, Result[Any]], None], *, begun: int) -> None:
        self._model = model
        self._most = most
        self._trace = trace
        self._seen = begun
        self._rounds = 0
        self.why = ""

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(self, request: Request, /) -> Reply:
        self.told(request.turns)
        is_last = 0 < self._most <= self._rounds
        # Whether calls run side by side is not the model's to know, in Spark.
        request = replace(request, parallel=True, choice="none" if is_last else request.choice)
        reply = await self._model.reply(request)
        if not (is_last and reply.calls):
            self._rounds += 1
            return reply
        self.why = f"The model asked for more than max_steps={self._most} rounds of calls."
        logger.warning("max_steps (%d) reached: %d calls are not made", self._most, len(reply.calls))
        return without_calls(reply)

    async def stream(self, request: Request, /) -> AsyncIterator[Written | Reply]:
        yield await self.reply(request)

    def told(self, turns: Sequence[Turn]) -> None:
        """Tell *trace* of the calls in *turns* that are new."""
        for turn, following in pairwise(turns[max(self._seen - 1, 0) :]):
            if isinstance(turn, Reply) and isinstance(following, Results):
                for pair in zip(turn.calls, following.results, strict=True):
                    self._trace(*pair)
        self._seen = len(turns)
