"""LlamaIndex: a workbench as tools of its agents, and its tools and tool specs as sources."""

import json
from copy import copy
from inspect import iscoroutinefunction
from typing import Any

from llama_index.core.base.llms.types import AudioBlock, DocumentBlock, ImageBlock, TextBlock
from llama_index.core.objects.base import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from pydantic import ValidationError
from pydantic_core import SchemaSerializer, core_schema
from workflows import Context as WorkflowContext
from workflows.events import HumanResponseEvent, InputRequiredEvent

from ..core import Approve, Audio, Context, Deny, File, Image, Result, ToolError, ToolSpec
from ..formats import Offered, media_content
from ..machinery import in_thread
from ..tools import Tool as CoreTool
from ..workbench import Crib, Workbench, sync
from .foreign import closed, injected, problems, tool_of
from .host import CallerOf, Host, by_name

_CONTEXT = "toolcrib_context"

# Out


def tools(tools: Workbench | Crib, *, caller: CallerOf | None = None, wait: bool = False) -> list[BaseTool]:
    """Return *tools* for LlamaIndex: `FunctionAgent(tools=tools(bench), llm=llm)`.

    Of a crib, *caller* gives the caller of a run by its workflow Context, plain or async. With *wait*, a call that
    waits for an approval sends an InputRequiredEvent, and goes on with a HumanResponseEvent that has its `pending_id`:
    the response "yes" approves it, any other denies it. Otherwise the model reads that it waits. The list is of the
    tools that are there now; `retriever` follows changes.
    """
    return _listed(Host(tools, caller), wait)


def retriever(tools: Workbench | Crib, *, caller: CallerOf | None = None, wait: bool = False) -> ObjectRetriever[Any]:
    """Return *tools* for an agent that follows changes: `FunctionAgent(tool_retriever=retriever(bench), llm=llm)`.

    At each step it gives those that there are then, whatever is asked for; of a crib, those of all callers. The rest is
    as in `tools`.
    """
    return _Retriever(Host(tools, caller), wait)


class _Retriever(ObjectRetriever[Any]):
    def __init__(self, host: Host, wait: bool) -> None:
        self._host = host
        self._wait = wait

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return sync.run(self.aretrieve(str_or_query_bundle))

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        if isinstance(self._host.tools, Crib):  # whose caller is not known here
            return _listed(self._host, self._wait)
        return [_Tool(self._host, tool, wait=self._wait) for tool in await self._host.shown()]


def _listed(host: Host, wait: bool) -> list[BaseTool]:
    return [_Tool(host, tool, wait=wait) for tool in host.listed().tools]


