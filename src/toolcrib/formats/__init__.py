"""Model providers' request and answer formats: tools, calls, results and conversations, to them and back.

Floor 2: pure functions over JSON data. No I/O, no provider's package. One module for each provider, with the same names
in each. What is made for a request is a list of Any: the SDKs' own types change with their releases, and accept it.
"""

from typing import TYPE_CHECKING

from ..machinery import lazy_names
from .reading import IncompleteReply
from .turns import (
    Choice,
    Conversation,
    Reply,
    Results,
    Stop,
    TextDelta,
    Turn,
    Usage,
    User,
    turn_from_dict,
    turn_to_dict,
)

if TYPE_CHECKING:
    from . import anthropic as anthropic
    from . import bedrock as bedrock
    from . import gemini as gemini
    from . import mcp as mcp
    from . import openai as openai
    from . import openai_responses as openai_responses
    from .accepts import GEMINI, RESPONSES, Accepts
    from .bedrock import read_block
    from .content import decode_picture, json_value, media_content
    from .format import ReplyStream
    from .offer import Offer, Offered
    from .reading import join_surrogates

__all__ = [
    "Accepts",
    "Choice",
    "Conversation",
    "GEMINI",
    "IncompleteReply",
    "Offer",
    "Offered",
    "RESPONSES",
    "Reply",
    "ReplyStream",
    "Results",
    "Stop",
    "TextDelta",
    "Turn",
    "Usage",
    "User",
    "decode_picture",
    "join_surrogates",
    "json_value",
    "media_content",
    "read_block",
    "turn_from_dict",
    "turn_to_dict",
]

PROVIDERS = ("openai", "openai_responses", "anthropic", "gemini", "bedrock", "mcp")
"""The modules of providers. Most programs use one or two, so each is imported on first use."""

CHARS_PER_TOKEN = 4
"""By how many characters a token is estimated."""
__getattr__ = lazy_names(
    __name__,
    {
        **{name: f".{name}" for name in PROVIDERS},
        **dict.fromkeys(("Accepts", "GEMINI", "RESPONSES"), ".accepts"),
        **dict.fromkeys(("Offer", "Offered"), ".offer"),
        **dict.fromkeys(("decode_picture", "json_value", "media_content"), ".content"),
        "ReplyStream": ".format",
        "join_surrogates": ".reading",
        "read_block": ".bedrock",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *PROVIDERS})
