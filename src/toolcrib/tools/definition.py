"""What a function's tool is defined by: its options, its spec, and the identity of its code.

An approval of one body does not count for another. What cannot be seen from here, such as the code of functions that
are called, is not part of it.
"""

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import CodeType, EllipsisType, NoneType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..core import Auth, DefinitionError, Hints, Secret, ToolAuth, ToolError, ToolSpec
from ..machinery import Availability, Check, Checked, Encode, is_amount

if TYPE_CHECKING:
    from ..schema import Parameter, Signature


class ToolOptions(TypedDict, total=False):
    """The options of a tool, beside its function. Every one has a default.

    - `name`: what models call it by, `^[a-zA-Z0-9_-]{1,64}$`; the function's name.
    - `title`: what people call it by.
    - `description`: the docstring without its sections.
    - `parameters`: a JSON Schema 2020-12 of an object, instead of the one derived from the signature; arguments are
      validated against it and handed to the function by name.
    - `read_only`, `destructive`, `idempotent`, `open_world`, `long_running`: hints of its effects, as in MCP.
    - `tags`, `version`: for those who choose among tools.
    - `examples`: arguments that work; checked at definition.
    - `timeout_s`: how long a call may take, in seconds.
    - `serial`: whether its calls run one at a time, in order of arrival.
    - `retries`: how often a failed call is made again; only for a tool that is idempotent or reads only.
    - `once`: whether an agent gives each request of a model an idempotency key of its own; needs a store.
    - `verify`: a function of the idempotency key that finds out whether its call took effect, where that is unknown:
      True, False (then it runs), None, or the result. It may take a Context and dependencies.
    - `task`: whether a call is stored and acknowledged at once, and runs as a task, which outlives the process; needs a
      store. With `"required"`, MCP clients that do not know tasks are refused.
    - `priority`: of tasks that are due, which run first: those of the highest; 0 where it is not given.
    - `cost`: what a call takes of budgets: a number of calls, or amounts by unit, as in `{"tokens": 500}`.
    - `isolation`: `"process"` runs it in a worker process, which is stopped at the deadline with all it started. The
      function has to be importable: at the top of a module.
    - `available`: whether a caller may see and call it; plain or async, given the Caller.
    - `strict`: ask model providers for their strict mode.
    - `auth`: the credentials it needs.
    - `icons`: what clients show beside its title: URLs (`https:` or `data:`), or MCP's icons.
    - `labels`: where its results come from, as in `["untrusted"]`: rules ask which of them a thread has seen.
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
    serial: bool
    retries: int | None
    once: bool
    task: bool | Literal["required"]
    priority: int
    verify: Callable[..., Any] | None
    cost: float | Mapping[str, float] | None
    isolation: Literal["process"] | None
    available: Availability | None
    strict: bool | None
    auth: Auth
    icons: Sequence[str | Mapping[str, Any]]
    labels: Sequence[str] | frozenset[str]


def require_options(options: ToolOptions, label: str) -> dict[str, Any]:
    """Return the *options* that are not None. Raises DefinitionError for one that is unknown, or has a wrong value."""
    for option, value in options.items():
        if option not in ToolOptions.__annotations__:
            from ..schema import closest_match, did_you_mean

            options_known = ToolOptions.__annotations__
            hint = did_you_mean(closest_match(option, options_known))
            raise DefinitionError(f"{label} has no option '{option}'.{hint} It has: {', '.join(options_known)}.")
        fits, expected = _EXPECTED.get(option, _FLAG)
        if value is not None and not fits(value):
            raise DefinitionError(f"{label}: {option} is {expected}.")
    if options.get("retries") and not (options.get("idempotent") or options.get("read_only")):
        raise DefinitionError(
            f"{label}: a call that failed may have had its effect all the same, so only a tool that is declared "
            "repeatable is called again. Add idempotent=True or read_only=True, or leave out retries."
        )
    return {option: value for option, value in options.items() if value is not None}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_cost(value: object) -> bool:
    return all(is_amount(unit, amount) for unit, amount in amounts_of(value).items())


def amounts_of(cost: Any) -> Mapping[str, float]:
    """Return what a call takes of budgets, by unit: *cost* is that, or a number of calls."""
    return cost if isinstance(cost, Mapping) else {"calls": cost}


def _is_tags(value: object) -> bool:
    return not isinstance(value, str) and isinstance(value, Collection) and all(map(_is_text, value))


def _is_auth(value: object) -> bool:
    if isinstance(value, str | ToolAuth | Secret) or not isinstance(value, Sequence):
        return isinstance(value, ToolAuth | Secret)
    return bool(value) and all(isinstance(requirement, ToolAuth | Secret) for requirement in value)


def _are_examples(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(example, Mapping) for example in value)


def _are_icons(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    sources = [icon.get("src") if isinstance(icon, Mapping) else icon for icon in value]
    return all(isinstance(source, str) and source.startswith(("https://", "data:image/")) for source in sources)


_FLAG: tuple[Callable[[Any], bool], str] = (_is_flag, "True, False or None")
_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_text, "text"),
    "title": (_is_text, "text"),
    "description": (_is_text, "text"),
    "parameters": (lambda value: isinstance(value, Mapping), "a JSON Schema, as a mapping"),
    "tags": (_is_tags, 'a list of texts, as in tags=["mail"]'),
    "labels": (_is_tags, 'a list of texts, as in labels=["untrusted"]'),
    "version": (_is_text, 'text, as in version="1.2"'),
    "examples": (_are_examples, 'a list of arguments, as in examples=[{"a": 1}]'),
    "timeout_s": (_is_duration, "a number of seconds above 0, or None for no limit"),
    "retries": (_is_count, "how often a failed call is made again: 0 or more"),
    "priority": (
        lambda value: type(value) is int,
        "a whole number, as in priority=10: the tasks of the highest run first",
    ),
    "task": (lambda value: _is_flag(value) or value == "required", 'True, False, or "required"'),
    "isolation": (lambda value: value == "process", '"process", or None to run it in this one'),
    "cost": (_is_cost, 'a number of calls from 0, as in cost=5, or amounts by unit, as in cost={"tokens": 500}'),
    "verify": (callable, "a function of the idempotency key, as in def verify(key: str) -> bool | None"),
    "available": (callable, "a function that is given the Caller"),
    "auth": (_is_auth, 'a ToolAuth, as in auth=ToolAuth("github", scopes=["repo"]), a Secret, or a list of them'),
    "icons": (_are_icons, 'a list of URLs, https or data:image, or of mappings with one, as in {"src": "https://..."}'),
}


def require_fit(schema: dict[str, Any], signature: "Signature", label: str) -> dict[str, Any]:
    """Return *schema*, and require that the function can take every argument it lets through."""
    from ..schema import SchemaView

    names = SchemaView(schema).names
    if names_lost := [name for name in names.members if not _takes(signature, name)]:
        raise DefinitionError(
            f"{label}: parameters= describes '{names_lost[0]}', and the function takes no such argument from a model. "
            "Add it to the function, or let the function take **arguments."
        )
    needs = needed_names(signature.parameters)
    if optional := sorted(set(needs) - names.required, key=needs.index):
        raise DefinitionError(
            f"{label}: the function needs '{optional[0]}', and parameters= does not require it. "
            'Add it to "required", or give it a default.'
        )
    if takes_any_name(signature):
        return schema
    if unknown := sorted(names.required.difference(parameter.name for parameter in signature.parameters)):
        raise DefinitionError(
            f"{label}: parameters= requires '{unknown[0]}', and the function takes no such argument. "
            "Add it to the function, or let the function take **arguments."
        )
    if names.is_open:
        raise DefinitionError(
            f"{label}: parameters= lets other arguments through, and the function cannot take them. "
            'Let the function take **arguments, or set "additionalProperties" to false.'
        )
    return {**schema, "unevaluatedProperties" if names.is_composed else "additionalProperties": False}


def takes_any_name(signature: "Signature") -> bool:
    """Return whether the function has a parameter like `**arguments`."""
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature.parameters)


def _takes(signature: "Signature", name: str) -> bool:
    """Return whether the function takes an argument *name* from a model."""
    is_known = takes_any_name(signature) or any(parameter.name == name for parameter in signature.parameters)
    return is_known and name not in signature.reserved_names


def needed_names(parameters: "Iterable[Parameter | inspect.Parameter]") -> list[str]:
    """Return the names of those *parameters* that have to be given."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in variadic]


