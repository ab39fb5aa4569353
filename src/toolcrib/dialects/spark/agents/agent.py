"""`spark.agents.agent`: Spark's agent, on the loop of `toolcrib.agent.Agent`.

Spark adds a memory of the conversation, traces of all calls, and errors as messages. Options of the configuration that
do not concern tools are refused, by name.
"""

import logging
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import TypedDict

from ....agent import Agent as CoreAgent
from ....agent import CallFinished, Outcome
from ....agent import ModelError as CoreModelError
from ....core import Call, Result
from ....formats import Choice, Reply, Turn
from ....workbench import Registry, Workbench
from ..models._messages import to_core_choice, to_message, turns_from
from ..models.base import EchoModel
from ..nodes import ExecutionContext, NodeMessage
from ..tools._core_tool import arguments_of, as_blocks
from ..tools.registry import ToolRegistry, core_tools
from ..tools.types import BaseTool, ToolSpec


class ToolTrace(TypedDict):
    """One call. Times are in seconds since the epoch.

    `input_params` are the model's arguments, or their text if it is not valid JSON. `output` is the tool's return
    value, or the message that the model received for a call that failed. `error` is None if the call did not fail.
    """

    tool_name: str
    tool_use_id: str
    input_params: Any
    output: Any
    start_time: float
    end_time: float
    duration_ms: float
    error: str | None


class AgentState(TypedDict):
    """A snapshot of an agent, made by `Agent.state`."""

    messages: list[dict[str, Any]]
    tool_traces: list[ToolTrace]
    last_result: Any
    last_error: str | None


Retention = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""A callable that returns those of all messages to keep."""


class MemoryPolicyType(StrEnum):
    """Keep nothing; the last messages; or those that a callable returns, with SUMMARIZE when there are too many."""

    NULL = "null"
    ROLLING_WINDOW = "rolling_window"
    SUMMARIZE = "summarize"
    CUSTOM = "custom"


class MemoryConfig(BaseModel):
    """How many messages are kept (`window`), or the `callable` that decides, for the policies CUSTOM and SUMMARIZE."""

    model_config = ConfigDict(extra="allow")

    policy: MemoryPolicyType = MemoryPolicyType.ROLLING_WINDOW
    window: int = Field(default=10, ge=0)
    summary_max_chars: int = Field(default=1000, ge=0)
    callable: Retention | None = None


class MemoryManager:
    """The messages of one conversation, `memory`."""

    def __init__(self, config: MemoryConfig | None = None, **kwargs: Any) -> None:
        config = config or MemoryConfig(**kwargs)
        self.policy = config.policy
        self.window = config.window
        self.callable = config.callable
        self.memory: list[dict[str, Any]] = []

    def add_message(self, message: dict[str, Any]) -> None:
        """Add *message*, and forget those that the policy does not keep. SUMMARIZE keeps a window, too."""
        if self.policy == MemoryPolicyType.NULL:
            return
        self.memory.append(message)
        is_full = len(self.memory) > self.window
        if self.callable is not None and self.policy in (MemoryPolicyType.CUSTOM, MemoryPolicyType.SUMMARIZE):
            if is_full or self.policy == MemoryPolicyType.CUSTOM:
                self.memory = self.callable(self.memory)
        elif is_full and self.policy != MemoryPolicyType.CUSTOM:
            del self.memory[: len(self.memory) - self.window]


_IGNORED = ("output_schema", "record_direct_tool_call")
_OFF = [("output_mode", "text")]


class AgentConfig(BaseModel):
    """The configuration of an agent.

    - `model`: a Model of `.models`, or any `toolcrib.agent.Model`.
    - `tools`: as for `ToolRegistry.process_tools`.
    - `tool_choice`: "auto"; "any" or a tool's name, which the model must call in its first turn; "none", which hides
      the tools; or the dictionaries `{"auto": {}}`, `{"any": {}}`, `{"tool": {"name": ...}}`.
    - `parallel_tool_execution`: whether the calls of one turn run in parallel.
    - `max_steps`: the rounds of calls after which the model is asked once more, and no further; 0 for no bound.
    - `preload_messages`: the beginning of the conversation.

    Raises ValueError (pydantic's) for options that contradict each other, and for those of Spark that are unsupported.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    model: Any
    name: str | None = None
    description: str | None = None
    system_prompt: str | None = None
    preload_messages: list[Any] = Field(default_factory=list)
    memory_config: MemoryConfig = Field(default_factory=MemoryConfig)
    tools: list[Any] = Field(default_factory=list)
    tool_choice: Any = "auto"
    max_steps: int = Field(default=100, ge=0)
    parallel_tool_execution: bool = False

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, fields: Any) -> Any:
        """Leave out what does not concern tools: a few names, and options that are off."""
        if not isinstance(fields, dict):
            return fields
        fields = {name: value for name, value in fields.items() if name in cls.model_fields or value}
        return {name: value for name, value in fields.items() if (name, value) not in _OFF and name not in _IGNORED}

    @field_validator("model")
    @classmethod
    def _require_model(cls, model: Any) -> Any:
        if isinstance(model, type) or not (callable(getattr(model, "reply", None)) and hasattr(model, "stream")):
            kind = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
            raise ValueError(
                f"model is a Model, such as OpenAIModel(model_id=...), not {kind}. For your own, subclass "
                "toolcrib.dialects.spark.models.base.Model."
            )
        return model

    @model_validator(mode="after")
    def validate_config(self) -> "AgentConfig":
        """Check that the options fit together."""
        if to_core_choice(self.tool_choice) == "any" and not self.tools:
            raise ValueError("tool_choice='any' makes the model call a tool, and there is none. Give tools=[...].")
        return self


