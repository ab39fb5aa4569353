"""AutoGen's tools as Tools of the core, which checks their arguments, runs them, times them out and cancels them.

A tool goes one of two ways. To whoever asks it for `__toolcrib__()` it is a tool like any other. To an AutoGen
workbench it gives text, and tells its errors in their own words.
"""

import inspect
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from ....call import put_back
from ....core import Check, Context, Emitted, Image, Repair, Result, Runs, Text, ToolError, ToolSpec
from ....schema import Given, bare_check, model_check
from ....tools import Tool as CoreTool
from ....tools import given
from .._cancellation_token import CancellationToken
from .._image import Image as AutoGenImage
from ._events import elsewhere
from ._events import token as handed_token
from ._text import error_as_text, parameters_of, value_as_text

if TYPE_CHECKING:
    from ._base import Tool

_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class Parts:
    """What a Tool of the core is made of.

    *check* is given the name in which it speaks. *work* takes what *check* gives, and the Context under the name
    *context*, if there is one. For a tool that streams, *items* gives what it yields, and takes the same, with the
    Context under the name *items_context*.
    """

    parameters: Mapping[str, Any]
    check: Callable[[str], Check]
    work: Callable[..., Any]
    runs: Runs = "async"
    context: str | None = None
    items: Callable[..., AsyncGenerator[Any, None]] | None = None
    items_context: str | None = None


def of_model(
    model: type[BaseModel],
    run: Callable[[Any, Any], Awaitable[Any]],
    run_stream: Callable[[Any, Any], AsyncGenerator[Any, None]] | None,
    *,
    tool: str,
    by_name: bool,
) -> Parts:
    """The parts of the tool named *tool*, whose *run* takes one *model* of all arguments, and a token.

    With *by_name*, whoever looks at checked arguments sees them by their names, and the model is made at the end.
    """
    parameters = parameters_of(model)
    whole = partial(model_check, model=model, schema=parameters, arguments=lambda args: {"args": args})
    if not by_name:

        async def work(args: Any) -> Any:
            return await with_token(partial(run, args))

        def items(args: Any, context: Context) -> AsyncGenerator[Any, None]:
            assert run_stream is not None
            return run_stream(args, token_of(context))

        return Parts(parameters, whole, work, items=items if run_stream else None, items_context="context")
    name = free_name("context", parameters["properties"])
    read = whole(tool)

    def again(context: Context) -> Any:
        # Read once more from what was written, as for an approval: only so is it the model that its validators made.
        return read(context.call.arguments, True)[0]["args"]

    async def work_by_name(**checked: Any) -> Any:
        context: Context = checked[name]
        return await run(again(context), token_of(context))

    async def items_by_name(**checked: Any) -> AsyncGenerator[Any, None]:
        context: Context = checked[name]
        assert run_stream is not None
        async with aclosing(run_stream(again(context), token_of(context))) as stream:
            async for item in stream:
                yield item

    check = partial(model_check, model=model, schema=parameters, arguments=_by_name)
    return Parts(parameters, check, work_by_name, "async", name, items_by_name if run_stream else None, name)


def of_json(tool: "Tool", *, by_name: bool) -> Parts:
    """The parts of a tool that reads its arguments itself, in `run_json`."""
    parameters: dict[str, Any] = {"type": "object", **tool.schema.get("parameters", {})}
    stream = getattr(tool, "run_json_stream", None)
    run, run_stream = _with_id(tool.run_json), None if stream is None else _with_id(stream)
    name = free_name("context", parameters.get("properties", {}))

    async def work(**checked: Any) -> Any:
        context: Context = checked.pop(name)
        before = elsewhere.set(by_name)
        try:
            return await run(checked if by_name else checked["args"], context)
        finally:
            put_back(elsewhere, before)

    async def items(**checked: Any) -> AsyncGenerator[Any, None]:
        context: Context = checked.pop(name)
        assert run_stream is not None
        before = elsewhere.set(by_name)
        try:
            async with aclosing(run_stream(checked if by_name else checked["args"], context)) as stream:
                async for item in stream:
                    yield item
        finally:
            put_back(elsewhere, before)

    check = partial(bare_check, schema=parameters) if by_name else _unread
    return Parts(parameters, check, work, "async", name, items if run_stream else None, name)


def native(tool: "Tool", parts: Parts) -> CoreTool[..., Any]:
    """*tool* as any tool of Toolcrib's: its value is what it gave, and its errors are told as everybody's are."""
    in_own_words = not is_plain(tool, "return_value_as_string")

    def show(value: Any) -> Any:
        if in_own_words:
            return Result(value, (Text(tool.return_value_as_string(value)),))
        return _with_images(value)

    told: Mapping[str, Any] = {} if is_plain(tool, "schema") else tool.schema
    spec = ToolSpec(
        tool.name,
        told.get("description", tool.description),
        {"type": "object", **told.get("parameters", parts.parameters)},
        strict=told.get("strict", getattr(tool, "_strict", None)) or None,
    )
    if (every := parts.items) is not None:

        async def items(**checked: Any) -> AsyncGenerator[Any, None]:
            async with aclosing(every(**checked)) as stream:
                async for item in stream:
                    yield show(item)

        made = given(spec, items, check=parts.check, runs="async_generator", context=parts.items_context)
    else:
        work = _then(parts.work, parts.runs, show, telling=False)
        made = given(spec, work, check=parts.check, runs=parts.runs, context=parts.context)
    made.home = getattr(tool, "toolcrib_home", type(tool).__module__)
    made.fn = getattr(tool, "_func", made.fn)
    return made


