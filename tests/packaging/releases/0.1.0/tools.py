"""Tools of a project of 0.1.0."""

from toolcrib import Secret, tool


@tool(destructive=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool(auth=Secret("WEATHER_KEY"), read_only=True)
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"
