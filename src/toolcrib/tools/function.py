"""Functions as tools: `@tool` marks one, `Tool` is one.

Everything that can be found out about a function is found out here, once, when its Tool is made; a call only uses it.
"""

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from ..core import Availability, Check, DefinitionError, Encode, Hints, Needs, Runs, ToolAuth, ToolSpec

if TYPE_CHECKING:
    from ..schema import Parameter, Signature

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Options(TypedDict, total=False):
    """What can be said of a tool beside its function. Every one has a default.

    - `name`: what models call it by, `^[a-zA-Z0-9_-]{1,64}$`; the function's name.
    - `title`: what people call it by.
    - `description`: the docstring without its sections.
    - `parameters`: a JSON Schema 2020-12 of an object, instead of the one derived from the signature; arguments are
      validated against it and handed to the function by name.
    - `read_only`, `destructive`, `idempotent`, `open_world`, `long_running`: hints of its effects, as in MCP.
    - `tags`, `version`: for those who choose among tools.
    - `examples`: arguments that work; checked at definition.
    - `timeout_s`: how long a call may take, in seconds.
    - `available`: whether a caller may see and call it; plain or async, given the Caller.
    - `strict`: ask model providers for their strict mode.
    - `auth`: the credentials it needs.
    """

    name: str | None
    title: str | None
    description: str | None
    parameters: Mapping[str, Any] | None
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    long_running: bool | None
    tags: Sequence[str] | frozenset[str]
    version: str | None
    examples: Sequence[Mapping[str, Any]]
    timeout_s: float | None
    available: Availability | None
    strict: bool | None
    auth: ToolAuth | None


class Tool(Generic[P, R]):
    """A function that models can call: its spec, the check of its arguments, and the work.

    Calling a Tool calls the function, unchecked, as if it were undecorated. *fn* is a sync or async function, a bound
    method, a `functools.partial` or an object with `__call__`.

    Raises DefinitionError, with the remedy, for what cannot work as a tool.
    """

    __slots__ = ("available", "check", "encode", "fn", "needs", "ref", "runs", "spec", "work")

    spec: ToolSpec
    runs: Runs
    needs: Needs | None
    available: Availability | None
    work: Callable[..., Any]
    check: Check
    encode: Encode

    def __init__(self, fn: Callable[P, R], **options: Unpack[Options]) -> None:
        self._build(fn, options, {})

    def _build(self, fn: Callable[P, R], options: Options, names: Mapping[str, Any]) -> None:
        # pydantic and jsonschema-rs are imported with the first tool, not with the package.
        from .. import schema

        if isinstance(fn, Tool):
            raise DefinitionError(f"'{fn.spec.name}' is a Tool already. To change it, make a Tool of its function.")
        if not callable(fn):
            raise DefinitionError(f"A tool is made of something that can be called, not of {type(fn).__name__}.")
        name = _name(fn, options)
        label = f"Tool '{name}'"
        if isinstance(fn, type):
            raise DefinitionError(f"{label} is a class. Make a tool of a function, or of a method of an instance.")
        signature = schema.read_signature(fn, label=label, names=names)
        if _is_generator(fn):
            raise DefinitionError(f"{label} is a generator. Return a list of what it yields.")
        doc = schema.read_docstring(signature.doc)
        if (bare := options.get("parameters")) is not None:
            input_schema = _closed(schema.require_schema(bare, label=label), signature, label)
            self.check = schema.bare_check(name, input_schema)
        else:
            arguments = schema.Arguments(signature.parameters, doc.parameters, label=label)
            input_schema = arguments.schema
            self.check = schema.typed_check(name, arguments)
        output_schema, self.encode = _output(signature.returns, label, name)
        self.spec = _spec(name, options, doc.description, input_schema, output_schema)
        self.fn = fn
        self.ref = reference(fn)
        self.runs = "async" if signature.is_async else "sync"
        self.needs = signature.needs if signature.needs.context or signature.needs.depends else None
        self.available = options.get("available")
        self.work = _work(fn, signature.parameters)
        for number, example in enumerate(self.spec.examples, 1):
            try:
                self.check(example, False)
            except Exception as error:
                raise DefinitionError(f"{label}: example {number} is not a call that works: {error}") from None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def arguments(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Python arguments by name, as a Call carries them. Raises TypeError where the function would."""
        given: dict[str, Any] = dict(inspect.signature(self.fn).bind_partial(*args, **kwargs).arguments)
        for parameter in inspect.signature(self.fn).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name, {})
        return given

    def __toolcrib__(self) -> "Tool[P, R]":
        return self

    def __repr__(self) -> str:
        return f"<Tool {self.spec.name}>"


class Definition:
    """What `@tool` leaves on a function: how to make a Tool of it. The Tool is made when it is first asked for."""

    __slots__ = ("_made", "fn", "names", "options")

    def __init__(self, fn: Callable[..., Any], options: Options, names: Mapping[str, Any]) -> None:
        self.fn = fn
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
        made._build(fn, self.options, self.names)
        return made


@overload
def tool(fn: F, /) -> F: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[F], F]: ...
def tool(fn: Any = None, /, **options: Unpack[Options]) -> Any:
    """Mark a function as a tool: `@tool`, or `@tool(name=..., timeout_s=...)` with any of `Options`.

    The function stays what it was, for callers and type checkers; a workbench makes the Tool of it. Bound methods,
    partials of them and builtins come back as an equivalent `functools.partial`, since they cannot be marked.

    Raises DefinitionError where name or options cannot work; whatever concerns types is told when the Tool is made.
    """
    if fn is None:
        return lambda fn: _mark(fn, options)
    return _mark(fn, options)


def as_tool(fn: Callable[..., Any]) -> Tool[..., Any]:
    """The Tool of a callable, marked or not. Raises DefinitionError."""
    if isinstance(fn, Tool):
        return fn
    definition = getattr(fn, "__toolcrib__", None)
    if not isinstance(definition, Definition):
        return Tool(fn)
    return definition() if definition.fn is fn else definition.over(fn)


def reference(fn: Any) -> str | None:
    """`module:qualified.name` by which *fn* can be imported again; None where it cannot."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name or inspect.ismethod(fn):
        return None
    return f"{module}:{name}"


def _mark(fn: Any, options: Options) -> Any:
    from ..schema.signature import enclosing_names

    if isinstance(fn, staticmethod | classmethod):
        _mark(fn.__func__, options)
        return fn
    if not callable(fn):
        raise DefinitionError(f"@tool marks functions and methods, not {type(fn).__name__}.")
    if unknown := [option for option in options if option not in Options.__annotations__]:
        raise DefinitionError(f"@tool has no option '{unknown[0]}'. It has: {', '.join(Options.__annotations__)}.")
    _name(fn, options)
    marked: Any = fn if inspect.isfunction(fn) else _markable(fn)
    marked.__toolcrib__ = Definition(marked, options, enclosing_names(fn))
    return marked


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
    name = options.get("name") or getattr(plain, "__name__", None) or type(plain).__name__
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
    timeout_s, auth = options.get("timeout_s"), options.get("auth")
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s > 0):
        raise DefinitionError(f"Tool '{name}': timeout_s is a number of seconds above 0, or None for no limit.")
    if auth is not None and not isinstance(auth, ToolAuth):
        raise DefinitionError(f'Tool \'{name}\': auth is a ToolAuth, as in auth=ToolAuth("github", scopes=["repo"]).')
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
        auth=auth,
        tags=frozenset(options.get("tags", ())),
        version=options.get("version"),
        examples=tuple(options.get("examples", ())),
        strict=options.get("strict"),
        timeout_s=timeout_s,
    )


