"""Pydantic AI: a workbench as a toolset of its agents, and its tools and toolsets as sources."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import ValidationError
from pydantic_ai import RunContext, RunUsage, Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, CustomEvent, ToolCallPart, ToolReturn, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool

from ..core import Approve, Audio, Context, Data, DefinitionError, File, Image, Source, Text, ToolError, ToolSpec
from ..formats import json_value, media_content
from ..machinery import Semaphore
from ..tools import Tool as CoreTool
from ..workbench import Crib, Workbench, sync
from .foreign import ListedSource, approve, closed, hints_of, one_or_all, problems, promise, tool_of
from .host import Arguments, CallerOf, Host, metadata

# Out


def toolset(
    tools: Workbench | Crib,
    *,
    caller: CallerOf | None = None,
    id: str | None = None,  # noqa: A002
    defer: bool = True,
) -> "WorkbenchToolset":
    """Return *tools* as a toolset: `Agent(model, toolsets=[toolset(bench)])`.

    Of a crib, *caller* gives the caller of a run by its RunContext: `caller=lambda ctx: Caller(ctx.deps.user)`. A call
    that waits for an approval is deferred (`DeferredToolRequests` has to be among the output types of the agent);
    without *defer* the model reads that it waits. An error that asks for other arguments is a retry, of which a tool
    has as many as the agent gives it. What tools report are events of the run, as `ToolcribReport`. A workbench that is
    not started starts and stops with the run.
    """
    return WorkbenchToolset(Host(tools, caller), id, defer=defer)


@dataclass(kw_only=True)
class ToolcribReport(CustomEvent):
    """What a running tool reports, in the stream of the run's events.

    *report* has the `type` `progress`, with `done`, `total` and `message`, or `emitted`, with the `content`.
    """

    report: dict[str, Any]


class _Raw(dict[str, Any]):
    """The arguments as members, as far as they can be read, and the *text* in which the model wrote them."""

    text: str | None = None

    @property
    def written(self) -> str | None:
        """The *text*; None where a toolset around this one, or a hook, has changed the members since."""
        return self.text if self.text is not None and _members(self.text) == self else None


def _members(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=str)  # NaN is not itself
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class _Unchecked:
    """Takes what a model wrote as it is: the workbench checks it, repairs it, and explains what is wrong."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> _Raw:  # noqa: A002
        text = input if isinstance(input, str) else bytes(input).decode(errors="replace")
        raw = _Raw(_members(text))
        raw.text = text
        return raw

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002
        return input if isinstance(input, Mapping) else self.validate_json(json.dumps(input, default=str))


class WorkbenchToolset(AbstractToolset[Any]):
    """The tools of a workbench, or of the one that a crib has for the caller of a run. Made by `toolset`."""

    def __init__(self, host: Host, id: str | None, *, defer: bool) -> None:  # noqa: A002
        self._host = host
        self._id = id
        self._defer = defer

    @property
    def id(self) -> str | None:
        return self._id

    async def __aenter__(self) -> Self:
        await self._host.enter()
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self._host.leave()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        for part in ctx.messages[-1].parts if ctx.messages else ():
            if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                await self._host.deny(ctx, part.tool_call_id, str(part.content))
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.schema,
                    strict=tool.spec.strict,
                    metadata={"toolcrib": tool.spec.to_dict()},
                    return_schema=None if tool.spec.output_schema is None else dict(tool.spec.output_schema),
                ),
                max_retries=ctx.max_retries,
                args_validator=_Unchecked(),
            )
            for tool in await self._host.shown(ctx)
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        arguments, answer = _arguments_and_answer(tool_args, ctx)
        result = await self._host.call(
            ctx,
            name,
            arguments,
            ctx.tool_call_id,
            timeout_s=None if ctx.deadline is None else (ctx.deadline - datetime.now(UTC)).total_seconds(),
            answer=answer,
            report=lambda data: ctx.emit(ToolcribReport(report=data)),
        )
        pending = result.pending
        if pending is not None and pending.kind == "approval" and self._defer and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"toolcrib": pending.to_dict()})
        if result.error is not None:
            raise ModelRetry(result.text) if result.error.retry == "changed" else ToolFailed(result.text)
        value = one_or_all([_part_of(part) for part in result.content]) if pending is None else result.text
        return ToolReturn(value, metadata=metadata(result))


def _arguments_and_answer(tool_args: dict[str, Any], ctx: RunContext[Any]) -> tuple[Arguments, Approve | None]:
    """Return the arguments as the model has sent them, and the approval of a person, who may have changed them."""
    text = tool_args.written if isinstance(tool_args, _Raw) else None
    arguments = tool_args if text is None else text
    if not ctx.tool_call_approved:
        return arguments, None
    model_arguments = _sent_arguments(ctx)
    if model_arguments is None or _members(model_arguments) == dict(tool_args):
        return arguments, Approve()
    return model_arguments, Approve(tool_args)  # a person's `override_args`


def _sent_arguments(ctx: RunContext[Any]) -> str | None:
    """Return the arguments of the running call as the model has sent them; None where its message is not known."""
    parts = (part for message in reversed(ctx.messages) for part in message.parts)
    calls = (part for part in parts if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id)
    return None if (call := next(calls, None)) is None else call.args_as_json_str()


def _part_of(part: Any) -> Any:
    if isinstance(part, Image | Audio | File):
        return BinaryContent(part.data, media_type=part.media_type)
    return json_value(part) if isinstance(part, Data) else part.text


# In


def read(value: Any) -> Source | None:
    """Return *value*, a toolset or a Tool of Pydantic AI, as a source; None for anything else."""
    if isinstance(value, Tool):
        return ToolsetSource(FunctionToolset([value]), name=value.name)
    return ToolsetSource(value) if isinstance(value, AbstractToolset) else None


