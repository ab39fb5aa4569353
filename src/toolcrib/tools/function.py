"""Functions as tools: `@tool` marks one, `Tool` is one.

Everything that can be found out about a function is found out here, once, when its Tool is made; a call only uses it.
"""

import copy
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, get_args, overload

from ..core import Availability, Check, Checked, DefinitionError, Encode, Gate, Hints, Needs, Runs, ToolError, ToolSpec
from .crossing import Crossing, require_importable
from .options import Options, require_options

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ..schema import Signature
    from .stateful import Member

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Tool(Generic[P, R]):
    """A function that models can call: its spec, the check of its arguments, and the work.

    Calling a Tool calls the function, unchecked, as if it were undecorated. *fn* is a sync or async function, a bound
    method, a `functools.partial` or an object with `__call__`. If it is marked with `@tool`, what was said there holds
    where *options* say nothing.

    Raises DefinitionError, with the remedy, for what cannot work as a tool.
    """

    __slots__ = (
        *("_aliases", "_speak_as", "_work_of", "available", "check", "crossing", "encode", "fn", "handles", "home"),
        *("isolation", "needs", "owner", "ref", "retries", "runs", "spec", "turn", "work"),
    )

    spec: ToolSpec
    home: str
    runs: Runs
    isolation: Literal["process"] | None
    crossing: Crossing | None
    needs: Needs | None
    available: Availability | None
    turn: Gate | None
    retries: int | None
    work: Callable[..., Any]
    _work_of: Callable[[Any], Callable[..., Any]]
    handles: Mapping[str, Any] | None
    owner: "Member | None"
    check: Check
    encode: Encode

    def __init__(self, fn: Callable[P, R], /, **options: Unpack[Options]) -> None:
        self.home = _caller()
        marked = _definition(fn)
        if marked is None:
            self._build(fn, options, {})
        else:
            self._build(fn, {**marked.options, **options}, marked.names)

    def _build(self, fn: Callable[P, R], options: Options, names: Mapping[str, Any]) -> None:
        # pydantic and jsonschema-rs are imported with the first tool, not with the package.
        from .. import schema

        if isinstance(inner := _unwrapped(fn), Tool):
            raise DefinitionError(
                f"'{inner.spec.name}' is a Tool already. To change it, make a Tool of its function, `fn`."
            )
        if not callable(fn):
            raise DefinitionError(f"A tool is made of something that can be called, not of {type(fn).__name__}.")
        name = _name(fn, options)
        label = f"Tool '{name}'"
        require_options(options, label)
        if isinstance(inner, type):
            raise DefinitionError(f"{label} is a class. {_INSTEAD_OF_A_CLASS}")
        signature = schema.read_signature(fn, label=label, names=names)
        doc = schema.read_docstring(signature.doc)
        self._aliases: Mapping[str, str] = {}
        check_as: Callable[[str], Check]
        adapter: TypeAdapter[dict[str, Any]] | None = None
        if (bare := options.get("parameters")) is not None:
            input_schema = _closed(schema.require_schema(bare, label=label), signature, label)
            check_as = functools.partial(schema.bare_check, schema=input_schema)
        else:
            arguments = schema.Arguments(signature.parameters, doc.parameters, label=label, names=signature.names)
            input_schema = arguments.schema
            check_as = functools.partial(schema.typed_check, arguments=arguments)
            self._aliases = arguments.aliases
            adapter = arguments.adapter
        hides = signature.hidden and any(parameter.kind is _VAR_KEYWORD for parameter in signature.parameters)
        self.handles = schema.takes_handles(signature.parameters, input_schema, label=label)
        shown_schema = schema.with_handles(input_schema, self.handles)
        generates = _generates(fn)
        returns = _yielded(signature.returns) if generates else signature.returns

        def speak_as(name: str) -> tuple[Check, Mapping[str, Any] | None, Encode]:
            check = _keeping(signature.hidden, check_as(name), name) if hides else check_as(name)
            return check, *_output(replace(signature, returns=returns), f"Tool '{name}'", name)

        self._speak_as = speak_as
        self.check, output_schema, self.encode = speak_as(name)
        self.spec = _spec(name, options, doc.description, shown_schema, output_schema)
        self.fn = fn
        self.ref = reference(fn)
        self.runs = generates or ("async" if signature.is_async else "sync")
        self.needs = signature.needs if signature.needs.context or signature.needs.depends else None
        self.available = options.get("available")
        self.turn = Gate(1) if options.get("serial") else None
        self.retries = options.get("retries")
        self._work_of = functools.partial(by_name, signature=signature, label=label)
        self.work = self._work_of(fn)
        self.owner = None
        self.crossing = None
        self.isolation = options.get("isolation")
        if self.isolation is not None:
            self.crossing = Crossing(
                fn, self.spec, runs=self.runs, signature=signature, returns=returns, arguments=adapter, bare=bare
            )
            self.runs = "process"
        for number, example in enumerate(self.spec.examples, 1):
            try:
                self.check(example, False)
            except Exception as error:
                raise DefinitionError(f"{label}: example {number} is not a call that works: {error}") from None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def arguments(self, /, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Python arguments by name, as a Call carries them. Raises TypeError where the function would."""
        written = inspect.signature(self.fn)
        given: dict[str, Any] = dict(written.bind_partial(*args, **kwargs).arguments)
        for parameter in written.parameters.values():
            if parameter.kind is _VAR_KEYWORD:
                given |= given.pop(parameter.name, {})
        return {self._aliases.get(name, name): value for name, value in given.items()}

    def named(self, name: str, description: str | None = None) -> "Tool[P, R]":
        """The same tool under another name, by which it speaks of itself; None keeps its description.

        A tool that is not what its function says of itself cannot be written by reference, only loaded again. Raises
        DefinitionError for what cannot be a name.
        """
        made = copy.copy(self)
        made.spec = replace(
            self.spec,
            name=_name(self.fn, {"name": name}),
            description=self.spec.description if description is None else description,
        )
        made.check, _, made.encode = self._speak_as(name)
        return made

    def over(self, fn: Callable[P, R]) -> "Tool[P, R]":
        """The same tool with another function of the same signature, as a method has for each of its objects."""
        made = copy.copy(self)
        made.fn = fn
        made.work = self._work_of(fn)
        made.turn = None if self.turn is None else Gate(1)
        made.ref = reference(fn)
        return made

    def __toolcrib__(self) -> "Tool[P, R]":
        return self

    def __repr__(self) -> str:
        return f"<Tool {self.spec.name}>"


class Definition:
    """What `@tool` leaves on a function: how to make a Tool of it. The Tool is made when it is first asked for.

    `home` is the name of the module in which the tool was defined.
    """

    __slots__ = ("_made", "fn", "home", "names", "options")

    def __init__(self, fn: Callable[..., Any], options: Options, names: Mapping[str, Any], home: str) -> None:
        self.fn = fn
        self.home = home
        self.options = options
        self.names = names
        self._made: Tool[..., Any] | None = None

    def __call__(self) -> Tool[..., Any]:
        if self._made is None:
            self._made = self.over(self.fn)
        return self._made

    def over(self, fn: Callable[..., Any]) -> Tool[..., Any]:
        """A Tool of *fn*, which is the function bound to its object, or a wrapper of it."""
        made: Tool[..., Any] = Tool.__new__(Tool)
        made.home = self.home
        made._build(fn, self.options, self.names)  # pyright: ignore[reportPrivateUsage] - one class in two halves
        return made


@overload
def tool(fn: F, /) -> F: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[F], F]: ...
def tool(fn: Any = None, /, **options: Unpack[Options]) -> Any:
    """Mark a function as a tool: `@tool`, or `@tool(name=..., timeout_s=...)` with any of `Options`.

    Where it is marked already, or is a partial or wrapper of what is, what was said before holds where nothing else is
    said now.

    The function stays what it was, for callers and type checkers; a workbench makes the Tool of it. Bound methods,
    partials of them and builtins come back as an equivalent `functools.partial`, since they cannot be marked.

    Raises DefinitionError where name or options cannot work; whatever concerns types is told when the Tool is made.
    """
    home = _caller()
    if fn is None:
        return lambda fn: _mark(fn, options, home)
    return _mark(fn, options, home)


def as_tool(fn: Callable[..., Any]) -> Tool[..., Any]:
    """The Tool of a callable, marked or not. Raises DefinitionError."""
    if isinstance(fn, Tool):
        return fn
    definition = _definition(fn)
    if definition is None:
        return offered(fn) or Tool(fn)
    return definition() if definition.fn is fn else definition.over(fn)


def offered(value: Any) -> Tool[..., Any] | None:
    """The one Tool that an object's own `__toolcrib__()` gives, as those of dialects do; None where it gives none."""
    try:
        offers = None if isinstance(value, type | ModuleType) else getattr(value, "__toolcrib__", None)
    except Exception:  # a stand-in for something that is not there yet
        return None
    if not callable(offers) or isinstance(offers, Definition):
        return None
    made = offers()
    return made if isinstance(made, Tool) else None


def reference(fn: Any) -> str | None:
    """`module:qualified.name` by which *fn* can be imported again; None where it cannot."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name or inspect.ismethod(fn):
        return None
    return f"{module}:{name}"


def _definition(fn: Any) -> Definition | None:
    """What `@tool` said of *fn*, or of the function that *fn* is a partial of, or of its `__call__`."""
    fn = _unwrapped(fn)
    if not hasattr(fn, "__toolcrib__") and callable(fn) and not isinstance(fn, type):
        fn = type(fn).__call__
    found = getattr(fn, "__toolcrib__", None)
    return found if isinstance(found, Definition) else None


def _unwrapped(fn: Any) -> Any:
    """What is called behind partials that are not marked themselves."""
    while isinstance(fn, functools.partial) and not hasattr(fn, "__toolcrib__"):
        fn = fn.func
    return fn


def _caller() -> str:
    """The name of the module that called what asks."""
    name: str = sys._getframe(2).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage] - as in logging
    return name


def _mark(fn: Any, options: Options, home: str) -> Any:
    from ..schema.signature import enclosing_names

    if isinstance(fn, staticmethod | classmethod):
        _mark(fn.__func__, options, home)
        return fn
    if isinstance(fn, Tool):
        raise DefinitionError(f"'{fn.spec.name}' is a Tool already. Mark its function, or make a Tool of that.")
    if not callable(fn):
        raise DefinitionError(f"@tool marks functions and methods, not {type(fn).__name__}.")
    if isinstance(fn, type):
        raise DefinitionError(f"@tool cannot mark the class {fn.__name__}. {_INSTEAD_OF_A_CLASS}")
    before = _definition(fn)
    said: Options = {**before.options, **options} if before else options
    names = {**(before.names if before else {}), **enclosing_names(fn)}
    require_options(said, f"Tool '{_name(fn, said)}'")
    if said.get("isolation") is not None:
        require_importable(fn, f"Tool '{_name(fn, said)}'")
    marked: Any = fn if inspect.isfunction(fn) else _markable(fn)
    marked.__toolcrib__ = Definition(marked, said, names, fn.__module__ if inspect.isfunction(fn) else home)
    return marked


_INSTEAD_OF_A_CLASS = "Make a tool of a function, or of a method of an instance."


def _markable(fn: Any) -> Any:
    """*fn* if it can carry a mark of its own, else the same call as a partial."""
    return (
        fn
        if isinstance(fn, functools.partial) or (hasattr(fn, "__dict__") and not inspect.ismethod(fn))
        else functools.partial(fn)
    )


def _name(fn: Any, options: Options) -> str:
    plain = fn
    while isinstance(plain, functools.partial):
        plain = plain.func
    name: Any = options.get("name")
    return require_name(getattr(plain, "__name__", None) or type(plain).__name__ if name is None else name)


def require_name(name: Any) -> str:
    """*name*, if it can be the name of a tool. Raises DefinitionError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool: model providers take 1 to 64 letters, digits, '_' and '-'. "
            'Give one with @tool(name="...").'
        )
    return name


