"""Reads a callable's signature: what a model may fill in, what the host provides, what is returned."""

import builtins
import functools
import inspect
import re
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ..core import Caller, Context, DefinitionError, Depends
from ..machinery import HOST_VARIABLES, Need, Needs, Scope

EMPTY: Any = inspect.Parameter.empty
"""Stands for a default or an annotation that was not written."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a model may fill in. `annotation` has its names resolved and keeps its `Annotated` extras."""

    name: str
    kind: int  # inspect.Parameter.kind
    annotation: Any
    default: Any


def is_plain_parameter(parameter: Parameter) -> bool:
    """Return whether a parameter surely has a JSON Schema, and neither an alias nor a validator: its type is plain."""
    return _is_plain(parameter.annotation) and type(parameter.default).__module__ != "pydantic.fields"


def _is_plain(annotation: Any) -> bool:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return all(type(value) in (str, int, bool, NoneType) for value in inner)
    if origin is dict and inner[0] is not str:
        return False
    return all(map(_is_plain, inner)) if origin in (list, dict, Union, types.UnionType) else annotation in _PLAIN_TYPES


_PLAIN_TYPES = (str, int, float, bool, list, dict, None, NoneType, Any, EMPTY)


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a callable. `is_async` where calling it returns an awaitable; `returns` is the awaited type.

    `in_python` are all parameters as Python has them, also those a model never sees. `reserved_names` are taken
    (`self`, the Context, what a partial has fixed), so that `**kwargs` must not carry them. `names` are local names
    that annotations may use, here and in the types they name.
    """

    parameters: tuple[Parameter, ...]
    needs: Needs
    returns: Any
    is_async: bool
    fn: Any
    in_python: tuple[inspect.Parameter, ...]
    reserved_names: frozenset[str]
    names: Mapping[str, Any]

    @property
    def doc(self) -> str | None:
        """The docstring, as `inspect.getdoc` leaves it."""
        fn = unwrap_partials(self.fn)
        if isinstance(fn, type) or inspect.isroutine(fn):
            return inspect.getdoc(fn)
        # Not getdoc of `__call__`: where that has no docstring, Python finds "Call self as a function." in `type`.
        doc = next((vars(base)["__call__"].__doc__ for base in type(fn).__mro__ if "__call__" in vars(base)), None)
        return inspect.cleandoc(doc) if doc else inspect.getdoc(type(fn))


def read_signature(
    fn: Callable[..., Any], *, label: str, names: Mapping[str, Any] | None = None, within: tuple[Any, ...] = ()
) -> Signature:
    """Read *fn*: a function, method, partial, class or object with `__call__`.

    *label* names it in errors; *names* are the local names of the function it was defined in, which its annotations
    may use; *within* are the providers that are being read, to notice one that needs itself. Raises DefinitionError
    where annotations cannot be resolved, or ask for what the host cannot provide.
    """
    try:
        python_signature = inspect.signature(fn)
    except (TypeError, ValueError):
        raise DefinitionError(
            f"{label} has no signature that Python can read. Wrap it in a function with annotated parameters."
        ) from None
    plain = _plain(fn)
    local = {**_of_class(fn, plain), **_of_function(plain), **enclosing_names(plain), **(names or {})}
    hints = _hints(plain, python_signature, label, local)
    partial_names = _decided_by_partial(fn)
    visible: list[Parameter] = []
    of_call: dict[str, str] = {}  # by what it is: the parameter's name
    depends: list[Need] = []
    for name, parameter in python_signature.parameters.items():
        if name in partial_names:
            continue
        annotation = hints.get(name, EMPTY)
        kind, how = _provided(parameter, annotation, label)
        if how:
            depends.append(_need(name, how, label, names, within))
        elif kind:
            if kind in of_call:
                raise DefinitionError(
                    f"{label} has two {kind} parameters, '{of_call[kind]}' and '{name}'. Keep one: both are the same."
                )
            of_call[kind] = name
        else:
            visible.append(Parameter(name, parameter.kind, annotation, parameter.default))
    is_async, returns = returns_awaitable(fn), hints.get("return", EMPTY)
    if not is_async and get_origin(returns) in (Awaitable, Coroutine):
        is_async, returns = True, get_args(returns)[-1]
    return Signature(
        tuple(visible),
        Needs(of_call.get("Context"), tuple(depends), of_call.get("Caller"), of_call.get("Variables")),
        returns,
        is_async,
        fn,
        tuple(python_signature.parameters.values()),
        _names_taken(fn, plain, python_signature, visible),
        local,
    )


def _provided(parameter: inspect.Parameter, annotation: Any, label: str) -> tuple[str | None, Depends | None]:
    """Return what the host provides as *parameter*: something of the call, or what a provider makes; or neither."""
    name, kind, how = parameter.name, None, None
    if annotation not in _PLAIN_TYPES:
        kind, how = _of_call(annotation), _dependency(annotation, label, name)
    if isinstance(parameter.default, Depends):
        raise DefinitionError(
            f"{label}: parameter '{name}' has Depends as its default. "
            f"Write it as an annotation: {name}: Annotated[..., Depends(...)]."
        )
    if (kind or how) and parameter.kind not in _BY_NAME:
        raise DefinitionError(
            f"{label}: parameter '{name}' is provided by name; write it after the '/', and without '*'."
        )
    return kind, how


def _need(name: str, how: Depends, label: str, names: Mapping[str, Any] | None, within: tuple[Any, ...]) -> Need:
    if not callable(how.provider):
        raise DefinitionError(
            f"{label}: Depends of '{name}' takes a callable that returns the value, not {type(how.provider).__name__}."
        )
    if how.scope not in _SCOPES:
        raise DefinitionError(f"{label}: '{name}' has the scope {how.scope!r}. Scopes are: {', '.join(_SCOPES)}.")
    if how.provider in within:
        raise DefinitionError(f"{label}: the provider of '{name}' needs itself, through what it needs.")
    provider = read_signature(
        how.provider, label=f"{label}: the provider of '{name}'", names=names, within=(*within, how.provider)
    )
    if required := [p.name for p in provider.parameters if p.default is EMPTY and p.kind not in _VARIADIC]:
        raise DefinitionError(
            f"{label}: the provider of '{name}' takes {', '.join(required)}, and the host provides no such values. "
            "A provider's parameters are Caller, Variables, Context or Depends themselves, or have defaults."
        )
    _require_long_enough_scopes(how, provider.needs, label, name)
    return Need(name, how, provider.needs)


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def enclosing_names(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names that the annotations of *fn* use, and those of the classes they name.

    They are names of the functions and classes in which *fn* is being defined. Annotations written as text may use
    them, and Python keeps no other trace: they can be found as long as the function or class body around *fn* runs.
    """
    plain = _plain(fn)
    code = getattr(plain, "__code__", None)
    outers = _outers(getattr(plain, "__qualname__", ""))
    if code is None or not outers:
        return {}
    bindings: dict[str, Any] = {}
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        if frame.f_code.co_filename == code.co_filename and frame.f_code.co_qualname in outers:
            is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
            bindings = {**(frame.f_locals if is_function else _unshadowing(frame.f_locals, plain)), **bindings}
    mentions: dict[str, Any] = {}
    waiting = _mentioned(plain.__annotations__)
    while waiting:
        name = waiting.pop()
        if name in bindings and name not in mentions:
            mentions[name] = bindings[name]
            waiting |= _mentioned(getattr(bindings[name], "__annotations__", {}))
    return mentions


