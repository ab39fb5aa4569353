"""AutoGen's tools as tools of the core, which checks their arguments, runs them, times them out and cancels them.

`native` is what a tool's `__toolcrib__()` returns: its values and errors are those of any tool of Toolcrib. `called` is
for AutoGen's workbenches: values are text or images, and an error is the text of the exception.
"""

import base64
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from ....call import reset
from ....core import AtDeadline, Check, Checked, Context, Emitted, Image, Result, Text, ToolSpec, finished
from ....core import Work as CoreWork
from ....schema import RawArguments, json_schema_check, model_check
from ....tools import Tool as CoreTool
from ....tools import from_work
from .._cancellation_token import CancellationToken
from .._image import Image as AutoGenImage
from ._events import events_redacted_by
from ._protocols import Tool
from ._text import parameters_of, value_as_text

CheckFor = Callable[[str], Check]
"""Takes the name of the tool, for error messages."""

_ALL = "$arguments"
"""The one checked argument where a tool takes them as a whole. No property of a schema has such a name."""

_NO_IMAGES = frozenset({str, int, float, bool})
_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Work:
    """How the core checks the arguments of an AutoGen tool, and runs it.

    *check* is for AutoGen's workbenches. *check_by_name* is for those of the core, whose policies read arguments by
    their names. *run* is the work. *stream*, if there is one, takes what that takes; its last item is the value. *fn*
    is the function that the tool is made of, if it is one.
    """

    parameters: Mapping[str, Any]
    check: CheckFor
    check_by_name: CheckFor
    run: CoreWork
    stream: Callable[[dict[str, Any], Context], AsyncGenerator[Any, None]] | None = None
    needs_context: bool = True
    at_deadline: AtDeadline = "cancelled"
    fn: Callable[..., Any] | None = None


def work_of_model(
    model: type[BaseModel],
    name: str,
    run: Callable[[Any, CancellationToken], Any],
    stream: Callable[[Any, CancellationToken], AsyncGenerator[Any, None]] | None = None,
) -> Work:
    """Return the Work of the tool *name* that takes one *model* of all arguments, and a token."""
    parameters = parameters_of(model)
    check_for = partial(model_check, model=model, schema=parameters)
    check = partial(check_for, arguments=lambda args: {_ALL: args})
    check_again = check(name)

    def args_of(arguments: dict[str, Any], context: Context) -> Any:
        # Arguments by name are not all that the model's validators have made of them, so it is validated once more.
        found = arguments if _ALL in arguments else finished(check_again, context.call.arguments, True)[0]
        return found[_ALL]

    def with_model(run: Callable[[Any, CancellationToken], Any]) -> Callable[[dict[str, Any], Context], Any]:
        return lambda arguments, context: run(args_of(arguments, context), token_of(context))

    by_name = partial(check_for, arguments=_by_name)
    return Work(parameters, check, by_name, with_model(run), stream and with_model(stream))


