"""A callable's signature, read once: what a model may fill in, what the host provides, what comes back."""

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ..core import Context, DefinitionError, Depends, Need, Needs, Scope

EMPTY: Any = inspect.Parameter.empty
"""Stands for what was not written: a default, an annotation."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a model may fill in. `annotation` has its names resolved and keeps its `Annotated` extras."""

    name: str
    kind: inspect._ParameterKind
    annotation: Any
    default: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """A callable, read. `is_async` where calling it gives an awaitable."""

    parameters: tuple[Parameter, ...]
    needs: Needs
    returns: Any
    is_async: bool
    doc: str | None


def read_signature(fn: Callable[..., Any], *, label: str, names: Mapping[str, Any] | None = None) -> Signature:
    """Read *fn*: a function, method, partial, class or object with `__call__`.

    *label* names it in errors; *names* are the local names of the function it was defined in, which its annotations
    may use. Raises DefinitionError where annotations cannot be resolved or ask for the Context twice.
    """
    plain = _plain(fn)
    try:
        written = inspect.signature(fn)
    except (TypeError, ValueError):
        raise DefinitionError(
            f"{label} has no signature that Python can read. Wrap it in a function with annotated parameters."
        ) from None
    hints = _hints(plain, label, {**enclosing_names(plain), **(names or {})})
    decided = _decided_by_partial(fn)
    visible: list[Parameter] = []
    context: str | None = None
    depends: list[Need] = []
    for name, parameter in written.parameters.items():
        annotation = hints.get(name, parameter.annotation)
        if name in decided:
            continue
        if _is_context(annotation):
            if context is not None:
                raise DefinitionError(
                    f"{label} has two Context parameters, '{context}' and '{name}'. Keep one: both would be the same."
                )
            context = name
            continue
        if isinstance(parameter.default, Depends):
            raise DefinitionError(
                f"{label}: parameter '{name}' has Depends as its default. "
                f"Write it as an annotation: {name}: Annotated[..., Depends(...)]."
            )
        if (how := _dependency(annotation)) is not None:
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise DefinitionError(f"{label}: parameter '{name}' is provided by name; move it behind the '/'.")
            provider = read_signature(how.provider, label=f"{label}: the provider of '{name}'")
            required = [p.name for p in provider.parameters if p.default is EMPTY and p.kind in _BY_NAME]
            if required:
                raise DefinitionError(
                    f"{label}: the provider of '{name}' takes {', '.join(required)}, and nobody gives it that. "
                    "A provider's parameters are Context or Depends themselves, or have defaults."
                )
            _require_lives_long_enough(how, provider.needs, label, name)
            depends.append(Need(name, how, provider.needs))
            continue
        visible.append(Parameter(name, parameter.kind, annotation, parameter.default))
    needs = Needs(context, tuple(depends))
    return Signature(tuple(visible), needs, hints.get("return", EMPTY), _gives_awaitable(fn), _doc(fn))


_BY_NAME = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


def enclosing_names(fn: Callable[..., Any]) -> dict[str, Any]:
    """The local names of the function in which *fn* is being defined, as long as that function runs.

    Annotations written as text (`from __future__ import annotations`) may use them, and Python keeps no other trace.
    """
    code = getattr(fn, "__code__", None)
    outer, _, _ = getattr(fn, "__qualname__", "").rpartition(".<locals>.")
    if code is None or not outer:
        return {}
    found: dict[str, Any] = {}
    for frame in _frames(sys._getframe(1)):
        if frame.f_code.co_filename == code.co_filename and frame.f_code.co_qualname in _outers(outer):
            found = {**frame.f_locals, **found}
    return found


def _outers(qualname: str) -> set[str]:
    parts = qualname.split(".<locals>.")
    return {".<locals>.".join(parts[: i + 1]) for i in range(len(parts))}


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _plain(fn: Any) -> Any:
    """The function (or class) that carries the annotations of *fn*."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif isinstance(fn, type) or inspect.isroutine(fn):
            return fn
        else:
            return _plain(type(fn).__call__)


def _hints(plain: Any, label: str, names: Mapping[str, Any]) -> dict[str, Any]:
    target: Any = vars(plain).get("__init__", object) if isinstance(plain, type) else plain
    try:
        hints = get_type_hints(target, localns=dict(names) or None, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{label}: the name '{error.name}' in its annotations is not defined. "
            "Import it at the top of the module, outside `if TYPE_CHECKING:`."
        ) from None
    except TypeError as error:
        if not isinstance(plain, type) and not hasattr(plain, "__annotations__"):
            return {}
        raise DefinitionError(f"{label}: its annotations cannot be read: {error}.") from None
    except SyntaxError as error:
        raise DefinitionError(f"{label}: the annotation {error.text!r} is not valid Python.") from None
    if isinstance(plain, type):
        hints.pop("return", None)
    return hints


def _decided_by_partial(fn: Any) -> frozenset[str]:
    """Names that a partial has fixed: they are decided, so the model neither sees nor sets them."""
    decided: set[str] = set()
    while isinstance(fn, functools.partial):
        decided |= fn.keywords.keys()
        fn = fn.func
    return frozenset(decided)


def _require_lives_long_enough(how: Depends, needs: Needs, label: str, name: str) -> None:
    """A value may only be made of values that live at least as long."""
    shortest: Scope | None = "call" if needs.context else None
    for need in needs.depends:
        if _LIVES.index(need.how.scope) < _LIVES.index(how.scope):
            shortest = need.how.scope
    if shortest is not None and _LIVES.index(shortest) < _LIVES.index(how.scope):
        raise DefinitionError(
            f"{label}: '{name}' lives as long as a {how.scope}, and its provider needs something that ends with a "
            f'{shortest}. Write Depends(..., scope="{shortest}").'
        )


_LIVES: tuple[Scope, ...] = ("call", "session", "program")


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0])
    if get_origin(annotation) is types.UnionType or str(get_origin(annotation)) == "typing.Union":
        return any(_is_context(part) for part in get_args(annotation))
    return annotation is Context


def _dependency(annotation: Any) -> Depends | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in annotation.__metadata__ if isinstance(extra, Depends)), None)


def _gives_awaitable(fn: Any) -> bool:
    """Whether calling *fn* surely gives an awaitable. A plain wrapper of a coroutine function may not."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or (
        not isinstance(fn, type) and not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)
    )


def _doc(fn: Any) -> str | None:
    if isinstance(fn, functools.partial):
        return _doc(fn.func)
    if isinstance(fn, type) or inspect.isroutine(fn):
        return inspect.getdoc(fn)
    return inspect.getdoc(type(fn).__call__) or inspect.getdoc(type(fn))
