"""AutoGen's tools as tools of the core, which checks their arguments, runs them, times them out and cancels them.

`native` is what a tool's `__toolcrib__()` returns: its values and errors are those of any tool of Toolcrib. `called` is
for AutoGen's workbenches: values are text or images, and an error is the text of the exception.
"""

import base64
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import BaseModel

from ....core import Context, Emitted, Image, Result, Text, ToolSpec
from ....machinery import AtDeadline, Check
from ....machinery import Work as CoreWork
from ....schema import json_schema_check, model_check
from ....tools import Tool as CoreTool
from ....tools import from_work
from .._cancellation_token import CancellationToken
from .._image import Image as AutoGenImage
from ._protocols import Tool, ToolSchema
from ._text import parameters_of, value_as_text

CALLED: Mapping[str, Any] = {"autogen": "call"}
STREAMED: Mapping[str, Any] = {"autogen": "stream"}
"""`Call.data` of the calls of AutoGen's workbenches."""

_NO_IMAGES = frozenset({str, int, float, bool})
_NOTHING: Any = object()

Run = Callable[[Any, CancellationToken], Any]


@dataclass(frozen=True, slots=True)
class Work:
    """How the core checks the arguments of an AutoGen tool, and runs it.

    *check* takes the name of the tool, for error messages. *run* is the work. *stream*, if there is one, takes what
    that takes; its last item is the value. *fn* is the function that the tool is made of, if it is one.
    """

    parameters: Mapping[str, Any]
    check: Callable[[str], Check]
    run: CoreWork
    stream: Callable[[dict[str, Any], Context], AsyncGenerator[Any, None]] | None = None
    needs_context: bool = True
    at_deadline: AtDeadline = "cancelled"
    fn: Callable[..., Any] | None = None


def work_of_model(model: type[BaseModel], name: str, run: Run, stream: Run | None = None) -> Work:
    """Return the Work of the tool *name* that takes one *model* of all arguments, and a token."""
    parameters = parameters_of(model)
    check_for = partial(model_check, model=model, schema=parameters)
    whole = check_for(name, arguments=lambda args: {"args": args})

    def with_model(run: Run) -> Callable[[dict[str, Any], Context], Any]:
        # Policies read arguments by name. These are not all that the model's validators have made of the arguments, so
        # the model is validated once more.
        return lambda _, context: run(whole(context.call.arguments, True)[0]["args"], token_of(context))

    return Work(parameters, partial(check_for, arguments=_by_name), with_model(run), stream and with_model(stream))


def work_of_json(tool: Tool) -> Work:
    """Return the Work of a tool that reads its arguments itself, in its `run_json`."""
    parameters = {"type": "object", **tool.schema.get("parameters", {})}
    stream = getattr(tool, "run_json_stream", None)
    check = partial(json_schema_check, schema=parameters)
    return Work(parameters, check, with_token(tool.run_json), stream and with_token(stream))


def with_token(run: Any) -> Callable[[dict[str, Any], Context], Any]:
    """Return what calls *run* with the arguments, the token and, if it takes one, the id of a call."""
    takes = inspect.signature(run).parameters.values()
    takes_id = any(parameter.name == "call_id" or parameter.kind is parameter.VAR_KEYWORD for parameter in takes)

    def begin(arguments: dict[str, Any], context: Context) -> Any:
        options = {"call_id": context.call.id} if takes_id else {}
        return run(arguments, token_of(context), **options)

    return begin


def native(tool: Tool, work: Work, *, home: str | None = None) -> CoreTool[..., Any]:
    """Return *tool* as a tool for any workbench of Toolcrib. *home* is the module that offers it."""
    own = None if is_plain(tool, "return_value_as_string") else tool.return_value_as_string

    def show(value: Any) -> Any:
        return with_core_images(value) if own is None else Result(value, (Text(own(value)),))

    strict = getattr(tool, "_strict", False)
    plain = ToolSchema(
        name=tool.name, description=tool.description, parameters=cast(Any, work.parameters), strict=strict
    )
    schema = plain if is_plain(tool, "schema") else tool.schema
    fn = work.fn or getattr(tool, "run", tool.run_json)
    return core_tool(spec_from(schema), work, show, fn=fn, home=home or type(tool).__module__)


def called(tool: Tool, work: Work, name: str) -> CoreTool[..., Any]:
    """Return *tool* as an AutoGen workbench calls it, under *name*. It streams in a call that is not `CALLED`."""
    own = None if is_plain(tool, "return_value_as_string") else tool.return_value_as_string

    def show(value: Any) -> Any:
        if own is not None:
            return own(value)
        if type(value) in _NO_IMAGES:
            return str(value)
        content = with_core_images(value)
        return content if isinstance(content, Image) or content is not value else value_as_text(value)

    spec = ToolSpec(name, tool.description, work.parameters)
    return core_tool(spec, work, show, emitted=lambda value: Emitted((), value))


def spec_from(schema: ToolSchema, name: str | None = None) -> ToolSpec:
    """Return the core's spec for *schema*, under another *name* if there is one."""
    parameters = {"type": "object", **schema.get("parameters", {})}
    strict = schema.get("strict") or None
    return ToolSpec(name or schema["name"], schema.get("description", ""), parameters, strict=strict)


def core_tool(
    spec: ToolSpec,
    work: Work,
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
    return from_work(spec, run, check=work.check, fn=fn, home=home, needs_context=needs, at_deadline=at_deadline)


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
    member = getattr(type(tool), method, None)
    return getattr(getattr(member, "fget", member), "__module__", "").startswith(f"{__package__}.")


def _by_name(args: BaseModel) -> dict[str, Any]:
    """Return the fields that were set, by the names of the schema. A default may be another one each time."""
    fields = type(args).model_fields
    by_name = {
        alias if isinstance(alias := field.validation_alias, str) else name: getattr(args, name)
        for name, field in fields.items()
        if name in args.model_fields_set
    }
    return {**by_name, **(args.model_extra or {})}


def with_core_images(value: Any) -> Any:
    """Return *value* with each AutoGen image, it or an item of it, as an image of the core."""
    if isinstance(value, AutoGenImage):
        return Image(base64.b64decode(value.to_base64()))
    if type(value) in (list, tuple) and any(isinstance(item, AutoGenImage | Image) for item in value):
        return [with_core_images(item) for item in value]
    return value
