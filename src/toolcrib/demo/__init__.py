"""Tools to try Toolcrib with, from its wheel: `toolcrib list toolcrib.demo`. They need no network and no credentials.

They are written as a user's own tools would be: against the public names of `toolcrib` and the standard library.
"""

from .dates import add_duration, convert_time, days_between, now

__all__ = ["add_duration", "convert_time", "days_between", "now"]