class _Metadata(ToolMetadata):
    """The schema as it is; LlamaIndex would make it of a pydantic model, and refuses long descriptions."""

    parameters: dict[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.parameters

    @property
    def fn_schema_str(self) -> str:
        return json.dumps(self.parameters, ensure_ascii=False)

    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:
        return super().to_openai_tool(skip_length_check=True)


class _Tool(FunctionTool):
    """One tool of a workbench. A FunctionTool, since only these get the context of the run."""

    def __init__(self, host: Host, tool: Offered, *, wait: bool) -> None:
        metadata = _Metadata(tool.description, tool.name, None)
        metadata.parameters = tool.schema
        super().__init__(async_fn=self.acall, metadata=metadata)
        self.requires_context, self.ctx_param_name = True, _CONTEXT
        self._host = host
        self._wait = wait

    def call(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        return sync.run(self.acall(*args, **kwargs))

    async def acall(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        # A model may name any argument, and can write no Context.
        context = kwargs.pop(_CONTEXT) if isinstance(kwargs.get(_CONTEXT), WorkflowContext) else None
        name = self.metadata.get_name()
        arguments = by_name(self.metadata.get_parameters_dict().get("properties", {}), args, kwargs)
        result = await self._host.call(context, name, arguments)
        pending = result.pending
        if pending is not None and pending.kind == "approval" and self._wait and context is not None:
            # Raises what makes the workflow wait; then it runs this again from the first line.
            event = await context.wait_for_event(
                HumanResponseEvent,
                waiter_event=InputRequiredEvent(
                    prefix=pending.message, pending_id=pending.id, tool=pending.tool, arguments=pending.arguments
                ),
                waiter_id=pending.id,
                requirements={"pending_id": pending.id},
                timeout=None,
            )
            text = str(event.get("response", ""))
            answer = Approve() if text.strip().lower() in ("yes", "approve") else Deny(text)
            result = await self._host.call(context, name, arguments, answer=answer)
        return ToolOutput(
            tool_name=name,
            blocks=[_block(part) for part in result.content] or [TextBlock(text="")],
            raw_input=dict(arguments),
            raw_output=_serializable(result),
            is_error=result.shown().is_error,
        )


class _Result(Result[Any]):
    """A Result in the state of a workflow, which is saved as JSON."""

    __slots__ = ()
    __pydantic_serializer__ = SchemaSerializer(
        core_schema.any_schema(serialization=core_schema.plain_serializer_function_ser_schema(Result.to_dict))
    )


def _serializable(result: Result[Any]) -> Result[Any]:
    serializable = copy(result)
    serializable.__class__ = _Result
    return serializable


def _block(part: Any) -> Any:
    if isinstance(part, Image):
        return ImageBlock(image=part.data, image_mimetype=part.media_type)
    if isinstance(part, Audio):
        return AudioBlock(audio=part.data, format=part.media_type.partition("/")[2])
    if isinstance(part, File):
        return DocumentBlock(data=part.data, title=part.name or "file", document_mimetype=part.media_type)
    return TextBlock(text=part.text)


# In


def read(value: Any) -> list[CoreTool[..., Any]] | None:
    """Return the tools of *value*, a tool or a tool spec of LlamaIndex; None for anything else."""
    if isinstance(value, BaseToolSpec):
        return [_tool(tool) for tool in value.to_tool_list()]
    return [_tool(value)] if isinstance(value, BaseTool) else None


def _tool(theirs: BaseTool) -> CoreTool[..., Any]:
    name = theirs.metadata.get_name()
    is_async = isinstance(theirs, AsyncBaseTool) and (
        not isinstance(theirs, FunctionTool) or iscoroutinefunction(theirs.real_fn)
    )
    host_arguments = {}
    if isinstance(theirs, FunctionTool) and theirs.requires_context:
        host_arguments = {str(theirs.ctx_param_name): True}

    async def work(arguments: dict[str, Any], context: Context) -> Any:
        values = {**arguments, **injected(context, name, host_arguments)}
        try:
            if isinstance(theirs, AsyncBaseTool) and is_async:
                output = await theirs.acall(**values)
            else:
                output = await in_thread(lambda: theirs(**values))
        except ValidationError as error:
            raise ToolError(problems(name, error), "invalid_arguments") from None
        if output.is_error:
            raise ToolError(output.content or f"Tool '{name}' failed.")
        return _content_of(output)

    schema = {key: value for key, value in theirs.metadata.get_parameters_dict().items() if key != "title"}
    spec = ToolSpec(name, theirs.metadata.description, closed(schema))
    return tool_of(spec, work, at_deadline="cancelled" if is_async else "left_running")


def _content_of(output: ToolOutput) -> Any:
    """Return the value of *output*, or what a model is shown of it, where that has more than text."""
    if all(isinstance(block, TextBlock) for block in output.blocks):
        return output.content if isinstance(output.raw_output, Result) else output.raw_output
    return [_part(block) for block in output.blocks]


def _part(block: Any) -> Any:
    if isinstance(block, ImageBlock):
        return media_content(block.image_mimetype or "image/png", block.resolve_image().read())
    if isinstance(block, AudioBlock):
        return media_content(f"audio/{block.format or 'wav'}", block.resolve_audio().read())
    return getattr(block, "text", None) or str(block)
