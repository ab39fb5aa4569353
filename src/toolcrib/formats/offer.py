"""Tools as a provider accepts them, with its names and schemas, and the translation of calls back to the tools' own.

A call gets the tool's own name, and arguments as the tool's own schema describes them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count
from typing import Any

from jiter import from_json

from ..core import Call, NameConflictError, ToolSpec
from ..schema.lower import Accepts, Lift, Loss, Lowered, heaviest_first, lower

# What models and compatible servers add to a name: `functions.weather`, `weather:0`, `weather<|channel|>commentary`.
_DECORATED = re.compile(r"(functions\.)?(.+?)(:\d+)?(?:<\|\w+\|>\w*)?")


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool as it is sent to a provider. `losses` is what could not be expressed."""

    spec: ToolSpec
    name: str
    description: str
    schema: dict[str, Any]
    strict: bool
    losses: tuple[Loss, ...]

    def definition(self, schema_key: str) -> dict[str, Any]:
        """Return the tool's members that most providers name alike, with the schema under *schema_key*."""
        return {
            "name": self.name,
            **({"description": self.description} if self.description else {}),
            schema_key: self.schema,
            **({"strict": True} if self.strict else {}),
        }

    @property
    def deferral(self) -> dict[str, bool]:
        """The member by which providers that search themselves keep the tool back."""
        return {"defer_loading": True} if self.spec.deferred else {}


class Offer:
    """Tools as they are sent to one provider, and the translation of its model's calls. Made by `Offer.of`."""

    def __init__(self, specs: Sequence[ToolSpec], accepts: Accepts, *, strict: bool | None) -> None:
        names = _names([spec.name for spec in specs], accepts)
        pairs = _within_limits([(spec, _lower(spec, accepts, strict)) for spec in specs], accepts)
        self.tools: tuple[Offered, ...] = tuple(
            Offered(spec, names[spec.name], spec.description, low.schema, low.strict, heaviest_first(low.losses))
            for spec, low in pairs
        )
        self._accepts = accepts
        self._names = names
        self._tools = {name: tool for tool, name in names.items()}
        self._lifts: dict[str, Lift] = {spec.name: low.lift for spec, low in pairs if low.lifts}

    @classmethod
    def of(cls, specs: Iterable[ToolSpec], accepts: Accepts, *, strict: bool | None = None) -> "Offer":
        """Return *specs* as they are sent to a provider. The same specs again cost a look-up.

        *strict* None means as each spec says; False means no strict mode; True means strict mode for every tool whose
        spec does not refuse it. A tool that strict mode would change is sent without it, and its losses say why.
        Raises NameConflictError for two tools of one name.
        """
        return _offer(_SpecsKey(specs), accepts, strict)

    @cached_property
    def losses(self) -> dict[str, tuple[Loss, ...]]:
        """What could not be expressed, by the tool's own name; only tools that lost something."""
        return {tool.spec.name: tool.losses for tool in self.tools if tool.losses}

    def name_of(self, tool: str) -> str:
        """Return the provider's name for *tool*; for a tool that is not offered, a name that the provider accepts."""
        if tool in self._names:
            return self._names[tool]
        return tool if re.fullmatch(self._accepts.names, tool) else _fitting(tool, self._accepts)

    def tool_of(self, name: str) -> str:
        """Return the tool's own name; a name that was never offered is unchanged, if it is no decorated one."""
        if self.offers(name) or not (match := _DECORATED.fullmatch(name)):
            return self._tools.get(name, name)
        prefix, stem, number = match.groups("")
        stems = {prefix + stem + number, prefix + stem, stem + number, stem}
        tools = {self._tools.get(candidate, candidate) for candidate in stems if self.offers(candidate)}
        return tools.pop() if len(tools) == 1 else name

    def offers(self, name: str) -> bool:
        """Return whether *name* is a tool's own name, or the provider's name of one."""
        return name in self._tools or name in self._names

    def call(self, call_id: str, name: str, arguments: str | Mapping[str, Any] | None) -> Call:
        """Return a model's call as a `Call`, with the tool's own name and arguments as the tool's own schema describes
        them.

        Text that is not a JSON object and a name that was never offered are unchanged: the workbench explains both to
        the model. Text in which nothing has to be restored is unchanged too, so that duplicate keys are found.
        """
        tool = self.tool_of(name)
        lift = self._lifts.get(tool)
        return Call(tool, arguments if lift is None else _lift(arguments, lift), call_id)

    def read_call(self, native: dict[str, Any], call_id: str, arguments: str | Mapping[str, Any] | None) -> Call:
        """Return the call of the tool that *native* has the provider's name of.

        A name that the model has made up may be one that cannot be sent back; *native* then gets one that can.
        """
        call = self.call(call_id, native["name"], arguments)
        native["name"] = self.name_of(call.tool)
        return call


