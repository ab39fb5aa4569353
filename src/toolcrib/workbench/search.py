"""Tools found by what they do, where there are more than a model is to be shown: BM25 over their names, descriptions
and parameters.

A model is shown `find_tools`, the tools that are always shown, and those that it has found. Any other can be called,
too: what is searched is what the caller may see.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from inspect import isawaitable
from typing import Annotated, Any

from ..core import SetupError, Tool, ToolSpec
from ..machinery import compile_globs, in_thread
from .registry import Registry, free_name

FINDERS = ("find_tools", "toolcrib_find_tools")
"""The names of the tool that searches: the second, where a tool of the user has the first."""

Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]]
"""Vectors of texts, one for each; plain or async."""

MAX_FOUND = 100
MAX_CHARS = 20_000
_DEPTH = 4
_FUSION = 60
"""The constant of reciprocal rank fusion: the higher, the less the first ranks stand out."""
_NAME_WEIGHT = 3
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_STOP = frozenset(
    _WORD.findall(
        "a an and are as at be by can could do does for from get give has have how i if in is it its me my of on or "
        "please should that the their them then there these this to use used want was what when where which will with "
        "would you your"
    )
)


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
    if find_spec("bm25s") is None:
        raise SetupError("Searching tools needs the package 'bm25s', which is missing: pip install 'toolcrib[search]'")


class ToolIndex:
    """*specs*, ranked by how well they match a query. With *vectors*, one for each of *specs*, by these too."""

    def __init__(self, specs: Sequence[ToolSpec], vectors: Sequence[Sequence[float]] | None = None) -> None:
        bm25s: Any = import_module("bm25s")  # it has no types
        self.specs = specs
        self._ranker = bm25s.BM25()
        if specs:
            self._ranker.index([_words_of(spec) for spec in specs], show_progress=False)
        self._vectors = None if vectors is None else _normalized(vectors)

    def ranked(self, query: str, vector: Sequence[float] | None = None) -> Iterator[ToolSpec]:
        """Return the specs that match *query*, the best first."""
        if not self.specs:
            return iter(())
        words = [word for word in dict.fromkeys(words_in(query)) if word in self._ranker.vocab_dict]
        order = _order(self._ranker.get_scores(words)) if words else []
        if vector is not None and self._vectors is not None:
            near = _order(self._vectors @ _normalized([vector])[0])
            points: dict[int, float] = {}
            for ranks in (order, near):
                for rank, index in enumerate(ranks):
                    points[index] = points.get(index, 0.0) + 1 / (_FUSION + rank)
            order = sorted(points, key=lambda index: -points[index])
        return (self.specs[index] for index in order)


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

        async def find(query: str, limit: Annotated[int, Field(ge=1, le=20)] = 5) -> Any:
            """Find tools by what they do. There are more than are listed.

            What is found can be called at once, by its name, with arguments as its input_schema has them.

            Args:
                query: What the tool is to do, in words that its name, description or parameters may have.
                limit: How many to return at most.
            """
            visible = {spec.name: spec for spec in self._visible()}
            matches: list[ToolSpec] = []
            for spec in await self._index.ranked(query, self._registry.specs()):
                if spec.name in visible:
                    matches.append(visible[spec.name])
                    if len(matches) == limit:
                        break
            self._add(spec.name for spec in matches)
            return [_summary(spec) for spec in self._present(matches)]

        return FunctionTool(find, name=name, title="Find tools", read_only=True, idempotent=True, open_world=False)

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            self._found.pop(name, None)
            self._found[name] = None
            while len(self._found) > MAX_FOUND:
                del self._found[next(iter(self._found))]
        self._changes += 1


def words_in(text: str) -> list[str]:
    """Return the words of *text* as they are compared: parts of names apart, in lower case, without plurals."""
    words = _WORD.findall(_BOUNDARY.sub(" ", text[:MAX_CHARS]))
    return [_stem(word) for text_word in words if (word := text_word.casefold()) not in _STOP]


def text_of(spec: ToolSpec) -> str:
    """Return what describes a tool, in words."""
    return "\n".join([f"{spec.title or ''} {spec.name}", spec.description, *_texts(spec.input_schema, _DEPTH)])


def _words_of(spec: ToolSpec) -> list[str]:
    name = words_in(f"{spec.name} {spec.title or ''}")
    rest = words_in("\n".join([spec.description, *spec.tags, *_texts(spec.input_schema, _DEPTH)]))
    return [spec.name.casefold(), *(name * _NAME_WEIGHT), *rest]


def _texts(schema: Any, depth: int) -> Iterator[str]:
    """Return the names and descriptions of parameters in *schema*."""
    if not isinstance(schema, Mapping) or depth == 0:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        yield str(name)
        if isinstance(inner, Mapping):
            if isinstance(inner.get("description"), str):
                yield inner["description"]
            yield from _texts(inner, depth - 1)
            yield from _texts(inner.get("items"), depth - 1)


def _stem(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


def _summary(spec: ToolSpec) -> dict[str, Any]:
    data = {"name": spec.name, "title": spec.title, "description": spec.description, "input_schema": spec.input_schema}
    return {name: value for name, value in data.items() if value}


def _order(scores: Any) -> list[int]:
    """Return the indices of the scores above 0, the highest first; of equal ones the first."""
    import numpy

    order = numpy.argsort(-scores, kind="stable")
    return [int(index) for index in order[: int((scores > 0).sum())]]


def _normalized(vectors: Sequence[Sequence[float]]) -> Any:
    import numpy

    matrix = numpy.asarray(vectors, dtype=numpy.float32)
    lengths = numpy.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / numpy.where(lengths == 0, 1, lengths)
