"""Functions and the imports they need, as source code, and the interface of code executors. It has no executor."""

from ._base import CodeBlock, CodeExecutor, CodeResult
from ._func_with_reqs import Alias, FunctionWithRequirements, Import, ImportFromModule, with_requirements

__all__ = [
    "Alias",
    "CodeBlock",
    "CodeExecutor",
    "CodeResult",
    "FunctionWithRequirements",
    "Import",
    "ImportFromModule",
    "with_requirements",
]
