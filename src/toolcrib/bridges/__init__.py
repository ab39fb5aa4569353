"""Other frameworks' agents with our tools, and their tools with us. One module a framework.

Floor 5. No framework is a dependency: each module is imported on first use, and brings its framework. Nothing raises
into a framework's run, except what the framework itself asks for: its signal that a call has to be approved, and the
cancellation of the task.
"""

from ..machinery import lazy_names

FRAMEWORKS = {  # by name, the extra that brings each
    name: name.replace("_", "-")
    for name in ("autogen", "google_adk", "langchain", "llamaindex", "openai_agents", "pydantic_ai", "smolagents")
}

__all__: list[str] = []

__getattr__ = lazy_names(__name__, {name: f".{name}" for name in FRAMEWORKS}, FRAMEWORKS)


def __dir__() -> list[str]:
    return sorted({*globals(), *FRAMEWORKS})
