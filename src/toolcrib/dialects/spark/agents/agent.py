"""`spark.agents.agent`: Spark's agent over `toolcrib.agent.Agent`, which has the loop.

Here is what Spark adds to it: a memory of what was said, traces of all calls, and errors as messages.
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ....agent import Agent as CoreAgent
from ....agent import ModelError as CoreModelError
from ....agent import Outcome
from ....core import Call, Result
from ....formats import Choice, Reply, Turn
from ....tools import Tool
from ....workbench import Registry, Workbench
from ..models import _turns
from ..models.echo import EchoModel
from ..nodes.types import ExecutionContext, NodeMessage
from ..tools import _content
from ..tools.registry import ToolRegistry
from ..tools.types import ToolSpec
from ._steps import Steps
from .config import AgentConfig
from .memory import Forget, MemoryManager, MemoryPolicyType
from .types import AgentState, ToolTrace

logger = logging.getLogger(__name__)

_NO_BOUND = sys.maxsize


class AgentError(Exception):
    """What an agent could not do."""


class ToolExecutionError(AgentError):
    """A call did not come to its end."""


class ModelError(AgentError):
    """The model gave no answer."""


class ConfigurationError(AgentError):
    """The agent was asked for what cannot be."""


_CATEGORIES: Mapping[type[Exception], str] = {
    ToolExecutionError: "tool_execution",
    ModelError: "model_call",
    ConfigurationError: "configuration",
}


class Agent:
    """A model with tools, and the memory of one conversation.

    Made of an AgentConfig, or of its fields: `Agent(model=..., tools=[...])`; without a model it echoes.
    """

    def __init__(self, config: AgentConfig | None = None, **kwargs: Any) -> None:
        if config is None:
            config = AgentConfig.model_validate({"model": EchoModel(), **kwargs})
        elif kwargs:
            raise TypeError(f"Put '{min(kwargs)}' into the AgentConfig: an agent is made of that or of its fields.")
        self.config = config
        self.tool_registry = ToolRegistry()
        self.tool_registry.process_tools(config.tools)
        self.memory_manager = MemoryManager(config.memory_config)
        for message in config.preload_messages:
            self.add_message_to_history(_turns.message_of(message))
        self._traces: list[ToolTrace] = []
        self._last_result: NodeMessage | None = None
        self._last_error: str | None = None

    # Runs

    async def process(
        self, context: ExecutionContext[Any] | NodeMessage | dict[str, Any] | str | None = None, **state: Any
    ) -> NodeMessage:
        """Ask the model, make the calls that it asks for, and give its answer.

        *context* has the inputs: text, `{"messages": [...]}`, content blocks, or any JSON value; an ExecutionContext or
        a NodeMessage with one of these as content; nothing, to go on with the history. *state* is what tools find in
        `ToolContext.invocation_state`, beside this agent under `agent`.

        Of the message that it gives, `content` is the answer's text, `raw` the `toolcrib.agent.Outcome`, and `metadata`
        says the `status`, `why` it is not done, and the `usage`. Where the model fails, `content` is a dictionary:
        `error`, `error_type`, `category`, `timestamp`. Raises ConfigurationError where there is nothing to say.
        """
        said = _said(context)
        system, turns = _turns.turns_of([*self.messages, *said])
        if not turns or isinstance(turns[-1], Reply):
            raise ConfigurationError('There is nothing to say: agent.process("What time is it?").')
        for message in said:
            self.memory_manager.add_message(message)
        if isinstance(context, ExecutionContext):
            context.metadata.mark_started(context.metadata.attempt)
        result = await self._run(turns, system, state)
        if isinstance(context, ExecutionContext):
            context.metadata.mark_finished()
            context.outputs = result
        self._last_result = result
        return result

    async def _run(self, turns: Sequence[Turn], system: str, state: dict[str, Any]) -> NodeMessage:
        choice = self._choice()
        tools = [] if choice == "none" else self._tools()
        # A workbench of its own for each run: what tools are handed is this run's.
        bench = Workbench(
            Registry(tools),
            variables={**state, "agent": self},
            show_errors=True,
            max_result_chars=None,
        )
        steps = Steps(self.config.model, self.config.max_steps, self._trace, begun=len(turns))
        agent = CoreAgent(
            steps,
            bench,
            instructions="\n\n".join(filter(None, (self.config.system_prompt, system))),
            tool_choice=choice,
            parallel=self.config.parallel_tool_execution,
            max_steps=_NO_BOUND,  # Steps counts, as Spark does: rounds of calls
            max_errors=_NO_BOUND,
        )
        try:
            async with bench:
                outcome = await agent.run(turns)
        except CoreModelError as error:
            failed = ModelError(str(error))
            failed.__cause__ = error
            return self.handle_model_error(failed)
        except Exception as error:
            logger.exception("agent '%s' failed", self.config.name or "unnamed")
            return self.handle_model_error(error)
        steps.told(outcome.turns)
        return self._answer(outcome, steps)

    def _answer(self, outcome: Outcome, steps: Steps) -> NodeMessage:
        if outcome.status == "pending":
            return self.handle_model_error(ToolExecutionError(outcome.why))
        status, why = ("stopped", steps.why) if steps.why else (outcome.status, outcome.why)
        if outcome.text:
            self.add_message_to_history({"role": "assistant", "content": [{"text": outcome.text}]})
        usage = outcome.usage
        metadata: dict[str, Any] = {
            "status": status,
            **({"why": why} if why else {}),
            "usage": {"input": usage.input, "output": usage.output, "cached": usage.cached},
        }
        return NodeMessage(content=outcome.text, raw=outcome, metadata=metadata)

    def _choice(self) -> Choice:
        """What the configuration says, as far as it can be held."""
        choice = _turns.our_choice(self.config.tool_choice)
        known = {**self.tool_registry.dynamic_tools, **self.tool_registry.registry}
        if choice in ("auto", "any", "none") or choice in known:
            return choice
        names = ", ".join(known) or "none"
        logger.warning("tool_choice '%s' is no tool of this agent, so it is 'auto'. The tools are: %s", choice, names)
        return "auto"

    def _tools(self) -> list[Tool[..., Any]]:
        """The registry's tools as they are now, each under the name by which it is registered."""
        registry = self.tool_registry
        made: list[Tool[..., Any]] = []
        for name, tool in {**registry.dynamic_tools, **registry.registry}.items():
            ours = tool.__toolcrib__()
            made.append(ours if ours.spec.name == name else ours.named(name))
        return made

    def handle_model_error(self, exc: Exception) -> NodeMessage:
        """*exc* as a message."""
        self._last_error = str(exc)
        content = {
            "error": str(exc),
            "error_type": type(exc).__name__,
            "category": next((name for kind, name in _CATEGORIES.items() if isinstance(exc, kind)), "unknown"),
            "timestamp": time.time(),
        }
        return NodeMessage(type="json", content=content, raw=exc, metadata={"status": "failed"})

    # Memory

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as it is kept."""
        return self.memory_manager.memory

    def get_history(self) -> list[dict[str, Any]]:
        """A copy of the conversation: what users said and what was answered, without the calls between."""
        return list(self.memory_manager.memory)

    def clear_history(self) -> None:
        """Forget the conversation."""
        self.memory_manager.memory.clear()

    def add_message_to_history(self, message: dict[str, Any] | str) -> None:
        """Add a message; text is a user's."""
        self.memory_manager.add_message({"role": "user", "content": message} if isinstance(message, str) else message)

    def set_memory_policy(self, policy: MemoryPolicyType | Forget, memory_window: int | None = None) -> None:
        """What is kept from now on: a policy, or a callable that is given all messages and gives those to keep."""
        if isinstance(policy, str):
            self.memory_manager.policy = MemoryPolicyType(policy)
        else:
            self.memory_manager.policy, self.memory_manager.callable = MemoryPolicyType.CUSTOM, policy
        if memory_window is not None:
            self.memory_manager.window = memory_window

    # Traces

    def get_tool_traces(self) -> list[ToolTrace]:
        """All calls, in the order in which the model asked for them."""
        return self._traces

    def get_last_tool_trace(self) -> ToolTrace | None:
        """The last call; None before the first."""
        return self._traces[-1] if self._traces else None

    def get_tool_traces_by_name(self, tool_name: str) -> list[ToolTrace]:
        """The calls of one tool."""
        return [trace for trace in self._traces if trace["tool_name"] == tool_name]

    def get_failed_tool_traces(self) -> list[ToolTrace]:
        """The calls that failed."""
        return [trace for trace in self._traces if trace["error"] is not None]

    def clear_tool_traces(self) -> None:
        """Forget the calls."""
        self._traces = []

    def _trace(self, call: Call, result: Result[Any]) -> None:
        error = result.error
        self._traces.append(
            {
                "tool_name": call.tool,
                "tool_use_id": call.id,
                "input_params": _turns.arguments_of(call),
                "output": result.value if result.status == "success" else result.text,
                "start_time": result.started_s,
                "end_time": result.finished_s,
                "duration_ms": (result.finished_s - result.started_s) * 1000,
                "error": None if error is None else str(error.details.get("text") or error.message),
            }
        )

    # What there is

    @property
    def tool_specs(self) -> list[ToolSpec]:
        """What the tools promise."""
        return self.tool_registry.get_all_tool_specs()

    @property
    def result(self) -> NodeMessage | None:
        """What `process` gave last."""
        return self._last_result

    @property
    def state(self) -> AgentState:
        """What the agent remembers."""
        return {
            "messages": self.get_history(),
            "tool_traces": self._traces,
            "last_result": self._last_result,
            "last_error": self._last_error,
        }

    def __repr__(self) -> str:
        return f"<Agent {self.config.name or 'unnamed'} of {self.config.model.name}>"


def _said(context: Any) -> list[dict[str, Any]]:
    """The messages in what `process` was given."""
    inputs = context.inputs if isinstance(context, ExecutionContext) else context
    content = inputs.content if isinstance(inputs, NodeMessage) else inputs
    if isinstance(content, dict) and isinstance(content.get("messages"), list):
        return [_turns.message_of(message) for message in content["messages"] if message]
    blocks = _content.blocks_of(content)
    return [{"role": "user", "content": blocks}] if blocks else []
