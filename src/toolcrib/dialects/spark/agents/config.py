"""`spark.agents.config`: the configuration of an agent. Options that do not concern tools are refused, by name."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..models._messages import to_core_choice
from .memory import MemoryConfig

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
