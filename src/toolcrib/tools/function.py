"""Functions as tools: `@tool` marks one, `Tool` is one.

Everything that can be found out about a function is found out here, once, when its Tool is made; a call only uses it.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields, replace
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from ..core import DefinitionError, ToolSpec
from ..core import Tool as AnyTool
from ..machinery import AtDeadline, Availability, Check, Encode, Need, Needs, Semaphore, Work
from .definition import (
    ToolOptions,
    amounts_of,
    body_digest,
    encoder_of_any,
    is_portable,
    output_of,
    protecting,
    require_any_name,
    require_examples,
    require_fit,
    require_name,
    require_options,
    spec_of,
    takes_any_name,
)
from .process_codec import ProcessCodec, reference, require_importable
from .work import Runs, at_deadline, by_name, needs_context, runs_of, work_of, yielded

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from ..schema import Arguments, Signature

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_INSTEAD_OF_A_CLASS = "Make a tool of a function, or of a method of an instance."

definition_errors: ContextVar[list[tuple[Any, DefinitionError]] | None] = ContextVar(
    "toolcrib_definition_errors", default=None
)
"""Set while a file is loaded: what @tool refuses in it is collected here, so that the file's other tools load."""


@dataclass(slots=True, init=False, eq=False, repr=False)
class Tool(Generic[P, R]):
    """A function that models can call: its spec, the check of its arguments, and the work.

    Calling a Tool calls the function, unchecked, as if it were undecorated. *fn* is a sync or async function, a bound
    method, a `functools.partial` or an object with `__call__`. If it is marked with `@tool`, the options given there
    hold unless *options* override them.

    Raises DefinitionError, with the remedy, for what cannot work as a tool.
    """

    spec: ToolSpec
    fn: Callable[P, R]
    work: Work
    check_as: Callable[[str], Check]
    encode_as: Callable[[str], Encode]
    """Make `check` and `encode`, by the name that their errors mention."""
    home: str
    """The name of the module in which it was defined."""
    origin: str
    """Its name where it was defined: a view may have given it another one."""
    check: Check
    encode: Encode
    ref: str | None = None
    runs: Runs = "async"
    isolation: Literal["process", "wasm"] | None = None
    codec: ProcessCodec | None = None
    needs: Needs | None = None
    needs_context: bool = True
    at_deadline: AtDeadline = "cancelled"
    available: Availability | None = None
    lock: Semaphore | None = None
    retries: int | None = None
    handles: Mapping[str, Any] | None = None
    requires: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What it needs beside credentials, as JSON data, where it runs in the sandbox: hosts, mounts, limits."""
    source: Any = None
    verify: "Tool[..., Any] | None" = None
    cost: Mapping[str, float] | None = None
    is_task: bool | Literal["required"] = False
    priority: int = 0
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """The names of arguments in the schema, by the names of parameters that differ from them."""
    code: tuple[Any, ...] = ()
    """The functions that it is made of: see `body_digest`."""
    wrap: Callable[[Work], Work] | None = None
    """What `wrapped` puts around the work."""

    def __init__(self, fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> None:
        self._set(**_parts_of(fn, *_with_earlier(fn, options), _caller()))

    @classmethod
    def of_parts(cls, **parts: Any) -> Any:
        """Return the Tool with these fields; `check` and `encode` come from `check_as` and `encode_as`."""
        tool = cls.__new__(cls)
        tool._set(**parts)
        return tool

    def _set(self, **parts: Any) -> None:
        for name, value in {**_DEFAULTS, "origin": parts["spec"].name, **parts}.items():
            setattr(self, name, value)
        # Not by `__getattr__` when it is first used: with it, every attribute takes three times as long.
        self.check = parts.get("check") or _FirstCheck(self)
        self.encode = _FirstEncode(self)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def arguments(self, /, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return Python arguments by name, as a Call carries them. Raises TypeError where the function would."""
        signature = inspect.signature(self.fn)
        arguments: dict[str, Any] = dict(signature.bind_partial(*args, **kwargs).arguments)
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name, {})
        return {self.aliases.get(name, name): value for name, value in arguments.items()}

    def body(self) -> str:
        """Return the identity of what it does: a digest of its code, its validators', and of the file it comes from."""
        return body_digest(self.code)

    def replace(self, **changes: Any) -> "Tool[P, R]":
        """Return the same tool with other values for some fields."""
        tool: Tool[P, R] = self.of_parts(**{name: getattr(self, name) for name in _FIELDS} | changes)
        return tool

    def named(self, name: str, description: str | None = None) -> "Tool[P, R]":
        """Return the same tool under another name, which its errors mention; None keeps its description.

        A tool that differs from what its function defines cannot be written by reference, only loaded again. Raises
        DefinitionError for what cannot be a name.
        """
        name = require_name(name) if is_portable(self.origin) else require_any_name(name)
        description = self.spec.description if description is None else description
        return self.replace(spec=replace(self.spec, name=name, description=description))

    def bound_to(self, other: "Tool[..., Any]") -> "Tool[..., Any]":
        """Return the same tool with the function and the work of *other*: what it is of an object or for a caller.

        A caller's may need more credentials.
        """
        auth = other.spec.auth
        spec = self.spec if auth == self.spec.auth else replace(self.spec, auth=auth)
        work = other.work if self.wrap is None else self.wrap(other.work)
        return self.replace(
            spec=spec, fn=other.fn, ref=other.ref, lock=other.lock, source=other.source, code=other.code, work=work
        )

    def wrapped(self, wrap: Callable[[Work], Work]) -> "Tool[P, R]":
        """Return the same tool with *wrap* around its work, also where it is bound to an object later."""
        inner = self.wrap
        return self.replace(work=wrap(self.work), wrap=wrap if inner is None else lambda work: wrap(inner(work)))

    def offered_by(self, source: Any) -> "Tool[P, R]":
        """Return the same tool as one that shares the life of *source*."""
        return self.replace(source=source)

    def __toolcrib__(self) -> "Tool[P, R]":
        return self

    def __repr__(self) -> str:
        return f"<Tool {self.spec.name}>"


