"""`spark.nodes`: the inputs and outputs of an agent."""

from .types import ExecutionContext, ExecutionMetadata, NodeMessage

__all__ = ["ExecutionContext", "ExecutionMetadata", "NodeMessage"]