def require_examples(spec: ToolSpec, check: Check, label: str) -> None:
    """Raise DefinitionError for an example of *spec* that *check* refuses."""
    for number, example in enumerate(spec.examples, 1):
        try:
            check(example, False)
        except Exception as error:
            raise DefinitionError(f"{label}: example {number} is not a call that works: {error}") from None


def protecting(hidden: frozenset[str], check: Check, tool: str) -> Check:
    """Return *check*, and no name among the others that would override what the host or a partial decides."""

    def protected(arguments: Any, repair: bool, /) -> Checked:
        arguments, repairs = check(arguments, repair)
        if overridden := sorted(hidden & arguments.keys()):
            raise ToolError(f"Tool '{tool}' takes no argument '{overridden[0]}'. Leave it out.", "invalid_arguments")
        return arguments, repairs

    from ..schema import with_documents

    return with_documents(protected, getattr(check, "document", None))


# The spec

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def require_name(name: Any) -> str:
    """Return *name*, if it can be the name of a tool. Raises DefinitionError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} cannot be the name of a tool: model providers take 1 to 64 letters, digits, '_' and '-'. "
            'Give one with @tool(name="...").'
        )
    return name


def is_portable(name: str) -> bool:
    """Return whether all model providers take *name* as it is."""
    return _NAME.fullmatch(name) is not None


def require_any_name(name: Any) -> str:
    """Return *name*, if it can be the name of a tool that others have named. Raises DefinitionError.

    `formats` gives model providers a name that they take.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable() or " " in name:
        raise DefinitionError(f"{name!r} cannot be the name of a tool: a name is 1 to 256 characters without spaces.")
    return name


