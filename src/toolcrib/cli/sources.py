"""Sources of the command line → a workbench. One that cannot be loaded does not take the others along."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core import NameConflictError, ToolcribError
from ..tools.load import load
from ..workbench import Registry, Workbench
from .streams import tell
from .usage import UsageError

A_SOURCE = "A source is a .py file, a folder of them, or an importable name: 'package.module' or 'package.module:name'"


@dataclass(frozen=True, slots=True)
class Opened:
    """A workbench of what could be loaded, and a sentence for each thing that could not."""

    bench: Workbench
    problems: tuple[str, ...]


def open_sources(sources: Sequence[str], *, example: str, **options: Any) -> Opened:
    """A workbench with *options* of all tools of *sources*.

    Raises UsageError, showing *example*, where no source is given, and ToolcribError where none could be loaded.
    """
    if not sources:
        raise UsageError(f"No source of tools is given. {A_SOURCE}. To try: {example}")
    if "" not in sys.path:
        # As `python -m` has it, but behind everything installed: a file here must not shadow a module of ours.
        sys.path.append("")
    registry = Registry()
    problems: list[str] = []
    origins: dict[str, str] = {}
    for source in dict.fromkeys(sources):
        try:
            loaded = load(source)
        except ToolcribError as error:
            problems.append(_placed(error, source))
            continue
        problems += map(str, loaded.problems)
        for tool in loaded.tools:
            name = tool.spec.name
            try:
                registry.add(tool)
                origins[name.replace("-", "_")] = source
            except NameConflictError:
                where = origins[name.replace("-", "_")]
                problems.append(
                    f"{source}: '{name}' is the name of a tool in {where} too, so only that one is here. "
                    'Give one another name: @tool(name="...").'
                )
    if problems and not registry:
        raise ToolcribError("\n".join(problems))
    return Opened(Workbench(registry, **options), tuple(problems))


def tell_problems(opened: Opened) -> None:
    for problem in opened.problems:
        tell(f"Not loaded: {problem}")


def _placed(error: ToolcribError, source: str) -> str:
    said = str(error)
    return said if source in said else f"{source}: {said}"
