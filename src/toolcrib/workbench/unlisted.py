"""What callers ask for beside the tools that are listed, as calls, so that it goes their way: through the pipeline.

Reads of resources, prompts that are filled in, lists, and names that no tool has.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from ..core import Hints, Tool, ToolError, ToolSpec
from ..core.spec import Kind
from ..machinery import Check, Checked, Encode, Work

MAX_NAME_CHARS = 8192
_SCHEMA = {"type": "object", "additionalProperties": {"type": "string"}}


class Unlisted(Tool):
    """A tool that no model is shown: *work* on what has a *name*, by a *method* of MCP. Its arguments are texts.

    To *labels* the work adds those of what it reads.
    """

    needs_context = False

    def __init__(
        self,
        kind: Kind,
        method: str,
        name: str,
        work: Callable[[dict[str, Any]], Awaitable[Any]],
        labels: AbstractSet[str] = frozenset(),
    ) -> None:
        self.spec = replace(spec_of(kind, method, name), labels=labels)
        self.check: Check = partial(_check, kind, name)
        self.work: Work = lambda arguments, _: work(arguments)
        self.encode: Encode = json.dumps

    def body(self) -> str:
        return self.spec.kind  # a server may give one of its tools this name


def spec_of(kind: Kind, method: str, name: str) -> ToolSpec:
    """Return the spec of an unlisted tool."""
    hints = Hints(read_only=True if kind != "other" else None)
    return ToolSpec(f"{method} {name}".strip(), "", _SCHEMA, hints=hints, kind=kind)


def spellings(spec: ToolSpec) -> tuple[str, ...]:
    """Return the names by which rules know what is called: of a resource its URI, and decoded, with slashes only."""
    name = spec.name.partition(" ")[2]
    return (name, unquote(name).replace("\\", "/")) if spec.kind == "resource" and "%" in name else (name,)


def unknown(kind: Kind, name: str) -> ToolError:
    """Return the error of what is not there, or not for this caller."""
    from ..schema import display_name  # brings pydantic: with the first message, and not with the package

    return ToolError(f"There is no {kind} {'at ' if kind == 'resource' else ''}'{display_name(name)}'.", "unknown_tool")


def decoded(text: str) -> Iterator[str]:
    """Yield *text*, and as it is read by those who decode it once, or once more."""
    yield text
    for _ in range(2):
        if (text := unquote(before := text)) == before:
            return
        yield text


def _is_plain_uri(uri: str) -> bool:
    parts = (part for text in decoded(uri) for part in re.split(r"[/\\?#&=]", text))
    return not any(part in (".", "..") or "\0" in part for part in parts) and not re.search(r"[\\ ]", uri)


def _check(kind: Kind, name: str, arguments: Any, repair: bool, /) -> Checked:
    """Return *arguments*. Raises ToolError for a *name* that nothing has, before a rule is asked.

    Servers read a URI with a segment `.` or `..`, a backslash or a space as another one, so it passes no rule.
    """
    is_plain = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()
    if not is_plain or (kind == "resource" and not _is_plain_uri(name)):
        raise unknown(kind, name)
    return dict(json.loads(arguments) if isinstance(arguments, str | bytes) else arguments or {}), ()
