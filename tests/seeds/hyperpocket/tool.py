"""The class of hyperpocket's document "Tool" (001)."""

# The text is the document's, so it is not formatted.
# ruff: noqa: E501, I001, UP035, UP045
# fmt: off

import abc
from typing import Callable, Optional
from pydantic import BaseModel, Field
from toolcrib.dialects.hyperpocket.tool import ToolAuth


class Tool(BaseModel, abc.ABC):
    name: str = Field(description="tool name")
    description: str = Field(description="tool description")
    argument_json_schema: Optional[dict] = Field(default=None, description="tool argument json schema")
    auth: Optional[ToolAuth] = Field(default=None, description="authentication information to invoke tool")
    postprocessings: Optional[list[Callable]] = Field(default=None, description="postprocessing functions after tool is invoked")
    default_tool_vars: dict[str, str] = Field(default_factory=dict, description="default tool variables")
    overridden_tool_vars: dict[str, str] = Field(default_factory=dict, description="overridden tool variables")
