"""How a schema is told in a provider's dialect: what is lost, which places are referred to, where to stop.

Leaving a demand out makes a schema wider; that is told, and the check still holds. Below `not`, `if` and `oneOf` it
would make it narrower: there, what cannot be said whole is not said at all.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .accepts import Accepts
from .combine import Combined, Union, combine, is_annotation, says_nothing
from .document import Document
from .keywords import FORMATS, OF_KINDS, SAYS_NOTHING
from .lift import Plan, Ref
from .losses import Loss, subject, untold
from .parts import Conj, Either, Part, Places, below

_UNROLLED = 2  # how often a schema that holds itself is written out where it may not refer to itself
_DEEPEST = 40
_MOST_NODES = 4000


@dataclass(slots=True)
class Out:
    """A lowered place, and what is to be undone in a value that is written for it."""

    schema: dict[str, Any]
    plan: Plan | None = None


@dataclass(slots=True)
class Told:
    """A union that was told as `anyOf`: which one, and how its branches were."""

    union: Union
    branches: list[Out]


class Telling:
    """One schema on its way into a dialect. How a place is told is for those who come after."""

    def __init__(self, root: Mapping[str, Any], accepts: Accepts, *, distrust: bool = False) -> None:
        self.accepts = accepts
        self.places = Places(root)
        self.document = Document(root, formats=False)
        self.losses: dict[tuple[str, str], Loss] = {}
        self.grave: set[tuple[str, str]] = set()
        self.definitions: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, Plan | None] = {}
        self.told: list[Told] = []
        self.lifted: list[tuple[Part, list[Out]]] = []
        """Unions whose branches are lifted each in its own way."""
        self.exact: set[str] = set()
        """Definitions that are referred to where nothing may be lost."""
        self.lossy: set[str] = set()
        """Definitions in which something was lost; the root is ''."""
        self._distrust = distrust
        self._names: dict[Conj, str] = {}
        self._waiting: list[tuple[str, Conj]] = []
        self._active: dict[Conj, int] = {}
        self._referred: list[str] = []
        self._nodes = 0
        self._now = ""
        self._cycles: dict[str, Literal["no", "optional", "tight"]] = {}

    # -- what is told ----------------------------------------------------------------------------------------------

    def lose(self, part: Part, keyword: str, meaning: str | None = None, *, grave: bool = False) -> None:
        """Tell that *keyword* at *part* is left out. *grave*: strict mode would change what the tool takes."""
        key = part.path, keyword
        if key not in self.losses or (grave and key not in self.grave):
            value = part.schema.get(keyword) if isinstance(part.schema, dict) else None
            self.losses[key] = Loss(part.path, keyword, meaning or untold(part.path, keyword, value))
        if grave:
            self.grave.add(key)
        self.lossy.add(self._now)

    def lose_said(self, both: Combined, keyword: str) -> None:
        """Tell that *keyword* is left out, wherever it is said of the same value."""
        for part in both.parts:
            if keyword in part.schema:
                self.lose(part, keyword)

    def _whole(self, conj: Conj, depth: int) -> Out | None:
        """*conj* lowered, if nothing is lost by it."""
        before, grave, lossy, referred = (
            dict(self.losses),
            set(self.grave),
            self._now in self.lossy,
            len(self._referred),
        )
        self.lossy.discard(self._now)
        out = self.lower(conj, depth)
        failed = out is None or self._now in self.lossy or (self._distrust and len(self._referred) > referred)
        if lossy:
            self.lossy.add(self._now)
        if not failed:
            self.exact |= set(self._referred[referred:])
            return out
        self.losses, self.grave = before, grave
        if not lossy:
            self.lossy.discard(self._now)
        return None

    # -- the whole -------------------------------------------------------------------------------------------------

    def run(self) -> Out:
        """The root, lowered; the definitions it needs are in `definitions` and `plans`."""
        root = self.root((self.places.root,))
        while self._waiting:
            self._now, conj = self._waiting.pop()
            out = self.lower(conj, 0)
            if out is None:
                out = self.nothing(*conj)
            self.definitions[self._now], self.plans[self._now] = out.schema, out.plan
        return root

    # -- places ----------------------------------------------------------------------------------------------------

    def lower(self, conj: Conj, depth: int) -> Out | None:
        """What *conj* demands, in the dialect's words; None where nothing can hold."""
        self._nodes += 1
        if depth > _DEEPEST or self._nodes > _MOST_NODES:
            return self.cut(conj)
        if active := self._active.get(conj, 0):
            if self.accepts.references and self.accepts.recursion == "any":
                return self.reference(conj)
            if active >= _UNROLLED:
                return self.cut(conj)
        only = conj[0] if len(conj) == 1 else None
        if isinstance(only, Part) and isinstance(only.schema, dict) and (out := self._referring(only)):
            return out
        self._active[conj] = active + 1
        patterns = self.accepts.takes("patternProperties")
        both = combine(conj, self.places, self.lose, whole=self.keeps(conj), patterns=patterns)
        out = None if both is None else self.emit(both, depth)
        self._active[conj] = active
        return out

    def root(self, conj: Conj) -> Out:
        """The arguments themselves: always an object."""
        raise NotImplementedError

    def emit(self, both: Combined, depth: int, *, root: bool = False) -> Out | None:
        """What *both* demands, in the dialect's words; None where nothing can hold."""
        raise NotImplementedError

    def keeps(self, conj: Conj) -> bool:
        """Whether the one part that *conj* is can keep its `$ref` and `allOf` as they are."""
        only = conj[0] if len(conj) == 1 else None
        if not isinstance(only, Part) or not isinstance(only.schema, dict):
            return False
        if "$ref" in only.schema or "$dynamicRef" in only.schema:
            target = self.places.target(only)
            if target is None or not self.accepts.siblings or not self._refers(target):
                return False
        return "allOf" not in only.schema or self.accepts.takes("allOf")

    def _referring(self, part: Part) -> Out | None:
        """What stands at *part*, where that is a reference and nothing else that demands anything."""
        schema = part.schema
        if "$ref" not in schema and "$dynamicRef" not in schema:
            return None
        if any(not is_annotation(keyword) and keyword not in ("$ref", "$dynamicRef") for keyword in schema):
            return None
        target = self.places.target(part)
        if target is None or not self._refers(target):
            return None
        out = self.reference((target,))
        around = self.around({k: v for k, v in schema.items() if k not in ("$ref", "$dynamicRef")})
        if not around:
            return out
        inner = out.schema if self.accepts.siblings else {"anyOf": [out.schema]}
        return Out({**around, **inner}, out.plan)

    def _refers(self, target: Part) -> bool:
        """Whether the dialect takes a reference to *target*."""
        if not self.accepts.references:
            return False
        if self.accepts.recursion == "any":
            return True
        cycle = self._cycle(target)
        return cycle == "no" or (cycle == "optional" and self.accepts.recursion == "optional")

    def _cycle(self, target: Part) -> Literal["no", "optional", "tight"]:
        """Whether *target* holds itself, and whether only below members that may be left out."""
        if target.path not in self._cycles:
            tight = target in self._reached(target, optional=False)
            anyhow = tight or target in self._reached(target, optional=True)
            self._cycles[target.path] = "tight" if tight else "optional" if anyhow else "no"
        return self._cycles[target.path]

    def _reached(self, start: Part, *, optional: bool) -> set[Part]:
        seen: set[Part] = set()
        waiting = list(self._next(start, optional))
        while waiting:
            part = waiting.pop()
            if part not in seen:
                seen.add(part)
                waiting.extend(self._next(part, optional))
        return seen

    def _next(self, part: Part, optional: bool) -> Iterator[Part]:
        if not isinstance(part.schema, dict):
            return
        required = part.schema.get("required", ())
        skipped = {part.at("properties", name) for name in part.schema.get("properties", ()) if name not in required}
        for inner in below(part):
            keyword = inner.path[len(part.path) + 1 :].partition("/")[0]
            if keyword not in ("$defs", "definitions") and (optional or inner not in skipped):
                yield inner
        if ("$ref" in part.schema or "$dynamicRef" in part.schema) and (target := self.places.target(part)):
            yield target

    def reference(self, conj: Conj) -> Out:
        """A reference to the definition of *conj*, which is made if there is none yet."""
        name = self._names.get(conj)
        if name is None:
            first = _first(conj)
            last = first.path.rpartition("/")[2].replace("~1", "/").replace("~0", "~") if first else ""
            stem = re.sub(r"[^A-Za-z0-9_.-]", "_", last)[:60] or "root"
            name, number, taken = stem, 1, set(self._names.values())
            while name in taken:
                number += 1
                name = f"{stem}_{number}"
            self._names[conj] = name
            self._waiting.append((name, conj))
        self._referred.append(name)
        return Out({"$ref": f"#/$defs/{name}"}, Ref(name))

    def root_name(self) -> str | None:
        """The name of the definition that is the root itself, if something refers to it."""
        return self._names.get((self.places.root,))

    def cut(self, conj: Conj) -> Out:
        """No more words for *conj*: it is nested too deeply, in itself or at all."""
        part = _first(conj) or self.places.root
        meaning = f"The provider is not told what is deeper inside {subject(part.path)}; Toolcrib still checks it."
        keyword = "$ref" if isinstance(part.schema, dict) and "$ref" in part.schema else "nesting"
        self.lose(part, keyword, meaning, grave=True)
        return self.anything()

    def anything(self) -> Out:
        """Words for any value at all."""
        return Out({})

    def nothing(self, *conj: Part | Either) -> Out:
        """Words for no value at all, where there are such; *conj* is what cannot hold."""
        if self.accepts.takes("not"):
            return Out({"not": {}})
        for part in _all_parts(conj) or [self.places.root]:
            self.lose(part, "false", grave=True)
        return self.anything()

    def trivial(self, conj: Conj) -> bool | None:
        """True where *conj* demands nothing, False where nothing can hold, None where neither is plain to see."""
        if all(isinstance(element, Part) and says_nothing(element.schema) for element in conj):
            return True
        return False if any(isinstance(element, Part) and element.schema is False for element in conj) else None

    def around(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """What only describes, of *schema*. A default that cannot be said as one is put into the description."""
        out = {k: v for k, v in schema.items() if self.accepts.takes(k) and not k.startswith("$")}
        default = schema.get("default")
        if default is not None and "default" not in out and self.accepts.takes("description"):
            said = f"Default: {json.dumps(default, ensure_ascii=False)}."
            out["description"] = f"{out['description']} {said}" if out.get("description") else said
        return out

    def matters(self, both: Combined, keyword: str) -> bool:
        """Whether *keyword* says anything of values of the kinds that are left."""
        kinds = OF_KINDS.get(keyword)
        if kinds and both.kinds is not None and not set(kinds) & set(both.kinds):
            return False
        value = both.value(keyword)
        if keyword == "format":
            return value in FORMATS
        if keyword == "dependentRequired":
            return any(value.values())
        if keyword == "minProperties" and value <= len(both.value("required", ())):
            return False
        return value not in SAYS_NOTHING.get(keyword, ())

    def values(self, both: Combined) -> list[Any] | None:
        """The values that are left where a part lists them; None where none does."""
        if "enum" not in both.said and "const" not in both.said:
            return None
        listed = [both.said["const"][0]] if "const" in both.said else both.said["enum"][0]
        return [value for value in listed if self.holds(value, tuple(both.parts) + tuple(both.eithers))]

    def holds(self, value: Any, conj: Conj) -> bool:
        """Whether *value* is valid under *conj*; True where that cannot be told."""
        for element in conj:
            if isinstance(element, Either):
                if not any(self.holds(value, branch) for branch in element.branches):
                    return False
            elif not (self._apart(element) if element.trimmed else self.document.valid)(value, element.path):
                return False
        return True

    def _apart(self, part: Part) -> Callable[[Any, str], bool]:
        """What judges values by a trimmed *part*: it stands nowhere in the schema, so it is put beside the others."""
        root = self.places.root.schema
        document = Document({**root, "$defs": {**root.get("$defs", {}), "-": part.schema}}, formats=False)
        return lambda value, place: document.valid(value, "/$defs/-")


def _first(conj: Conj) -> Part | None:
    """The first place that *conj* speaks of."""
    for element in conj:
        found = element if isinstance(element, Part) else next(filter(None, map(_first, element.branches)), None)
        if found is not None:
            return found
    return None


def _all_parts(conj: Conj) -> list[Part]:
    """All places that *conj* speaks of."""
    found: list[Part] = []
    for element in conj:
        found += (
            [element] if isinstance(element, Part) else [p for branch in element.branches for p in _all_parts(branch)]
        )
    return found
