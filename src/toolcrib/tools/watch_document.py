"""A source of tools that follows the file of an OpenAPI document: what is saved is loaded.

A document that cannot be loaded keeps its tools as they were, and becomes a problem.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..core import LoadError, SetupError
from .address import DOCUMENT
from .following import SETTLE_S, AnyTool, Change, Following, PathState, change_of, content_state
from .modules import LoadProblem
from .openapi import OpenAPISource


class WatchedDocument(Following):
    """The operations of the OpenAPI document in a *file*, of which *read* makes the source.

    It is read at once; between `start` and `stop` a thread follows the file, and those that its references lead to.
    """

    def __init__(self, file: Path, read: Callable[[], OpenAPISource], *, settle_s: float = SETTLE_S) -> None:
        super().__init__(file, f"{DOCUMENT}{file}", settle_s)
        self._file = file
        self._read = read
        self._source: OpenAPISource | None = None
        self._error: LoadProblem | None = None
        self._update(self._look())

    def tools(self) -> list[AnyTool]:
        """The tools, as they were last loaded."""
        return [*self._source.tools()] if self._source is not None else []

    @property
    def problems(self) -> Sequence[LoadProblem]:
        """What is wrong with the document, as it was last loaded."""
        known = () if self._source is None else self._source.problems
        return [*known, *(() if self._error is None else (self._error,))]

    async def stop(self) -> None:
        await super().stop()
        if self._source is not None:
            await self._source.stop()

    def _look(self) -> dict[Path, PathState]:
        files = {self._path, *(() if self._source is None else self._source.files)}
        return {path: content_state(path) for path in files}

    def _counts(self, path: str) -> bool:
        return Path(path) in self._seen

    def _keeps_tools(self, problem: LoadProblem, change: Change) -> bool:
        return problem is self._error and bool(self.tools())

    def _update(self, now: dict[Path, PathState]) -> Change | None:
        with self._lock:
            if now == self._seen:
                return None
            before, problems = self.tools(), self.problems
            self._load()
            self._seen = {**self._look(), **now}  # what is saved meanwhile is a change
            new = tuple(problem for problem in self.problems if problem not in problems)
            return change_of(before, self.tools(), () if self._error else (self._path,), new)

    def _load(self) -> None:
        self._error = None
        if not self._path.exists():
            self._source = None
            self._error = LoadProblem(str(self._path), "It was removed, and its tools with it.")
            return
        try:
            if self._source is None:
                self._source = self._read()
            else:
                self._source.reload()
        except (LoadError, SetupError) as error:
            message = str(error).removeprefix(f"{self._file}: ")
            if message.startswith(f"{self._file} "):
                message = f"It{message.removeprefix(str(self._file))}"
            self._error = LoadProblem(str(self._path), message)
