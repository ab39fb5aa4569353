"""MCP servers as sources: the official SDK's client, with our bounds, address guard, sessions by caller and logins."""
