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

    __slots__ = ("_forms", "arguments", "call", "tool")

    def __init__(self, tool: Tool, call: Call, arguments: dict[str, Any]) -> None:
        self.update(arguments)
        self.tool = tool
        self.call = call
        self.arguments = arguments  # what the tool gets, whatever a policy does with its own
        self._forms: Document | None = None

    @classmethod
    def read(cls, tool: Tool, call: Call, *, repair: bool) -> "CheckedArguments":
        """Return the arguments of *call*, checked once more. Raises ToolError."""
        arguments, _ = tool.check(call.arguments, repair)
        return cls(tool, call, arguments)

    def settled(self) -> tuple["CheckedArguments | None", str]:
        """Return the arguments that are validated from exactly the bytes of the document, and its identity.

        The arguments are None where these bytes do not give what was judged: a user's validator tells two names of a
        field from one another. Then only the same JSON is the same call.
        """
        forms = self.forms
        again = self.read_bytes(self.tool, self.call, forms.bytes)
        if again is None or (again.forms.bytes, again.forms.text) != (forms.bytes, forms.text):
            return None, forms.identity_of_values
        return again, forms.identity

    @classmethod
    def read_bytes(cls, tool: Tool, call: Call, text: str) -> "CheckedArguments | None":
        """Return the arguments that are validated from exactly *text*, in place of those of *call*.

        None where it is refused.
        """
        try:
            return cls.read(tool, replace(call, arguments=text), repair=False)
        except ToolError:
            return None

    def become(self, other: "CheckedArguments") -> None:
        """Have the arguments of *other*, also for the tool."""
        for values in (self, self.arguments):
            values.clear()
            values.update(other)
        self.call, self._forms = other.call, other.forms

    @property
    def document(self) -> Mapping[str, Any]:
        """The arguments as JSON values. A number with more digits than a float holds is a Decimal."""
        return self.forms.values

    @property
    def forms(self) -> "Document":
        """The document in all its forms. Raises ToolError where Python values were passed that no document has."""
        if self._forms is None:
            from ..schema import document_of

            self._forms = document_of(self.tool.check, self.call.arguments, self.arguments)
        return self._forms