def _spec(
    name: str,
    options: Options,
    description: str,
    input_schema: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None,
) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=said if (said := options.get("description")) is not None else description,
        input_schema=input_schema,
        output_schema=output_schema,
        title=options.get("title"),
        hints=Hints(
            read_only=options.get("read_only"),
            destructive=options.get("destructive"),
            idempotent=options.get("idempotent"),
            open_world=options.get("open_world"),
            long_running=options.get("long_running"),
        ),
        auth=options.get("auth"),
        tags=frozenset(options.get("tags") or ()),
        version=options.get("version"),
        examples=tuple(options.get("examples") or ()),
        strict=options.get("strict"),
        timeout_s=options.get("timeout_s"),
    )


def _closed(schema: dict[str, Any], signature: "Signature", label: str) -> dict[str, Any]:
    """*schema*, made sure that the function can take every argument it lets through."""
    from ..schema import described

    takes = {parameter.name for parameter in signature.parameters if parameter.kind is not _VAR_KEYWORD}
    takes_any = any(parameter.kind is _VAR_KEYWORD for parameter in signature.parameters)
    names = described(schema)
    lost = [name for name in names.known if name in signature.hidden or not (takes_any or name in takes)]
    if lost:
        raise DefinitionError(
            f"{label}: parameters= describes '{lost[0]}', and the function takes no such argument from a model. "
            "Add it to the function, or let the function take **arguments."
        )
    for parameter in signature.parameters:
        must_be_given = parameter.kind not in _VARIADIC and parameter.default is inspect.Parameter.empty
        if must_be_given and parameter.name not in names.required:
            raise DefinitionError(
                f"{label}: the function needs '{parameter.name}', and parameters= does not require it. "
                'Add it to "required", or give it a default.'
            )
    if takes_any:
        return schema
    if unknown := sorted(names.required - takes):
        raise DefinitionError(
            f"{label}: parameters= requires '{unknown[0]}', and the function takes no such argument. "
            "Add it to the function, or let the function take **arguments."
        )
    if names.others:
        raise DefinitionError(
            f"{label}: parameters= lets other arguments through, and the function cannot take them. "
            'Let the function take **arguments, or set "additionalProperties" to false.'
        )
    return {**schema, "unevaluatedProperties" if names.composed else "additionalProperties": False}