logger = logging.getLogger(__name__)


class AgentError(Exception):
    """The base class of an agent's errors."""

    category = "unknown"


class ToolExecutionError(AgentError):
    """A call did not end."""

    category = "tool_execution"


class ModelError(AgentError):
    """The model gave no answer."""

    category = "model_call"


class ConfigurationError(AgentError):
    """The agent cannot do what it was asked to."""

    category = "configuration"


class Agent:
    """A model with tools, and the memory of one conversation.

    Takes an AgentConfig or its fields: `Agent(model=..., tools=[...])`. Without a model it echoes.
    """

    def __init__(self, config: AgentConfig | None = None, **kwargs: Any) -> None:
        if config is None:
            config = AgentConfig.model_validate({"model": EchoModel(), **kwargs})
        elif kwargs:
            raise TypeError(f"Put '{min(kwargs)}' into the AgentConfig: an agent takes that or its fields, not both.")
        self.config = config
        self.tool_registry = ToolRegistry()
        self.tool_registry.process_tools(config.tools)
        self.memory_manager = MemoryManager(config.memory_config)
        for message in config.preload_messages:
            self.add_message_to_history(to_message(message))
        self._traces: list[ToolTrace] = []
        self._last_result: NodeMessage | None = None
        self._last_error: str | None = None

    # Runs

    async def process(
        self, context: ExecutionContext[Any] | NodeMessage | dict[str, Any] | str | None = None, **state: Any
    ) -> NodeMessage:
        """Ask the model, execute the calls that it asks for, and return its answer.

        *context* has the inputs: text, `{"messages": [...]}`, content blocks or any JSON value; an ExecutionContext or
        a NodeMessage with one of these as content; None to continue the history. Tools find *state* in
        `ToolContext.invocation_state`, with this agent under `agent`.

        In the message, `content` is the text of the answer, `raw` the `toolcrib.agent.Outcome`, and `metadata` has the
        `status`, `why` it is not done, and the `usage`. If the model fails, `content` is a dictionary with `error`,
        `error_type`, `category` and `timestamp`. Raises ConfigurationError if there is no input.
        """
        messages = _messages_in(context)
        system, turns = turns_from([*self.messages, *messages])
        if not turns or isinstance(turns[-1], Reply):
            raise ConfigurationError('There is no input: agent.process("What time is it?").')
        for message in messages:
            self.memory_manager.add_message(message)
        if isinstance(context, ExecutionContext):
            context.metadata.mark_started(context.metadata.attempt)
        self._last_result = await self._run(turns, system, state)
        if isinstance(context, ExecutionContext):
            context.metadata.mark_finished()
            context.outputs = self._last_result
        return self._last_result

    async def run(self, arg: Any = None) -> NodeMessage:
        """Do the same as `process`, as graphs and programs call it."""
        return await self.process(arg)

    async def do(self, inputs: Any = None) -> NodeMessage:
        """Do the same as `process`, as other nodes call it."""
        return await self.process(inputs)

    async def _run(self, turns: list[Turn], system: str, state: dict[str, Any]) -> NodeMessage:
        config = self.config
        tools = {**self.tool_registry.dynamic_tools, **self.tool_registry.registry}
        choice = _tool_choice(config, tools)
        # Each run has its own workbench, because the variables are of this run.
        bench = Workbench(
            Registry(() if choice == "none" else core_tools(tools).values()),
            variables={**state, "agent": self},
            show_errors=True,
            max_result_chars=None,
        )
        agent = CoreAgent(
            config.model,
            bench,
            instructions="\n\n".join(filter(None, (config.system_prompt, system))),
            tool_choice=choice,
            parallel=config.parallel_tool_execution,
            max_steps=config.max_steps + 1 if config.max_steps else sys.maxsize,  # an answer after the last round
            max_errors=sys.maxsize,
        )
        outcome: Outcome | None = None
        try:
            async with bench:
                async for event in agent.stream(turns):
                    if isinstance(event, CallFinished):
                        self._trace(event.call, event.result)
                    elif isinstance(event, Outcome):
                        outcome = event
        except CoreModelError as error:
            failure = ModelError(str(error))
            failure.__cause__ = error
            return self.handle_model_error(failure)
        except Exception as error:
            logger.exception("agent '%s' failed", config.name or "unnamed")
            return self.handle_model_error(error)
        assert outcome is not None  # the last event
        return self._message(outcome)

    def _message(self, outcome: Outcome) -> NodeMessage:
        if outcome.status == "pending":
            return self.handle_model_error(ToolExecutionError(outcome.why))
        if outcome.text:
            self.add_message_to_history({"role": "assistant", "content": [{"text": outcome.text}]})
        metadata: dict[str, Any] = {"status": outcome.status, "usage": outcome.usage.to_dict()}
        if outcome.why:
            metadata["why"] = outcome.why
        return NodeMessage(content=outcome.text, raw=outcome, metadata=metadata)

    def handle_model_error(self, exc: Exception) -> NodeMessage:
        """Return the message for *exc*."""
        self._last_error = str(exc)
        content = {
            "error": str(exc),
            "error_type": type(exc).__name__,
            "category": exc.category if isinstance(exc, AgentError) else "unknown",
            "timestamp": time.time(),
        }
        return NodeMessage(type="json", content=content, raw=exc, metadata={"status": "failed"})

    # Memory

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the conversation in memory."""
        return self.memory_manager.memory

    def get_history(self) -> list[dict[str, Any]]:
        """Return a copy of the conversation: the users' messages and the answers, without the calls in between."""
        return list(self.messages)

    def clear_history(self) -> None:
        """Forget the conversation."""
        self.messages.clear()

    def add_message_to_history(self, message: dict[str, Any] | str) -> None:
        """Add a message; text is a user's."""
        self.memory_manager.add_message({"role": "user", "content": message} if isinstance(message, str) else message)

    def set_memory_policy(self, policy: MemoryPolicyType | Retention, memory_window: int | None = None) -> None:
        """Change what is kept from now on: a policy, or a callable that returns those of all messages to keep."""
        if isinstance(policy, str):
            self.memory_manager.policy = MemoryPolicyType(policy)
        else:
            self.memory_manager.policy, self.memory_manager.callable = MemoryPolicyType.CUSTOM, policy
        if memory_window is not None:
            self.memory_manager.window = memory_window

    # Traces

    def get_tool_traces(self) -> list[ToolTrace]:
        """Return all calls, in the order in which they ended."""
        return self._traces

    def get_last_tool_trace(self) -> ToolTrace | None:
        """Return the last call; None before the first."""
        return self._traces[-1] if self._traces else None

    def get_tool_traces_by_name(self, tool_name: str) -> list[ToolTrace]:
        """Return the calls of one tool."""
        return [trace for trace in self._traces if trace["tool_name"] == tool_name]

    def get_failed_tool_traces(self) -> list[ToolTrace]:
        """Return the calls that failed."""
        return [trace for trace in self._traces if trace["error"] is not None]

    def clear_tool_traces(self) -> None:
        """Forget the calls."""
        self._traces = []

    def _trace(self, call: Call, result: Result[Any]) -> None:
        error, start, end = result.error, result.started_at.timestamp(), result.finished_at.timestamp()
        self._traces.append(
            {
                "tool_name": call.tool,
                "tool_use_id": call.id,
                "input_params": arguments_of(call),
                "output": result.value if result.status == "success" else result.text,
                "start_time": start,
                "end_time": end,
                "duration_ms": (end - start) * 1000,
                "error": None if error is None else str(error.details.get("text") or error.message),
            }
        )

    # State

    @property
    def tool_specs(self) -> list[ToolSpec]:
        """Return the specs of the tools."""
        return self.tool_registry.get_all_tool_specs()

    @property
    def result(self) -> NodeMessage | None:
        """Return the last message that `process` returned."""
        return self._last_result

    @property
    def outputs(self) -> NodeMessage:
        """Return the last message that `process` returned; an empty one before the first."""
        return self._last_result or NodeMessage()

    @property
    def state(self) -> AgentState:
        """Return the conversation, the traces, and the last result and error."""
        return {
            "messages": self.get_history(),
            "tool_traces": self._traces,
            "last_result": self._last_result,
            "last_error": self._last_error,
        }

    def __repr__(self) -> str:
        return f"<Agent {self.config.name or 'unnamed'} of {self.config.model.name}>"


def _tool_choice(config: AgentConfig, tools: dict[str, BaseTool]) -> Choice:
    choice = to_core_choice(config.tool_choice)
    if choice in ("auto", "any", "none") or choice in tools:
        return choice
    names = ", ".join(tools) or "none"
    logger.warning("tool_choice '%s' is not a tool of this agent, so 'auto' is used. Its tools: %s", choice, names)
    return "auto"


def _messages_in(context: Any) -> list[dict[str, Any]]:
    """Return the messages in the argument of `process`."""
    inputs = context.inputs if isinstance(context, ExecutionContext) else context
    content = inputs.content if isinstance(inputs, NodeMessage) else inputs
    if isinstance(content, dict) and isinstance(content.get("messages"), list):
        return [to_message(message) for message in content["messages"] if message]
    blocks = as_blocks(content)
    return [{"role": "user", "content": blocks}] if blocks else []
