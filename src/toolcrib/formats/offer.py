"""Tools as they are offered to a model: under names its provider takes, with schemas it takes, and the way back.

Names and arguments go back the way they came: a call is made of what the model wrote, under the tool's own name and as
the tool's own schema describes.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from ..core import Call, NameConflictError, ToolSpec
from ..schema.lower import Accepts, Lift, Loss, Lowered, lower


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool as a provider is told of it. `losses` is what it is not told."""

    spec: ToolSpec
    name: str
    description: str
    schema: dict[str, Any]
    strict: bool
    losses: tuple[Loss, ...]


class Offer:
    """Tools, each as one provider is told of it, and the way back for what its model asks. Made by `offer`."""

    def __init__(self, specs: Sequence[ToolSpec], accepts: Accepts, *, strict: bool | None) -> None:
        names = _names([spec.name for spec in specs], accepts)
        lowered = _within_limits([_lowered(spec, accepts, strict) for spec in specs], specs, accepts)
        self.tools: tuple[Offered, ...] = tuple(
            Offered(spec, names[spec.name], spec.description, low.schema, low.strict, low.losses)
            for spec, low in zip(specs, lowered, strict=True)
        )
        self._accepts = accepts
        self._names = names
        self._tools = {name: tool for tool, name in names.items()}
        self._lifts: dict[str, Lift] = {
            spec.name: low.lift for spec, low in zip(specs, lowered, strict=True) if low.lifts
        }

    @cached_property
    def losses(self) -> dict[str, tuple[Loss, ...]]:
        """What the provider is not told, by the tool's own name; only tools of which something is not."""
        return {tool.spec.name: tool.losses for tool in self.tools if tool.losses}

    def name_of(self, tool: str) -> str:
        """The provider's name for *tool*; for one that is not offered, a name that the provider takes all the same."""
        if tool in self._names:
            return self._names[tool]
        return tool if re.fullmatch(self._accepts.names, tool) else _fitting(tool, self._accepts)

    def tool_of(self, name: str) -> str:
        """The tool's own name; a name that was never offered as it is."""
        return self._tools.get(name, name)

    def call(self, call_id: str, name: str, arguments: str | Mapping[str, Any] | None) -> Call:
        """What a model asked for as a `Call`, under the tool's own name and with the arguments its schema describes.

        Text that is no JSON object stays the text it is, and a name that was never offered stays that name: the
        workbench explains both to the model. So does text in which nothing is to be lifted: duplicate keys are found.
        """
        tool = self.tool_of(name)
        lift = self._lifts.get(tool)
        return Call(tool, arguments if lift is None else _lifted(arguments, lift), call_id)


def offer(specs: Sequence[ToolSpec], accepts: Accepts, *, strict: bool | None = None) -> Offer:
    """*specs* as a provider is told of them. The same specs again cost a look-up.

    *strict* None means as each spec says; False asks for strict mode nowhere; True asks for it everywhere but where a
    spec says no. A tool that strict mode would change is sent without it, and its losses say why.
    Raises NameConflictError for two tools of one name.
    """
    return _offer(_Same(specs), accepts, strict)


class _Same:
    """Specs as a key: the same objects in the same order. Keeps them alive, so that no id is used again."""

    __slots__ = ("_hash", "_ids", "specs")

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self.specs = tuple(specs)
        self._ids = tuple(map(id, self.specs))
        self._hash = hash(self._ids)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._ids == other._ids


@lru_cache(maxsize=128)
def _offer(same: _Same, accepts: Accepts, strict: bool | None) -> Offer:
    return Offer(same.specs, accepts, strict=strict)


def _lowered(spec: ToolSpec, accepts: Accepts, strict: bool | None) -> Lowered:
    wanted = spec.strict if strict is None or spec.strict is False else strict
    return lower(spec.input_schema, accepts, strict=bool(wanted))


def _within_limits(lowered: list[Lowered], specs: Sequence[ToolSpec], accepts: Accepts) -> list[Lowered]:
    """*lowered*, with the first ones strict: as many as the provider takes in one request."""
    strictly = accepts.strictly or accepts
    kept: list[Lowered] = []
    tools = optional = unions = 0
    for low, spec in zip(lowered, specs, strict=True):
        if low.strict and accepts.strictly is not None:
            for found, most, what in (
                (tools + 1, strictly.most_tools, "tools"),
                (optional + low.optional, strictly.most_optional, "members that may be left out"),
                (unions + low.unions, strictly.most_unions, "members of several types"),
            ):
                if most is not None and found > most:
                    meaning = (
                        f"{accepts.name} takes at most {most} {what} in all strict tools of a request together. "
                        "So the tool is sent without strict mode."
                    )
                    loose = lower(spec.input_schema, accepts)
                    low = replace(loose, losses=(*loose.losses, Loss("", "strict", meaning)))
                    break
            else:
                tools, optional, unions = tools + 1, optional + low.optional, unions + low.unions
        kept.append(low)
    return kept


def _names(tools: Sequence[str], accepts: Accepts) -> dict[str, str]:
    """A provider's name for each of *tools*: its own where the provider takes it, else one that nobody else has."""
    names: dict[str, str] = {}
    for tool in tools:
        if tool in names:
            raise NameConflictError(f"Two tools are called '{tool}'. A model could not tell them apart: rename one.")
        names[tool] = tool
    taken = {tool for tool in tools if re.fullmatch(accepts.names, tool)}
    for tool in tools:
        if tool not in taken:
            name = _fitting(tool, accepts)
            salt = 0
            while name in taken:
                salt += 1
                digest = hashlib.sha256(f"{salt}:{tool}".encode()).hexdigest()[:8]
                name = f"{_fitting(tool, accepts)[: accepts.name_length - 9]}_{digest}"
            taken.add(name)
            names[tool] = name
    return names


def _fitting(tool: str, accepts: Accepts) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    if len(name) > accepts.name_length:
        name = f"{name[: accepts.name_length - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"
    return name


def _lifted(arguments: str | Mapping[str, Any] | None, lift: Lift) -> str | Mapping[str, Any] | None:
    if arguments is None:
        return None
    written = arguments
    if isinstance(arguments, str):
        try:
            written = json.loads(arguments, object_pairs_hook=_object, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return arguments
    if not isinstance(written, dict):
        return arguments
    lifted = lift(written)
    return arguments if lifted is written else lifted


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice")
    return members


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
