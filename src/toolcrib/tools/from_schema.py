"""A Tool of given parts: for a schema and a callable without a full signature."""

import functools
from collections.abc import Callable
from typing import Any

from ..core import DefinitionError, ToolSpec
from ..machinery import AtDeadline, Availability, Check, Encode, Need, Needs, Semaphore, Work
from .definition import require_any_name
from .function import Tool
from .work import Runs, needs_context, work_of


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
        at_deadline="left_running" if runs in ("sync", "generator") else "cancelled",
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
    encode = encode or (lambda name: functools.partial(schema.serialize_any, name))
    tool: Tool[..., Any] = Tool.of_parts(
        spec=spec,
        fn=fn or work,
        work=work,
        check_as=check,
        encode_as=encode,
        home=home,
        needs_context=needs_context,
        at_deadline=at_deadline,
        code=(fn or work,),
    )
    return tool


def stand_in(name: str, *identity: str) -> Callable[..., Any]:
    """Return a function for the tool *name*, whose work runs elsewhere. Approvals of it are bound to *identity*."""
    return functools.partial(_run_nowhere, name, *identity)


def _run_nowhere(name: str, /, *_identity: str, **_: Any) -> Any:
    raise TypeError(f"'{name}' does not run in this process by itself: call it by a workbench.")