_LEFT = "Tool '{}' leaves its work to the program of an agent, which is not there."


class ToolsetSource(ListedSource):
    """A toolset as a source: entered and left with the workbench, its tools listed at the start.

    Tools get a RunContext with the caller's `deps`, the variable of that name of the workbench, and with a model that
    cannot be used. What needs more is refused when it is called.
    """

    def __init__(self, toolset: AbstractToolset[Any], *, name: str | None = None) -> None:
        super().__init__(name or toolset.id or type(toolset).__name__)
        self._given = toolset
        self._toolset = toolset
        self._alone = Semaphore(1)
        if type(toolset) is FunctionToolset:  # which need not be entered for that
            with suppress(Exception):  # of what prepares a tool for a run
                self.take(sync.run(toolset.get_tools(_run_context(None))).values(), self._tool)

    @property
    def state_key(self) -> str:
        return self.name

    async def start(self) -> None:
        context = _run_context(None)
        self._toolset = await self._given.for_run(context)
        await self._toolset.__aenter__()
        try:
            tools = await self._toolset.get_tools(context)
        except BaseException:
            await self._toolset.__aexit__(None, None, None)
            raise
        self.take(tools.values(), self._tool)
        self.changed()

    async def stop(self) -> None:
        await self._toolset.__aexit__(None, None, None)

    def _tool(self, theirs: ToolsetTool[Any]) -> CoreTool[..., Any]:
        of = theirs.tool_def
        if of.kind == "external":
            raise DefinitionError(f"Tool '{of.name}' is run by the program of the agent, which is not there.")
        spec = ToolSpec(
            of.name,
            of.description or "",
            closed(of.parameters_json_schema),
            _promise(of),
            hints=hints_of((of.metadata or {}).get("annotations")),
            strict=of.strict,
            timeout_s=of.timeout,
        )

        async def work(arguments: dict[str, Any], context: Context) -> Any:
            return await self._call(of, arguments, context)

        tool = tool_of(
            spec, work, self, at_deadline="cancelled" if getattr(theirs, "is_async", True) else "left_running"
        )
        tool.lock = self._alone if of.sequential else None
        return tool

    async def _call(self, of: ToolDefinition, arguments: dict[str, Any], context: Context) -> Any:
        is_approved = False
        while True:
            run = _run_context(context, name=of.name, is_approved=is_approved)
            current = await self._current(of.name, run)
            try:
                if "unapproved" in (of.kind, current.tool_def.kind) and not is_approved:
                    raise ApprovalRequired
                values = await _validated(current, arguments, run)
                return _content_of(await self._toolset.call_tool(of.name, values, run, current))
            except ApprovalRequired:
                if is_approved:
                    raise ToolError(f"Tool '{of.name}' asks for an approval that it already has.", "denied") from None
                await approve(context)
                is_approved = True
            except CallDeferred:
                raise ToolError(_LEFT.format(of.name), "unavailable") from None
            except ModelRetry as error:
                raise ToolError(error.message, "invalid_arguments") from error
            except ToolFailed as error:
                raise ToolError(error.message, "failed") from error
            except ValidationError as error:
                raise ToolError(problems(of.name, error), "invalid_arguments") from None

    async def _current(self, name: str, run: RunContext[Any]) -> ToolsetTool[Any]:
        """Return the tool *name* as it is now. Raises ToolError where it cannot be called in *run*."""
        current = (await self._toolset.get_tools(run)).get(name)
        if current is None:
            raise ToolError(f"Tool '{name}' is not available now.", "unavailable")
        if current.tool_def.kind == "external":  # which may be so for this caller only, as an approval may be
            raise ToolError(_LEFT.format(name), "unavailable")
        return current


async def _validated(tool: ToolsetTool[Any], arguments: dict[str, Any], run: RunContext[Any]) -> dict[str, Any]:
    values = tool.args_validator.validate_json(json.dumps(arguments))
    if tool.args_validator_func is not None:
        valid = tool.args_validator_func(run, **values)
        if hasattr(valid, "__await__"):
            await valid
    return values


def _promise(of: ToolDefinition) -> Mapping[str, Any] | None:
    """Return the output schema of *of*; None for media, and for MCP's tools, whose results have another form."""
    is_media = '"base64url"' in json.dumps(of.return_schema)
    return None if is_media or "task" in (of.metadata or {}) else promise(of.return_schema)


def _run_context(context: Context | None, *, name: str | None = None, is_approved: bool = False) -> RunContext[Any]:
    deps = None if context is None else context.variables.get("deps")
    return RunContext(
        deps=deps,
        model=FunctionModel(_no_model),
        usage=RunUsage(),
        tool_call_id=None if context is None else context.call.id,
        tool_name=name,
        tool_call_approved=is_approved,
        deadline=None if context is None else context.deadline_at,
        max_retries=1,
    )


def _no_model(*_: Any) -> Any:
    raise ToolError("This tool asks the model of its agent, and there is no agent here.", "unavailable")


def _content_of(value: Any) -> Any:
    """Return the result of a tool of Pydantic AI as a tool of ours returns it."""
    if isinstance(value, ToolReturn):
        extra = value.content if isinstance(value.content, list | tuple) else [value.content] if value.content else []
        more = (Text(part) if isinstance(part, str) else _content_of(part) for part in extra)
        parts = [_content_of(value.return_value), *more]
        return one_or_all(parts)
    if isinstance(value, BinaryContent):
        return media_content(value.media_type, value.data)
    return [_content_of(part) for part in value] if isinstance(value, list | tuple) else value