class _FirstCheck:
    """A check that makes the tool's own at its first call, and is replaced by it: of many, few are called."""

    __slots__ = ("_tool",)

    def __init__(self, tool: "Tool[..., Any]") -> None:
        self._tool = tool

    def _own(self) -> Check:
        tool = self._tool
        if tool.check is self:
            tool.check = tool.check_as(tool.spec.name)
        return tool.check

    def __call__(self, raw: Any, repair: bool, /) -> Any:
        return self._own()(raw, repair)

    def document(self, raw: Any, checked: Mapping[str, Any]) -> Any:
        from ..schema import document_of

        return document_of(self._own(), raw, checked)


class _FirstEncode:
    """The same for what writes the tool's value."""

    __slots__ = ("_tool",)

    def __init__(self, tool: "Tool[..., Any]") -> None:
        self._tool = tool

    def __call__(self, value: Any) -> str:
        tool = self._tool
        if tool.encode is self:
            tool.encode = tool.encode_as(tool.spec.name)
        return tool.encode(value)


_FIELDS = tuple(field.name for field in fields(Tool) if field.name not in ("check", "encode"))
_DEFAULTS: dict[str, Any] = {
    **{field.name: field.default for field in fields(Tool) if field.default is not MISSING},
    "requires": MappingProxyType({}),
    "aliases": MappingProxyType({}),
}


def _parts_of(fn: Any, options: ToolOptions, names: Mapping[str, Any], home: str) -> dict[str, Any]:
    """Return the fields of the Tool of *fn*. Raises DefinitionError."""
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
    values = require_options(options, label)
    if isinstance(inner, type):
        raise DefinitionError(f"{label} is a class. {_INSTEAD_OF_A_CLASS}")
    signature = schema.read_signature(fn, label=label, names=names)
    inputs = _Inputs(signature, values.get("parameters"), label, values.get("description"))
    runs = runs_of(fn, is_async=signature.is_async)
    returns = yielded(signature.returns) if "generator" in runs else signature.returns
    needs = signature.needs or None
    output_schema, encode_as = output_of(returns, name, signature.names)
    spec = spec_of(name, values, output_schema, inputs.names, inputs.described, is_later=inputs.is_later)
    parts: dict[str, Any] = {
        "spec": spec,
        "fn": fn,
        "ref": reference(fn),
        "work": work_of(by_name(fn, signature, label), runs, needs),
        "check_as": inputs.check_as,
        "encode_as": encode_as,
        "home": home,
        "runs": runs,
        "needs": needs,
        "needs_context": needs_context(runs, needs),
        "at_deadline": at_deadline(runs),
        "available": values.get("available"),
        "retries": values.get("retries"),
        "handles": inputs.handles,
        "lock": Semaphore(1) if values.get("serial") else None,
        "is_task": values.get("task", False),
        "priority": values.get("priority", 0),
        "verify": _verifier(values.get("verify"), label),
        "cost": amounts_of(values["cost"]) if "cost" in values else None,
        "aliases": inputs.aliases,
        "code": (fn, *inputs.code),
    }
    if "isolation" in values:
        from ..sandbox import ProcessWork

        codec = ProcessCodec(
            fn,
            spec,
            work=parts["work"],
            encode=encode_as(name),
            signature=signature,
            returns=returns,
            arguments=inputs.adapter,
            parameters=values.get("parameters"),
        )
        parts |= {"isolation": values["isolation"], "codec": codec, "work": ProcessWork(codec)}
        parts |= {"needs_context": True, "at_deadline": "killed"}
    if spec.examples:
        require_examples(spec, inputs.check_as(name), label)
    return parts


