"""Views of sources: fewer of the tools, or the tools under other names. Each is a source itself.

A view is a value: it loads what it views when it is loaded itself, and changes nothing in it. A tool in a view does the
same work as the one it was made of, and speaks of itself by the name it has here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import Hints, NameConflictError, SetupError, UnknownToolError
from ..machinery import Globs, compile_globs
from ..tools import Loaded, Tool, load
from .registry import Registry, fold, unknown

AnyTool = Tool[..., Any]
Renames = Mapping[str, str | tuple[str, str]]


@dataclass(frozen=True, slots=True)
class View:
    """*sources*, and the *change* that is made to the list of their tools. `str(view)` describes it.

    *known* makes of names that the sources are known to have those that the view has; all have the *prefix*. What they
    offer beside tools has the *labels*, too. *hold* is what holds the tools to a lock file.
    """

    name: str
    sources: tuple[Any, ...]
    change: Callable[[list[AnyTool]], list[AnyTool]]
    known: Callable[[set[str]], set[str]] = set
    prefix: str = ""
    labels: frozenset[str] = frozenset()
    hold: Any = None

    def load(self) -> Loaded:
        """Return the tools as this view shows them, and the problems of what is viewed.

        Raises UnknownToolError for a name that is not there, NameConflictError for one that is there twice, and
        whatever `toolcrib.tools.load` raises.
        """
        content = Loaded()
        for source in self.sources:
            part = loaded_from(source)
            content.tools += part.tools
            content.problems += part.problems
        content.tools = _distinct(self.change(content.tools))
        return content

    def __toolcrib__(self) -> list[AnyTool]:
        return self.load().tools

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<View {self.name}>"


def only_named(source: Any, names: Iterable[str]) -> View:
    """Return the tools of *source* with one of *names*, as far as they are there: it may have them later."""
    wanted_names = frozenset(names)
    return View(str(source), (source,), lambda tools: [tool for tool in tools if tool.spec.name in wanted_names])


def filtered(
    source: Any, *patterns: str, without: Globs = (), tags: Iterable[str] = (), hint: str | None = None
) -> View:
    """Return the tools of *source* whose names fit one of *patterns* (all, if there are none) and none of *without*.

    Of these, with *tags* only the tools that have one of the tags; with *hint*, as "read_only", only those that are
    declared so. A pattern without `*`, `?` or `[`, also of *without*, is the name of a tool, and has to be there.
    """
    included = compile_globs(patterns, of="a filter") if patterns else None
    excluded = compile_globs(without, of="without") if without else None
    any_of = _texts(tags, "tags")
    if hint is not None and hint not in Hints.__slots__:
        from ..schema import closest_match, did_you_mean

        suggestion = did_you_mean(closest_match(str(hint), Hints.__slots__))
        raise SetupError(f"There is no hint {hint!r}.{suggestion} There are: {', '.join(Hints.__slots__)}.")

    literal, left_out = map(_literal, (patterns, [without] if isinstance(without, str) else without))

    def fits(name: str) -> bool:
        return (included is None or bool(included.fullmatch(name))) and not (excluded and excluded.fullmatch(name))

    def change(tools: list[AnyTool]) -> list[AnyTool]:
        _require(literal, tools)
        # Until a caller has logged in to a server, its tools are not known.
        if not any(getattr(tool.source, "connecting", None) == tool.origin for tool in tools):
            _require(left_out, tools)
        return [
            tool
            for tool in tools
            if fits(tool.spec.name)
            and (not any_of or any_of & tool.spec.tags)
            and (hint is None or getattr(tool.spec.hints, hint) is True)
        ]

    def known(names: set[str]) -> set[str]:
        return set(filter(fits, names.union(literal)))

    return View(f"filtered({_name_of(source)})", (source,), change, known)


def renamed(source: Any, names: Renames) -> View:
    """Return the tools of *source*, some by other names: `{"old": "new"}`, or `{"old": ("new", "its description")}`.

    Names may be swapped. A new name that is the old one changes the description only.
    """
    if not isinstance(names, Mapping):
        raise SetupError('renamed takes a mapping of names, as in renamed(source, {"old": "new"}).')
    to: dict[str, tuple[str, str | None]] = {}
    for old, new in names.items():
        parts: list[Any] = list(new) if isinstance(new, list | tuple) else [new]
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in (old, *parts)):
            raise SetupError(f'{old!r} is renamed to a name, or to (name, description): {{"old": "new"}}.')
        to[old] = (parts[0], parts[1] if len(parts) == 2 else None)

    def change(tools: list[AnyTool]) -> list[AnyTool]:
        _require(to, tools)
        return [tool.named(*to[tool.spec.name]) if tool.spec.name in to else tool for tool in tools]

    def known(names: set[str]) -> set[str]:
        return {to[name][0] if name in to else name for name in names.union(to)}

    return View(f"renamed({_name_of(source)})", (source,), change, known)


def prefixed(source: Any, prefix: str) -> View:
    """Return the tools of *source*, with *prefix* before each name."""
    if not isinstance(prefix, str) or not prefix:
        raise SetupError('A prefix is a text, as in prefixed(source, "gh_").')

    def change(tools: list[AnyTool]) -> list[AnyTool]:
        return [tool.named(prefix + tool.spec.name) for tool in tools]

    def known(names: set[str]) -> set[str]:
        return {prefix + name for name in names}

    return View(f"prefixed({_name_of(source)}, {prefix!r})", (source,), change, known, prefix)


def labelled(source: Any, *labels: str) -> View:
    """Return the tools of *source*, whose results have *labels* too, as in `labelled(source, "untrusted")`.

    So have its resources and prompts.
    """
    more = _texts(labels, "labels")

    def change(tools: list[AnyTool]) -> list[AnyTool]:
        return [tool.replace(spec=replace(tool.spec, labels=frozenset(tool.spec.labels | more))) for tool in tools]

    return View(f"labelled({_name_of(source)})", (source,), change, labels=more)


def joined(*sources: Any) -> View:
    """Return the tools of all *sources*, in their order, as one source."""
    return View(f"joined({', '.join(map(_name_of, sources))})", sources, lambda tools: tools)


def loaded_from(source: Any) -> Loaded:
    """Load *source* as `toolcrib.tools.load` does, also views, registries, lists of sources and what is loaded."""
    if isinstance(source, View):
        return source.load()
    if isinstance(source, Loaded):
        return source
    if isinstance(source, Registry):
        return Loaded(list(source))
    return joined(*source).load() if isinstance(source, list | tuple) else load(source)


def known_names(source: Any, assumed: Iterable[str] = ()) -> set[str]:
    """Return the names that tools of *source* are known to have, also where it has not started.

    Those at servers are the ones that these expect, and the *assumed*.
    """
    if not isinstance(source, View):
        return {*getattr(source, "expected", ()), *assumed}
    return source.known({name for part in source.sources for name in known_names(part, assumed)})


def prefixes_of(source: Any) -> list[str]:
    """Return the prefixes that tools of *source* have here."""
    if not isinstance(source, View):
        return []
    return [source.prefix] if source.prefix else [prefix for part in source.sources for prefix in prefixes_of(part)]


def holds_of(source: Any) -> list[Any]:
    """Return what holds the tools of *source* to a lock file."""
    parts = source.sources if isinstance(source, View) else ()
    own = getattr(source, "hold", None)
    return [*([] if own is None else [own]), *(hold for part in parts for hold in holds_of(part))]


def _distinct(tools: list[AnyTool]) -> list[AnyTool]:
    """Return *tools*, if a model can distinguish them all by name."""
    names_by_fold: dict[str, str] = {}
    for tool in tools:
        name = tool.spec.name
        holder = names_by_fold.get(fold(name))
        if holder is not None:
            differ = "" if holder == name else f", and another '{holder}', which differs only in - and _"
            conflict = "two tools" if holder == name else "a tool"
            raise NameConflictError(
                f"A view would have {conflict} named '{name}'{differ}. Give one of them another name with renamed(), "
                "or one of the sources a prefix with prefixed()."
            )
        names_by_fold[fold(name)] = name
    return tools


def _literal(patterns: Iterable[str]) -> list[str]:
    return [pattern for pattern in patterns if not set(pattern) & set("*?[")]


def _require(names: Iterable[str], tools: Sequence[AnyTool]) -> None:
    tool_names = [tool.spec.name for tool in tools]
    for name in names:
        if name not in tool_names:
            raise UnknownToolError(unknown(name, tool_names))


def _texts(texts: Iterable[str], name: str) -> frozenset[str]:
    items: list[Any] = [texts] if isinstance(texts, str) or not isinstance(texts, Iterable) else list(texts)
    if not all(isinstance(text, str) for text in items):
        raise SetupError(f'{name} are texts, as in {name}=["read", "admin"].')
    return frozenset(items)


def _name_of(source: Any) -> str:
    return str(source) if isinstance(source, str | View) else getattr(source, "__name__", type(source).__name__)
