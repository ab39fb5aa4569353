"""What a model asks for, in AutoGen's words."""

from dataclasses import dataclass


@dataclass
class FunctionCall:
    """One call that a model asks for. *arguments* is JSON text, as the model wrote it."""

    id: str
    arguments: str
    name: str
