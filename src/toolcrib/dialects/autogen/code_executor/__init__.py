"""Functions and the imports they need, as source code; and the interface of executors, of which there is none here."""

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
