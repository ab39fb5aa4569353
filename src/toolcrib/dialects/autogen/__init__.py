"""AutoGen's tool layer (`autogen_core`) on the core: the same names, shapes and errors.

The phrase book is in docs/dialects/autogen.md.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ._cancellation_token import CancellationToken
from ._component_config import (
    Component,
    ComponentBase,
    ComponentFromConfig,
    ComponentLoader,
    ComponentModel,
    ComponentSchemaType,
    ComponentToConfig,
    ComponentType,
    is_component_class,
    is_component_instance,
)
from ._image import Image
from ._trust import UntrustedError, allow_source_code, trust_namespaces
from .models import FunctionCall

__all__ = [
    "EVENT_LOGGER_NAME",
    "ROOT_LOGGER_NAME",
    "TRACE_LOGGER_NAME",
    "CancellationToken",
    "Component",
    "ComponentBase",
    "ComponentFromConfig",
    "ComponentLoader",
    "ComponentModel",
    "ComponentSchemaType",
    "ComponentToConfig",
    "ComponentType",
    "FunctionCall",
    "Image",
    "UntrustedError",
    "allow_source_code",
    "is_component_class",
    "is_component_instance",
    "trace_tool_span",
    "trust_namespaces",
]

# The loggers to which programs attach handlers. The dialect logs to `toolcrib`.
ROOT_LOGGER_NAME = "autogen_core"
EVENT_LOGGER_NAME = "autogen_core.events"
TRACE_LOGGER_NAME = "autogen_core.trace"


@contextmanager
def trace_tool_span(tool_name: str, **attributes: Any) -> Generator[None]:
    """Do nothing: Toolcrib opens a span around each call itself. Tools such as those of autogen-ext open one, too."""
    yield