def _unshadowing(names: Mapping[str, Any], plain: Any) -> dict[str, Any]:
    """Return *names* of a class body. A method `list` does not change what `list[int]` means in the next method."""
    module_names = {*plain.__globals__, *vars(builtins)}
    return {name: value for name, value in names.items() if name not in module_names}


def _mentioned(annotations: Mapping[str, Any]) -> set[str]:
    return set(re.findall(r"[^\W\d]\w*", " ".join(map(str, annotations.values()))))


def _outers(qualname: str) -> set[str]:
    """Return the qualified names of the functions and classes around the one named."""
    parts = qualname.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts)) if parts[i - 1] != "<locals>"}


def _plain(fn: Any) -> Any:
    """Return the function (or class) that carries the annotations of *fn*."""
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


def _hints(plain: Any, written: inspect.Signature, label: str, local: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of *written*, the names in them resolved where *plain* was defined."""
    annotations = {name: p.annotation for name, p in written.parameters.items() if p.annotation is not EMPTY}
    if written.return_annotation is not EMPTY:
        annotations["return"] = written.return_annotation
    holder = types.SimpleNamespace(__annotations__=annotations)
    carrier: Any = inspect.getattr_static(plain, "__init__") if isinstance(plain, type) else plain
    try:
        return get_type_hints(holder, getattr(carrier, "__globals__", {}), local, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"{label}: the name '{error.name}' in its annotations is not defined. "
            "Import it at the top of the module, outside `if TYPE_CHECKING:`; where it is local to a function, "
            "mark the tool there with @tool."
        ) from None
    except Exception as error:
        raise DefinitionError(f"{label}: its annotations cannot be read: {error}.") from error


def _of_class(fn: Any, plain: Any) -> Mapping[str, Any]:
    """Return the names in the body of the class that a bound method was defined in."""
    if not inspect.ismethod(fn) or not inspect.isfunction(plain):
        return {}
    owner = fn.__self__ if isinstance(fn.__self__, type) else type(fn.__self__)
    home = plain.__qualname__.rpartition(".")[0]
    return next((_unshadowing(vars(base), plain) for base in owner.__mro__ if base.__qualname__ == home), {})


def _of_function(plain: Any) -> dict[str, Any]:
    """Return the type parameters of a function (PEP 695), and what it closes over."""
    bindings = {parameter.__name__: parameter for parameter in getattr(plain, "__type_params__", ())}
    cells = getattr(plain, "__closure__", None) or ()
    for name, cell in zip(plain.__code__.co_freevars if cells else (), cells, strict=True):
        try:
            bindings[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    return bindings


def _decided_by_partial(fn: Any) -> frozenset[str]:
    """Return names that a partial has fixed: the model neither sees nor sets them."""
    names: set[str] = set()
    while isinstance(fn, functools.partial):
        names |= fn.keywords.keys()
        fn = fn.func
    return frozenset(names)


def _names_taken(fn: Any, plain: Any, written: inspect.Signature, visible: Sequence[Parameter]) -> frozenset[str]:
    """Return the names that the function behind *fn* has parameters for, but for the *visible* ones."""
    try:
        parameters = (written if plain is fn else inspect.signature(plain)).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    names = {parameter.name for parameter in parameters if parameter.kind in _BY_NAME} | _decided_by_partial(fn)
    return frozenset(names).difference(parameter.name for parameter in visible) or frozenset()


def _require_long_enough_scopes(how: Depends, needs: Needs, label: str, name: str) -> None:
    """Raise DefinitionError for a value made of values that do not last as long."""
    shortest: Scope | None = "call" if needs.context else None
    for need in needs.depends:
        if _SCOPES.index(need.how.scope) < _SCOPES.index(how.scope):
            shortest = need.how.scope
    if shortest is not None and _SCOPES.index(shortest) < _SCOPES.index(how.scope):
        raise DefinitionError(
            f"{label}: '{name}' lasts as long as a {how.scope}, and its provider needs something that ends with a "
            f'{shortest}. Write Depends(..., scope="{shortest}").'
        )


_SCOPES: tuple[Scope, ...] = ("call", "session", "program")


def _of_call(annotation: Any) -> str | None:
    """Return what of the call the annotation asks for: "Context", "Caller" or "Variables"; None where it is nothing."""
    origin = get_origin(annotation)
    if origin is Annotated:
        is_variables = any(extra is HOST_VARIABLES for extra in annotation.__metadata__)
        return "Variables" if is_variables else _of_call(get_args(annotation)[0])
    if annotation is Context or annotation is Caller:
        return str(annotation.__name__)
    if origin in (Union, types.UnionType):
        return next(filter(None, map(_of_call, get_args(annotation))), None)
    return None


def _dependency(annotation: Any, label: str, name: str) -> Depends | None:
    if get_origin(annotation) is not Annotated:
        if any(_dependency(part, label, name) for part in get_args(annotation)):
            raise DefinitionError(
                f"{label}: Depends of '{name}' is inside another type, where it is not provided. "
                f"Write it around the whole: {name}: Annotated[..., Depends(...)]."
            )
        return None
    return next((extra for extra in annotation.__metadata__ if isinstance(extra, Depends)), None)


def unwrap_partials(fn: Any) -> Any:
    """Return the callable behind partials."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def returns_awaitable(fn: Any) -> bool:
    """Return whether calling *fn* surely returns an awaitable. A plain wrapper of a coroutine function may not."""
    fn = unwrap_partials(fn)
    return inspect.iscoroutinefunction(fn) or (
        not isinstance(fn, type) and not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)
    )


