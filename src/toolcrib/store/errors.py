"""What is wrong with a database, without what is in it: no statement, value, password or key is quoted."""

from ..core import StoreError

_REASONS = {
    "readonly": "it may not be written to; check the permissions of the file and its folder",
    "is full": "the disk is full",
    "malformed": "the file is damaged; restore it from a copy, or move it away to begin with an empty one",
    "not a database": "the file is not a database; move it away, or name another one",
    "locked": "another process has kept it locked for too long",
    "unable to open": "the file cannot be opened; check its folder and its permissions",
}


def store_error(error: Exception, place: str) -> StoreError:
    """Return what *error*, raised by SQLAlchemy or a driver, says of the database at *place*."""
    original = getattr(error, "orig", None) or error
    text = str(original)
    reason = next((reason for part, reason in _REASONS.items() if part in text), None)
    if reason is None:
        codes = (getattr(original, "sqlite_errorname", None), getattr(original, "sqlstate", None))
        code = next((f" ({code})" for code in codes if code), "")
        unreachable = type(original).__name__ == "OperationalError" and not code
        reason = "it cannot be reached" if unreachable else f"it failed with {type(original).__name__}{code}"
    return StoreError(f"The store {place} cannot be used: {reason}.")