def work_of_json(tool: Tool) -> Work:
    """Return the Work of a tool that reads its arguments itself, in its `run_json`."""
    parameters = {"type": "object", **tool.schema.get("parameters", {})}
    run_json, run_json_stream = begin_with(tool.run_json), begin_with(getattr(tool, "run_json_stream", None))

    async def run(arguments: dict[str, Any], context: Context) -> Any:
        with _logging(_ALL in arguments):
            return await run_json(arguments, context)

    async def stream(arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
        with _logging(_ALL in arguments):
            async with aclosing(run_json_stream(arguments, context)) as items:
                async for item in items:
                    yield item

    by_name = partial(json_schema_check, schema=parameters)
    return Work(parameters, _check_mapping, by_name, run, stream if hasattr(tool, "run_json_stream") else None)


def begin_with(run: Any) -> Callable[[dict[str, Any], Context], Any]:
    """Return what calls *run* with the arguments, the token and, if it takes one, the id of a call."""
    takes = inspect.signature(run).parameters.values() if run else ()
    takes_id = any(each.name == "call_id" or each.kind is each.VAR_KEYWORD for each in takes)

    def begin(arguments: dict[str, Any], context: Context) -> Any:
        options = {"call_id": context.call.id} if takes_id else {}
        return run(arguments.get(_ALL, arguments), token_of(context), **options)

    return begin


@contextmanager
def _logging(logs: bool) -> Generator[None]:
    before = events_redacted_by.set(events_redacted_by.get() if logs else False)
    try:
        yield
    finally:
        reset(events_redacted_by, before)


def native(tool: Tool, work: Work, *, strict: bool = False, home: str | None = None) -> CoreTool[..., Any]:
    """Return *tool* as a tool for any workbench of Toolcrib. *home* is the module that offers it."""

    def show(value: Any) -> Any:
        if is_plain(tool, "return_value_as_string"):
            return with_core_images(value)
        return Result(value, (Text(tool.return_value_as_string(value)),))

    schema: Mapping[str, Any] = {} if is_plain(tool, "schema") else tool.schema
    spec = ToolSpec(
        tool.name,
        schema.get("description", tool.description),
        {"type": "object", **schema.get("parameters", work.parameters)},
        strict=schema.get("strict", strict) or None,
    )
    fn = work.fn or getattr(tool, "run", tool.run_json)
    return core_tool(spec, work, work.check_by_name, show, fn=fn, home=home or type(tool).__module__)


def called(tool: Tool, work: Work, name: str) -> CoreTool[..., Any]:
    """Return *tool* as an AutoGen workbench calls it, under *name*. It streams in a call that is not `CALLED`."""
    own = None if is_plain(tool, "return_value_as_string") else tool.return_value_as_string

    def show(value: Any) -> Any:
        if own is not None:
            return own(value)
        if type(value) in _NO_IMAGES:
            return str(value)
        shown = with_core_images(value)
        return shown if isinstance(shown, Image) or shown is not value else value_as_text(value)

    spec = ToolSpec(name, tool.description, work.parameters)
    return core_tool(spec, work, work.check, show, emitted=lambda value: Emitted((), value))


def core_tool(
    spec: ToolSpec,
    work: Work,
    check: CheckFor,
    show: Callable[[Any], Any],
    *,
    emitted: Callable[[Any], Any] | None = None,
    fn: Callable[..., Any] | None = None,
    home: str = __name__,
) -> CoreTool[..., Any]:
    """Return a tool whose value goes through *show*, and what it streams before that through *emitted*, or *show*."""

    async def run(arguments: dict[str, Any], context: Any) -> Any:
        if work.stream is not None and context.call.data != CALLED:
            return show(await _last(work.stream(arguments, context), context, emitted or show))
        return show(await work.run(arguments, context))

    needs, at_deadline = work.needs_context, work.at_deadline
    return from_work(spec, run, check=check, fn=fn, home=home, needs_context=needs, at_deadline=at_deadline)


async def _last(items: AsyncGenerator[Any, None], context: Context, emitted: Callable[[Any], Any]) -> Any:
    """Return the last of *items*. Those before it are emitted; so is the last one where an error comes after it."""
    last: Any = _NOTHING
    try:
        async with aclosing(items):
            async for item in items:
                if last is not _NOTHING:
                    await context.emit(emitted(last))
                last = item
    except Exception:
        if last is not _NOTHING:
            await context.emit(emitted(last))
        raise
    return None if last is _NOTHING else last


CALLED: Mapping[str, Any] = {"autogen": "call"}
STREAMED: Mapping[str, Any] = {"autogen": "stream"}
"""`Call.data` of the calls of AutoGen's workbenches."""


def token_of(context: Context) -> CancellationToken:
    """Return the token of a call: the caller's own, or one that is cancelled when the call is given up or times out."""
    call = context.call
    is_own = isinstance(call.cancellation, CancellationToken) and call.data in (CALLED, STREAMED)
    return call.cancellation if is_own else linked_token(context)  # type: ignore[return-value]


def linked_token(context: Context) -> CancellationToken:
    """Return a token that is cancelled when the call is given up or times out, as work in a thread needs to know."""
    token = CancellationToken()
    context.cancellation.add_callback(token.cancel)
    return token


def is_plain(tool: Any, method: str) -> bool:
    """Return whether *tool* has the *method*, or property, of BaseTool itself."""
    found = getattr(type(tool), method, None)
    return getattr(getattr(found, "fget", found), "__module__", "").startswith(f"{__package__}.")


def _by_name(args: BaseModel) -> dict[str, Any]:
    """Return the fields that were set, by the names of the schema. A default may be another one each time."""
    fields = type(args).model_fields
    named = {
        alias if isinstance(alias := field.validation_alias, str) else name: getattr(args, name)
        for name, field in fields.items()
        if name in args.model_fields_set
    }
    return {**named, **(args.model_extra or {})}


def _check_mapping(name: str) -> Check:
    """Return a check that takes any object: the tool *name* reads its arguments itself."""
    check_text = json_schema_check(name, {"type": "object"})

    def check(written: RawArguments, repair: bool, /) -> Checked:
        if isinstance(written, Mapping):
            return {_ALL: written}, ()
        checked, repairs = check_text(written, repair)
        return {_ALL: checked}, repairs

    return check


def with_core_images(value: Any) -> Any:
    """Return *value* with each AutoGen image, it or an item of it, as an image of the core."""
    if isinstance(value, AutoGenImage):
        return Image(base64.b64decode(value.to_base64()))
    if type(value) in (list, tuple) and any(isinstance(item, AutoGenImage | Image) for item in value):
        return [with_core_images(item) for item in value]
    return value
