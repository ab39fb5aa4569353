"""Model providers' wire shapes: tools, calls and results between Toolcrib's words and theirs.

Floor 2: pure functions over JSON data. No I/O, no provider's package. One module a provider; all have the same names.
What is made for a request is a list of Any: the SDKs' own types change with their releases, and take it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .turns import Choice, Reply, Results, Stop, Turn, Usage, User, Written, from_data, to_data

if TYPE_CHECKING:
    from . import anthropic as anthropic
    from . import bedrock as bedrock
    from . import gemini as gemini
    from . import mcp as mcp
    from . import openai as openai
    from . import openai_responses as openai_responses

__all__ = ["Choice", "Reply", "Results", "Stop", "Turn", "Usage", "User", "Written", "from_data", "to_data"]

# A program speaks to one provider or two, so each module comes when it is first asked for.
_PROVIDERS = ("anthropic", "bedrock", "gemini", "mcp", "openai", "openai_responses")


def __getattr__(name: str) -> Any:
    if name not in _PROVIDERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PROVIDERS})
