"""The server side of MCP as messages (`core`), and a thin transport that carries them (`http`)."""
