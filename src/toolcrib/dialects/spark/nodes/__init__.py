"""`spark.nodes`, as far as an agent needs it: what goes in and what comes out."""

from .types import ExecutionContext, ExecutionMetadata, NodeMessage

__all__ = ["ExecutionContext", "ExecutionMetadata", "NodeMessage"]
