"""What is said of a command line that cannot be understood."""

from ..core import ToolcribError


class UsageError(ToolcribError):
    """A command line that cannot be understood. Exit status 2."""
