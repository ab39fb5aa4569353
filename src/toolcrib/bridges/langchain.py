"""LangChain and LangGraph: a workbench as tools, and LangChain's tools and toolkits as sources."""

import json
import threading
from base64 import b64decode
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import (
    BaseTool,
    BaseToolkit,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    ToolException,
)
from langchain_core.tools import Tool as SimpleTool
from pydantic import PrivateAttr, ValidationError

from ..core import Approve, Audio, Context, DefinitionError, Deny, File, Image, Pending, Result, ToolError, ToolSpec
from ..formats import Offered, media_content
from ..machinery import in_thread
from ..tools import Tool as CoreTool
from ..workbench import Crib, Workbench, sync
from .foreign import closed, hints_of, injected, problems, tool_of
from .host import AnsweredCalls, CallerOf, Host, Report, metadata

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware

_CHECKPOINTER, _SCRATCHPAD, _TASK = "__pregel_checkpointer", "__pregel_scratchpad", "__pregel_task_id"
_RUNTIME = "__pregel_runtime"
_asking = threading.Lock()  # the sync calls of a node are in threads

# Out


def tools(tools: Workbench | Crib, *, caller: CallerOf | None = None) -> list[BaseTool]:
    """Return *tools* for LangChain and LangGraph: `create_agent(model, tools=tools(bench))`.

    Of a crib, *caller* gives the caller of a run by its RunnableConfig:
    `caller=lambda config: Caller(config["configurable"]["user"])`. In a graph with a checkpointer, a call that waits
    for an approval interrupts; `Command(resume=True)` approves it, `False` or a text denies it, and the decisions of
    LangChain's own requests do either. Elsewhere the model is told that it waits. What tools report is in the custom
    stream of the graph. The list has the tools that there are now: start a workbench first where its sources connect to
    something. An agent of `create_agent` follows changes with `middleware` in place of it.
    """
    host = Host(tools, caller)
    return _made(host, host.listed().tools, AnsweredCalls())


def middleware(tools: Workbench | Crib, *, caller: CallerOf | None = None) -> "AgentMiddleware[Any, Any, Any]":
    """Return *tools* for an agent that follows their changes: `create_agent(model, middleware=[middleware(bench)])`.

    At each step, a model is offered the tools that the caller of the run has then, beside those of the agent. The rest
    is as in `tools`.
    """
    from .langchain_agent import Offering

    host, results = Host(tools, caller), AnsweredCalls()

    async def listed(config: RunnableConfig) -> list[BaseTool]:
        return _made(host, await host.shown(config), results)

    return Offering(listed)


def _made(host: Host, offered: Iterable[Offered], results: AnsweredCalls) -> list[BaseTool]:
    tools: list[BaseTool] = []
    for tool in offered:
        ours = _WorkbenchTool(
            name=tool.name,
            description=tool.description,
            args_schema=tool.schema,
            metadata={"toolcrib": tool.spec.to_dict()},
        )
        ours._host, ours._results = host, results
        tools.append(ours)
    return tools


class _WorkbenchTool(BaseTool):
    """One tool of a workbench. Its check is ours: a schema that is data is not validated here."""

    _host: Host = PrivateAttr()
    _results: AnsweredCalls = PrivateAttr()

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {"arguments": tool_input, "call_id": tool_call_id}

    def _run(self, arguments: Any, call_id: str | None, config: RunnableConfig) -> Any:
        result = self._results.get((_task(config), call_id or ""))
        if result is None:
            result = sync.run(self._host.call(config, self.name, arguments, call_id, report=_writer(config)))
        if result.pending is not None and _waits(result, config):
            checkpointer, checkpoint = _checkpoint_of(config)
            answer = _answer_to(result.pending, checkpointer.get_tuple(checkpoint), config, call_id)
            result = sync.run(
                self._host.call(config, self.name, arguments, call_id, answer=answer, report=_writer(config))
            )
            sync.run(self._keep(result, config, call_id))
        return self._message(result, call_id)

    async def _arun(self, arguments: Any, call_id: str | None, config: RunnableConfig) -> Any:
        result = self._results.get((_task(config), call_id or ""))
        if result is None:
            result = await self._host.call(config, self.name, arguments, call_id, report=_writer(config))
        if result.pending is not None and _waits(result, config):
            checkpointer, checkpoint = _checkpoint_of(config)
            answer = _answer_to(result.pending, await checkpointer.aget_tuple(checkpoint), config, call_id)
            result = await self._host.call(config, self.name, arguments, call_id, answer=answer, report=_writer(config))
            await self._keep(result, config, call_id)
        return self._message(result, call_id)

    async def _keep(self, result: Result[Any], config: RunnableConfig, call_id: str | None) -> None:
        if call_id and result.pending is None:
            bench = await self._host.bench(config)
            self._results.put((_task(config), call_id), result, bench.caller.principal)

    def _message(self, result: Result[Any], call_id: str | None) -> Any:
        view = result.shown()
        content: Any = [_block(part) for part in result.content] if view.media else view.text
        if call_id is None:
            return content
        return ToolMessage(
            content,
            artifact=result,
            tool_call_id=call_id,
            name=self.name,
            status="error" if view.is_error else "success",
            response_metadata={"toolcrib": dict(metadata(result))},
        )