class _Inputs:
    """What a model fills in of a function, with `is_later` read when the tool is first looked at or called.

    *parameters*, if given, is the JSON Schema of it. *description* goes before that of the docstring.
    """

    __slots__ = (
        *("_description", "_label", "_read", "_schema", "_signature"),
        *("aliases", "code", "handles", "is_later", "names"),
    )

    def __init__(self, signature: "Signature", parameters: Any, label: str, description: str | None) -> None:
        from .. import schema

        self._signature, self._label, self._description = signature, label, description
        self._schema: Mapping[str, Any] | None = None
        self._read: tuple[str, Arguments | None] | None = None
        if parameters is not None:
            self._schema = require_fit(schema.require_schema(parameters, label=label), signature, label)
        # With plain types nothing can go wrong.
        self.is_later = parameters is None and all(map(schema.is_plain_parameter, signature.parameters))
        self.aliases: Mapping[str, str] = {}
        self.code: Sequence[Any] = ()
        self.names: Sequence[frozenset[str]] = ()
        self.handles: Mapping[str, Any] | None = None
        if not self.is_later:
            if (arguments := self.read()[1]) is not None:
                self.aliases, self.code, self.names = arguments.aliases, arguments.plan.code, (*arguments.plan.names,)
            self.handles = schema.handle_parameters(signature.parameters, self._input_schema(), label=label)

    def read(self) -> "tuple[str, Arguments | None]":
        """Return the docstring's description, and the arguments unless `parameters=` describes them."""
        from .. import schema

        if self._read is None:
            signature = self._signature
            doc = schema.read_docstring(signature.doc)
            arguments = None
            if self._schema is None:
                arguments = schema.Arguments(
                    signature.parameters, doc.parameters, label=self._label, names=signature.names
                )
            self._read = doc.description, arguments
        return self._read

    def described(self) -> tuple[str, Mapping[str, Any]]:
        from .. import schema

        text = self.read()[0] if self._description is None else self._description
        return text, schema.with_handles(self._input_schema(), self.handles)

    @property
    def adapter(self) -> "TypeAdapter[dict[str, Any]] | None":
        """What reads and writes the arguments, unless `parameters=` describes them."""
        arguments = self.read()[1]
        return None if arguments is None else arguments.adapter

    def _input_schema(self) -> Mapping[str, Any]:
        arguments = self.read()[1]
        return self._schema or {} if arguments is None else arguments.schema

    def check_as(self, tool: str) -> Check:
        from .. import schema

        _, arguments = self.read()
        check = (
            schema.json_schema_check(tool, self._schema or {})
            if arguments is None
            else schema.arguments_check(tool, arguments)
        )
        hidden = self._signature.reserved_names
        return protecting(hidden, check, tool) if hidden and takes_any_name(self._signature) else check


def _verifier(verify: Any, label: str) -> "Tool[..., Any] | None":
    """Return *verify* as a Tool of the argument `key`. Raises DefinitionError for another signature."""
    if verify is None:
        return None
    verifier: Tool[..., Any] = Tool(verify, name="verify")
    if list(verifier.spec.input_schema.get("properties", ())) != ["key"]:
        raise DefinitionError(
            f"{label}: verify is a function of the idempotency key, and of what is provided, as in "
            "def verify(key: str, context: Context) -> bool | None."
        )
    return verifier


class Definition:
    """What `@tool` leaves on a function: how to make a Tool of it. The Tool is made when it is first asked for.

    `home` is the name of the module in which the tool was defined.
    """

    __slots__ = ("_made", "fn", "home", "names", "options")

    def __init__(self, fn: Callable[..., Any], options: ToolOptions, names: Mapping[str, Any], home: str) -> None:
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
        """Return a Tool of *fn*, which is the function bound to its object, or a wrapper of it."""
        tool: Tool[..., Any] = Tool.of_parts(**_parts_of(fn, self.options, self.names, self.home))
        return tool


