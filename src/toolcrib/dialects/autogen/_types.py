"""AutoGen's shape of the tool call that a model requests."""

from dataclasses import dataclass


@dataclass
class FunctionCall:
    """One tool call of a model. *arguments* is JSON text, as the model wrote it."""

    id: str
    arguments: str
    name: str
