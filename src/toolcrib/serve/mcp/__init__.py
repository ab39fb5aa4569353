"""MCP, without its messages: what a server offers, and what is asked of its clients."""

import mcp_types as mcp_types  # first: its own models are built at once, as most of them are used
from pydantic import BaseModel

# Beside them it has 300 of the messages of each revision, of which a client uses a few: each is built when it is first
# used.
BaseModel.model_config["defer_build"] = True
try:
    from mcp_types import methods as methods  # whose models inherit that
finally:
    del BaseModel.model_config["defer_build"]
