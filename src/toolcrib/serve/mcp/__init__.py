"""MCP, without its messages: what a server offers, and what is asked of its clients."""
