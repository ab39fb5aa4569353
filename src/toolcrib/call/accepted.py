"""The checked arguments of a call, with the document that they were read from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import Call, Tool

if TYPE_CHECKING:
    from ..schema import AcceptedDocument


class CheckedArguments(dict[str, Any]):
    """The arguments by name, as a policy gets them: the values that the tool gets.

    `document` is the JSON that they were read from, after repair and under the names of the input schema, with the
    defaults that apply: rules, people and digests look at this one. It is read when it is first asked for.
    """

    tool: Tool
    call: Call
    arguments: dict[str, Any]
    """What the tool gets, whatever a policy does with these."""
    _accepted: "AcceptedDocument | None" = None

    @classmethod
    def read(cls, tool: Tool, call: Call, *, repair: bool) -> "CheckedArguments":
        """Return the arguments of *call*, checked once more. Raises ToolError."""
        arguments, _ = tool.check(call.arguments, repair)
        made = cls(arguments)
        made.tool, made.call, made.arguments = tool, call, arguments
        return made

    def become(self, other: "CheckedArguments") -> None:
        """Have the arguments of *other*, also for the tool."""
        for values in (self, self.arguments):
            values.clear()
            values.update(other)
        self.call, self._accepted = other.call, other.accepted

    @property
    def document(self) -> Mapping[str, Any]:
        """The arguments as JSON values. A number with more digits than a float holds is a Decimal."""
        return self.accepted.values

    @property
    def accepted(self) -> "AcceptedDocument":
        """The document in all its forms. Raises ToolError where Python values were passed that no document has."""
        if self._accepted is None:
            from ..schema import document_of

            self._accepted = document_of(self.tool.check, self.call.arguments, self.arguments)
        return self._accepted
