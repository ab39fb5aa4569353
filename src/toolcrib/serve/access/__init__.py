"""The ways in: by keys, tokens, a browser that the host knows, or this computer."""