def spec_of(
    name: str,
    options: Mapping[str, Any],
    output_schema: Mapping[str, Any] | None,
    names: Sequence[frozenset[str]],
    described: Callable[[], tuple[str, Mapping[str, Any]]],
    *,
    is_later: bool,
) -> ToolSpec:
    """Return the spec of a tool with these *options*.

    *described* makes the description and the input schema: with *is_later*, when one is first looked at.
    """
    spec = ToolSpec.with_later(
        described,
        name=name,
        output_schema=output_schema,
        title=options.get("title"),
        hints=Hints(**{hint: options[hint] for hint in Hints.__slots__ if hint in options}),
        auth=options.get("auth"),
        tags=frozenset(options.get("tags", ())),
        labels=frozenset(options.get("labels", ())),
        version=options.get("version"),
        examples=tuple(options.get("examples", ())),
        strict=options.get("strict"),
        timeout_s=options.get("timeout_s"),
        once=bool(options.get("once") or options.get("task")),
        names=names,
        icons=tuple({"src": icon} if isinstance(icon, str) else dict(icon) for icon in options.get("icons", ())),
    )
    if not is_later:
        spec.input_schema  # noqa: B018
    return spec


def output_of(
    returns: Any, name: str, names: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, Callable[[str], Encode]]:
    """Return the output schema, and what encodes a value, by the name that its errors mention."""
    from .. import schema

    if returns is not schema.EMPTY and returns not in (None, type(None)) and not schema.has_no_schema(returns):
        if (output_schema := schema.scalar_schema(returns)) is not None:
            return output_schema, functools.partial(_encoder, returns, names)

        output_schema, encode = schema.return_serializer(returns, label=f"Tool '{name}'", tool=name, names=names)
        if output_schema:
            return output_schema, lambda named: encode if named == name else _encoder(returns, names, named)
    return None, encoder_of_any


def _encoder(returns: Any, names: Mapping[str, Any], tool: str) -> Encode:
    from ..schema import return_serializer

    return return_serializer(returns, label=f"Tool '{tool}'", tool=tool, names=names)[1]


def encoder_of_any(tool: str) -> Encode:
    from ..schema import serialize_any

    return functools.partial(serialize_any, tool)


# The identity of what a tool does: its code, its validators', and that of its file

CONTENT = "__toolcrib_content__"
"""The name under which a module that was made for a file has a digest of the file."""


_CONSTANTS = (NoneType, EllipsisType, bool, int, float, complex, str, bytes)


def body_digest(functions: Iterable[Any]) -> str:
    """Return a digest of the code of *functions*."""
    import hashlib  # OpenSSL: a program that only defines tools needs none

    return hashlib.sha256(repr(_each_described(functions, set())).encode()).hexdigest()


def _each_described(values: Iterable[Any], seen: set[int]) -> list[Any]:
    return [_described(value, seen) for value in values]


def _described(value: Any, seen: set[int]) -> Any:
    """Return *value* as data with the same repr in every process."""
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames[: value.co_argcount + value.co_kwonlyargcount], value.co_freevars
        return value.co_name, value.co_code, names, _each_described(value.co_consts, seen)
    if type(value) in _CONSTANTS:
        return value
    if type(value) is tuple:
        return _each_described(value, seen)
    if type(value) is frozenset:
        return sorted(map(repr, _each_described(value, seen)))
    if id(value) in seen:
        return "seen"
    seen.add(id(value))
    if isinstance(value, functools.partial):
        return "partial", _described((value.func, value.args, *value.keywords.items()), seen)
    if inspect.ismethod(value):
        return _described(value.__func__, seen)
    if inspect.isfunction(value):
        return _function_described(value, seen)
    return _object_described(value, seen)


def _object_described(value: Any, seen: set[int]) -> Any:
    call = next((vars(kind)["__call__"] for kind in type(value).__mro__ if "__call__" in vars(kind)), None)
    own = _described(call, seen) if inspect.isfunction(call) else None
    kind = value if isinstance(value, type) else type(value)
    return kind.__module__, kind.__qualname__, getattr(value, "__name__", ""), own


def _function_described(function: Any, seen: set[int]) -> Any:
    # Of what it closes over only functions: values change from call to call.
    inner = [content for cell in function.__closure__ or () if inspect.isfunction(content := _content(cell))]
    defaults = function.__defaults__, *(function.__kwdefaults__ or {}).items()
    file = getattr(sys.modules.get(function.__module__), CONTENT, None)
    parts = _described((function.__code__, defaults, *inner, getattr(function, "__wrapped__", None)), seen)
    return function.__qualname__, file, parts


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
