"""Functions and the imports they need, as source code. No executor of code blocks is here: that is no tool layer's."""

from ._func_with_reqs import Alias, FunctionWithRequirements, Import, ImportFromModule, with_requirements

__all__ = ["Alias", "FunctionWithRequirements", "Import", "ImportFromModule", "with_requirements"]
