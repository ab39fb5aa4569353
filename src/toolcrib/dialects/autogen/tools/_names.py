"""The names by which the tools of a workbench can be called, and the names that they have in the core."""

import re
from collections.abc import Iterable, Mapping, Sequence

from ._protocols import Tool, ToolOverride

_LONGEST = 64


def tools_by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Return *tools* by name. Raises ValueError where two have the same."""
    found: dict[str, Tool] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) is not tool:
            raise ValueError(
                f"Two tools are named '{tool.name}'. Give one of them another name: only the first could be called."
            )
    return found


def original_names(names: Iterable[str], overrides: Mapping[str, ToolOverride]) -> dict[str, str]:
    """Return the tools' own *names*, by those that *overrides* give them. Raises ValueError for an ambiguous one."""
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


def core_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each of *names* the one that it has in the core: the same, wherever models could call it by that.

    AutoGen takes any text for a name, and two that differ only in `-` and `_`.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = free = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_LONGEST] or "tool"
        number = 1
        while free.replace("-", "_") in taken:
            number += 1
            free = f"{stem[: _LONGEST - len(str(number)) - 1]}_{number}"
        taken.add(free.replace("-", "_"))
        found[name] = free
    return found
