"""`spark.agents.config`: what an agent is made of. What has nothing to do with tools is refused, by name."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..models._turns import our_choice
from .memory import MemoryConfig

_LEFT_OUT = {
    "prompt_template": "Render the prompt yourself, and pass it to process().",
    "output_mode": "Its answers are text.",
    "hooks": "Wrap the model instead: subclass Model.",
    "before_llm_hooks": "Wrap the model instead: subclass Model, and change what get_text is given.",
    "after_llm_hooks": "Wrap the model instead: subclass Model, and change what get_text gives.",
    "reasoning_strategy": "Say it in system_prompt.",
    "budget": "Count in a subclass of Model.",
    "human_policy": "Use toolcrib.agent.Agent with Workbench(policy=...), which asks before a call.",
    "policy_set": "Use toolcrib.agent.Agent with Workbench(policy=...), which allows, asks or denies.",
}
_WITHOUT_EFFECT = ("output_schema", "record_direct_tool_call")


class AgentConfig(BaseModel):
    """What an agent is made of.

    - `model`: a Model of `.models`, or any `toolcrib.agent.Model`.
    - `tools`: what `ToolRegistry.process_tools` takes.
    - `tool_choice`: "auto"; "any" or a tool's name: the model must call something, or this, in its first turn; "none":
      it sees no tools; or the dictionaries `{"auto": {}}`, `{"any": {}}`, `{"tool": {"name": ...}}`.
    - `parallel_tool_execution`: whether the calls of one turn run side by side.
    - `max_steps`: after how many rounds of calls the model has to answer without tools; 0 for no bound.
    - `preload_messages`: a conversation to begin with.

    Raises ValueError (pydantic's) for what does not fit together, and for parts of Spark that are not here.
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
    def _refuse_left_out(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        for name in _LEFT_OUT.keys() & given.keys():
            if given[name] and (name, given[name]) != ("output_mode", "text"):
                raise ValueError(f"'{name}' is no part of this dialect, which has an agent's tools. {_LEFT_OUT[name]}")
        return {name: value for name, value in given.items() if name not in (*_LEFT_OUT, *_WITHOUT_EFFECT)}

    @field_validator("model")
    @classmethod
    def _require_model(cls, model: Any) -> Any:
        if isinstance(model, type) or not (callable(getattr(model, "reply", None)) and hasattr(model, "stream")):
            kind = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
            raise ValueError(
                f"model is a Model, as OpenAIModel(model_id=...), not {kind}. For one of your own, subclass "
                "toolcrib.dialects.spark.models.base.Model."
            )
        return model

    @model_validator(mode="after")
    def validate_config(self) -> "AgentConfig":
        """Make sure that the parts fit together."""
        if our_choice(self.tool_choice) == "any" and not self.tools:
            raise ValueError("tool_choice='any' makes the model call a tool, and there is none. Give tools=[...].")
        return self
