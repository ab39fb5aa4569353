"""A Tool of given parts: for whoever has a schema and a callable, and no function whose signature tells them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..core import Availability, Check, DefinitionError, Encode, Gate, Needs, Runs, ToolSpec
from .function import Tool, require_name


def given(
    spec: ToolSpec,
    work: Callable[..., Any],
    *,
    check: Callable[[str], Check] | None = None,
    encode: Callable[[str], Encode] | None = None,
    runs: Runs = "async",
    context: str | None = None,
    available: Availability | None = None,
    serial: bool = False,
    home: str | None = None,
) -> Tool[..., Any]:
    """A Tool that promises *spec* and does *work*.

    *check* and *encode* are given the tool's name, in which they speak. Without *check*, arguments are held against
    the input schema of *spec* and stay JSON values; without *encode*, any value is written as its type suggests.
    *work* is called with the checked arguments by name, and with the Context under the name *context*, if there is one.
    *runs* says what it is: "async", "sync" (it gets a thread), or a generator of either kind. *home* is the name of the
    module whose tool it is, where that is not the module of *work*.

    Raises DefinitionError for a name or a schema that cannot work.
    """
    from .. import schema

    label = f"Tool '{require_name(spec.name)}'"
    if check is None:
        check = functools.partial(schema.bare_check, schema=schema.require_schema(spec.input_schema, label=label))
    made: Tool[..., Any] = Tool.__new__(Tool)
    write = encode or (lambda name: functools.partial(schema.write_any, name))
    check_as = check

    def speak_as(name: str) -> tuple[Check, Mapping[str, Any] | None, Encode]:
        return check_as(name), spec.output_schema, write(name)

    made.home = home or getattr(work, "__module__", None) or __name__
    made.fn = work
    made.ref = None
    made.spec = spec
    made.check, _, made.encode = speak_as(spec.name)
    made._speak_as = speak_as  # pyright: ignore[reportPrivateUsage] - another way to make the same class
    made._aliases = {}  # pyright: ignore[reportPrivateUsage]
    made._work_of = lambda fn: fn  # pyright: ignore[reportPrivateUsage]
    made.work = work
    made.runs = runs
    made.needs = None if context is None else Needs(context=context)
    made.available = available
    made.turn = Gate(1) if serial else None
    made.retries = None
    made.handles = None
    made.owner = None
    made.crossing = None
    made.isolation = None
    if runs == "process":
        raise DefinitionError(f"{label}: what is given cannot be sent to a process. Make a Tool of a function.")
    return made