def called(tool: "Tool", parts: Parts, name: str) -> CoreTool[..., Any]:
    """*tool* for an AutoGen workbench: it gives text or images, and its errors are told in their own words."""
    work = _then(parts.work, parts.runs, _shows(tool), telling=True)
    return given(_spec(tool, parts, name), work, check=parts.check, runs=parts.runs, context=parts.context)


def streamed(tool: "Tool", parts: Parts, name: str) -> CoreTool[..., Any]:
    """`called`, of a tool that streams: what it yields before the last is emitted as it is."""
    items = parts.items
    assert items is not None
    assert parts.items_context is not None
    context_name, show = parts.items_context, _shows(tool)

    async def work(**checked: Any) -> Any:
        context: Context = checked[context_name]
        last: Any = _NOTHING
        try:
            async with aclosing(items(**checked)) as stream:
                async for item in stream:
                    if last is not _NOTHING:
                        await context.emit(Emitted((), last))
                    last = item
            return show(None if last is _NOTHING else last)
        except Exception as error:
            if last is not _NOTHING:
                await context.emit(Emitted((), last))
            raise _told(error, True) from error

    return given(_spec(tool, parts, name), work, check=parts.check, context=parts.items_context)


async def with_token(run: Callable[[CancellationToken], Awaitable[Any]]) -> Any:
    """The value of *run*, given the token that an AutoGen workbench was handed, or one that ends with the call.

    It costs half of what a Context does.
    """
    handed = handed_token.get()
    if handed is not None:
        return await run(handed)
    token = CancellationToken()
    try:
        return await run(token)
    except CancelledError:
        token.cancel()
        raise


def token_of(context: Context) -> CancellationToken:
    """The token of a call, as AutoGen's tools know it: cancelled when the caller gives up, or the time is over."""
    token = CancellationToken()
    context.cancellation.add_callback(token.cancel)
    return token


def free_name(wanted: str, taken: Any) -> str:
    """*wanted*, or one like it that is not among the names *taken*."""
    while wanted in taken:
        wanted += "_"
    return wanted


def is_plain(tool: Any, method: str) -> bool:
    """Whether *tool* does *method*, which may be a property, as BaseTool does."""
    found = getattr(type(tool), method, None)
    return getattr(getattr(found, "fget", found), "__module__", "").startswith(f"{__package__}.")


def _spec(tool: "Tool", parts: Parts, name: str) -> ToolSpec:
    return ToolSpec(name, tool.description, parts.parameters)


def _by_name(args: BaseModel) -> dict[str, Any]:
    """What was given of *args*, by the names of its schema. What a default fills in may differ each time."""
    fields = type(args).model_fields
    given_fields = {
        alias if isinstance(alias := fields[name].validation_alias, str) else name: getattr(args, name)
        for name in fields
        if name in args.model_fields_set
    }
    return {**given_fields, **(args.model_extra or {})}


def _unread(tool: str) -> Check:
    """No check but that it is one object: the tool reads its arguments itself."""
    of_text = bare_check(tool, {"type": "object"})

    def check(written: Given, repair: bool, /) -> tuple[dict[str, Any], tuple[Repair, ...]]:
        if isinstance(written, Mapping):
            return {"args": written}, ()
        checked, repairs = of_text(written, repair)
        return {"args": checked}, repairs

    return check


def _with_id(run: Callable[..., Any]) -> Callable[[Mapping[str, Any], Context], Any]:
    """*run* with the token and the id of a call; older tools take no id."""
    parameters = inspect.signature(run).parameters
    takes_id = "call_id" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    def begin(args: Mapping[str, Any], context: Context) -> Any:
        if takes_id:
            return run(args, token_of(context), call_id=context.call.id)
        return run(args, token_of(context))

    return begin


def _then(work: Callable[..., Any], runs: Runs, show: Callable[[Any], Any], *, telling: bool) -> Callable[..., Any]:
    """*work*, and its value as *show* gives it; when *telling*, exceptions are told in their own words."""

    async def later(value: Awaitable[Any]) -> Any:
        try:
            return show(await value)
        except Exception as error:
            raise _told(error, telling) from error

    async def work_async(**checked: Any) -> Any:
        try:
            return show(await work(**checked))
        except Exception as error:
            raise _told(error, telling) from error

    def work_sync(**checked: Any) -> Any:
        try:
            value = work(**checked)
            return later(value) if hasattr(type(value), "__await__") else show(value)
        except Exception as error:
            raise _told(error, telling) from error

    return work_async if runs == "async" else work_sync


def _told(error: Exception, telling: bool) -> Exception:
    return ToolError(error_as_text(error)) if telling and not isinstance(error, ToolError) else error


def _shows(tool: "Tool") -> Callable[[Any], Any]:
    """What gives a value of *tool* as text, or as content where there are images in it."""
    if not is_plain(tool, "return_value_as_string"):
        return tool.return_value_as_string

    def show(value: Any) -> Any:
        if type(value) in _NO_IMAGES:
            return str(value)
        shown = _with_images(value)
        return shown if isinstance(shown, Image) or shown is not value else value_as_text(value)

    return show


_NO_IMAGES = frozenset({str, int, float, bool})


def _with_images(value: Any) -> Any:
    """*value*, and in the place of each of AutoGen's images one of the core's: it, or its items."""
    if isinstance(value, AutoGenImage):
        import base64

        return Image(base64.b64decode(value.to_base64()))
    if type(value) in (list, tuple) and any(isinstance(item, AutoGenImage | Image) for item in value):
        return [_with_images(item) for item in value]
    return value
