"""Tools found by what they do, where there are more than a model is to be shown: BM25F over their names, descriptions
and parameters, by the words of a query and by words that mean the same.

A model is shown `find_tools`, the tools that are always shown, and those that it has found. Any other can be called,
too: what is searched is what the caller may see.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from inspect import isawaitable
from pathlib import Path
from typing import Annotated, Any

from ..core import Result, SetupError, Tool, ToolSpec
from ..machinery import compile_globs, in_thread
from .registry import Registry, free_name

FINDERS = ("find_tools", "toolcrib_find_tools")
"""The names of the tool that searches: the second, where a tool of the user has the first."""

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]]
"""Vectors of texts, one for each; plain or async."""

_QUERY = "What the tool is to do, in words that its name, description or parameters may have."
MAX_FOUND = 100
MAX_CHARS = 20_000
_DEPTH = 4
_FUSION = 60
"""The constant of reciprocal rank fusion: the higher, the less the first ranks stand out."""
_HEAD_WEIGHT = 3
"""How often a word counts in a tool's name, title and first line."""
_COVERAGE, _COVERAGE_POWER = 3, 0.7
"""How much a word counts in addition, the fewer other words there are in a tool's name, title and first line."""
_TERM_WEIGHTS = {"'": 0.2, **dict.fromkeys("?!=", 0.7)}
"""How much a word with its endings counts, and a group of synonyms, by their signs, compared with the word itself."""
_SATURATION, _HEAD_LENGTH, _BODY_LENGTH = 1.2, 1, 0.5
"""The constants k1 and b of BM25, b for the name, title and first line, and for everything else."""
_RARITY_POWER = 0.6
"""Less than 1: one rare word of a query does not outweigh all others."""
_OTHER_PURPOSE = 0.8
"""What a tool that changes something keeps of its score where a query asks to see something, and the reverse."""
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?!\ws\b)")
_PREFIX = re.compile(r"\b([Rr]e)-(?=[a-z])")
_LINK = re.compile(r"\]\([^)\s]*\)|https?://\S+")
_WORD = re.compile(r"[^\W_]+")
_ENDINGS = [
    (re.compile(pattern), ending)
    for pattern, ending in (
        (r"(?<=\w\w)(?:(?<=i)es|(?<![su])s)$", ""),
        (r"(?<=\w{3})(?:ing|ed|e)$", ""),
        (r"([bdfgmnprt])\1$", r"\1"),
        (r"(?<=\w{4})(?:ation|ment|er|or|ion|ee?)$", ""),
        (r"(?<=\w\w)y$", "i"),
    )
]
_STOP = frozenset(
    _WORD.findall(
        "a about also an and any are as at be been by can could do does for from give has have here how i if in into "
        "is it its just need no not of on one or our out per please should so some something than that the their "
        "them then there these this to up us use used via want was we were when will with would you your"
    )
)
_SYNONYMS = Path(__file__).with_name("synonyms.txt")
"""Groups of words for one thing: first those of asking, then those of changing, then those of things.

The term of a group is its first word after `?`, `!` or `=`, as in `!create`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How models find tools, for `search=`: by the tool `find_tools`, in place of all tools. Raises SetupError."""

    above: int = 0
    """All tools are shown as long as there are not more than this."""
    always_shown: Iterable[str] = ()
    """Patterns of the names of tools that are shown without a search, as in 'db_*'."""
    embed: Embed | None = None
    """Makes vectors of texts, plain or async: tools are then searched by meaning, too, and not by words alone."""

    def __post_init__(self) -> None:
        patterns = [self.always_shown] if isinstance(self.always_shown, str) else list(self.always_shown)
        if type(self.above) is not int or self.above < 0:
            raise SetupError("Search: 'above' is a whole number of tools.")
        if isinstance(self.always_shown, str) or not all(isinstance(pattern, str) for pattern in patterns):
            raise SetupError('Search: always_shown are patterns of tool names, as in always_shown=["db_*"].')
        if self.embed is not None and not callable(self.embed):
            raise SetupError(f"Search: 'embed' is a function, not {type(self.embed).__name__}.")
        object.__setattr__(self, "always_shown", tuple(patterns))

    @classmethod
    def of(cls, option: "bool | int | Search") -> "Search | None":
        """Return what the option `search` stands for; None for no search."""
        if isinstance(option, Search):
            return option
        return cls(above=0 if option is True else option) if option else None


def require_search() -> None:
    """Raise SetupError if the library that ranks is missing."""
    if find_spec("numpy") is None:
        raise SetupError("Searching tools needs the package 'numpy', which is missing: pip install 'toolcrib[search]'")


