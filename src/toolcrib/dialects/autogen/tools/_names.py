"""Which tool of a workbench a name means: its own names, the names it is given there, and those the core can carry."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._base import Tool, ToolOverride

_LONGEST = 64


def by_name(tools: Sequence["Tool"]) -> dict[str, "Tool"]:
    """*tools* by name. Raises ValueError where two have the same."""
    found: dict[str, Tool] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) is not tool:
            raise ValueError(
                f"Two tools are named '{tool.name}'. Give one of them another name: only the first could be called."
            )
    return found


def renamed(names: Iterable[str], overrides: Mapping[str, "ToolOverride"]) -> dict[str, str]:
    """The tools' own *names*, by those that *overrides* give them. Raises ValueError for one that is not clear."""
    known = set(names)
    found: dict[str, str] = {}
    for original, override in overrides.items():
        if original not in known:
            raise ValueError(
                f"There is an override for the tool '{original}', and no such tool. The tools are: "
                f"{', '.join(sorted(known)) or 'none'}. An override goes by the tool's own name."
            )
        if not override.name or override.name == original:
            continue
        if override.name in known:
            raise ValueError(
                f"Tool override name '{override.name}' conflicts with existing tool name. "
                "Override names must not conflict with any tool names."
            )
        if override.name in found:
            raise ValueError(
                f"Tool override name '{override.name}' is used by multiple tools: "
                f"'{found[override.name]}' and '{original}'. Override names must be unique."
            )
        found[override.name] = original
    return found


def carried(names: Iterable[str]) -> dict[str, str]:
    """Under which name the core carries each of *names*: the same, wherever models could call it by that.

    AutoGen takes any text for a name, and two that differ only in `-` and `_`.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        plain = fits = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_LONGEST] or "tool"
        number = 1
        while _fold(fits) in taken:
            number += 1
            fits = f"{plain[: _LONGEST - len(str(number)) - 1]}_{number}"
        taken.add(_fold(fits))
        found[name] = fits
    return found


def _fold(name: str) -> str:
    return name.replace("-", "_")
