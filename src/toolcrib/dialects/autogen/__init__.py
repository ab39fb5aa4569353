"""AutoGen's tool layer (`autogen_core`) on the core: the same names, shapes and errors.

The phrase book is in docs/dialects/autogen.md.
"""

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
from ._constants import EVENT_LOGGER_NAME, ROOT_LOGGER_NAME, TRACE_LOGGER_NAME
from ._image import Image
from ._telemetry import trace_tool_span
from ._trust import UntrustedError, allow_source_code, trust_namespaces
from ._types import FunctionCall

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
