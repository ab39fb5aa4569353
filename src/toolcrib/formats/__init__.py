"""Model providers' wire shapes: tools, calls and results between Toolcrib's words and theirs.

Floor 2: pure functions over JSON data. No I/O, no provider's package. One module a provider; all have the same names.
"""

from .turns import Choice, Reply, Results, Stop, Turn, Usage, User, Written

__all__ = ["Choice", "Reply", "Results", "Stop", "Turn", "Usage", "User", "Written"]
