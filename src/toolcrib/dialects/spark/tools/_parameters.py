"""The shapes of a tool's parameters that are models of pydantic. They are names of `.types`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict


class ToolArgsConfig(BaseModel):
    """Free keys and values, which are read as attributes."""

    model_config = ConfigDict(extra="allow")


class ParametersSpec(TypedDict):
    """The parameters of a tool."""

    type: Literal["object"]
    properties: dict[str, ToolArgsConfig]
    required: list[str]
