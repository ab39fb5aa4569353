"""The checked arguments of a call, with the document that they were read from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core import Call, Tool, ToolError

if TYPE_CHECKING:
    from ..schema import Document


class CheckedArguments(dict[str, Any]):
    """The arguments by name, as a policy gets them: the values that the tool gets.

    `document` is the JSON that they were read from, after repair and under the names of the input schema, with the
    defaults that apply: rules, people and digests look at this one. It is read when it is first asked for.
    """  # not at each call: many have no policy, and no record of their content

    tool: Tool
    call: Call
    arguments: dict[str, Any]
    """What the tool gets, whatever a policy does with these."""
    _accepted: "Document | None" = None

    @classmethod
    def read(cls, tool: Tool, call: Call, *, repair: bool) -> "CheckedArguments":
        """Return the arguments of *call*, checked once more. Raises ToolError."""
        arguments, _ = tool.check(call.arguments, repair)
        copy = cls(arguments)
        copy.arguments, copy.tool, copy.call = arguments, tool, call
        return copy

    def settled(self) -> tuple["CheckedArguments | None", str]:
        """Return the arguments that are validated from exactly the bytes of the document, and its identity.

        The arguments are None where these bytes do not give what was judged: a user's validator tells two names of a
        field from one another. Then only the same JSON is the same call.
        """
        accepted = self.accepted
        again = self.read_again(accepted.bytes)
        if again is None or (again.accepted.bytes, again.accepted.text) != (accepted.bytes, accepted.text):
            return None, accepted.identity_of_values
        return again, accepted.identity

    def read_again(self, text: str) -> "CheckedArguments | None":
        """Return the arguments that are validated from *text*; None where it is refused."""
        try:
            return CheckedArguments.read(self.tool, replace(self.call, arguments=text), repair=False)
        except ToolError:
            return None

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
    def accepted(self) -> "Document":
        """The document in all its forms. Raises ToolError where Python values were passed that no document has."""
        if self._accepted is None:
            from ..schema import document_of

            self._accepted = document_of(self.tool.check, self.call.arguments, self.arguments)
        return self._accepted
