"""What is known of one operation once its document is read. This file is data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .styles import Parameter


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: as *media_type*, with how each property of a form is written."""

    media_type: str
    schema: Any
    file: str
    required: bool
    argument: str = "body"
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The encoding objects of a form's properties, by name."""
    bytes_in: frozenset[str] = frozenset()
    """The properties of a form that are bytes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, at *plain_path* of the server *server*, as one tool. *path* is how the document has it."""

    name: str
    method: str
    path: str
    server: str
    plain_path: str
    fixed_query: str = ""
    """What the path has of the query, whatever the arguments."""
    description: str = ""
    tags: frozenset[str] = frozenset()
    parameters: tuple[Parameter, ...] = ()
    schemas: Mapping[str, tuple[Any, str]] = field(default_factory=dict[str, tuple[Any, str]])
    """The schema of each argument, with its file."""
    body: Body | None = None
    responses: tuple[tuple[Any, str], ...] = ()
    """The schemas, with their files, of what success brings; none where the document does not promise JSON for all."""
    security: Sequence[Any] = ()

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"


def is_json(media_type: str) -> bool:
    plain = media_type.partition(";")[0].strip().lower()
    return plain in ("application/json", "text/json") or plain.endswith("+json")


def is_form(media_type: str | None) -> bool:
    return (media_type or "").partition(";")[0].strip().lower() == "application/x-www-form-urlencoded"