def _closed(schema: dict[str, Any], signature: "Signature", label: str) -> dict[str, Any]:
    """*schema*, made sure that the function can take every argument it lets through."""
    takes = {parameter.name for parameter in signature.parameters if parameter.kind not in _VARIADIC}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters)
    properties = schema.get("properties", {})
    if not takes_any and (lost := [name for name in properties if name not in takes]):
        raise DefinitionError(
            f"{label}: parameters= describes '{lost[0]}', and the function takes no such argument. "
            "Add it to the function, or let the function take **arguments."
        )
    required = schema.get("required", ())
    for parameter in signature.parameters:
        if (
            parameter.kind not in _VARIADIC
            and parameter.default is inspect.Parameter.empty
            and parameter.name not in required
        ):
            raise DefinitionError(
                f"{label}: the function needs '{parameter.name}', and parameters= does not require it. "
                'Add it to "required", or give it a default.'
            )
    if takes_any:
        return schema
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        raise DefinitionError(
            f"{label}: parameters= lets other arguments through, and the function cannot take them. "
            'Let the function take **arguments, or set "additionalProperties" to false.'
        )
    return {**schema, "additionalProperties": False}


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _output(returns: Any, label: str, name: str) -> tuple[Mapping[str, Any] | None, Callable[[Any], str]]:
    from .. import schema

    if returns is schema.EMPTY or returns is None or returns is type(None) or schema.shapeless(returns):
        return None, functools.partial(schema.write_any, name)
    return schema.describe_return(returns, label=label, tool=name)


def _work(fn: Callable[..., Any], parameters: Sequence["Parameter"]) -> Callable[..., Any]:
    """What takes checked arguments by name and calls *fn* with them: *fn* itself wherever that does."""
    firsts = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    rest = next((p for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    if rest is not None:
        # What stands before *args can only be given by position once *args has anything in it.
        firsts += [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    fresh = {p.name: p.default for p in parameters if _mutable(p.default)}
    if not firsts and rest is None and not fresh:
        return fn

    def work(**given: Any) -> Any:
        for name, default in fresh.items():
            if name not in given:
                given[name] = copy.deepcopy(default)
        given_last = rest is not None and bool(given.get(rest.name))
        positions: list[Any] = []
        for index, first in enumerate(firsts):
            if first.name in given:
                positions.append(given.pop(first.name))
            elif given_last or any(later.name in given for later in firsts[index + 1 :] if later.kind is first.kind):
                positions.append(first.default)
            else:
                break
        if rest is not None:
            positions += given.pop(rest.name, ())
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


def _is_generator(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = fn if inspect.isroutine(fn) else type(fn).__call__
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