class ToolIndex:
    """*specs*, ranked by how well they match a query. With *vectors*, one for each of *specs*, by these too."""

    def __init__(self, specs: Sequence[ToolSpec], vectors: Sequence[Sequence[float]] | None = None) -> None:
        import numpy

        self.specs = specs
        self._indices = {spec.name: index for index, spec in enumerate(specs)}
        self._weights = _weights([_terms_of(spec) for spec in specs])
        self._purposes = {
            purpose: numpy.array(
                [_OTHER_PURPOSE if spec.hints.read_only is opposite else 1 for spec in specs], numpy.float32
            )
            for purpose, opposite in ((1, False), (-1, True))
        }
        self._vectors = None if vectors is None or not specs else _normalized(vectors)

    def ranked(self, query: str, vector: Sequence[float] | None = None) -> Iterator[ToolSpec]:
        """Return the specs that match *query*, the best first."""
        order: Iterable[int] = _order(self._scores(query))
        if vector is not None and self._vectors is not None:
            near = _order(self._vectors @ _normalized([vector])[0])
            points: dict[int, float] = {}
            for ranks in (order, near):
                for rank, index in enumerate(ranks):
                    points[index] = points.get(index, 0.0) + 1 / (_FUSION + rank)
            order = sorted(points, key=lambda index: -points[index])
        return (self.specs[index] for index in order)

    def _scores(self, query: str) -> Any:
        import numpy

        scores = numpy.zeros(len(self.specs), dtype=numpy.float32)
        forms = _forms_in(query)
        past = set[str]()  # a group of synonyms counts once
        for form in dict.fromkeys(forms):
            terms = [term for term in _synonyms(form) if term in self._weights and term not in past]
            past.update(terms)
            best = numpy.zeros(len(scores), dtype=numpy.float32)
            for term in terms:
                indices, weights = self._weights[term]
                best[indices] = numpy.maximum(best[indices], weights)
            scores += best
            if (term := f"'{form}") in self._weights:
                indices, weights = self._weights[term]
                scores[indices] += weights
        if purpose := _purpose(forms):
            scores *= self._purposes[purpose]
        if (exact := self._indices.get(query.strip())) is not None:
            scores[exact] = numpy.inf
        return scores


