"""Other frameworks' agents with our tools, and their tools with us. One module a framework.

Floor 5. No framework is a dependency: each module is imported on first use, and brings its framework. Nothing raises
into a framework's run, except what the framework itself asks for: its signal that a call has to be approved, and the
cancellation of the task.
"""

from importlib import import_module
from typing import Any

from ..core import SetupError

FRAMEWORKS = {  # the package that each needs, and the extra that brings it
    "autogen": ("autogen_core", "autogen"),
    "google_adk": ("google", "google-adk"),
    "langchain": ("langchain_core", "langchain"),
    "llamaindex": ("llama_index", "llamaindex"),
    "openai_agents": ("agents", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "smolagents": ("smolagents", "smolagents"),
}

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name not in FRAMEWORKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package, extra = FRAMEWORKS[name]
    try:
        return import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise SetupError(f"The bridge '{name}' needs its framework: pip install 'toolcrib[{extra}]'.") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *FRAMEWORKS})
