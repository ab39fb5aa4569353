"""Functions and the imports they need, as source code. There is no executor of code blocks here."""

from ._func_with_reqs import Alias, FunctionWithRequirements, Import, ImportFromModule, with_requirements

__all__ = ["Alias", "FunctionWithRequirements", "Import", "ImportFromModule", "with_requirements"]