_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, _VAR_KEYWORD)


def _keeping(hidden: frozenset[str], check: Check, tool: str) -> Check:
    """*check*, and no name among the others that would overrule what the host or a partial decides."""

    def keeps(given: Any, repair: bool, /) -> Checked:
        arguments, repairs = check(given, repair)
        if taken := sorted(hidden & arguments.keys()):
            raise ToolError(f"Tool '{tool}' takes no argument '{taken[0]}'. Leave it out.", "invalid_arguments")
        return arguments, repairs

    return keeps


def _output(signature: "Signature", label: str, name: str) -> tuple[Mapping[str, Any] | None, Callable[[Any], str]]:
    from .. import schema

    returns = signature.returns
    if returns is not schema.EMPTY and returns not in (None, type(None)) and not schema.shapeless(returns):
        output_schema, encode = schema.describe_return(returns, label=label, tool=name, names=signature.names)
        if output_schema:
            return output_schema, encode
    return None, functools.partial(schema.write_any, name)


def by_name(fn: Callable[..., Any], signature: "Signature", label: str) -> Callable[..., Any]:
    """What takes checked arguments by name and calls *fn* with them: *fn* itself wherever that does."""
    rest = next((p.name for p in signature.written if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    # What stands before *args can only be given by position once *args has anything in it.
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)[: 1 if rest is None else 2]
    firsts = [p for p in signature.written if p.kind in by_place]
    fresh = {p.name: p.default for p in signature.parameters if _mutable(p.default)}
    for name, default in fresh.items():
        try:
            copy.deepcopy(default)
        except Exception as error:
            raise DefinitionError(
                f"{label}: the default of '{name}' cannot be copied, so all calls would share it ({error}). "
                "Take None as the default and make the value in the function, or let the host provide it with Depends."
            ) from error
    if not firsts and rest is None and not fresh:
        return fn

    def work(**given: Any) -> Any:
        for name, default in fresh.items():
            if name not in given:
                given[name] = copy.deepcopy(default)
        given_last = rest is not None and bool(given.get(rest))
        positions: list[Any] = []
        for index, first in enumerate(firsts):
            if first.name in given:
                positions.append(given.pop(first.name))
            elif given_last or any(later.name in given for later in firsts[index + 1 :] if later.kind is first.kind):
                positions.append(first.default)
            else:
                break
        if rest is not None:
            positions += given.pop(rest, ())
        return fn(*positions, **given)

    return work


def _mutable(default: Any) -> bool:
    """Whether a default would be shared between calls, so that one call could change it for the next."""
    if default is inspect.Parameter.empty or type(default).__module__ == "pydantic.fields":
        return False
    try:
        hash(default)
    except TypeError:
        return True
    return False


def _yielded(returns: Any) -> Any:
    """What a generator annotated like this yields."""
    inner = get_args(returns)
    return inner[0] if inner else inspect.Parameter.empty


def _generates(fn: Any) -> Runs | None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = fn if inspect.isroutine(fn) else type(fn).__call__
    if inspect.isasyncgenfunction(plain):
        return "async_generator"
    return "generator" if inspect.isgeneratorfunction(plain) else None
