"""A source of tools for the sandbox that follows their files: what is saved is loaded.

A tool that cannot be loaded stays as it was, and becomes a problem.
"""

from collections.abc import Sequence
from pathlib import Path

from ..core import LoadError
from .following import SETTLE_S, AnyTool, Change, Following, PathState, change_of, content_state
from .modules import LoadProblem, sandboxed_in
from .permissions import Permissions
from .wasm import wasm_tools


class WatchedSandboxed(Following):
    """The tools for the sandbox at *path*, a `.wasm` file, a folder with a `tool.toml`, or a folder of either.

    They are loaded at once; between `start` and `stop` a thread follows them. Each gets what *permissions* give it.
    """

    def __init__(self, path: Path, permissions: Permissions, *, settle_s: float = SETTLE_S) -> None:
        super().__init__(path, str(path), settle_s)
        self._permissions = permissions
        self._tools: dict[Path, AnyTool] = {}
        self._problems: dict[Path, LoadProblem] = {}
        self._update(self._look())

    def tools(self) -> list[AnyTool]:
        """The tools, as they were last loaded."""
        return list(self._tools.values())

    @property
    def problems(self) -> Sequence[LoadProblem]:
        """What is wrong with the files, as they were last loaded."""
        return list(self._problems.values())

    def _look(self) -> dict[Path, PathState]:
        # All of a folder is looked at: what a program reads may be in any file of it.
        found = sandboxed_in(self._path) if self._path.is_dir() else [self._path]
        return {self._path: ("folder",), **{path: content_state(path) for path in found}}

    def _counts(self, path: str) -> bool:
        return "__pycache__" not in path

    def _keeps_tools(self, problem: LoadProblem, change: Change) -> bool:
        return any(problem is known and path in self._tools for path, known in self._problems.items())

    def _update(self, now: dict[Path, PathState]) -> Change | None:
        with self._lock:
            changed = [path for path in {**now, **self._seen} if now.get(path) != self._seen.get(path)]
            self._seen = now
            before, problems = self.tools(), self.problems
            loaded = [path for path in changed if now.get(path) not in (None, ("folder",)) and self._load(path)]
            for path in [path for path in {*self._tools, *self._problems} if path not in now]:
                self._tools.pop(path, None)
                self._problems.pop(path, None)
            new = tuple(problem for problem in self.problems if problem not in problems)
            return change_of(before, self.tools(), tuple(loaded), new)

    def _load(self, path: Path) -> bool:
        """Load what is at *path*; whether that could be done."""
        try:
            ((tool,), _) = wasm_tools([path], self._permissions)
        except LoadError as error:
            self._problems[path] = LoadProblem(str(path), str(error))
            return False
        self._problems.pop(path, None)
        self._tools[path] = tool
        return True