def _writer(config: RunnableConfig) -> Report | None:
    """Return what writes to the custom stream of the graph, if *config* is of one."""
    return getattr(config.get("configurable", {}).get(_RUNTIME), "stream_writer", None)


def _block(part: Any) -> dict[str, Any]:
    if isinstance(part, Image | Audio | File):
        kind = {Image: "image", Audio: "audio"}.get(type(part), "file")
        return {"type": kind, "base64": part.base64, "mime_type": part.media_type}
    return {"type": "text", "text": part.text}


# A person's answer to a call that waits in a graph: for the call that they were shown, and for no other.
#
# LangGraph runs a node again from its first line with each answer, and hands the answers out in the order in which it
# is asked for them: of several calls in one node, another would get the answer, and one that is done would run again.
# So an answer is for the call in the interrupt that the checkpoint has, and the result of a call that was answered is
# kept.


def _waits(result: Result[Any], config: RunnableConfig) -> bool:
    """Check whether *result* waits for an approval in a graph that can wait for it."""
    conf = config.get("configurable", {})
    in_graph = conf.get(_CHECKPOINTER) is not None and conf.get(_SCRATCHPAD) is not None
    return in_graph and result.pending is not None and result.pending.kind == "approval"


def _checkpoint_of(config: RunnableConfig) -> tuple[Any, RunnableConfig]:
    """Return the checkpointer, and the config of the checkpoint at which the running task began."""
    conf: Mapping[str, Any] = config.get("configurable", {})
    namespace = str(conf.get("checkpoint_ns", "")).rpartition("|")[0]
    at = {"thread_id": conf["thread_id"], "checkpoint_ns": namespace}
    return conf[_CHECKPOINTER], {"configurable": at | {"checkpoint_id": conf["checkpoint_map"].get(namespace)}}


def _answer_to(pending: Pending, saved: Any, config: RunnableConfig, call_id: str | None) -> Approve | Deny:
    """Return the answer to *pending*, by the checkpoint *saved*. Raises the interrupt where there is none yet."""
    from langgraph.errors import GraphInterrupt
    from langgraph.types import interrupt

    scratchpad = config.get("configurable", {})[_SCRATCHPAD]
    call = {"call_id": call_id, "digest": pending.digest}
    with _asking:
        for place in _places(call, saved, config):
            answers = scratchpad.resume[place:] or [scratchpad.get_null_resume(False)]
            if place <= len(scratchpad.resume) and answers[0] is not None:
                return _answer(answers[0], pending.tool)
        while True:  # past the answers to others
            place = len(scratchpad.resume)
            try:
                interrupt({"type": "approval", **_request(pending), **pending.to_dict(), **call, "place": place})
            except GraphInterrupt:
                if place == len(scratchpad.resume):
                    raise


def _places(call: Mapping[str, Any], saved: Any, config: RunnableConfig) -> Iterator[int]:
    """Yield where the answers to the interrupts for *call* stand, by the checkpoint *saved*."""
    for task, channel, value in saved.pending_writes or () if saved is not None else ():
        question = value[-1].value if task == _task(config) and channel == "__interrupt__" and value else None
        if isinstance(question, Mapping) and call.items() <= question.items():
            yield question["place"]


def _request(pending: Pending) -> dict[str, Any]:
    """Return the request as LangChain's own middleware has it, for programs that show these."""
    action = {"name": pending.tool, "args": json.loads(pending.arguments), "description": pending.message}
    review = {"action_name": pending.tool, "allowed_decisions": ["approve", "edit", "reject"]}
    return {"action_requests": [action], "review_configs": [review]}


def _answer(answer: Any, tool: str) -> Approve | Deny:
    match answer:
        case {"decisions": [Mapping() as decision]}:
            return _answer(decision, tool)
        case {"decisions": [_]}:
            return Deny("A decision is an object with a type.")
        case {"decisions": [*decisions]}:
            return Deny(f"{len(decisions)} decisions, and one call.")
        case True | "approve" | {"type": "approve"}:
            return Approve()
        case {"type": "edit", **edit}:
            return _edit(edit.get("edited_action"), tool)
        case str(reason) | {"message": str(reason)}:
            return Deny(reason)
        case _:
            return Deny()


def _edit(action: Any, tool: str) -> Approve | Deny:
    """Return the approval with the arguments of *action*: of the same tool, since a person was asked about no other."""
    name, arguments = (action.get("name"), action.get("args")) if isinstance(action, Mapping) else (None, None)
    if name != tool:
        return Deny(f"The edit is for '{str(name)[:100]}', and the call that waits is of '{tool}'.")
    return Approve(arguments) if isinstance(arguments, Mapping) else Deny("The edited action has no object of args.")


