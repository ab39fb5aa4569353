"""Imports from a folder of another author: compiled from the source, which is what a person has read and a hash holds.

Bytecode beside it (`__pycache__`, `.pyc`) is neither read nor written: it may be of another source. As a script, this
file runs the program that its argument names, in the interpreter of any environment: standard library only.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

SUFFIXES = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)


class SourceLoader(SourceFileLoader):
    """Compiles a module from its source, each time."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _SourceFinder(FileFinder):
    """Finds the modules in a folder, and in the packages in it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceLoader, SOURCE_SUFFIXES))

    def find_spec(self, fullname: str, target: Any = None) -> Any:
        spec = super().find_spec(fullname, target)
        for folder in (spec and spec.submodule_search_locations) or ():
            compile_imports_from(folder)
        return spec


def compile_imports_from(folder: str) -> None:
    """Let what is imported from *folder*, as it is in `sys.path`, be compiled from its source from now on."""
    sys.path_importer_cache[folder] = _SourceFinder(folder)


def _run(program: str) -> None:
    sys.argv = [program]
    sys.path[0] = os.path.dirname(program)  # noqa: PTH120 - nothing is imported that the program may not need
    compile_imports_from(sys.path[0])
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = program
    with open(program, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), program, "exec")
    exec(code, main.__dict__)  # noqa: S102 - what it is for


if __name__ == "__main__":
    _run(sys.argv[1])
