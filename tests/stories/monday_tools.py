"""The tools of Monday morning: notes in a folder, of which some are to be thrown away."""

from pathlib import Path

from toolcrib import tool

NOTES = Path(__file__).parent / "notes"


@tool(read_only=True)
def count_notes() -> int:
    """Count the notes that there are."""
    return len([*NOTES.glob("*.txt")])


@tool(destructive=True)
def delete_notes(pattern: str, most: int = 100) -> str:
    """Delete the notes whose names match a pattern.

    Args:
        pattern: Such as `2025-*`.
        most: How many at most.
    """
    names = sorted(path.name for path in NOTES.glob(f"{pattern}.txt"))[:most]
    for name in names:
        (NOTES / name).unlink()
    return f"deleted {', '.join(names) or 'nothing'}"