def _task(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get(_TASK, ""))


# In


def read(value: Any) -> list[CoreTool[..., Any]] | None:
    """Return the tools of *value*, a tool or a toolkit of LangChain; None for anything else."""
    if isinstance(value, BaseToolkit):
        return [_tool(tool) for tool in value.get_tools()]
    return [_tool(value)] if isinstance(value, BaseTool) else None


def _tool(theirs: BaseTool) -> CoreTool[..., Any]:
    """Return *theirs* as a tool of ours, with the schema that a model sees: what is injected is not in it."""
    model: Any = theirs.tool_call_schema
    schema: dict[str, Any] = dict(model) if isinstance(model, Mapping) else model.model_json_schema()
    host_arguments = _injected(theirs, schema)
    if (inside := _injected_inside(theirs.get_input_schema())) is not None:
        raise DefinitionError(
            f"Tool '{theirs.name}' has the injected argument '{inside}' inside another, where LangChain lets a model "
            "set it. Make it an argument of the tool."
        )
    is_async = _is_async(theirs)
    takes_call_id = any(map(_is_call_id, _fields(theirs.get_input_schema()).values()))

    async def work(arguments: dict[str, Any], context: Context) -> Any:
        values = {**arguments, **injected(context, theirs.name, host_arguments)}
        try:
            # Without a call's id it returns its value, and not a message with the value as text.
            call_id = context.call.id if takes_call_id else None
            options: Any = {"tool_call_id": call_id, "config": {"metadata": {"call_id": context.call.id}}}
            # A thread of ours, since SystemExit from one of LangChain's ends the event loop.
            value = await (
                theirs.arun(values, **options) if is_async else in_thread(partial(theirs.run, values, **options))
            )
        except ToolException as error:
            raise ToolError(str(error) or f"Tool '{theirs.name}' failed.") from error
        except ValidationError as error:
            raise ToolError(problems(theirs.name, error), "invalid_arguments") from None
        return _content_of(theirs.name, value)

    hints, tags = hints_of(theirs.metadata), frozenset(theirs.tags or ())  # where adapters of MCP have annotations
    spec = ToolSpec(theirs.name, theirs.description, closed(schema), hints=hints, tags=tags)
    return tool_of(spec, work, at_deadline="cancelled" if is_async else "left_running")


def _is_async(theirs: BaseTool) -> bool:
    if isinstance(theirs, SimpleTool | StructuredTool):
        return theirs.coroutine is not None
    return type(theirs)._arun is not BaseTool._arun


def _injected(theirs: BaseTool, schema: Mapping[str, Any]) -> dict[str, bool]:
    """Return the parameters that a model does not see, by name, and whether they have to be given."""
    fields = {} if isinstance(theirs.args_schema, dict) else _fields(theirs.get_input_schema())
    properties = schema.get("properties", {})
    parameters = {
        name: field.is_required()
        for name, field in fields.items()
        if name not in properties and field.alias not in properties and not _is_call_id(field)
    }
    return parameters | dict.fromkeys(theirs._injected_args_keys - parameters.keys() - fields.keys(), True)


def _injected_inside(model: Any) -> str | None:
    """Return the name of an injected parameter in a model that a parameter of *model* takes, at any depth."""
    models, annotations = {model}, [field.annotation for field in _fields(model).values()]
    while annotations:
        kind = annotations.pop()
        annotations += get_args(kind)
        if isinstance(kind, Hashable) and kind not in models and (fields := _fields(kind)):
            models.add(kind)
            for name, field in fields.items():
                if any(mark is InjectedToolArg or isinstance(mark, InjectedToolArg) for mark in field.metadata):
                    return name
                annotations.append(field.annotation)
    return None


def _fields(model: Any) -> Mapping[str, Any]:
    return getattr(model, "model_fields", {}) if isinstance(model, type) else {}


def _is_call_id(field: Any) -> bool:
    return any(mark is InjectedToolCallId or isinstance(mark, InjectedToolCallId) for mark in field.metadata)


def _content_of(name: str, value: Any) -> Any:
    """Return the result of a LangChain tool as a tool of ours returns it."""
    if isinstance(value, ToolMessage):
        if value.status == "error":
            raise ToolError(value.text or f"Tool '{name}' failed.")
        return _content_of(name, value.content)
    if isinstance(value, list) and value and all(isinstance(block, dict) and "type" in block for block in value):
        return [_part(block) for block in value]
    return value


def _part(block: dict[str, Any]) -> Any:
    if block["type"] == "text" and isinstance(block.get("text"), str):
        return block["text"]
    try:
        # As LangChain has blocks of its older versions, and of providers: data in base64 are not text to read.
        media: Any = ToolMessage([block], tool_call_id="").content_blocks[0]
        data = b64decode(media["base64"], validate=True)
    except Exception:
        return block
    return media_content(str(media.get("mime_type") or "application/octet-stream"), data)