class SharedIndex:
    """The index of a crib's tools, made again when they have changed."""

    def __init__(self, embed: Embed | None) -> None:
        self._embed = embed
        self._index: ToolIndex | None = None

    async def ranked(self, query: str, specs: Sequence[ToolSpec]) -> Iterator[ToolSpec]:
        """Return those of *specs* that match *query*, the best first."""
        index = self._index
        if index is None or index.specs is not specs:
            vectors = None if self._embed is None else await self._vectors([text_of(spec) for spec in specs])
            index = self._index = await in_thread(lambda: ToolIndex(specs, vectors))
        vector = None if self._embed is None else (await self._vectors([query]))[0]
        return index.ranked(query, vector)

    async def _vectors(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        embed = self._embed
        assert embed is not None
        answer: Any = await in_thread(lambda: embed(texts))
        vectors: Sequence[Sequence[float]] = await answer if isawaitable(answer) else answer
        if len(vectors) != len(texts) or not all(math.isfinite(number) for vector in vectors for number in vector):
            raise SetupError(
                f"embed returned {len(vectors)} vectors for {len(texts)} texts, or numbers that are not finite."
            )
        return vectors


class ToolSearch:
    """What one caller is shown, and finds: of what *visible* returns, as *present* presents it."""

    def __init__(
        self,
        registry: Registry,
        index: SharedIndex,
        search: Search,
        *,
        visible: Callable[[], Sequence[ToolSpec]],
        present: Callable[[Sequence[ToolSpec]], Sequence[ToolSpec]],
    ) -> None:
        self._registry = registry
        self._index = index
        self._above = search.above
        always = tuple(search.always_shown)
        self._always = compile_globs(always, of="always_shown") if always else None
        self._visible = visible
        self._present = present
        self._found: dict[str, None] = {}
        self._shown: tuple[Sequence[ToolSpec], int, Sequence[ToolSpec]] | None = None
        self._changes = 0
        self._tools: dict[str, Tool] = {}
        self._deferred: dict[int, tuple[ToolSpec, ToolSpec]] = {}

    def shown(self, every: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return what is shown of *every*: with the tool that searches, where there are too many to be shown."""
        if len(every) <= self._above:
            return every
        cached = self._shown
        if cached is None or cached[0] != every or cached[1] != self._changes:
            finders = [] if (finder := self.tool()) is None else [finder.spec]
            specs = (*finders, *(spec for spec in every if self._is_shown(spec.name)))
            cached = self._shown = (every, self._changes, specs)
        return cached[2]

    def deferred(self, every: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return *every*, those that are not shown marked as deferred."""
        if len(every) <= self._above:
            return every
        if len(self._deferred) > 2 * len(every):  # of tools that were replaced
            self._deferred.clear()
        return tuple(spec if self._is_shown(spec.name) else self._as_deferred(spec) for spec in every)

    def tool(self, name: str | None = None) -> Tool | None:
        """Return the tool that searches, if *name* is its name."""
        own = free_name(self._registry, FINDERS)
        if own is None or (name is not None and name != own):
            return None
        if own not in self._tools:
            self._tools[own] = self._new_tool(own)
        return self._tools[own]

    def forget(self) -> None:
        """Forget what was found."""
        self._found.clear()
        self._changes += 1

    def _is_shown(self, name: str) -> bool:
        return name in self._found or (self._always is not None and self._always.fullmatch(name) is not None)

    def _as_deferred(self, spec: ToolSpec) -> ToolSpec:
        # The same object each time: formats keep what they have made of a spec.
        cached = self._deferred.get(id(spec))
        if cached is None:
            cached = self._deferred[id(spec)] = (spec, replace(spec, deferred=True))
        return cached[1]

    def _new_tool(self, name: str) -> Tool:
        from pydantic import Field

        from ..tools import Tool as FunctionTool

        async def find(
            query: Annotated[str, Field(description=_QUERY)],
            limit: Annotated[int, Field(ge=1, le=20, description="How many to return at most.")] = 5,
        ) -> Any:
            """Find tools by what they do. There are more than are listed.

            What is found can be called at once, by its name, with arguments as its input_schema has them.
            """
            visible = {spec.name: spec for spec in self._visible()}
            matches: list[ToolSpec] = []
            for spec in await self._index.ranked(query, self._registry.specs()):
                if spec.name in visible:
                    matches.append(visible[spec.name])
                    if len(matches) == limit:
                        break
            self._add(spec.name for spec in matches)
            # A description is what its source says, and models read it.
            labels = {label for spec in matches for label in spec.labels}
            return Result([_summary(spec) for spec in self._present(matches)], (), metadata={"labels": labels})

        return FunctionTool(find, name=name, title="Find tools", read_only=True, idempotent=True, open_world=False)

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            self._found.pop(name, None)
            self._found[name] = None
            while len(self._found) > MAX_FOUND:
                del self._found[next(iter(self._found))]
        self._changes += 1


def words_in(text: str) -> list[str]:
    """Return the words of *text* as they are compared: parts of names apart, in lower case, without endings."""
    return [_stem(word) for word in _forms_in(text)]


def _forms_in(text: str) -> list[str]:
    """Return the words of *text* with their endings."""
    words = _WORD.findall(_BOUNDARY.sub(" ", _PREFIX.sub(r"\1", _LINK.sub(" ", text[:MAX_CHARS]))))
    return [word for text_word in words if (word := text_word.casefold()) not in _STOP]


def text_of(spec: ToolSpec) -> str:
    """Return what describes a tool, in words."""
    return "\n".join([f"{spec.title or ''} {spec.name}", spec.description, *_texts(spec.input_schema, _DEPTH)])


def _terms_of(spec: ToolSpec) -> tuple[Counter[str], Counter[str]]:
    """Return the terms of a tool, counted: of its name, title and first line, and of everything else."""
    line, _, rest = spec.description.partition("\n")
    forms = _forms_in(f"{spec.name} {spec.title or ''} {line}")
    head = [term for form in forms for term in (f"'{form}", *_synonyms(form))]
    body = words_in("\n".join([rest, *spec.tags, *_texts(spec.input_schema, _DEPTH)]))
    return Counter(head), Counter(body)


@lru_cache(maxsize=10_000)
def _synonyms(form: str) -> Sequence[str]:
    """Return a word as it is compared, and the groups of synonyms that it is in."""
    word = _stem(form)
    return (word, *_groups().get(word, ()))


def _purpose(forms: Sequence[str]) -> int:
    """Return 1 if a query of the words *forms* asks to see something, -1 if to change something, 0 if it is unclear."""
    first = forms[0] if forms else ""
    kinds = {group[0] for group in _synonyms(first)[1:]}
    if kinds & {"?", "!"}:
        return ("?" in kinds) - ("!" in kinds)
    return int(first.endswith("s") and not first.endswith("ss"))  # 'files of a release'


@cache
def _groups() -> Mapping[str, Sequence[str]]:
    """Return the groups of synonyms of each word that has some, as in `{"drop": ["!delet"]}`."""
    groups: dict[str, list[str]] = {}
    for kind, part in zip("?!=", _SYNONYMS.read_text("utf-8").split(";"), strict=True):
        for group in part.split(","):
            first, *others = words_in(group)
            for word in dict.fromkeys((first, *others)):
                groups.setdefault(word, []).append(f"{kind}{first}")
    return groups


def _weights(tools: Sequence[tuple[Counter[str], Counter[str]]]) -> dict[str, tuple[Any, Any]]:
    """Return the indices of the tools that have a term, and how much it counts in each, by term."""
    import numpy

    lengths = numpy.array([[max(head.total(), 1), body.total()] for head, body in tools]).reshape(-1, 2)
    shares = numpy.array([_HEAD_LENGTH, _BODY_LENGTH])
    norms = 1 - shares + shares * lengths / numpy.maximum(lengths.mean(axis=0), 1) if tools else lengths
    columns: dict[str, tuple[array[int], array[float], array[int]]] = {}
    for index, ((head, body), norm) in enumerate(zip(tools, norms.tolist(), strict=True)):
        for term in {**head, **body}:
            column = columns.setdefault(term, (array("i"), array("f"), array("b")))
            column[0].append(index)
            column[1].append(_HEAD_WEIGHT * head.get(term, 0) / norm[0] + body.get(term, 0) / norm[1])
            column[2].append(term in head)
    table: dict[str, Any] = {term: [numpy.asarray(part) for part in column] for term, column in columns.items()}
    rarity: dict[str, float] = {}
    masses = numpy.full(len(tools), 1e-9, dtype=numpy.float32)  # of all terms of a tool's head
    for term, (indices, _, in_head) in table.items():
        rarity[term] = math.log(1 + (len(tools) - len(indices) + 0.5) / (len(indices) + 0.5)) ** _RARITY_POWER
        rarity[term] *= _TERM_WEIGHTS.get(term[0], 1)
        masses[indices] += rarity[term] * in_head
    for term, (indices, counts, in_head) in table.items():
        coverage = _COVERAGE * in_head / masses[indices] ** _COVERAGE_POWER
        table[term] = _column(indices, rarity[term] * (counts / (_SATURATION + counts) + coverage), len(tools))
    return table


def _column(indices: Any, weights: Any, tools: int) -> tuple[Any, Any]:
    """Return *weights* and their *indices* among the *tools*: of a frequent term for all tools, which is faster."""
    import numpy

    if len(indices) <= tools / 32:
        return indices, weights
    column = numpy.zeros(tools, dtype=numpy.float32)
    column[indices] = weights
    return slice(None), column


def _texts(schema: Any, depth: int) -> Iterator[str]:
    """Return the names, descriptions and words to choose from of parameters in *schema*."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        yield str(name)
        if isinstance(inner, Mapping):
            if isinstance(inner.get("description"), str):
                yield inner["description"]
            if isinstance(inner.get("enum"), (list, tuple)):
                yield " ".join(value for value in inner["enum"] if isinstance(value, str))
            yield from _texts(inner, depth - 1)
            yield from _texts(inner.get("items"), depth - 1)


@lru_cache(maxsize=10_000)
def _stem(word: str) -> str:
    """Return *word* without the endings of its forms: 'reviewed' and 'reviewers' are 'review'."""
    for pattern, ending in _ENDINGS:
        word = pattern.sub(ending, word)
    return word


def _summary(spec: ToolSpec) -> dict[str, Any]:
    data = {"name": spec.name, "title": spec.title, "description": spec.description, "input_schema": spec.input_schema}
    return {name: value for name, value in data.items() if value}


def _order(scores: Any) -> Iterator[int]:
    """Yield the indices of the scores above 0, the highest first; of equal ones the first."""
    import numpy

    matches, count = numpy.flatnonzero(scores > 0), 100
    while len(matches):  # few are asked for: the best are sorted first
        values = scores[matches]
        least = numpy.partition(values, -count)[-count] if len(matches) > count else 0
        best = matches[values >= least]
        yield from best[numpy.argsort(-scores[best], kind="stable")].tolist()
        matches, count = matches[values < least], 8 * count


def _normalized(vectors: Sequence[Sequence[float]]) -> Any:
    import numpy

    matrix = numpy.asarray(vectors, dtype=numpy.float32)
    lengths = numpy.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / numpy.where(lengths == 0, 1, lengths)