class _SpecsKey:
    """Specs as a cache key: the same objects in the same order. It keeps them alive, so that no id is reused."""

    __slots__ = ("_hash", "_ids", "specs")

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self.specs = tuple(specs)
        self._ids = tuple(map(id, self.specs))
        self._hash = hash(self._ids)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SpecsKey) and self._ids == other._ids


@lru_cache(maxsize=128)
def _offer(key: _SpecsKey, accepts: Accepts, strict: bool | None) -> Offer:
    return Offer(key.specs, accepts, strict=strict)


def _lower(spec: ToolSpec, accepts: Accepts, strict: bool | None) -> Lowered:
    if strict is None or spec.strict is False:
        strict = spec.strict
    return lower(spec.input_schema, accepts, strict=bool(strict))


def _within_limits(pairs: Sequence[tuple[ToolSpec, Lowered]], accepts: Accepts) -> list[tuple[ToolSpec, Lowered]]:
    """Return *pairs*, with as many of the first ones strict as the provider accepts in one request."""
    if (strictly := accepts.strictly) is None:
        return list(pairs)
    limits = (
        (strictly.most_tools, "tools"),
        (strictly.most_optional, "optional properties"),
        (strictly.most_unions, "properties with several types"),
    )
    counts = (0, 0, 0)  # of the strict tools so far: tools, optional properties, unions
    result: list[tuple[ToolSpec, Lowered]] = []
    for spec, low in pairs:
        if low.strict:
            sums = (counts[0] + 1, counts[1] + low.optional, counts[2] + low.unions)
            excess = [limit for count, limit in zip(sums, limits, strict=True) if limit[0] and count > limit[0]]
            if excess:
                meaning = (
                    f"{accepts.name} accepts at most {excess[0][0]} {excess[0][1]} in all strict tools of a request "
                    "together, so the tool is sent without strict mode."
                )
                loose = lower(spec.input_schema, accepts)
                low = replace(loose, losses=(*loose.losses, Loss("", "strict", meaning, "high")))
            else:
                counts = sums
        result.append((spec, low))
    return result


def _names(tools: Sequence[str], accepts: Accepts) -> dict[str, str]:
    """Return a provider's name for each of *tools*: its own where the provider accepts it, else a unique one."""
    names = {tool: tool for tool in tools}
    if len(names) < len(tools):
        ((tool, _),) = Counter(tools).most_common(1)
        raise NameConflictError(f"Two tools are called '{tool}'. A model cannot distinguish them: rename one.")
    unfit = [tool for tool in tools if not re.fullmatch(accepts.names, tool)]
    unavailable = names.keys() - unfit
    for tool in unfit:
        candidates = (_fitting(tool, accepts, salt) for salt in count())
        names[tool] = next(name for name in candidates if name not in unavailable)
        unavailable.add(names[tool])
    return names


def _fitting(tool: str, accepts: Accepts, salt: int = 0) -> str:
    """Return a name for *tool* that the provider accepts, another one for each *salt*."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    if not re.match(r"[A-Za-z_]", name):
        name = f"_{name}"
    if salt or len(name) > accepts.name_length:
        digest = hashlib.sha256((f"{salt}:{tool}" if salt else tool).encode()).hexdigest()[:8]
        name = f"{name[: accepts.name_length - 9]}_{digest}"
    identifier = name.replace("-", "_")  # where it has to be one of Python's, and no keyword
    candidates = (name, identifier, f"{identifier}_")
    return next((candidate for candidate in candidates if re.fullmatch(accepts.names, candidate)), name)


def _lift(arguments: str | Mapping[str, Any] | None, lift: Lift) -> str | Mapping[str, Any] | None:
    value: Any = arguments
    if isinstance(arguments, str):
        try:
            value = from_json(arguments.encode(), allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError:
            return arguments
    if not isinstance(value, dict):
        return arguments
    result = lift(value)
    return arguments if result is value else result
