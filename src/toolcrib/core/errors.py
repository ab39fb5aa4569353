"""The two families of errors, and the closed list of codes.

    ToolcribError            for the developer, at definition or set-up; each names its remedy
      DefinitionError        a tool that cannot work as it is written
      NameConflictError      two tools that a model could not tell apart
      UnknownToolError       a name that a registry or workbench does not have (also a KeyError)
      LoadError              a source that cannot be read or imported
      SetupError             a workbench, server or option that cannot work as configured
      StoreError             a database that cannot be used; a call that needs it ends as `unavailable`
      AnswerError            an answer that nothing waits for, or that is not for this person to give
      ModelError             a model that gave no reply (in `toolcrib.agent`)
    ToolError                for the model: how one call failed

A ToolError is never a ToolcribError: the first is data in a Result, the second is a bug to fix before any call is made.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Self

RetryAdvice = Literal["changed", "later", "never"]
AnswerProblem = Literal["unknown", "expired", "replayed", "foreign", "invalid"]

CODES: Final[Mapping[str, RetryAdvice]] = {
    "unknown_tool": "changed",
    "invalid_arguments": "changed",
    "unauthorized": "later",
    "denied": "never",
    "timeout": "later",
    "cancelled": "later",
    "unavailable": "later",
    "too_large": "changed",
    "invalid_result": "never",
    "failed": "later",
    "limited": "later",
    "trapped": "never",
    "conflict": "changed",
    "lost": "later",
}
"""The codes that a model can see, and whether calling again makes sense: with other arguments, later, or never."""


class ToolcribError(Exception):
    """An error for the developer. Its text names the thing at fault and the way out."""


class DefinitionError(ToolcribError):
    """A tool that cannot work as it is written."""


class NameConflictError(DefinitionError):
    """Two tools under one name, or under names that differ only in `-` and `_`."""


class UnknownToolError(ToolcribError, KeyError):
    """A name that a registry or workbench does not have."""

    __str__ = Exception.__str__


class LoadError(ToolcribError):
    """A source that cannot be read, imported or understood."""


class SetupError(ToolcribError):
    """A workbench, a server or an option that cannot work as configured."""


class StoreError(ToolcribError):
    """A database, or a row of it, that cannot be used. Its text has no statement, value or key in it.

    *is_away*: the same may succeed later, once the database is reached, or may be written, again.
    """

    is_away = False


class AnswerError(ToolcribError):
    """An answer that was not accepted. *reason* is why, for programs.

    `unknown`: nothing waits under this id; `expired`: it came too late; `replayed`: it was answered before;
    `foreign`: not for this person to give; `invalid`: not what was asked for.
    """

    def __init__(self, message: str, reason: AnswerProblem) -> None:
        super().__init__(message)
        self.reason: AnswerProblem = reason

    def __reduce__(self) -> tuple[object, ...]:
        return AnswerError, (str(self), self.reason)


class ToolError(Exception):
    """How a call failed, with a message for the model. A tool raises it for the model to read.

    *message* is shown to the model as it is. *code* is one of `CODES`; the text of a message may change between
    releases, a code does not. *retry* is whether calling again makes sense: with other arguments (`"changed"`), the
    same call `"later"`, or `"never"`; by default, what `CODES` has for the code. *details* are JSON data for programs.

    Raises ValueError for a code that is not on the list.
    """

    message: str
    code: str = "failed"
    retry: RetryAdvice = "later"
    details: Mapping[str, Any] = MappingProxyType({})

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # A subclass may not call __init__, and is read all the same.
        error = super().__new__(cls, *args)
        error.message = str(args[0]) if args and isinstance(args[0], str) else cls.__name__
        return error

    def __init__(
        self,
        message: str,
        code: str = "failed",
        *,
        retry: RetryAdvice | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        if code not in CODES:
            raise ValueError(f"'{code}' is not an error code. The codes are: {', '.join(CODES)}.")
        self.message = message
        self.code = code
        self.retry = retry or CODES[code]
        self.details = details or {}

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.message, self.code, self.retry, self.details)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON data."""
        data: dict[str, Any] = {"code": self.code, "message": self.message, "retry": self.retry}
        return {**data, "details": dict(self.details)} if self.details else data


def _restore(message: str, code: str, retry: RetryAdvice, details: Mapping[str, Any]) -> ToolError:
    return ToolError(message, code, retry=retry, details=details)