Style = Literal["google", "numpy", "sphinx"]

_SIGNS: tuple[tuple[Style, re.Pattern[str]], ...] = (
    ("sphinx", re.compile(r"^\s*:(param|parameter|arg|argument|return|returns|raises|rtype|type)\b[^:\n]*:", re.M)),
    ("numpy", re.compile(r"^\s*(Parameters|Returns|Raises|Yields|Other Parameters|Examples)\s*\n\s*-{3,}\s*$", re.M)),
    ("google", re.compile(r"^\s*(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Keyword Args):\s*$", re.M)),
)


@dataclass(frozen=True, slots=True)
class Doc:
    """A docstring: its *description* without sections, the descriptions of its *parameters* by name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def read_docstring(text: str | None) -> Doc:
    """Read the description and the parameters' descriptions in *text*, indented as `inspect.getdoc` leaves it.

    What is not understood is part of the description.
    """
    if not text:
        return Doc()
    style: Style | None = next((style for style, sign in _SIGNS if sign.search(text)), None)
    if style is None:
        return Doc(text.strip())

    # Imported only where there are sections to parse: it takes longer than the rest of the package.
    import griffe

    description: list[str] = []
    parameters: dict[str, str] = {}
    # The line break: griffe removes the indentation of all lines but the first, and it is removed already.
    for section in griffe.Docstring("\n" + text, lineno=1).parse(style, warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            description.append(section.value.strip())
        elif isinstance(section, griffe.DocstringSectionParameters | griffe.DocstringSectionOtherParameters):
            for parameter in section.value:
                parameters[parameter.name.lstrip("*")] = " ".join(parameter.description.split())
        elif isinstance(section, griffe.DocstringSectionAdmonition):
            # "Note:" and its like do not describe the signature, so they stay in the description.
            description.append(f"{section.title}: {section.value.contents.strip()}")
    return Doc("\n\n".join(filter(None, description)), parameters)