@overload
def tool(fn: F, /) -> F: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(fn: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Mark a function as a tool: `@tool`, or `@tool(name=..., timeout_s=...)` with any of `ToolOptions`.

    Where it is marked already, or is a partial or wrapper of what is, the earlier options hold unless they are
    overridden now.

    The function stays what it was, for callers and type checkers; a workbench makes the Tool of it. Bound methods,
    partials of them and builtins come back as an equivalent `functools.partial`, since they cannot be marked.

    Raises DefinitionError where name or options cannot work; problems of types are raised when the Tool is made.
    """
    home = _caller()

    def mark(fn: Any) -> Any:
        errors = definition_errors.get()
        try:
            return _mark(fn, options, home)
        except DefinitionError as error:
            if errors is None:
                raise
            errors.append((fn, error))
            return fn

    return mark if fn is None else mark(fn)


def is_tool(value: Any) -> bool:
    """Return whether *value* has what any kind of tool has: see `core.Tool`."""
    if isinstance(value, Tool):
        return True
    if isinstance(value, type | ModuleType):
        return False
    try:
        return isinstance(value.spec, ToolSpec) and all(map(callable, (value.check, value.work, value.encode)))
    except Exception:
        return False


def as_tool(fn: Any) -> Tool[..., Any]:
    """Return the Tool of a callable, marked or not, or of a tool of another kind. Raises DefinitionError."""
    if isinstance(fn, Tool):
        return fn
    if is_tool(fn):
        return _adapted(fn)
    definition = _definition(fn)
    if definition is None:
        return Tool(fn) if (mark := mark_of(fn)) is None else as_tool(mark)
    return definition() if definition.fn is fn else definition.over(fn)


def mark_of(value: Any) -> Any:
    """Return the mark of a function, or the one tool that an object is or offers; None where there is none."""
    if isinstance(value, type | ModuleType):
        return None
    if is_tool(value):
        return value
    try:
        offer = getattr(value, "__toolcrib__", None)
    except Exception:  # a stand-in for something that is not there yet
        return None
    if isinstance(offer, Definition):
        return offer
    candidate = offer() if callable(offer) else None
    return candidate if is_tool(candidate) else None


def _definition(fn: Any) -> Definition | None:
    """Return the mark of `@tool` on *fn*, on the function that *fn* is a partial of, or on its `__call__`."""
    fn = _unwrapped(fn)
    if not hasattr(fn, "__toolcrib__") and callable(fn) and not isinstance(fn, type):
        fn = type(fn).__call__
    definition = getattr(fn, "__toolcrib__", None)
    return definition if isinstance(definition, Definition) else None


def _with_earlier(fn: Any, options: ToolOptions) -> tuple[ToolOptions, Mapping[str, Any]]:
    """Return *options* over those with which *fn* is marked already, and the local names that its mark has."""
    mark = _definition(fn)
    return (options, {}) if mark is None else ({**mark.options, **options}, mark.names)


def _unwrapped(fn: Any) -> Any:
    """Return what is called behind partials that are not marked themselves."""
    while isinstance(fn, functools.partial) and not hasattr(fn, "__toolcrib__"):
        fn = fn.func
    return fn


def _caller() -> str:
    """Return the name of the module that called what asks."""
    frame = inspect.currentframe()
    try:
        for _ in range(2):
            frame = frame and frame.f_back
        return "" if frame is None else frame.f_globals.get("__name__", "")
    finally:
        del frame  # a frame that refers to itself would keep all its values


def _mark(fn: Any, options: ToolOptions, home: str) -> Any:
    from ..schema import enclosing_names

    if isinstance(fn, staticmethod | classmethod):
        _mark(fn.__func__, options, home)
        return fn
    if isinstance(fn, Tool):
        raise DefinitionError(f"'{fn.spec.name}' is a Tool already. Mark its function, or make a Tool of that.")
    if not callable(fn):
        raise DefinitionError(f"@tool marks functions and methods, not {type(fn).__name__}.")
    if isinstance(fn, type):
        raise DefinitionError(f"@tool cannot mark the class {fn.__name__}. {_INSTEAD_OF_A_CLASS}")
    all_options, names = _with_earlier(fn, options)
    names = {**names, **enclosing_names(fn)}
    require_options(all_options, f"Tool '{_name(fn, all_options)}'")
    if all_options.get("isolation") is not None:
        require_importable(fn, f"Tool '{_name(fn, all_options)}'")
    can_carry = isinstance(fn, functools.partial) or (hasattr(fn, "__dict__") and not inspect.ismethod(fn))
    target: Any = fn if can_carry else functools.partial(fn)
    target.__toolcrib__ = Definition(target, all_options, names, fn.__module__ if inspect.isfunction(fn) else home)
    return target


def _name(fn: Any, options: ToolOptions) -> str:
    plain = fn
    while isinstance(plain, functools.partial):
        plain = plain.func
    name: Any = options.get("name")
    return require_name(getattr(plain, "__name__", None) or type(plain).__name__ if name is None else name)


def _adapted(tool: AnyTool) -> Tool[..., Any]:
    """Return a Tool that does what *tool* of another kind does. What it lacks is as the protocol has it."""
    optional = (
        *("at_deadline", "needs_context", "available", "lock", "retries", "handles", "source"),
        *("verify", "cost", "is_task", "priority"),
    )
    adapted: Tool[..., Any] = Tool.of_parts(
        spec=tool.spec,
        fn=tool.work,
        work=tool.work,
        check=tool.check,
        check_as=lambda _: tool.check,
        encode_as=lambda _: tool.encode,
        home=type(tool).__module__,
        **{name: getattr(tool, name) for name in optional if hasattr(tool, name)},
    )
    return adapted


# A Tool of given parts: for a schema and a callable without a full signature


def from_schema(
    spec: ToolSpec,
    work: Callable[..., Any],
    *,
    check: Callable[[str], Check] | None = None,
    encode: Callable[[str], Encode] | None = None,
    runs: Runs = "async",
    context: str | None = None,
    depends: tuple[Need, ...] = (),
    available: Availability | None = None,
    serial: bool = False,
    home: str | None = None,
) -> Tool[..., Any]:
    """Return a Tool that promises *spec* and does *work*.

    *check* and *encode* are given the tool's name, which their errors mention. Without *check*, arguments are
    validated against the input schema of *spec* and stay JSON values; without *encode*, any value is written as its
    type suggests. *work* is called with the checked arguments by name, with the Context under the name *context*, and
    with *depends*. *runs* is how: "async", "sync" (it gets a thread), or a generator of either kind. *home* is the name
    of the module whose tool it is, where that is not the module of *work*.

    Raises DefinitionError for a name or a schema that cannot work.
    """
    label = f"Tool '{require_any_name(spec.name)}'"
    if runs not in ("async", "sync", "async_generator", "generator"):
        raise DefinitionError(f"{label}: runs is async, sync, async_generator or generator, not {runs!r}.")
    needs = Needs(context, depends) if context is not None or depends else None
    tool = from_work(
        spec,
        work_of(work, runs, needs),
        check=check,
        encode=encode,
        fn=work,
        home=home or getattr(work, "__module__", None) or __name__,
        needs_context=needs_context(runs, needs),
        at_deadline=at_deadline(runs),
    )
    return tool.replace(runs=runs, needs=needs, available=available, lock=Semaphore(1) if serial else None)


def from_work(
    spec: ToolSpec,
    work: Work,
    *,
    check: Callable[[str], Check] | None = None,
    encode: Callable[[str], Encode] | None = None,
    fn: Callable[..., Any] | None = None,
    home: str,
    needs_context: bool = True,
    at_deadline: AtDeadline = "cancelled",
) -> Tool[..., Any]:
    """Return a Tool that promises *spec* and does *work*, which takes the checked arguments and the Context.

    *fn* is what calling the tool calls, *work* by default. The other arguments are those of `from_schema`. Raises
    DefinitionError for a name or a schema that cannot work.
    """
    from .. import schema

    label = f"Tool '{require_any_name(spec.name)}'"
    if check is None:
        check = functools.partial(
            schema.json_schema_check, schema=schema.require_schema(spec.input_schema, label=label)
        )
    tool: Tool[..., Any] = Tool.of_parts(
        spec=spec,
        fn=fn or work,
        work=work,
        check_as=check,
        encode_as=encode or encoder_of_any,
        home=home,
        needs_context=needs_context,
        at_deadline=at_deadline,
        code=(fn or work,),
    )
    return tool


def stand_in(name: str, *identity: str) -> Callable[..., Any]:
    """Return a function for the tool *name*, whose work runs elsewhere. Approvals of it are bound to *identity*."""
    return functools.partial(run_nowhere, name, *identity)


def run_nowhere(name: str, /, *_identity: str, **_: Any) -> Any:
    """Refuse to run: the function of every tool whose work runs elsewhere."""
    raise TypeError(f"'{name}' does not run in this process by itself: call it by a workbench.")
